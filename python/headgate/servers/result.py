"""What counts as the payload of a tool's result: one result, one payload."""

import base64
import binascii
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import orjson

from headgate.payload import encoded

__all__ = ["Found", "Result", "exceeds", "own_meta", "payload_of"]

Result: TypeAlias = dict[str, Any]
"""The `result` of a `tools/call` as it is on the wire."""

_PROTOCOL_S = "io.modelcontextprotocol/"
"""What keys of `_meta` begin with that the protocol itself defines."""


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """The payload of a result, and what it is called where that is known."""

    payload: str | bytes
    mime_type: str | None = None


def exceeds(result: Mapping[str, Any], limit: int) -> bool:
    """Whether a result is larger than `limit` bytes on the wire.

    What is surely larger is not written out to find that out: a character takes a byte at least.
    """
    sure = 0
    for block in _blocks(result):
        sure += sum(len(value) for value in block.values() if isinstance(value, str))
        if sure > limit:
            return True
    return len(encoded(result)) > limit


def own_meta(result: Mapping[str, Any]) -> dict[str, Any]:
    """What the tool itself says of its result, beside it."""
    meta = result.get("_meta")
    return {k: v for k, v in meta.items() if not k.startswith(_PROTOCOL_S)} if isinstance(meta, dict) else {}


def payload_of(result: Mapping[str, Any], *, with_meta: bool = False) -> Found:
    """What is stored of a result.

    A sole block is its content. Blocks that only repeat what is structured are that, once. Anything else is all of it,
    and so is everything `with_meta`.
    """
    blocks, structured = _blocks(result), result.get("structuredContent")
    if with_meta:
        pass
    elif structured is None:
        if len(blocks) == 1 and (content := _content_of(blocks[0])) is not None:
            return content
    elif (repeated := _repeated(blocks, structured)) is not None:
        return repeated
    whole = {key: value for key, value in result.items() if key not in ("_meta", "resultType")}
    if meta := own_meta(result):
        whole["_meta"] = meta
    return Found(encoded(whole), "application/json")


def _blocks(result: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    content = result.get("content")
    return content if isinstance(content, list) else []


def _content_of(block: Mapping[str, Any]) -> Found | None:
    """A block's own content, exactly; `None` for one that has none, or says something beside it."""
    match block:
        case {"type": "text", "text": str(text)}:
            return Found(text)
        case {"type": "image" | "audio", "data": str(data)}:
            return _decoded(data, block.get("mimeType"))
        case {"type": "resource", "resource": {"text": str(text)} as resource}:
            return Found(text, resource.get("mimeType"))
        case {"type": "resource", "resource": {"blob": str(data)} as resource}:
            return _decoded(data, resource.get("mimeType"))
    return None


def _decoded(data: str, mime_type: str | None) -> Found | None:
    try:
        return Found(base64.b64decode(data, validate=True), mime_type)
    except binascii.Error:
        return None


def _repeated(blocks: Sequence[Mapping[str, Any]], structured: Any) -> Found | None:
    """What is structured, if the blocks say the same: as one text, or one text an item, with or without a wrapper.

    Where it is one text that was wrapped to be structured, the text is the payload: inside of JSON it has no lines.
    """
    texts = [block["text"] for block in blocks if block.get("type") == "text" and isinstance(block.get("text"), str)]
    if len(texts) != len(blocks):
        return None
    # The SDKs wrap what is not an object, because once only objects could be structured.
    wrapped = structured["result"] if isinstance(structured, dict) and structured.keys() == {"result"} else structured
    if isinstance(wrapped, str) and texts == [wrapped]:
        return Found(wrapped)
    values = [structured, wrapped] if wrapped is not structured else [structured]
    is_one = len(texts) == 1 and any(_says(texts[0], value) for value in values)
    is_each = (
        isinstance(wrapped, list)
        and len(texts) == len(wrapped)
        and all(_says(text, item) for text, item in zip(texts, wrapped, strict=True))
    )
    if is_one or is_each or not texts:
        return Found(encoded(structured), "application/json")
    return None


def _says(text: str, value: Any) -> bool:
    """Whether a text is a value, or the JSON of it, as the SDKs write it or in any other way."""
    if isinstance(value, str) and text == value:
        return True
    said = text.encode("utf-8", "surrogatepass")
    try:
        if said in (orjson.dumps(value), orjson.dumps(value, option=orjson.OPT_INDENT_2)):
            return True
        return bool(orjson.loads(said) == value)
    except (orjson.JSONEncodeError, orjson.JSONDecodeError):
        return False
