"""Decide whether a tool result goes inline or is stored, and build the response that replaces a stored one."""

import contextlib
import contextvars
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, overload

import orjson

from forebay import _core
from forebay.errors import ForebayError, InvalidJSON, RedactionFailed, StoreUnavailable
from forebay.outputs.contract.artifacts import sanitize_domain
from forebay.outputs.contract.context import ResponseContext
from forebay.outputs.contract.limits import ResponseLimits
from forebay.outputs.contract.response import PayloadView, Response, build_response, make_default_summary
from forebay.outputs.media import MAX_MEDIA_BYTES, find_media, measure_media, select_media
from forebay.outputs.modes import Mode
from forebay.outputs.next_calls import suggest_calls
from forebay.outputs.result import (
    OUTPUT_KEYS,
    RESOURCE_URI_PREFIX,
    BodyResult,
    Result,
    ResultPayload,
    add_media_type,
    error_result,
    exceeds_limit,
    extract_block_fields,
    extract_payload,
    parse_result,
    select_tool_meta,
    text_result,
)
from forebay.query.duckdb_module import is_installed
from forebay.store import Store
from forebay.store.handles import Descriptor
from forebay.store.payload import encode, escaped_size
from forebay.store.redaction import apply_redactions
from forebay.wire.messages import INTERNAL_ERROR, ChunkSource, LazyJSON, dump_chunks, parse_lazy
from forebay.wire.protocol import RESOURCE_LINK_VERSION, SERVER_INFO_KEY

__all__ = [
    "HAS_RUN_NOTE",
    "MAX_MESSAGE_BYTES",
    "PLACEHOLDER_RESULT",
    "Pipeline",
    "ResultSink",
    "ToolCall",
    "current_sink",
    "get_response_budget",
]

_log = logging.getLogger("forebay")

MAX_MESSAGE_BYTES = 4096
"""Maximum bytes of a whole JSON-RPC message that carries a descriptor."""

HAS_RUN_NOTE = "the tool has run, and what it answered is not kept; call it again only if that may be done twice"
"""Added to storage errors: a model that only reads "make room and retry" would assume that the tool did not run."""

_OUTLINED_ITEMS = 100
"""Number of items that `outline` reads."""

_ERROR_ENVELOPE_BYTES = 128
"""Bytes of a JSON-RPC error around its message and data."""

_FAILURE_PREVIEW_BYTES = 2048
"""Maximum bytes, after escaping, of the preview in an error about a result that could not be stored."""

_MAX_META_BYTES = 512
"""Maximum bytes of the tool's own `_meta` and block fields in the response. Larger ones are stored with the payload."""

_MAX_SERVER_INFO_BYTES = 128
"""A server's `serverInfo` up to this size is never shortened."""

_MAX_IN_MEMORY_BYTES = 40 << 20
"""Spooled payloads above this size are not read into memory for the response contract."""

_RELATED_TASK_KEY = "io.modelcontextprotocol/related-task"
"""Key of `_meta` for the task that a result belongs to."""

_MAX_TASK_ID_LENGTH = 256


@dataclasses.dataclass(frozen=True, slots=True)
class ToolCall:
    """The properties of a `tools/call` request that its response depends on."""

    tool: str
    principal: str | None = None
    protocol_version: str = "2025-11-25"
    request_id: str | int | None = None
    handle_length: int | None = None
    is_ascii: bool = False
    """Whether the transport escapes non-ASCII characters; one character may then take twelve bytes."""
    contract: ResponseLimits | None = None
    """The limits of the response contract, if the tool is under contract."""
    contract_responses: Sequence[str] = ()
    """Contract responses that the tool built itself; they are not wrapped again."""
    envelope_bytes: int = 0
    """The size of message fields around the result, beyond those of every JSON-RPC response."""
    fetch_with: str | None = None
    """The client's name for `output_fetch`, if it differs from the server's."""
    inline_kinds: frozenset[str] = frozenset()
    """Types of blocks, such as `image`, that go inline beside the descriptor."""
    is_mounted: bool = False
    """Whether this server is mounted in another one, which does not serve our resource URIs."""

    def with_mode(self, mode: Mode) -> "ToolCall":
        """Return the call with what its mode says of the response."""
        return dataclasses.replace(self, contract=mode.contract, inline_kinds=mode.list_kinds("inline"))


