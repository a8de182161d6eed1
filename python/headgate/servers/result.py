"""What counts as the payload of a tool's result: one result, one payload."""

import base64
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import orjson

from headgate.fetch import weigh
from headgate.payload import encoded

__all__ = ["RESOURCE", "SERVER_INFO", "UNSTRUCTURED", "Found", "Result", "beside", "exceeds", "own_meta", "payload_of"]

_MANY = 1000

Result: TypeAlias = dict[str, Any]
"""The `result` of a `tools/call` as it is on the wire."""

UNSTRUCTURED = {"unstructured": True}
"""What an operation that has an output schema says beside content that cannot be structured by it."""

RESOURCE = "headgate/resource"
"""The key of `_meta` under which stands what a resource was called that is stored now."""

SERVER_INFO = "io.modelcontextprotocol/serverInfo"
"""The key of `_meta` that is the server's, not the tool's."""


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """The payload of a result, and what it is called where that is known."""

    payload: str | bytes
    mime_type: str | None = None


def exceeds(result: Mapping[str, Any], limit: int, *, is_ascii: bool = False) -> bool:
    """Whether a result is larger than `limit` bytes on the wire.

    What is surely larger is not written out to find that out: a character takes a byte at least.
    """
    texts = 0
    for block in result.get("content") or ():
        for value in block.values() if isinstance(block, dict) else ():
            if isinstance(value, str):
                texts += len(value)
        if texts > limit:
            return True
    structured = result.get("structuredContent")
    if structured is not None and _has_many(structured) and _is_surely_larger(structured, limit):
        return True
    return weigh(encoded(result), 0, is_ascii=is_ascii) > limit


def _has_many(structured: Any) -> bool:
    """Whether it is worth a look before it is written out: most lists are the whole of it, or one of its keys."""
    inner = structured.values() if isinstance(structured, dict) else ()
    return any(isinstance(value, dict | list) and len(value) > _MANY for value in (structured, *inner))


def _is_surely_larger(value: Any, limit: int) -> bool:
    """Whether the least that a value takes is more: a character takes a byte, and all have a comma behind them."""
    least, waiting = 0, [value]
    while waiting and least <= limit:
        inner = waiting.pop()
        if isinstance(inner, str):
            least += len(inner) + 3
        elif isinstance(inner, Mapping):
            least += sum(len(key) for key in inner if isinstance(key, str))
            waiting.extend(inner.values())
        elif isinstance(inner, list):
            waiting.extend(inner)
        else:
            least += 2
    # The last one has none.
    return least - 1 > limit


def own_meta(result: Mapping[str, Any]) -> dict[str, Any]:
    """What the tool itself says of its result, beside it."""
    meta = result.get("_meta")
    return {key: value for key, value in meta.items() if key != SERVER_INFO} if isinstance(meta, dict) else {}


def beside(result: Mapping[str, Any]) -> dict[str, Any]:
    """What a sole block says beside its content; of a resource that is embedded, also what is beside its text."""
    blocks = _blocks(result)
    if len(blocks) != 1:
        return {}
    said = {key: blocks[0][key] for key in ("annotations", "_meta") if key in blocks[0]}
    match blocks[0]:
        case {"type": "resource", "resource": Mapping() as resource}:
            about = {key: value for key, value in resource.items() if key not in ("text", "blob")}
            said["_meta"] = {**(said.get("_meta") or {}), RESOURCE: about}
    return said


def payload_of(result: Mapping[str, Any], *, with_meta: bool = False) -> Found:
    """What is stored of a result.

    A sole block is its content. Blocks that only repeat what is structured are that, once. Anything else is all of it,
    and so is everything `with_meta`: what the tool says beside its result.
    """
    blocks, structured = _blocks(result), result.get("structuredContent")
    if structured == UNSTRUCTURED:
        structured = None
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
    return [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []


def _content_of(block: Mapping[str, Any]) -> Found | None:
    """A block's own content, exactly; `None` for one that has none."""
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
    except ValueError:
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
    """Whether a text is a value, or the JSON of it to the letter, in one of the ways that servers write it.

    Nothing is parsed: what is only equal to it may say more, as numbers do that Python has no room for.
    """
    if isinstance(value, str) and text == value:
        return True
    said = text.encode("utf-8", "surrogatepass")
    is_indented = said[1:2] == b"\n"
    try:
        if said == _as_orjson_has_it(value, is_indented):
            return True
        # As Python's own module has it: with spaces, and mostly in ASCII.
        if b'": ' not in said[:4096] and b", " not in said[:4096]:
            return False
        return text == json.dumps(value, indent=2 if is_indented else None, ensure_ascii=said.isascii())
    except (TypeError, ValueError):
        return False


def _as_orjson_has_it(value: Any, is_indented: bool) -> bytes | None:
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 if is_indented else None)
    except TypeError:
        # It has no room for numbers of more than 64 bits.
        return None
