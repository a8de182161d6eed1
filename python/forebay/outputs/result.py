"""Tool results: extract the payload, measure the size, and build results of our own."""

import base64
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import orjson

from forebay import _core
from forebay.errors import ForebayError, InvalidJSON
from forebay.outputs.tables import detect_table
from forebay.store.payload import encode, escaped_size, guess_row_mime_type, sanitize_mime_type
from forebay.wire.lazy_json import ChunkSource, LazyJSON, dump_chunks, open_span
from forebay.wire.protocol import SERVER_INFO_KEY

__all__ = [
    "OUTPUT_KEYS",
    "RESOURCE_META_KEY",
    "RESOURCE_URI_PREFIX",
    "TASK_RESULT_METHODS",
    "UNSTRUCTURED",
    "BodyResult",
    "Result",
    "ResultPayload",
    "TextValue",
    "add_media_type",
    "error_result",
    "exceeds_limit",
    "extract_block_fields",
    "extract_payload",
    "extract_texts",
    "find_task_id",
    "find_wrapped_text",
    "get_task_result",
    "is_text_value",
    "parse_result",
    "repeats_structured",
    "select_tool_meta",
    "set_task_result",
    "strip_server_fields",
    "strip_wrap_result",
    "text_result",
]

_LARGE_CONTAINER_ITEMS = 1000
"""Number of members above which a container is measured before it is serialized."""

_RESULT_KEYS = ("content", "structuredContent", "isError", "_meta", "resultType")
"""Keys that the protocol defines for a tool result."""

OUTPUT_KEYS = ("content", "structuredContent")
"""Keys of a result that hold the output of a tool."""

_BLOCK_KEYS = frozenset({"type", "annotations", "_meta"})
"""Keys of a single content block that stay in the response when its content is stored."""

Result: TypeAlias = dict[str, Any]
"""The `result` of a `tools/call` as it is on the wire."""

TextValue: TypeAlias = str | LazyJSON
"""A string: decoded, or still unparsed JSON."""

UNSTRUCTURED = {"unstructured": True}
"""`structuredContent` of an operation whose result does not match its output schema."""

RESOURCE_META_KEY = "forebay/resource"
"""`_meta` key for the URI and type of an embedded resource whose content was stored."""

RESOURCE_URI_PREFIX = "forebay://output/"
"""Prefix of the resource URI of a stored payload; its handle follows."""

_GET_METHOD = "tasks/get"