class Pipeline:
    """Storage of large results, and construction of the responses that replace them."""

    def __init__(
        self, store: Store, fetch_with: str, *, resource_links: bool = False, has_export: bool = False
    ) -> None:
        self._store = store
        self._redactions = store.options.redactions
        self._fetch_with = fetch_with
        self._has_links = resource_links
        self._has_export = has_export

    def is_inline(
        self,
        result: Result | LazyJSON | BodyResult,
        mode: Mode,
        call: ToolCall = ToolCall(""),
        *,
        size: int | None = None,
    ) -> bool:
        """Return whether a result goes to the client unchanged. `size` is its size on the wire, if known.

        In mode `auto` that is true of a result within the inline limit, and of a result above it for which the client
        would get a handle response that is no smaller.
        """
        limit = mode.output_inline_limit_bytes
        if isinstance(result, BodyResult):
            # A block with the body is larger than the body, so that a large one need not be read to be measured.
            may_fit = len(result) <= max(limit, MAX_MESSAGE_BYTES)
            if mode.contract is None and mode.output_mode == "auto" and may_fit:
                result = result.to_result()
            else:
                result, size = result.template, len(result)
        if _is_protocol_result(result):
            return True
        if mode.contract is not None:
            return False
        if mode.output_mode != "auto":
            return mode.output_mode == "inline"
        if find_media(result, mode.list_kinds("handle")):
            return False
        if self._fits(result, limit, is_ascii=call.is_ascii, size=size):
            return True
        media_bytes = measure_media(find_media(result, mode.list_kinds("inline")))
        if media_bytes > MAX_MEDIA_BYTES:
            return False
        if media_bytes > 0 and self._fits(result, limit + media_bytes, is_ascii=call.is_ascii, size=size):
            return True
        # With redactions, a stored result is one that the client gets without its secrets.
        largest = MAX_MESSAGE_BYTES + media_bytes
        if self._redactions or not self._fits(result, largest, is_ascii=call.is_ascii, size=size):
            return False
        # `store_result` reports what is wrong with a result.
        with contextlib.suppress(Exception):
            return not self._saves_bytes(result, call.with_mode(mode), size)
        return False

    def _saves_bytes(self, result: Result | LazyJSON, call: ToolCall, size: int | None) -> bool:
        """Return whether the response with a handle is smaller than the result."""
        prepared = self._prepare(result, call)
        descriptor = self._store.describe(
            prepared.payload.to_input(),
            mime_type=prepared.payload.mime_type,
            principal=call.principal,
            handle_length=call.handle_length,
        )
        if size is None:
            size = len(result) if isinstance(result, LazyJSON) else _measure(result, is_ascii=call.is_ascii)
        response = self._build_response(descriptor, prepared, call)
        response["content"] += self._select_media(prepared, call)
        return _measure(response, is_ascii=call.is_ascii) < size

    @staticmethod
    def _fits(result: Result | LazyJSON, limit: int, *, is_ascii: bool, size: int | None) -> bool:
        if isinstance(result, LazyJSON) or size is not None:
            return (len(result) if size is None else size) <= limit
        try:
            return not exceeds_limit(result, limit, is_ascii=is_ascii)
        except (TypeError, ValueError):
            # The result cannot be serialized; the server itself must report that.
            return True

    @overload
    def store_result(self, result: Result | BodyResult, call: ToolCall) -> Result: ...
    @overload
    def store_result(self, result: Result | LazyJSON | BodyResult, call: ToolCall) -> Result | LazyJSON: ...

    def store_result(self, result: Result | LazyJSON | BodyResult, call: ToolCall) -> Result | LazyJSON:
        """Store a result and return the result that the client gets instead."""
        try:
            return self._replace_result(result, call)
        except StoreUnavailable as error:
            # The spool with the result is lost, so there is nothing else to send.
            _log.warning("forebay: the result of %.64s was lost: %s", call.tool, error)
            return {**error_result(error), **_keep_protocol_fields(result, {})}
        except Exception:
            _log.exception("forebay: the result of %.64s could not be taken apart", call.tool)
            if self._redactions:
                failure = RedactionFailed("the result could not be redacted")
                return {**error_result(failure), **_keep_protocol_fields(result, {})}
            # The tool has already run, so a bug here must not lose its result.
            return result.to_result() if isinstance(result, BodyResult) else result

    def _prepare(self, original_result: Result | LazyJSON | BodyResult, call: ToolCall) -> "_PreparedResult":
        result = parse_result(original_result)
        tool_meta, block_fields = select_tool_meta(result), extract_block_fields(result)
        if call.contract is not None:
            # A descriptor has the MIME type, but a contract response that shows all of the payload has not.
            block_fields = add_media_type(block_fields, result)
        if self._redactions:
            # Before they are measured: a replacement may be longer than the secret.
            tool_meta = self._redact(tool_meta)
            block_fields = {key: self._redact(value) for key, value in block_fields.items()}
        if escaped_size(encode([tool_meta, block_fields]), 0, is_ascii=call.is_ascii) <= _MAX_META_BYTES:
            payload = extract_payload(original_result)
        else:
            payload = extract_payload(original_result, include_meta=True)
            tool_meta, block_fields = {}, {}
        mime_type = payload.mime_type
        if self._redactions and mime_type is not None and self._redact(mime_type) != mime_type:
            payload = dataclasses.replace(payload, mime_type=None)
        return _PreparedResult(result, payload, _keep_protocol_fields(result, tool_meta), block_fields)

    def _replace_result(self, original_result: Result | LazyJSON | BodyResult, call: ToolCall) -> Result:
        try:
            prepared = self._prepare(original_result, call)
        except RedactionFailed as error:
            return {**error_result(error, note=HAS_RUN_NOTE), **_keep_protocol_fields(original_result, {})}
        result, payload, protocol_fields = prepared.result, prepared.payload, prepared.protocol_fields
        if call.contract is not None and not _is_too_large_for_memory(payload):
            fetch_with = call.fetch_with or self._fetch_with
            context = ResponseContext(self._store, call.principal, call.handle_length, fetch_with, call.is_ascii)
            protocol_fields |= _shorten_server_info(protocol_fields)
            response = _apply_contract(
                payload, result, protocol_fields, prepared.block_fields, call, call.contract, context
            )
            data = payload.data.encode() if isinstance(payload.data, str) else payload.data
            self._count_saved(call, data.max_size if isinstance(data, ChunkSource) else len(data), response)
            return response
        try:
            descriptor = self._store.put(
                payload.to_input(),
                mime_type=payload.mime_type,
                source_tool=call.tool[:1024],
                principal=call.principal,
                handle_length=call.handle_length,
            )
        except ForebayError as error:
            _log.warning("forebay: the result of %.64s was not stored: %s", call.tool, error)
            return {**self._report_failure(error, payload), **protocol_fields}
        if descriptor.item_count:
            # Imported here, because a gateway starts without it.
            from forebay.query.process import prestart

            prestart()
        response = self._build_response(descriptor, prepared, call)
        self._count_saved(call, descriptor.size_bytes, response)
        response["content"] += self._select_media(prepared, call)
        return response

    def _build_response(self, descriptor: Descriptor, prepared: "_PreparedResult", call: ToolCall) -> Result:
        descriptor = self._complete_descriptor(descriptor, call.fetch_with or self._fetch_with)
        has_link = self._has_links and not call.is_mounted and call.protocol_version >= RESOURCE_LINK_VERSION
        return _HandleResponse(
            descriptor, prepared.result, prepared.protocol_fields, prepared.block_fields, call, has_link
        ).fit()

    def _select_media(self, prepared: "_PreparedResult", call: ToolCall) -> list[Any]:
        return select_media(find_media(prepared.result, call.inline_kinds), must_reencode=bool(self._redactions))

    def store_error(self, error: Any, call: ToolCall) -> dict[str, Any] | None:
        """Store a JSON-RPC error, and return one with the same code that names the handle.

        Return `None` if the error is forwarded: if nothing must be redacted, and the error cannot be stored or is no
        larger than what would replace it.
        """
        try:
            return self._replace_error(error, call)
        except ForebayError as failure:
            _log.warning("forebay: the error of %.64s was not stored: %s", call.tool, failure)
            reason = str(failure)
        except Exception:
            _log.exception("forebay: the error of %.64s could not be taken apart", call.tool)
            reason = "the error could not be redacted"
        return {"code": _get_error_code(error), "message": reason} if self._redactions else None

    def _replace_error(self, error: Any, call: ToolCall) -> dict[str, Any] | None:
        data = dump_chunks(error)
        size = data.max_size if isinstance(data, ChunkSource) else len(data)
        payload = ResultPayload(data, "application/json")
        if not self._redactions and size <= MAX_MESSAGE_BYTES:
            descriptor = self._store.describe(
                payload.to_input(), mime_type=payload.mime_type, handle_length=call.handle_length
            )
            if len(encode(self._build_error(descriptor, error, call))) >= size:
                return None
        descriptor = self._store.put(
            payload.to_input(),
            mime_type=payload.mime_type,
            source_tool=call.tool[:1024],
            principal=call.principal,
            handle_length=call.handle_length,
        )
        response = self._build_error(descriptor, error, call)
        self._count_saved(call, descriptor.size_bytes, response)
        return response

    def _build_error(self, descriptor: Descriptor, error: Any, call: ToolCall) -> dict[str, Any]:
        descriptor = self._complete_descriptor(descriptor, call.fetch_with or self._fetch_with)
        message = f"the server answered with an error of {descriptor.size_bytes:,} bytes; data says how to read it"
        budget = MAX_MESSAGE_BYTES - len(encode([call.request_id, message])) - _ERROR_ENVELOPE_BYTES
        fitted = descriptor.fit(budget, is_ascii=call.is_ascii)
        return {"code": _get_error_code(error), "message": message, "data": orjson.loads(fitted.to_json())}

    def _complete_descriptor(self, descriptor: Descriptor, fetch_with: str) -> Descriptor:
        """Return a descriptor with what a model needs: our tools as the client names them, and what was not read."""
        outline = descriptor.outline
        if outline is not None and (descriptor.item_count or 0) > _OUTLINED_ITEMS:
            # A model takes a field that is not in the outline for one that no item has.
            outline = f"{outline} (fields of the first {_OUTLINED_ITEMS} items; others may have more)"
        descriptor = dataclasses.replace(descriptor, fetch_with=fetch_with, outline=outline)
        calls = suggest_calls(descriptor, has_query=is_installed(), has_export=self._has_export)
        return dataclasses.replace(descriptor, next_calls=calls)

    def _count_saved(self, call: ToolCall, size: int, response: Result) -> None:
        """Count a response that is smaller than the payload that it stands for, for `forebay stats`."""
        shown_bytes = len(encode(response))
        if shown_bytes < size:
            self._store.call_counts.add(
                call.tool, call.principal, handles=1, stored_bytes=size, shown_bytes=shown_bytes
            )

    def _redact(self, value: Any) -> Any:
        """Return a value that is shown beside the descriptor without its secrets."""
        return parse_lazy(apply_redactions(encode(value), self._redactions))

    def _report_failure(self, error: ForebayError, payload: ResultPayload) -> Result:
        """Return an error result for a payload that could not be stored, with a preview unless there are redactions."""
        if self._redactions:
            return error_result(error, note=HAS_RUN_NOTE)
        start = payload.data.head() if isinstance(payload.data, ChunkSource) else payload.data
        limit = _FAILURE_PREVIEW_BYTES
        preview = _core.preview(start, limit, max_escaped_bytes=limit, escape_levels=2)
        return error_result(error, note=HAS_RUN_NOTE, preview=preview)


