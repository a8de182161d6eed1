"""Inline, handle or auto: the one place where it is decided what a client gets of a result."""

import bisect
import contextvars
import dataclasses
import logging
from collections.abc import Container, Iterator, Sequence
from types import TracebackType
from typing import Any, overload

from forebay import _core
from forebay.errors import ForebayError, RedactionFailed, StoreUnavailable
from forebay.outputs.contract.context import ResponseContext
from forebay.outputs.contract.limits import ResponseLimits
from forebay.outputs.contract.rules import apply_contract
from forebay.outputs.modes import Mode
from forebay.outputs.result import (
    Result,
    ResultPayload,
    exceeds_limit,
    extract_block_fields,
    extract_payload,
    parse_result,
    select_tool_meta,
)
from forebay.outputs.tools import error_result, make_resource_link, text_result
from forebay.store import Store
from forebay.store.handles import Descriptor
from forebay.store.pages import escaped_size
from forebay.store.payload import encode
from forebay.wire.messages import ChunkSource, LazyJSON
from forebay.wire.protocol import SERVER_INFO_KEY

__all__ = [
    "HAS_RUN_NOTE",
    "MAX_MESSAGE_BYTES",
    "PLACEHOLDER_RESULT",
    "Pipeline",
    "ResultSink",
    "ToolCall",
    "current_sink",
    "response_budget",
]

_log = logging.getLogger("forebay")

MAX_MESSAGE_BYTES = 4096
"""What a message with a descriptor may weigh, whole."""

_MAX_PREVIEW_BYTES = 2048

HAS_RUN_NOTE = "the tool has run, and what it answered is not kept; call it again only if that may be done twice"
"""Else who is told what to make room for would take it that nothing was done."""

_FAILURE_PREVIEW_BYTES = 2048
"""How much is shown of what could not be stored, as it goes over the wire."""

_MAX_META_BYTES = 512
"""How much of a message may be what a tool says beside its result; more of it is stored with the rest."""

_MAX_STAMP_BYTES = 128
"""A server may say this much of itself wherever it likes to."""

_MAX_IN_MEMORY_BYTES = 64 << 20
"""What of a message in a spool is read whole, to be shown by the contract."""

_PROTOCOL_META_KEYS = (SERVER_INFO_KEY, "io.modelcontextprotocol/related-task")
"""The keys of `_meta` that are not the tool's to use: whoever waits for a task looks for its name."""

_RESOURCE_LINK_VERSION = "2025-06-18"
"""The first version of the protocol with `resource_link`."""


@dataclasses.dataclass(frozen=True, slots=True)
class ToolCall:
    """What of a `tools/call` its answer depends on, beside the result."""

    tool: str
    principal: str | None = None
    protocol_version: str = "2025-11-25"
    request_id: str | int | None = None
    handle_length: int | None = None
    is_ascii: bool = False
    """Whether the transport escapes whatever is not ASCII, so that a character may weigh twelve bytes."""
    contract: ResponseLimits | None = None
    """What the answer keeps to, where it is to be one by the contract."""
    contract_responses: Sequence[str] = ()
    """What the tool answered by the contract itself."""
    envelope_bytes: int = 0
    """How many bytes the message has beside the result, and what every answer has."""
    fetch_with: str | None = None
    """What the client calls the tool that redeems handles, if it has another name for it than the server."""


