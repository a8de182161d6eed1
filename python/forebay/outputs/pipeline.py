"""Decide whether a tool result goes inline or is stored, and build the response that replaces a stored one."""

import contextlib
import dataclasses
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple, overload

import orjson

from forebay import _core
from forebay.errors import ForebayError, InvalidJSON, RedactionFailed, StoreUnavailable
from forebay.outputs.contract.context import ResponseContext
from forebay.outputs.contract.limits import ResponseLimits
from forebay.outputs.contract_result import apply_contract
from forebay.outputs.embedded_json import describe_embedded_json
from forebay.outputs.handle_response import MAX_MESSAGE_BYTES, HandleResponse, shorten_server_info
from forebay.outputs.media import MAX_MEDIA_BYTES, find_media, measure_media, select_media
from forebay.outputs.modes import Mode
from forebay.outputs.next_calls import suggest_calls
from forebay.outputs.result import (
    OUTPUT_KEYS,
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
)
from forebay.outputs.tool_call import ToolCall
from forebay.query.duckdb_module import is_installed
from forebay.store import Store
from forebay.store.handles import Descriptor
from forebay.store.payload import encode, escaped_size
from forebay.store.redaction import apply_redactions
from forebay.wire.lazy_json import ChunkSource, LazyJSON, dump_chunks, parse_lazy
from forebay.wire.messages import INTERNAL_ERROR
from forebay.wire.protocol import RESOURCE_LINK_VERSION, SERVER_INFO_KEY

__all__ = ["HAS_RUN_NOTE", "Pipeline", "get_response_budget"]

_log = logging.getLogger("forebay")

HAS_RUN_NOTE = "the tool has run, but its result is lost; call it again only if it may run twice"
"""Added to storage errors: a model that only reads "make room and retry" would assume that the tool did not run."""

_OUTLINED_ITEMS = 100
"""Number of items that `outline` reads."""

_ERROR_ENVELOPE_BYTES = 128
"""Bytes of a JSON-RPC error around its message and data."""

_FAILURE_PREVIEW_BYTES = 2048
"""Maximum bytes, after escaping, of the preview in an error about a result that could not be stored."""

_MAX_META_BYTES = 512
"""Maximum bytes of the tool's `_meta` and block fields in the response. Larger ones are stored with the payload."""

_MAX_IN_MEMORY_BYTES = 40 << 20
"""Spooled payloads above this size are not read into memory for the response contract."""

_RELATED_TASK_KEY = "io.modelcontextprotocol/related-task"
"""Key of `_meta` for the task that a result belongs to."""