TASK_RESULT_METHODS = ("tasks/result", _GET_METHOD)
"""Methods that return the tool result of a task.

Up to protocol version 2025-11-25, `tasks/result` returns the tool result itself. In later versions, `tasks/get` returns
the task, and the tool result is its member `result`.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class ResultPayload:
    """The payload of a result, and its MIME type if the result names one."""

    data: str | bytes | ChunkSource
    mime_type: str | None = None

    def to_input(self) -> str | bytes | Iterator[bytes | memoryview]:
        """Return the payload in a form that `Store.put` accepts."""
        return iter(self.data) if isinstance(self.data, ChunkSource) else self.data


@dataclasses.dataclass(frozen=True, slots=True)
class BodyResult:
    """A tool result with one text or resource block, whose content is a large body that was not decoded.

    The pipeline stores the body from where it is. `to_result` is for clients that get the body itself.
    """

    payload: ResultPayload
    """The body, as bytes or chunks. In a text block, it is valid UTF-8."""
    template: Result
    """The result with an empty block."""

    def __len__(self) -> int:
        data = self.payload.data
        return data.max_size if isinstance(data, ChunkSource) else len(data)

    def to_result(self) -> Result:
        """Return the result with the body in its block."""
        data = self.payload.data
        content = data.read_all() if isinstance(data, ChunkSource) else data
        content = content if isinstance(content, bytes) else content.encode()
        (block,) = self.template["content"]
        if block["type"] == "text":
            block = {**block, "text": content.decode()}
        else:
            block = {**block, "resource": {**block["resource"], "blob": base64.b64encode(content).decode()}}
        return {**self.template, "content": [block]}


def text_result(text: str | bytes, *, is_error: bool = False) -> Result:
    """Return a result with one text block."""
    text = text if isinstance(text, str) else text.decode()
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def error_result(error: ForebayError, **details: Any) -> Result:
    """Return an error result that a model can act on: a code and a message that names the next step."""
    return text_result(orjson.dumps({**error.to_dict(), **details}), is_error=True)


def exceeds_limit(result: Mapping[str, Any], limit: int, *, is_ascii: bool = False) -> bool:
    """Return whether a result is larger than `limit` bytes on the wire.

    A lower bound is computed first, so that a large result is not serialized only to be measured.
    """
    text_length = 0
    for block in result.get("content") or ():
        for value in block.values() if isinstance(block, dict) else ():
            if isinstance(value, str):
                text_length += len(value)
        if text_length > limit:
            return True
    structured = result.get("structuredContent")
    if structured is not None and _has_many_items(structured) and _lower_bound_exceeds(structured, limit):
        return True
    return escaped_size(encode(result), 0, is_ascii=is_ascii) > limit


def _has_many_items(structured_content: Any) -> bool:
    """Return whether the value, or a direct member of it, is a large container."""
    members = structured_content.values() if isinstance(structured_content, dict) else ()
    return any(
        isinstance(value, dict | list) and len(value) > _LARGE_CONTAINER_ITEMS
        for value in (structured_content, *members)
    )


def _lower_bound_exceeds(value: Any, limit: int) -> bool:
    """Return whether a lower bound of the value's JSON size is above the limit.

    The bound counts one byte a character, and one byte for the comma after each value.
    """
    lower_bound, remaining = 0, [value]
    while remaining and lower_bound <= limit:
        inner = remaining.pop()
        if isinstance(inner, str):
            lower_bound += len(inner) + 3
        elif isinstance(inner, Mapping):
            lower_bound += sum(len(key) for key in inner if isinstance(key, str))
            remaining.extend(inner.values())
        elif isinstance(inner, list):
            remaining.extend(inner)
        else:
            lower_bound += 2
    # No comma follows the last value.
    return lower_bound - 1 > limit


def parse_result(result: "Result | LazyJSON | BodyResult") -> Result:
    """Return a result as a dictionary, with large values of an unparsed result left as `LazyJSON`.

    The block of a `BodyResult` is empty.
    """
    if isinstance(result, BodyResult):
        return result.template
    if not isinstance(result, LazyJSON):
        return result
    try:
        return {name: member.parse() for name, member in result.members(_RESULT_KEYS).items()}
    except InvalidJSON:
        # A result that cannot be parsed is stored whole.
        return {"content": [result]}


def select_tool_meta(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `_meta` that the tool set, without the `serverInfo` that the server adds."""
    meta = result.get("_meta")
    return {key: value for key, value in meta.items() if key != SERVER_INFO_KEY} if isinstance(meta, dict) else {}


def strip_server_fields(result: Mapping[str, Any]) -> Result:
    """Return a result without the fields that its server added, `serverInfo` and `resultType`."""
    stripped = {key: value for key, value in result.items() if key not in ("_meta", "resultType")}
    meta = select_tool_meta(result)
    return {**stripped, "_meta": meta} if meta else stripped


