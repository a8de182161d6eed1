"""What counts as the payload of a tool's result: one result, one payload."""

import base64
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from forebay import _core
from forebay.errors import InvalidJSON
from forebay.store.pages import escaped_size
from forebay.store.payload import encode, sanitize_mime_type
from forebay.wire.messages import ChunkSource, LazyJSON, dump_chunks, open_span
from forebay.wire.protocol import SERVER_INFO_KEY

__all__ = [
    "RESOURCE_META_KEY",
    "UNSTRUCTURED",
    "Result",
    "ResultPayload",
    "TextValue",
    "exceeds_limit",
    "extract_block_fields",
    "extract_payload",
    "extract_texts",
    "find_wrapped_text",
    "is_text_value",
    "parse_result",
    "repeats_structured",
    "select_tool_meta",
    "strip_stamp",
]

_MANY_ITEMS = 1000

_RESULT_KEYS = ("content", "structuredContent", "isError", "_meta", "resultType")
"""The members of a result of which each is in the answer, or in the payload."""

_BLOCK_KEYS = frozenset({"type", "annotations", "_meta"})
"""The members of a sole block that are in the answer; its content is the payload."""

Result: TypeAlias = dict[str, Any]
"""The `result` of a `tools/call` as it is on the wire."""

TextValue: TypeAlias = str | LazyJSON
"""A text, or a string that nobody unescaped."""

UNSTRUCTURED = {"unstructured": True}
"""What an operation that has an output schema says beside content that cannot be structured by it."""

RESOURCE_META_KEY = "forebay/resource"
"""The key of `_meta` under which stands what a resource was called that is stored now."""

"""The key of `_meta` that is the server's, not the tool's."""


@dataclasses.dataclass(frozen=True, slots=True)
class ResultPayload:
    """The payload of a result, and what it is called where that is known."""

    data: str | bytes | ChunkSource
    mime_type: str | None = None

    def to_input(self) -> str | bytes | Iterator[bytes | memoryview]:
        """The payload as a store takes it."""
        return iter(self.data) if isinstance(self.data, ChunkSource) else self.data


def exceeds_limit(result: Mapping[str, Any], limit: int, *, is_ascii: bool = False) -> bool:
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
    if structured is not None and _has_many_items(structured) and _must_exceed(structured, limit):
        return True
    return escaped_size(encode(result), 0, is_ascii=is_ascii) > limit


def _has_many_items(structured: Any) -> bool:
    """Whether it is worth a look before it is written out: most lists are the whole of it, or one of its keys."""
    inner = structured.values() if isinstance(structured, dict) else ()
    return any(isinstance(value, dict | list) and len(value) > _MANY_ITEMS for value in (structured, *inner))


def _must_exceed(value: Any, limit: int) -> bool:
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


def parse_result(result: "Result | LazyJSON") -> Result:
    """What can be said of a result: of one that has names that nobody can read, what has other names."""
    if not isinstance(result, LazyJSON):
        return result
    try:
        return {name: member.parse() for name, member in result.members(_RESULT_KEYS).items()}
    except InvalidJSON:
        # Whatever it is, it is kept whole.
        return {"content": [result]}


def select_tool_meta(result: Mapping[str, Any]) -> dict[str, Any]:
    """What the tool itself says of its result, beside it."""
    meta = result.get("_meta")
    return {key: value for key, value in meta.items() if key != SERVER_INFO_KEY} if isinstance(meta, dict) else {}


def strip_stamp(result: Mapping[str, Any]) -> Result:
    """A result without what its own server and version of the protocol put around it: another one passes it on."""
    bare = {key: value for key, value in result.items() if key not in ("_meta", "resultType")}
    meta = select_tool_meta(result)
    return {**bare, "_meta": meta} if meta else bare


def extract_block_fields(result: Mapping[str, Any]) -> dict[str, Any]:
    """What a sole block says beside its content; of a resource that is embedded, also what is beside its text."""
    blocks = _get_blocks(result)
    if blocks is None or len(blocks) != 1 or not _has_valid_meta(blocks[0]):
        return {}
    said = {key: blocks[0][key] for key in ("annotations", "_meta") if key in blocks[0]}
    match blocks[0]:
        case {"type": "resource", "resource": Mapping() as resource}:
            about = {key: value for key, value in resource.items() if key not in ("text", "blob")}
            said["_meta"] = {**(said.get("_meta") or {}), RESOURCE_META_KEY: about}
    return said