def _measure(value: Any, *, is_ascii: bool) -> int:
    return escaped_size(encode(value), 0, is_ascii=is_ascii)


def _get_error_code(error: Any) -> int:
    members: Any = error
    if isinstance(error, LazyJSON):
        try:
            members = {name: value.parse() for name, value in error.members(("code",)).items()}
        except InvalidJSON:
            return INTERNAL_ERROR
    code = members.get("code") if isinstance(members, dict) else None
    return code if isinstance(code, int) else INTERNAL_ERROR


def _is_too_large_for_memory(payload: ResultPayload) -> bool:
    return isinstance(payload.data, ChunkSource) and payload.data.max_size > _MAX_IN_MEMORY_BYTES


def _is_protocol_result(result: Result | LazyJSON) -> bool:
    """Return whether a result is a task, a request for input or an extension's result, without tool output."""
    if isinstance(result, LazyJSON):
        names = ("resultType", "task", *OUTPUT_KEYS)
        try:
            result = {name: member.parse() for name, member in result.members(names).items()}
        except InvalidJSON:
            return False
    if any(result.get(key) for key in OUTPUT_KEYS):
        return False
    return result.get("resultType", "complete") != "complete" or isinstance(result.get("task"), Mapping)


def _keep_protocol_fields(result: Result | LazyJSON | BodyResult, tool_meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields to keep in a replaced result: `resultType`, the protocol's keys of `_meta`, and `tool_meta`."""
    result = parse_result(result)
    fields: dict[str, Any] = {"resultType": "complete"} if "resultType" in result else {}
    meta = result.get("_meta")
    if isinstance(meta, dict):
        kept = {SERVER_INFO_KEY: meta[SERVER_INFO_KEY]} if SERVER_INFO_KEY in meta else {}
        match meta.get(_RELATED_TASK_KEY):
            case {"taskId": str(task_id)} if len(task_id) <= _MAX_TASK_ID_LENGTH:
                # Other members only from `tool_meta`: there they are short and redacted.
                members = tool_meta.get(_RELATED_TASK_KEY)
                kept[_RELATED_TASK_KEY] = {**(members if isinstance(members, dict) else {}), "taskId": task_id}
        fields["_meta"] = {**tool_meta, **kept}
    return fields


def _apply_contract(
    result_payload: ResultPayload,
    result: Result,
    protocol_fields: dict[str, Any],
    block_fields: Mapping[str, Any],
    call: ToolCall,
    limits: ResponseLimits,
    context: ResponseContext,
) -> Result:
    """Return the result as a contract response, with as much of the payload under `data` as fits."""
    is_error, is_structured = bool(result.get("isError", False)), "structuredContent" in result

    def make_result(fields: Mapping[str, Any], text: str = "") -> Result:
        wrapped = text_result(text, is_error=is_error)
        wrapped["content"][0] |= block_fields
        if is_structured:
            # Some clients show nothing but the structured content.
            wrapped["structuredContent"] = fields
        return {**wrapped, **protocol_fields}

    def summarize(view: PayloadView) -> str:
        if not is_error:
            return make_default_summary(call.tool, view)
        start = view.read_start()
        return f"{call.tool} failed: {start}" if start else f"{call.tool} failed"

    def measure_envelope(head: Mapping[str, Any]) -> int:
        message = encode({"jsonrpc": "2.0", "id": call.request_id, "result": make_result(head)})
        return escaped_size(message, 0, is_ascii=call.is_ascii) + call.envelope_bytes

    def is_sendable(response: Response) -> bool:
        """Return whether a response that the tool built can be sent as it is."""
        fields = response.to_dict()
        if is_error and fields["success"]:
            return False
        # The tool did not know that its response is sent a second time, as structured content.
        text_size = escaped_size(response.encode(), 1, is_ascii=call.is_ascii)
        return not is_structured or measure_envelope(fields) + text_size <= limits.max_bytes

    payload = result_payload.data.read_all() if isinstance(result_payload.data, ChunkSource) else result_payload.data
    response = Response(payload) if isinstance(payload, str) and payload in call.contract_responses else None
    if response is None or not is_sendable(response):
        response = build_response(
            payload,
            summarize,
            not is_error,
            limits,
            context,
            sanitize_domain(call.tool),
            artifact_id=sanitize_domain(str(call.request_id))[:32],
            mime_type=result_payload.mime_type,
            measure_envelope=measure_envelope,
            is_repeated=is_structured,
        )
    return make_result(response.to_dict(), str(response))


class _PreparedResult(NamedTuple):
    """A result taken apart: what is stored of it, and what stays in the response."""

    result: Result
    payload: ResultPayload
    protocol_fields: dict[str, Any]
    block_fields: dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class _HandleResponse:
    """A result that carries a descriptor, before it is shortened to its limit."""

    descriptor: Descriptor
    result: Result
    protocol_fields: dict[str, Any]
    """Fields to keep from the original result."""
    block_fields: dict[str, Any]
    """Fields to keep from the single content block of the original result."""
    call: ToolCall
    has_link: bool
    """Whether to add a `resource_link` block."""

    def fit(self) -> Result:
        """Return the result, shortened so that its message is at most `MAX_MESSAGE_BYTES`."""
        response, is_ascii, is_repeated = self, self.call.is_ascii, self.is_structured
        smallest_descriptor = dataclasses.replace(self.descriptor, outline=None, items_path=None)
        min_bytes = dataclasses.replace(smallest_descriptor, preview="").sent_size(
            is_ascii=is_ascii, is_repeated=is_repeated
        )
        if response.get_descriptor_budget() < min_bytes:
            response = dataclasses.replace(response, descriptor=smallest_descriptor, has_link=False)
        if response.get_descriptor_budget() < min_bytes:
            fields = {**self.protocol_fields, **_shorten_server_info(self.protocol_fields)}
            response = dataclasses.replace(response, protocol_fields=fields)
        budget = response.get_descriptor_budget()
        return response.build(response.descriptor.fit(budget, is_ascii=is_ascii, is_repeated=is_repeated))

    @property
    def is_structured(self) -> bool:
        """Whether the result must have structured content, as one of a tool with an output schema."""
        return "structuredContent" in self.result

    def get_descriptor_budget(self) -> int:
        """Return how many bytes of the message are left for the escaped descriptor."""
        message = encode({"jsonrpc": "2.0", "id": self.call.request_id, "result": self.build(None)})
        size = escaped_size(message, 0, is_ascii=self.call.is_ascii)
        return MAX_MESSAGE_BYTES - self.call.envelope_bytes - size

    def build(self, descriptor: Descriptor | None) -> Result:
        """Return the result with a descriptor, or with nothing in its places."""
        result = text_result(descriptor.to_json() if descriptor else "", is_error=bool(self.result.get("isError")))
        result["content"][0] |= self.block_fields
        if self.has_link:
            result["content"].append(_make_resource_link(self.descriptor))
        if self.is_structured:
            # Some clients show nothing but the structured content. The schema in `tools/list` allows a descriptor.
            result["structuredContent"] = descriptor.to_dict() if descriptor else {}
        return {**result, **self.protocol_fields}


def _make_resource_link(descriptor: Descriptor) -> dict[str, Any]:
    return {
        "type": "resource_link",
        "uri": RESOURCE_URI_PREFIX + descriptor.output_handle,
        "name": descriptor.output_handle,
        "mimeType": descriptor.mime_type,
        "size": descriptor.size_bytes,
    }


def _shorten_server_info(fields: dict[str, Any]) -> dict[str, Any]:
    """Return `_meta` with `serverInfo` reduced to name and version, or `{}` if it is short already."""
    server_info = (fields.get("_meta") or {}).get(SERVER_INFO_KEY)
    if not isinstance(server_info, dict) or len(encode(server_info)) <= _MAX_SERVER_INFO_BYTES:
        return {}
    shortened = {key: server_info[key] for key in ("name", "version") if key in server_info}
    return {"_meta": {**fields["_meta"], SERVER_INFO_KEY: shortened}}


def get_response_budget(mode: Mode, is_inline: bool) -> tuple[str, int]:
    """Return the mode to record for a response, `contract`, `handle` or `inline`, and its size limit."""
    if mode.contract is not None:
        return "contract", mode.contract.max_bytes
    if not is_inline:
        return "handle", MAX_MESSAGE_BYTES
    # A result above the inline limit goes inline if a handle would be no smaller. In `inline` mode no limit is
    # configured, so the contract's default is used.
    inline_limit = max(mode.output_inline_limit_bytes, MAX_MESSAGE_BYTES)
    return "inline", inline_limit if mode.output_mode == "auto" else ResponseLimits().max_bytes


PLACEHOLDER_RESULT: Result = {"content": [], "isError": False}
"""Passed through the SDK in place of a result that a `ResultSink` has stored; clients never get it."""

_current_sink: contextvars.ContextVar["ResultSink | None"] = contextvars.ContextVar("forebay_sink", default=None)


@dataclasses.dataclass(eq=False, slots=True, weakref_slot=True)
class ResultSink:
    """Storage for the result of the current call, so that a transport can store it before the SDK parses it.

    Use it as a context manager around the call. Only our own code sets `replacement`, never the server.
    """

    pipeline: Pipeline
    call: ToolCall
    mode: Mode
    replacement: Result | None = None
    """The result to send to the client, once the original was stored."""
    _token: "contextvars.Token[ResultSink | None] | None" = None

    def try_store(
        self, result: "Result | LazyJSON | BodyResult", size: int | None = None, envelope_bytes: int = 0
    ) -> bool:
        """Store a result and set `replacement`; return whether that was done. `size` is its size on the wire."""
        call = dataclasses.replace(self.call, envelope_bytes=envelope_bytes)
        if self.pipeline.is_inline(result, self.mode, call, size=size):
            return False
        replacement = self.pipeline.store_result(result, call)
        if replacement is result or isinstance(replacement, LazyJSON):
            return False
        self.replacement = replacement
        return True

    def __enter__(self) -> "ResultSink":
        self._token = _current_sink.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _current_sink.reset(self._token)


def current_sink() -> ResultSink | None:
    """Return the sink of the call in progress, if it has one."""
    return _current_sink.get()
