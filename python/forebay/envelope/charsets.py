"""Bytes that are said to be text, in whatever charset."""

import codecs
import re

from forebay.payload import is_text

__all__ = ["decoded_text"]

_CHARSET = re.compile(r';\s*charset\s*=\s*"?([\w.:+-]+)', re.IGNORECASE)

_NO_CHARSETS = frozenset(("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"))
"""Encodings of text that are Python's own, or of names; some take forever."""


def decoded_text(content: bytes, content_type: str) -> str | None:
    """Bytes as the text that they are said to be, if they are."""
    found = _CHARSET.search(content_type)
    try:
        codec = codecs.lookup(found[1] if found else "utf-8")
        if not codec._is_text_encoding or codec.name in _NO_CHARSETS:
            return None
        text = codec.decode(content)[0]
    except (LookupError, UnicodeError):
        return None
    return text if is_text(text) else None