def extract_payload(result: Mapping[str, Any] | LazyJSON, *, with_meta: bool = False) -> ResultPayload:
    """What is stored of a result; values of it may be `Raw`, and so may all of it.

    A sole block is its content. Blocks that only repeat what is structured are that, once. Anything else is all of it,
    and so is everything `with_meta`: what the tool says beside its result. What has members that nobody knows is kept
    whole too, since they have no other place.
    """
    found = None
    if isinstance(result, LazyJSON):
        return ResultPayload(dump_chunks(result), "application/json")
    if not with_meta and _has_known_keys(result):
        structured = result.get("structuredContent")
        found = (
            _extract_sole_block(result)
            if structured is None or structured == UNSTRUCTURED
            else _extract_structured(result, structured)
        )
    return found or ResultPayload(dump_chunks(_strip_protocol_fields(result)), "application/json")


def _has_known_keys(result: Mapping[str, Any]) -> bool:
    """Whether a result has nothing but what it should have: of that the answer says what the payload does not."""
    is_usual = isinstance(result.get("isError"), bool | None) and _has_valid_meta(result)
    return is_usual and result.keys() <= set(_RESULT_KEYS)


def _has_valid_meta(said: Mapping[str, Any]) -> bool:
    return isinstance(said.get("_meta"), Mapping | None)


def _extract_sole_block(result: Mapping[str, Any]) -> ResultPayload | None:
    blocks = _get_blocks(result)
    return _extract_block(blocks[0]) if blocks is not None and len(blocks) == 1 else None


def _strip_protocol_fields(result: Mapping[str, Any]) -> dict[str, Any]:
    whole = {key: value for key, value in result.items() if key not in ("_meta", "resultType")}
    meta = result.get("_meta")
    if kept := select_tool_meta(result) if isinstance(meta, Mapping) else meta:
        whole["_meta"] = kept
    return whole