class Pipeline:
    """Puts what is too large into the store, and a descriptor in its place."""

    def __init__(self, store: Store, fetch_with: str) -> None:
        self._store = store
        self._fetch_tool = fetch_with

    def is_inline(
        self, result: Result | LazyJSON, mode: Mode, *, is_ascii: bool = False, size: int | None = None
    ) -> bool:
        """Whether a result goes to the client as it is: most do, and cost no more than this.

        `size` is what it is on the wire, where that is known.
        """
        if not _is_tool_output(result):
            return True
        if mode.output_mode == "inline" or mode.contract is not None:
            return mode.contract is None
        if isinstance(result, LazyJSON) or size is not None:
            known = len(result) if size is None else size
            return mode.output_mode == "auto" and known <= mode.output_inline_limit_bytes
        try:
            return mode.output_mode == "auto" and not exceeds_limit(
                result, mode.output_inline_limit_bytes, is_ascii=is_ascii
            )
        except (TypeError, ValueError):
            # What cannot be written is the server's own to send.
            return True

    @overload
    def store_result(self, result: Result, call: ToolCall) -> Result: ...
    @overload
    def store_result(self, result: Result | LazyJSON, call: ToolCall) -> Result | LazyJSON: ...

    def store_result(self, result: Result | LazyJSON, call: ToolCall) -> Result | LazyJSON:
        """What a client gets in place of a result: what it is, and how to read it."""
        try:
            return self._replace_result(result, call)
        except StoreUnavailable as error:
            # What was put aside of it cannot be read any more, so there is nothing else to send.
            _log.warning("forebay: the result of %.64s was lost: %s", call.tool, error)
            return {**error_result(error), **_keep_protocol_fields(result, ())}
        except Exception:
            _log.exception("forebay: the result of %.64s could not be taken apart", call.tool)
            if self._store.options.redactions:
                return {
                    **error_result(RedactionFailed("the result could not be redacted")),
                    **_keep_protocol_fields(result, ()),
                }
            # A mistake of ours must not cost what the tool has done.
            return result

    def _replace_result(self, whole: Result | LazyJSON, call: ToolCall) -> Result:
        fetch_with = call.fetch_with or self._fetch_tool
        # One that could not be taken apart is stored whole, whatever is known of it.
        result = parse_result(whole)
        own, said = select_tool_meta(result), extract_block_fields(result)
        is_little = escaped_size(encode([own, said]), 0, is_ascii=call.is_ascii) <= _MAX_META_BYTES
        found = extract_payload(whole, with_meta=not is_little)
        kept = _keep_protocol_fields(result, own if is_little else ())
        if call.contract is not None and not _exceeds_memory(found):
            place = ResponseContext(self._store, call.principal, call.handle_length, fetch_with, call.is_ascii)
            kept |= _shorten_stamp(kept)
            return apply_contract(found, result, kept, said if is_little else {}, call, call.contract, place)
        try:
            descriptor = self._store.put(
                found.to_input(),
                mime_type=found.mime_type,
                source_tool=call.tool[:1024],
                principal=call.principal,
                handle_length=call.handle_length,
            )
        except ForebayError as error:
            _log.warning("forebay: the result of %.64s was not stored: %s", call.tool, error)
            return {**self._report_failure(error, found), **kept}
        descriptor = dataclasses.replace(descriptor, fetch_with=fetch_with)
        # Behind a name that is not ours, our addresses lead nowhere.
        has_link = call.fetch_with is None
        return _fit_message(_HandleResult(descriptor, result, kept, said if is_little else {}, call, has_link))

    def _report_failure(self, error: ForebayError, found: ResultPayload) -> Result:
        """What can be said of a result that could not be stored: why, and its start, unless that was to be redacted."""
        if self._store.options.redactions:
            return error_result(error, note=HAS_RUN_NOTE)
        start = found.data.head() if isinstance(found.data, ChunkSource) else found.data
        view = _core.preview(start, _FAILURE_PREVIEW_BYTES, max_escaped_bytes=_FAILURE_PREVIEW_BYTES, escape_levels=2)
        return error_result(error, note=HAS_RUN_NOTE, preview=view)


def _exceeds_memory(found: ResultPayload) -> bool:
    """Whether a payload is too large to be looked at whole, as the contract does: it is only stored then."""
    return isinstance(found.data, ChunkSource) and found.data.max_size > _MAX_IN_MEMORY_BYTES


def _is_tool_output(result: Result | LazyJSON) -> bool:
    """Whether it is what a tool has to say: requests for input, and what extensions define, are theirs."""
    result = parse_result(result)
    content = result.get("content")
    is_listed = isinstance(content, list) or (isinstance(content, LazyJSON) and content.is_array)
    return is_listed and bool(result.get("resultType", "complete") == "complete")


def _keep_protocol_fields(result: Result | LazyJSON, own: Container[str]) -> dict[str, Any]:
    """What of a result is about the protocol and stays, with what the tool says of its own."""
    result = parse_result(result)
    kept: dict[str, Any] = {key: result[key] for key in ("resultType",) if key in result}
    if isinstance(result.get("_meta"), dict):
        kept["_meta"] = {
            key: value for key, value in result["_meta"].items() if key in _PROTOCOL_META_KEYS or key in own
        }
    return kept