def extract_block_fields(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a single content block that stay in the response when its content is stored.

    For an embedded resource this includes the resource's own fields, in `_meta`.
    """
    blocks = _get_blocks(result)
    if blocks is None or len(blocks) != 1 or not _has_valid_meta(blocks[0]):
        return {}
    fields = {key: blocks[0][key] for key in ("annotations", "_meta") if key in blocks[0]}
    match blocks[0]:
        case {"type": "resource", "resource": Mapping() as resource}:
            resource_fields = {key: value for key, value in resource.items() if key not in ("text", "blob")}
            fields["_meta"] = {**(fields.get("_meta") or {}), RESOURCE_META_KEY: resource_fields}
    return fields


def add_media_type(block_fields: dict[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `extract_block_fields` with the MIME type of an image or audio block, in `_meta`."""
    match _get_blocks(result):
        case [{"type": "image" | "audio", "mimeType": mime_type} as block] if _has_valid_meta(block):
            meta = {**(block_fields.get("_meta") or {}), RESOURCE_META_KEY: {"mimeType": mime_type}}
            return {**block_fields, "_meta": meta}
    return block_fields


def extract_payload(result: Mapping[str, Any] | LazyJSON | BodyResult, *, include_meta: bool = False) -> ResultPayload:
    """Return the payload to store for a result. The result, or values in it, may be `LazyJSON`.

    - A single block: its content.
    - Blocks that only repeat the structured content: the structured content.
    - Anything else, a result with unknown keys, and any result if `include_meta` is set: the whole result.
    """
    if isinstance(result, LazyJSON):
        return ResultPayload(dump_chunks(result), "application/json")
    if isinstance(result, BodyResult):
        if not include_meta:
            return result.payload
        result = result.to_result()
    payload = None
    if not include_meta and _has_known_keys(result):
        structured = result.get("structuredContent")
        is_structured = structured is not None and structured != UNSTRUCTURED
        payload = _extract_structured(result, structured) if is_structured else _extract_sole_block(result)
    return payload or ResultPayload(dump_chunks(_strip_protocol_fields(result)), "application/json")


def _has_known_keys(result: Mapping[str, Any]) -> bool:
    """Return whether a result has only the protocol's keys. Other keys would be lost if only the payload was stored."""
    is_valid = isinstance(result.get("isError"), bool | None) and _has_valid_meta(result) and _is_complete(result)
    return is_valid and result.keys() <= set(_RESULT_KEYS)


def _is_complete(result: Mapping[str, Any]) -> bool:
    return bool(result.get("resultType", "complete") == "complete")


def _has_valid_meta(result_or_block: Mapping[str, Any]) -> bool:
    return isinstance(result_or_block.get("_meta"), Mapping | None)


def _extract_sole_block(result: Mapping[str, Any]) -> ResultPayload | None:
    blocks = _get_blocks(result)
    return _extract_block(blocks[0]) if blocks is not None and len(blocks) == 1 else None


def _strip_protocol_fields(result: Mapping[str, Any]) -> dict[str, Any]:
    dropped = ("_meta", "resultType") if _is_complete(result) else ("_meta",)
    stripped = {key: value for key, value in result.items() if key not in dropped}
    meta = result.get("_meta")
    if tool_meta := select_tool_meta(result) if isinstance(meta, Mapping) else meta:
        stripped["_meta"] = tool_meta
    return stripped


def _get_blocks(result: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
    """Return the content blocks, or `None` if one of them is not an object or was not parsed."""
    content = result.get("content") or []
    is_parsed = isinstance(content, list) and all(isinstance(block, Mapping) for block in content)
    return content if is_parsed else None


def _extract_structured(result: Mapping[str, Any], structured_content: Any) -> ResultPayload | None:
    """Return the structured content if the blocks only repeat it.

    A single text that an SDK wrapped as `{"result": text}` is stored as text, so that it can be read by lines.
    """
    content = result.get("content")
    blocks = _get_blocks(result)
    texts = content if isinstance(content, LazyJSON) else None if blocks is None else extract_texts(blocks)
    if texts is None or (blocks is not None and not _has_only_texts(blocks)):
        return None
    if not isinstance(texts, LazyJSON) and (text := find_wrapped_text(texts, structured_content)) is not None:
        return _make_text_payload(text)
    return (
        ResultPayload(dump_chunks(structured_content), "application/json")
        if repeats_structured(texts, structured_content)
        else None
    )


def _has_only_texts(blocks: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether blocks can be stored as text alone.

    A single block may also have the fields in `_BLOCK_KEYS`, because they stay in the response.
    """
    if len(blocks) == 1:
        return _has_only_keys(blocks[0], "text")
    return all(block.keys() == {"type", "text"} for block in blocks)


def _has_only_keys(block: Mapping[str, Any], *content_keys: str) -> bool:
    return block.keys() <= _BLOCK_KEYS.union(content_keys) and _has_valid_meta(block)


def _extract_block(block: Mapping[str, Any]) -> ResultPayload | None:
    """Return the content of a block, or `None` if it has none or has fields that would be lost."""
    match block:
        case {"type": "text", "text": text} if is_text_value(text) and _has_only_keys(block, "text"):
            return _make_text_payload(text)
        case {"type": "image" | "audio", "data": data} if is_text_value(data):
            # The MIME type is kept with the payload only, so it must be one that the store accepts.
            is_complete = _has_only_keys(block, "data", "mimeType") and _has_valid_mime_type(block)
            return _decode_base64(data, block) if is_complete else None
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


def _get_mime_type(block: Mapping[str, Any]) -> str | None:
    """Return the block's MIME type, or `None` if it is so long that it was not parsed.

    A resource without a type is CSV or TSV if its URI ends so.
    """
    mime_type, uri = block.get("mimeType"), block.get("uri")
    if mime_type is None and isinstance(uri, str):
        return guess_row_mime_type(re.split("[?#]", uri, maxsplit=1)[0])
    return mime_type if isinstance(mime_type, str) else None


def _make_text_payload(text: TextValue) -> ResultPayload:
    data = _read_text(text)
    return ResultPayload(data, detect_table(data))


def _read_text(text: TextValue) -> str | bytes | ChunkSource:
    if isinstance(text, str):
        return text
    return ChunkSource(text.text_chunks, len(text)) if text.is_spooled else text.text()


def _decode_base64(data: TextValue, block: Mapping[str, Any]) -> ResultPayload | None:
    encoded = _read_text(data)
    try:
        if not isinstance(encoded, ChunkSource):
            return ResultPayload(base64.b64decode(encoded, validate=True), _get_mime_type(block))
        # Validate all chunks before the first one is stored.
        for _ in decode_base64_chunks(encoded):
            pass
        chunks = ChunkSource(lambda: decode_base64_chunks(encoded), encoded.max_size)
        return ResultPayload(chunks, _get_mime_type(block))
    except ValueError:
        return None


def decode_base64_chunks(chunks: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Decode base64 a chunk at a time, with the result of `base64.b64decode(…, validate=True)`."""
    buffer = b""
    for chunk in chunks:
        buffer += chunk
        # Keep the last base64 characters in the buffer: padding may follow them in the next chunk.
        ready = max(0, len(buffer) - 5) // 4 * 4
        if b"=" in buffer[:ready]:
            raise ValueError("there is padding within it")
        yield base64.b64decode(buffer[:ready], validate=True)
        buffer = buffer[ready:]
    yield base64.b64decode(buffer, validate=True)


def is_text_value(value: object) -> bool:
    """Return whether a value is a `TextValue`."""
    return isinstance(value, str) or (isinstance(value, LazyJSON) and value.is_string)


def extract_texts(blocks: Sequence[Mapping[str, Any]]) -> list[TextValue] | None:
    """Return the texts of blocks, or `None` if one of them is not a text block."""
    texts = [block["text"] for block in blocks if block.get("type") == "text" and is_text_value(block.get("text"))]
    return texts if len(texts) == len(blocks) else None


def find_wrapped_text(texts: Sequence[TextValue], structured_content: Any) -> TextValue | None:
    """Return the only text if the structured content is an object with that text as its only member, else `None`.

    SDKs name that member `result`, the protocol's reference servers `content`.
    """
    if len(texts) != 1:
        return None
    members = (_unwrap_member(structured_content), _unwrap_member(structured_content, "content"))
    is_wrapped = any(is_text_value(member) and _is_same_text(texts[0], member) for member in members)
    return texts[0] if is_wrapped else None


def repeats_structured(content: Sequence[TextValue] | LazyJSON, structured_content: Any) -> bool:
    """Return whether the texts, or unparsed blocks, contain nothing but the structured content.

    True if there are no texts, if one text is the whole value, and if each text is one item. The texts may leave out
    the `result` wrapper.
    """
    value = _unwrap_member(structured_content)
    if isinstance(content, LazyJSON):
        return _texts_equal_items(content, value)
    candidates = [structured_content] if value is structured_content else [structured_content, value]
    if len(content) == 1 and any(_text_equals_value(content[0], candidate) for candidate in candidates):
        return True
    if isinstance(value, LazyJSON):
        return not content or _texts_equal_items([{"type": "text", "text": text} for text in content], value)
    has_text_for_each = (
        isinstance(value, list)
        and len(content) == len(value)
        and all(_text_equals_value(text, item) for text, item in zip(content, value, strict=True))
    )
    return has_text_for_each or not content


def _unwrap_member(structured_content: Any, name: str = "result") -> Any:
    """Return the only member of an object if it has that name, else the value itself.

    SDKs wrap values that are not objects, because older protocol versions only allowed objects.
    """
    if isinstance(structured_content, LazyJSON):
        return structured_content.only_member(name) or structured_content
    return (
        structured_content[name]
        if isinstance(structured_content, dict) and structured_content.keys() == {name}
        else structured_content
    )


def _texts_equal_items(content: Any, items: Any) -> bool:
    if not isinstance(items, list) and not (isinstance(items, LazyJSON) and items.is_array):
        return False
    with open_span(content) as blocks_span, open_span(items) as items_span:
        return _core.texts_match_items(blocks_span, items_span)


def _is_same_text(text: TextValue, other_text: TextValue) -> bool:
    if isinstance(text, str) and isinstance(other_text, str):
        return text == other_text
    with open_span(text) as text_span, open_span(other_text) as other_span:
        return _core.same_text(text_span, other_span)


def _text_equals_value(text: TextValue, value: Any) -> bool:
    """Return whether a text is the value itself, or its JSON in one of the layouts that servers use.

    The JSON texts are compared, because numbers with different digits may be equal once Python has parsed them.
    """
    if is_text_value(value) and _is_same_text(text, value):
        return True
    try:
        with open_span(text) as text_span, open_span(value) as value_span:
            return _core.same_json(text_span, value_span)
    except (TypeError, ValueError):
        # The value cannot be serialized.
        return False


def strip_wrap_result(result: Result) -> Result:
    """Return a result without fastmcp's `wrap_result` marker, which would be wrong for a handle."""
    meta = result.get("_meta")
    marker = meta.get("fastmcp") if isinstance(meta, dict) else None
    if not isinstance(meta, dict) or not isinstance(marker, dict) or "wrap_result" not in marker:
        return result
    other_meta = {key: value for key, value in meta.items() if key != "fastmcp"}
    other_marks = {key: value for key, value in marker.items() if key != "wrap_result"}
    return {**result, "_meta": {**other_meta, **({"fastmcp": other_marks} if other_marks else {})}}


def find_task_id(result: object) -> str | None:
    """Return the task id in the result of a call, or `None` if the result is not a task.

    Up to protocol version 2025-11-25 the task is the member `task` of the result; later it is the result itself.
    """
    if not isinstance(result, dict):
        return None
    task = result.get("task") if "task" in result else result if result.get("resultType") == "task" else None
    task_id = task.get("taskId") if isinstance(task, dict) else None
    return task_id if isinstance(task_id, str) else None


def get_task_result(method: str, response: Any) -> Any:
    """Return the tool result in a response to one of `TASK_RESULT_METHODS`, or `None` if there is none."""
    return response.get("result") if method == _GET_METHOD and _is_task(response) else response


def set_task_result(method: str, response: Any, result: Any) -> Any:
    """Return a response to one of `TASK_RESULT_METHODS` with its tool result replaced."""
    return {**response, "result": result} if method == _GET_METHOD and _is_task(response) else result


def _is_task(response: Any) -> bool:
    """Return whether a response is a task. Servers may also send a tool result in its place."""
    return isinstance(response, dict) and not any(response.get(key) for key in OUTPUT_KEYS)