def _get_blocks(result: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
    """All blocks; `None` if one of them is none, or was not parsed: then nothing can be said of the others alone."""
    content = result.get("content") or []
    is_seen = isinstance(content, list) and all(isinstance(block, Mapping) for block in content)
    return content if is_seen else None


def _extract_structured(result: Mapping[str, Any], structured: Any) -> ResultPayload | None:
    """What is structured, if the blocks say the same.

    Where it is one text that was wrapped to be structured, the text is the payload: inside of JSON it has no lines.
    """
    content = result.get("content")
    blocks = _get_blocks(result)
    said = content if isinstance(content, LazyJSON) else None if blocks is None else extract_texts(blocks)
    if said is None or (blocks is not None and not _has_only_texts(blocks)):
        return None
    if not isinstance(said, LazyJSON) and (text := find_wrapped_text(said, structured)) is not None:
        return ResultPayload(_read_text(text))
    return ResultPayload(dump_chunks(structured), "application/json") if repeats_structured(said, structured) else None


def _has_only_texts(texts: Sequence[Mapping[str, Any]]) -> bool:
    """Whether blocks say nothing but their texts, or there is a sole one that says it beside the answer."""
    if len(texts) == 1:
        return _has_only_keys(texts[0], "text")
    return all(block.keys() == {"type", "text"} for block in texts)


def _has_only_keys(block: Mapping[str, Any], *content: str) -> bool:
    """Whether a sole block has only this content, and beside it what the answer says of it."""
    return block.keys() <= _BLOCK_KEYS.union(content) and _has_valid_meta(block)


def _extract_block(block: Mapping[str, Any]) -> ResultPayload | None:
    """A block's own content, exactly; `None` for one that has none, or that says more than the answer has room for."""
    match block:
        case {"type": "text", "text": text} if is_text_value(text) and _has_only_keys(block, "text"):
            return ResultPayload(_read_text(text))
        case {"type": "image" | "audio", "data": data} if is_text_value(data) and _has_only_keys(
            block, "data", "mimeType"
        ):
            # Its type has no place but that of the payload.
            return _decode_base64(data, block) if _has_valid_mime_type(block) else None
        case {"type": "resource", "resource": Mapping() as resource} if _has_only_keys(block, "resource"):
            return None if RESOURCE_META_KEY in (block.get("_meta") or {}) else _extract_resource(resource)
    return None


def _extract_resource(resource: Mapping[str, Any]) -> ResultPayload | None:
    match resource:
        case {"text": _, "blob": _}:
            return None
        case {"text": text} if is_text_value(text):
            return ResultPayload(_read_text(text), _get_mime_type(resource))
        case {"blob": data} if is_text_value(data):
            return _decode_base64(data, resource)
    return None


def _has_valid_mime_type(block: Mapping[str, Any]) -> bool:
    return "mimeType" not in block or sanitize_mime_type(_get_mime_type(block)) is not None


def _get_mime_type(said: Mapping[str, Any]) -> str | None:
    """What is said of the type, if that is one: so long a string as is not parsed is none."""
    mime_type = said.get("mimeType")
    return mime_type if isinstance(mime_type, str) else None


def _read_text(text: TextValue) -> str | bytes | ChunkSource:
    if isinstance(text, str):
        return text
    return ChunkSource(text.text_chunks, len(text)) if text.is_spooled else text.text()


def _decode_base64(data: TextValue, said: Mapping[str, Any]) -> ResultPayload | None:
    encoded = _read_text(data)
    try:
        if not isinstance(encoded, ChunkSource):
            return ResultPayload(base64.b64decode(encoded, validate=True), _get_mime_type(said))
        # Once to see that it can be, before any of it is stored.
        for _ in decode_base64_chunks(encoded):
            pass
        return ResultPayload(ChunkSource(lambda: decode_base64_chunks(encoded), encoded.max_size), _get_mime_type(said))
    except ValueError:
        return None


def decode_base64_chunks(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """What `base64.b64decode(…, validate=True)` makes of it, a piece at a time."""
    waiting = b""
    for piece in pieces:
        waiting += piece
        # Padding stands at the end only, and may be one more than there should be: the last ones wait for it.
        ready = max(0, len(waiting) - 5) // 4 * 4
        if b"=" in waiting[:ready]:
            raise ValueError("there is padding within it")
        yield base64.b64decode(waiting[:ready], validate=True)
        waiting = waiting[ready:]
    yield base64.b64decode(waiting, validate=True)


def is_text_value(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, LazyJSON) and value.is_string)


def extract_texts(blocks: Sequence[Mapping[str, Any]]) -> list[TextValue] | None:
    """The texts of blocks; `None` if one of them is something else."""
    texts = [block["text"] for block in blocks if block.get("type") == "text" and is_text_value(block.get("text"))]
    return texts if len(texts) == len(blocks) else None


def find_wrapped_text(texts: Sequence[TextValue], structured: Any) -> TextValue | None:
    """The text that was wrapped to be structured: it is what it is without the wrapper."""
    # The second is how the protocol's own servers name it.
    wrapped = [_unwrap_member(structured), _unwrap_member(structured, "content")]
    is_wrapped = len(texts) == 1 and any(is_text_value(one) and _is_same_text(texts[0], one) for one in wrapped)
    return texts[0] if is_wrapped else None


def repeats_structured(content: Sequence[TextValue] | LazyJSON, structured: Any) -> bool:
    """Whether texts, or blocks that nobody parsed, say what is structured.

    As one text, or one text an item, with or without a wrapper; or not at all, if there are none.
    """
    wrapped = _unwrap_member(structured)
    if isinstance(content, LazyJSON):
        return _texts_equal_items(content, wrapped)
    values = [structured] if wrapped is structured else [structured, wrapped]
    if len(content) == 1 and any(_text_equals_value(content[0], value) for value in values):
        return True
    if isinstance(wrapped, LazyJSON):
        return not content or _texts_equal_items([{"type": "text", "text": text} for text in content], wrapped)
    is_each = (
        isinstance(wrapped, list)
        and len(content) == len(wrapped)
        and all(_text_equals_value(text, item) for text, item in zip(content, wrapped, strict=True))
    )
    return is_each or not content


def _unwrap_member(structured: Any, name: str = "result") -> Any:
    """The SDKs wrap what is not an object, because once only objects could be structured."""
    if isinstance(structured, LazyJSON):
        return structured.only_member(name) or structured
    return structured[name] if isinstance(structured, dict) and structured.keys() == {name} else structured


def _texts_equal_items(content: Any, items: Any) -> bool:
    if not isinstance(items, list) and not (isinstance(items, LazyJSON) and items.is_array):
        return False
    with open_span(content) as said, open_span(items) as meant:
        return _core.each_says(said, meant)


def _is_same_text(one: TextValue, other: TextValue) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    with open_span(one) as said, open_span(other) as meant:
        return _core.same_text(said, meant)


def _text_equals_value(text: TextValue, value: Any) -> bool:
    """Whether a text is a value, or the JSON of it to the letter, in one of the ways that servers write it.

    Nothing is parsed: what is only equal to it may say more, as numbers do that Python has no room for.
    """
    if is_text_value(value) and _is_same_text(text, value):
        return True
    try:
        with open_span(text) as said, open_span(value) as meant:
            return _core.same_json(said, meant)
    except (TypeError, ValueError):
        # What cannot be written is said by no text.
        return False