@dataclasses.dataclass(frozen=True, slots=True)
class _HandleResult:
    """The parts of what a client gets."""

    descriptor: Descriptor
    result: Result
    protocol_fields: dict[str, Any]
    """Keys of the result that stay."""
    block_fields: dict[str, Any]
    """Keys of the sole block that stay."""
    call: ToolCall
    has_link: bool = True

    def build(self) -> Result:
        descriptor = self.descriptor
        answer = text_result(descriptor.to_json(), is_error=bool(self.result.get("isError", False)))
        answer["content"][0] |= self.block_fields
        if self.has_link and self.call.protocol_version >= _RESOURCE_LINK_VERSION:
            answer["content"].append(make_resource_link(descriptor))
        if "structuredContent" in self.result:
            # Whoever has an output schema has to answer by it, and lists one that takes this.
            answer["structuredContent"] = {
                "output_handle": descriptor.output_handle,
                "fetch_with": descriptor.fetch_with,
            }
        return {**answer, **self.protocol_fields}

    def remaining_bytes(self) -> int:
        message = {"jsonrpc": "2.0", "id": self.call.request_id, "result": self.build()}
        return (
            MAX_MESSAGE_BYTES - self.call.envelope_bytes - escaped_size(encode(message), 0, is_ascii=self.call.is_ascii)
        )

    def shrink(self) -> Iterator["_HandleResult"]:
        """The same with less and less in it: what can be done without goes first."""
        yield self
        answer = dataclasses.replace(self, descriptor=dataclasses.replace(self.descriptor, outline=None))
        yield answer
        answer = dataclasses.replace(answer, descriptor=dataclasses.replace(answer.descriptor, items_path=None))
        yield answer
        answer = dataclasses.replace(answer, has_link=False)
        yield answer
        yield dataclasses.replace(
            answer, protocol_fields={**answer.protocol_fields, **_shorten_stamp(answer.protocol_fields)}
        )


def _shorten_stamp(kept: dict[str, Any]) -> dict[str, Any]:
    """Who the server is, in a word: it may have icons, and whole pages to say of itself."""
    stamp = (kept.get("_meta") or {}).get(SERVER_INFO_KEY)
    if not isinstance(stamp, dict) or len(encode(stamp)) <= _MAX_STAMP_BYTES:
        return {}
    short = {key: stamp[key] for key in ("name", "version") if key in stamp}
    return {"_meta": {**kept["_meta"], SERVER_INFO_KEY: short}}


def _fit_message(answer: _HandleResult) -> Result:
    """The answer, with as much of the preview as the message has room for."""
    preview = answer.descriptor.preview
    bare = dataclasses.replace(answer, descriptor=dataclasses.replace(answer.descriptor, preview=""))
    for smaller in bare.shrink():
        room = smaller.remaining_bytes()
        if room >= 0:
            break
    if preview is not None:
        preview = _shorten_preview(preview, max(0, room), is_ascii=answer.call.is_ascii)
    descriptor = dataclasses.replace(smaller.descriptor, preview=preview)
    return dataclasses.replace(smaller, descriptor=descriptor).build()


def _shorten_preview(preview: str, room: int, *, is_ascii: bool) -> str | None:
    if not is_ascii:
        return _core.preview(preview, _MAX_PREVIEW_BYTES, max_escaped_bytes=room, escape_levels=2)

    def weight(most: int) -> int:
        return escaped_size(encode(_core.preview(preview, most))[1:-1], 1, is_ascii=True)

    return _core.preview(preview, bisect.bisect_right(range(1, _MAX_PREVIEW_BYTES + 1), room, key=weight))


def response_budget(mode: Mode, is_inline: bool) -> tuple[str, int]:
    """What kind of an answer it is, and what it may weigh."""
    if mode.contract is not None:
        return "contract", mode.contract.max_bytes
    if not is_inline:
        return "handle", MAX_MESSAGE_BYTES
    # Where nothing is ever stored, nobody chose a limit.
    return "inline", mode.output_inline_limit_bytes if mode.output_mode == "auto" else ResponseLimits().max_bytes


PLACEHOLDER_RESULT: Result = {"content": [], "isError": False}
"""What goes on in place of a result that was delivered; nobody sees it."""

_current_sink: contextvars.ContextVar["ResultSink | None"] = contextvars.ContextVar("delivery", default=None)


@dataclasses.dataclass(eq=False, slots=True, weakref_slot=True)
class ResultSink:
    """For whom a call is made and how it is to be answered, for whoever reads its result off the wire.

    What is put into `answer` is the client's as it is. Nothing that a server says can get there: it is no message.
    """

    pipeline: Pipeline
    call: ToolCall
    mode: Mode
    replacement: Result | None = None
    _token: "contextvars.Token[ResultSink | None] | None" = None

    def try_store(self, result: "Result | LazyJSON", size: int, envelope_bytes: int = 0) -> bool:
        """Stores a result of so many bytes, unless it goes inline: then it is not taken."""
        if self.pipeline.is_inline(result, self.mode, size=size):
            return False
        answer = self.pipeline.store_result(result, dataclasses.replace(self.call, envelope_bytes=envelope_bytes))
        if answer is result or isinstance(answer, LazyJSON):
            return False
        self.replacement = answer
        return True

    def __enter__(self) -> "ResultSink":
        self._token = _current_sink.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _current_sink.reset(self._token)


def current_sink() -> ResultSink | None:
    """The call that is being answered here, if it may be delivered."""
    return _current_sink.get()
