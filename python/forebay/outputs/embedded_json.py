"""Find the JSON document in a text that has nothing else but a first line, a code fence, or both."""

import re

from forebay import _core
from forebay.errors import ForebayError
from forebay.wire.lazy_json import ChunkSource

__all__ = ["describe_embedded_json"]

_EDGE_BYTES = 4096
"""Bytes at the start of a text in which the document must begin, and at its end in which the code fence must close."""

_MAX_TEXT_BYTES = 40 << 20
"""Maximum bytes of a text to search. The text is read into memory, even if it is in a spool."""

_MAX_OUTLINE_BYTES = 256

# The quantifiers are possessive, so that no text takes quadratic time.
_PREAMBLE = re.compile(rb"\s*+(?:[^\s`][^\n]{0,199}+\n\s*+)?+(?P<fence>```(?:json|JSON)?+[ \t]*+\r?\n\s*+)?+(?=[\[{])")
_CLOSING_FENCE = re.compile(rb"\n[ \t]*+```\s*+\Z")


def describe_embedded_json(data: str | bytes | ChunkSource) -> str | None:
    """Return which bytes of a text are a JSON document, and the shape of the document; `None` if there is none.

    Before the document there may be one line and the start of a code fence. The document ends with the text or with the
    code fence.
    """
    head = data.head() if isinstance(data, ChunkSource) else data
    preamble = _PREAMBLE.match(_encode(head[:_EDGE_BYTES]))
    if preamble is None or (data.max_size if isinstance(data, ChunkSource) else len(data)) > _MAX_TEXT_BYTES:
        return None
    content = data.read_all() if isinstance(data, ChunkSource) else _encode(data)
    start, end = preamble.end(), len(content)
    if preamble["fence"] is not None:
        closing_fence = _CLOSING_FENCE.search(content, max(start, end - _EDGE_BYTES))
        if closing_fence is None:
            return None
        end = closing_fence.start()
    document = memoryview(content)[start:end]
    try:
        index = _core.index_items(document)
        if index.kind == "ndjson":
            return None
        shape = _core.outline(document, _MAX_OUTLINE_BYTES, items=index if index.kind else None)
    except ForebayError:
        return None
    return f"bytes {start} to {end} are JSON: {shape}"


def _encode(text: str | bytes) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
