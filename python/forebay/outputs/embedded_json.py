"""Find the JSON in a text that has only a first line or a code fence besides."""

import re

from forebay import _core
from forebay.errors import ForebayError
from forebay.wire.lazy_json import ChunkSource

__all__ = ["describe_embedded_json"]

_HEAD_BYTES = 4096
_MAX_BYTES = 40 << 20
"""Larger texts are not searched, because they may be in a spool, and are read into memory for it."""

_MAX_OUTLINE_BYTES = 256

# The quantifiers are possessive, so that no text takes quadratic time.
_START = re.compile(rb"\s*+(?:[^\s`][^\n]{0,199}+\n\s*+)?+(?P<fence>```(?:json|JSON)?+[ \t]*+\r?\n\s*+)?+(?=[\[{])")
_END_OF_FENCE = re.compile(rb"\n[ \t]*+```\s*+\Z")


def describe_embedded_json(data: str | bytes | ChunkSource) -> str | None:
    """Return which bytes of a text are JSON, and their shape; `None` if it is anything but JSON after a first line.

    The JSON is one document, and extends to the end of the text or of its code fence.
    """
    head = data.head() if isinstance(data, ChunkSource) else data
    found = _START.match(_encode(head[:_HEAD_BYTES]))
    if found is None or (data.max_size if isinstance(data, ChunkSource) else len(data)) > _MAX_BYTES:
        return None
    content = data.read_all() if isinstance(data, ChunkSource) else _encode(data)
    start, end = found.end(), len(content)
    if found["fence"] is not None:
        closing = _END_OF_FENCE.search(content, max(start, end - _HEAD_BYTES))
        if closing is None:
            return None
        end = closing.start()
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