_MAX_TASK_ID_LENGTH = 256


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
        call: ToolCall,
        *,
        size: int | None = None,
    ) -> bool:
        """Return whether a result goes to the client unchanged. `size` is its size on the wire, if known.

        In mode `auto` that is true of a result within the inline limit, and of a result above it for which the client
        would get a handle response that is no smaller.
        """
        limit = mode.output_inline_limit_bytes
        if isinstance(result, BodyResult):
            # A result is larger than its body, so a large body need not be read to know that the result does not fit.
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
        media = find_media(result, mode.list_kinds("inline"))
        media_bytes = measure_media(media)
        if media_bytes > MAX_MEDIA_BYTES:
            return False
        if media_bytes > 0 and self._fits(result, limit + media_bytes, is_ascii=call.is_ascii, size=size):
            return True
        # Whole blocks, because the response repeats them with their other fields.
        largest = MAX_MESSAGE_BYTES + (_measure(media, is_ascii=call.is_ascii) if media else 0)
        # Only stored results are redacted, so with redactions this one is stored even if a handle saves no bytes.
        if self._redactions or not self._fits(result, largest, is_ascii=call.is_ascii, size=size):
            return False
        # Store a result that fails here: `store_result` fails as well, and reports why.
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
            return {**error_result(error), **_keep_protocol_fields(result, {}, call)}
        except Exception:
            _log.exception("forebay: the result of %.64s could not be processed", call.tool)
            if self._redactions:
                failure = RedactionFailed("the result could not be redacted")
                return {**error_result(failure), **_keep_protocol_fields(result, {}, call)}
            # The tool has already run, so a bug here must not lose its result.
            return result.to_result() if isinstance(result, BodyResult) else result

    def _prepare(self, original_result: Result | LazyJSON | BodyResult, call: ToolCall) -> "_PreparedResult":
        result = parse_result(original_result)
        tool_meta, block_fields = select_tool_meta(result), extract_block_fields(result)
        if call.contract is not None:
            # A descriptor has a field for the MIME type; a contract response that shows the whole payload has none.
            block_fields = add_media_type(block_fields, result)
        if self._redactions:
            # Redact before measuring, because a replacement may be longer than the secret.
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
        return _PreparedResult(result, payload, _keep_protocol_fields(result, tool_meta, call), block_fields)

    def _replace_result(self, original_result: Result | LazyJSON | BodyResult, call: ToolCall) -> Result:
        try:
            prepared = self._prepare(original_result, call)
        except RedactionFailed as error:
            return {**error_result(error, note=HAS_RUN_NOTE), **_keep_protocol_fields(original_result, {}, call)}
        result, payload, protocol_fields = prepared.result, prepared.payload, prepared.protocol_fields
        if call.contract is not None and not _is_too_large_for_memory(payload):
            fetch_with = call.fetch_with or self._fetch_with
            context = ResponseContext(self._store, call.principal, call.handle_length, fetch_with, call.is_ascii)
            protocol_fields |= shorten_server_info(protocol_fields)
            response = apply_contract(
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
            # Imported here, because a gateway that stores no items never needs it.
            from forebay.query.process import prestart

            prestart()
        response = self._build_response(descriptor, prepared, call)
        self._count_saved(call, descriptor.size_bytes, response)
        response["content"] += self._select_media(prepared, call)
        return response

    def _build_response(self, descriptor: Descriptor, prepared: "_PreparedResult", call: ToolCall) -> Result:
        descriptor = self._complete_descriptor(descriptor, call.fetch_with or self._fetch_with)
        # This payload still has the secrets that redactions remove, and the bytes of a text in another charset, which
        # readers get as UTF-8.
        is_plain_text = descriptor.line_count is not None and descriptor.decoded_from is None
        if is_plain_text and descriptor.item_count is None and not self._redactions:
            outline = describe_embedded_json(prepared.payload.data) or descriptor.outline
            descriptor = dataclasses.replace(descriptor, outline=outline)
        has_link = self._has_links and not call.is_mounted and call.protocol_version >= RESOURCE_LINK_VERSION
        return HandleResponse(
            descriptor, prepared.result, prepared.protocol_fields, prepared.block_fields, call, has_link
        ).fit()

    def _select_media(self, prepared: "_PreparedResult", call: ToolCall) -> list[Any]:
        return select_media(find_media(prepared.result, call.inline_kinds), must_reencode=bool(self._redactions))

    def store_error(self, error: Any, call: ToolCall) -> dict[str, Any] | None:
        """Store a JSON-RPC error, and return an error with the same code that names the handle.

        Return `None` if the error must be forwarded as it is: there are no redactions, and the error could not be
        stored or is no larger than its replacement.
        """
        try:
            return self._replace_error(error, call)
        except ForebayError as failure:
            _log.warning("forebay: the error of %.64s was not stored: %s", call.tool, failure)
            reason = str(failure)
        except Exception:
            _log.exception("forebay: the error of %.64s could not be processed", call.tool)
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
        envelope_bytes = len(encode([call.request_id, message])) + _ERROR_ENVELOPE_BYTES + call.envelope_bytes
        budget = MAX_MESSAGE_BYTES - envelope_bytes
        fitted = descriptor.fit(budget, is_ascii=call.is_ascii)
        return {"code": _get_error_code(error), "message": message, "data": orjson.loads(fitted.to_json())}

    def _complete_descriptor(self, descriptor: Descriptor, fetch_with: str) -> Descriptor:
        """Add the next calls, the client's name for `output_fetch`, and a note if the outline covers few items."""
        outline = descriptor.outline
        if outline is not None and (descriptor.item_count or 0) > _OUTLINED_ITEMS:
            # Without the note, a model assumes that a field missing from the outline is in no item.
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
        """Return a value without its secrets. It is shown beside the descriptor."""
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


def _keep_protocol_fields(
    result: Result | LazyJSON | BodyResult, tool_meta: Mapping[str, Any], call: ToolCall
) -> dict[str, Any]:
    """Return the fields to keep in a replaced result: `resultType`, the protocol's keys of `_meta`, and `tool_meta`."""
    result = parse_result(result)
    fields: dict[str, Any] = {"resultType": "complete"} if "resultType" in result else {}
    meta = result.get("_meta")
    if isinstance(meta, dict):
        kept: dict[str, Any] = {}
        if SERVER_INFO_KEY in meta:
            kept[SERVER_INFO_KEY] = meta[SERVER_INFO_KEY] if call.server_info is None else call.server_info
        match meta.get(_RELATED_TASK_KEY):
            case {"taskId": str(task_id)} if len(task_id) <= _MAX_TASK_ID_LENGTH:
                # Take the other members from `tool_meta`, where they are short and redacted.
                members = tool_meta.get(_RELATED_TASK_KEY)
                kept[_RELATED_TASK_KEY] = {**(members if isinstance(members, dict) else {}), "taskId": task_id}
        fields["_meta"] = {**tool_meta, **kept}
    return fields


class _PreparedResult(NamedTuple):
    """The parts of a result: the payload to store, and the fields to keep in the response."""

    result: Result
    payload: ResultPayload
    protocol_fields: dict[str, Any]
    block_fields: dict[str, Any]


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
