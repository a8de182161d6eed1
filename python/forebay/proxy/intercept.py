"""What becomes of a client's request: it is answered here, goes on changed, or goes on as it came."""

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from forebay import _core
from forebay.errors import ForebayError
from forebay.outputs.listing import strip_wrap_result
from forebay.outputs.pipeline import ToolCall
from forebay.outputs.policy import OutputPolicy
from forebay.outputs.references.resolver import to_fragments
from forebay.outputs.tasks import TASK_RESULT_METHODS, get_task_result, set_task_result
from forebay.outputs.tools import RESOURCE_TEMPLATE, Caller, error_result, is_resource_uri, read_resource
from forebay.proxy.session import PendingRequest, Session
from forebay.wire.framing import Message, Spool
from forebay.wire.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    LazyJSON,
    dump,
    error_message,
    get_meta,
    parse_fully,
    parse_lazy,
    protocol_version,
    result_message,
)
from forebay.wire.protocol import SERVER_INFO_KEY, add_result_fields, is_modern, next_cursor

__all__ = ["ForwardedRequest", "RequestHandler", "ResponseHandler", "extend_list", "find_refusal", "make_call"]

_TOOLS_CHANGED = dump({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})

_Params = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """A request that the server is to answer."""

    pending: PendingRequest
    replacement: bytes | None = None
    """What it is sent, if not what came."""


class RequestHandler:
    """Tells apart what is asked of the server and what is asked of forebay."""

    def __init__(
        self,
        policy: OutputPolicy,
        session: Session,
        server_info: dict[str, Any],
        list_tools: Callable[[Mapping[str, Any]], list[Any]],
    ) -> None:
        self._policy = policy
        self._session = session
        self._server_info = server_info
        self._list_tools = list_tools

    def needs_tool_list(self, method: str, params: _Params) -> bool:
        """Whether a request cannot be understood before it is known what tools the server has."""
        gate = self._policy
        if method == "tools/list":
            return gate.capabilities.is_active and not gate.knows_tools
        if method != "tools/call" or not isinstance(params.get("name"), str):
            return False
        # Most calls are the server's own, whatever it lists.
        is_looked_at = gate.capabilities.is_active or gate.rewrites_arguments or params["name"] in gate.tools
        return is_looked_at and gate.must_list_tools(params["name"])

    def is_slow(self, method: str, params: _Params) -> bool:
        """Whether others should not wait for it: it reads from the store, or from files."""
        if method == "tools/call" and isinstance(params.get("name"), str):
            return params["name"] in self._policy.tools or self._policy.rewrites_arguments
        return self._is_resource_read(method, params)

    def _is_resource_read(self, method: str, params: _Params) -> bool:
        return method == "resources/read" and is_resource_uri(params.get("uri"))

    def __call__(self, request: dict[str, Any], line: Message) -> list[bytes] | ForwardedRequest:
        """What the client is told, or what goes on to the server."""
        method, params = request["method"], request.get("params")
        params = params if isinstance(params, dict) else {}
        pending = PendingRequest(
            method,
            request["id"],
            protocol_version(params) or self._session.version,
            cursor=params.get("cursor"),
            progress_token=get_meta(params).get("progressToken"),
        )
        try:
            if self._is_resource_read(method, params):
                page = read_resource(self._policy.store, params["uri"], self._policy.max_page_bytes, None)
                return [self._response(pending, page)]
            if method == "tools/call" and isinstance(params.get("name"), str):
                pending = dataclasses.replace(pending, tool=params["name"])
                if pending.tool in self._policy.tools:
                    return self._call_own_tool(pending, params)
                return self._forward_call(pending, line)
        except ForebayError as error:
            return [self.error_response(pending, error)]
        if method in TASK_RESULT_METHODS:
            tool, mode = self._policy.tasks.find_call(params) or ("", self._policy.resolve_mode("", {})[0])
            pending = dataclasses.replace(pending, tool=tool, mode=mode)
        return ForwardedRequest(pending)

    def error_response(self, pending: PendingRequest, error: ForebayError, **more: Any) -> bytes:
        """The answer to a request that failed here: a model acts on a tool's error, a client on any other."""
        if pending.method == "tools/call":
            return self._response(pending, error_result(error, **more))
        code = INVALID_PARAMS if isinstance(error, LookupError | ValueError) else INTERNAL_ERROR
        return error_message(pending.id, code, str(error), {**error.to_dict()["error"], **more})

    def _response(self, pending: PendingRequest, result: dict[str, Any]) -> bytes:
        return result_message(pending.id, add_result_fields(pending.method, result, pending.version, self._server_info))

    def _call_own_tool(self, pending: PendingRequest, params: dict[str, Any]) -> list[bytes]:
        """What a tool of ours answers; before it, that there are other tools now."""
        gate, caller = self._policy, Caller()
        if pending.tool == gate.tools.expand_tool:
            lasting = None if is_modern(pending.version) else self._session
            tools = gate.rewrite_tools(self._list_tools(get_meta(params)))
            caller = dataclasses.replace(caller, tools=tools, expanded_tools=gate.get_expanded(lasting))
        before = set(caller.expanded_tools or ())
        answer = self._response(pending, gate.call_own_tool(params.get("arguments"), caller, make_call(pending, gate)))
        gate.record_size(pending.tool, len(answer), connection=self._session)
        return [answer] if before == (caller.expanded_tools or set()) else [_TOOLS_CHANGED, answer]

    def _forward_call(self, pending: PendingRequest, line: Message) -> list[bytes] | ForwardedRequest:
        gate = self._policy
        if (refusal := gate.refuse_disabled(pending.tool)) is not None:
            return [self._response(pending, refusal)]
        if not gate.rewrites_arguments:
            return ForwardedRequest(dataclasses.replace(pending, mode=gate.resolve_mode(pending.tool, {})[0]))
        # All of it, and once more, so that what Python has no room for goes on as it came.
        request = parse_fully(line)
        given = request["params"].get("arguments")
        mode, arguments = gate.resolve_mode(pending.tool, given if isinstance(given, Mapping) else {})
        pending = dataclasses.replace(pending, mode=mode)
        if not isinstance(given, Mapping):
            return ForwardedRequest(pending)
        if gate.has_references(arguments):
            arguments = gate.resolve_references(pending.tool, arguments, finish=to_fragments)
        if arguments is given:
            return ForwardedRequest(pending)
        return ForwardedRequest(pending, dump({**request, "params": {**request["params"], "arguments": arguments}}))


def find_refusal(message: Any) -> bytes | None:
    """Why a message is not let through where tools are filtered: what cannot be understood could be any call."""
    if not isinstance(message, dict):
        return error_message(None, PARSE_ERROR, "this is no message that can be read; tools are filtered here")
    if _is_unambiguous(message):
        return None
    return error_message(message.get("id"), INVALID_REQUEST, "this cannot be understood; tools are filtered here")


def _is_unambiguous(message: dict[str, Any]) -> bool:
    if _has_case_variant(message, ("id", "method", "params")):
        return False
    if "method" not in message:
        return True
    method, params = message["method"], message.get("params", {})
    if not isinstance(method, str) or not isinstance(params, dict):
        return False
    return method != "tools/call" or (isinstance(params.get("name"), str) and not _has_case_variant(params, ("name",)))


def _has_case_variant(members: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Whether there is one of these in other letters, such as `Name`: some servers take that for it."""
    return any(key not in names and key.casefold() in names for key in members)


def make_call(pending: PendingRequest, policy: OutputPolicy) -> ToolCall:
    """What of a request its answer depends on."""
    return ToolCall(
        tool=pending.tool or pending.method,
        protocol_version=pending.version,
        # Whatever it is, it is only written again.
        request_id=cast("str | int | None", pending.id),
        handle_length=policy.handle_length,
        contract=pending.mode.contract,
    )


_log = logging.getLogger("forebay")

_Bytes = bytes | bytearray
_Handler = Callable[[PendingRequest, dict[str, Any], Message], bytes | None]


class ResponseHandler:
    """Steps in where the answer to a request is not the client's as it is."""

    def __init__(self, policy: OutputPolicy, session: Session, server_info: dict[str, Any]) -> None:
        self._policy = policy
        self._session = session
        self._server_info = server_info
        self._handlers: dict[str, _Handler] = {
            "tools/call": self._handle_call,
            **dict.fromkeys(TASK_RESULT_METHODS, self._handle_call),
            "tools/list": self._handle_tools,
            "initialize": self._handle_initialize,
            "server/discover": self._handle_initialize,
            "resources/list": self._handle_resources,
            "resources/templates/list": self._handle_templates,
        }

    def __call__(self, pending: PendingRequest, message: dict[str, Any], line: Message) -> bytes | None:
        """What to send in place of `line`."""
        step = self._handlers.get(pending.method)
        return None if step is None else step(pending, message, line)

    def _handle_call(self, pending: PendingRequest, message: dict[str, Any], line: Message) -> bytes | None:
        whole, gate = message.get("result"), self._policy
        gate.tasks.remember(whole, pending.tool, pending.mode)
        result = get_task_result(pending.method, whole)
        if not isinstance(result, dict | LazyJSON):
            return None

        def answered(answer: object) -> bytes:
            return dump({**message, "result": self._set_server_info(set_task_result(pending.method, whole, answer))})

        size = len(line) - len(dump({**message, "result": set_task_result(pending.method, whole, 0)})) + 1
        if gate.pipeline.is_inline(result, pending.mode, size=size):
            self._record_size(pending, len(line), is_inline=True)
            return None
        started = time.perf_counter()
        result = result if isinstance(result, LazyJSON) else strip_wrap_result(result)
        around = len(dump(set_task_result(pending.method, whole, 0))) - 1
        answer = gate.pipeline.store_result(
            result, dataclasses.replace(make_call(pending, gate), envelope_bytes=around)
        )
        if answer is result:
            return None
        made = answered(self._set_server_info(answer))
        _log.info(
            "forebay: %s answered %d bytes, of which the client gets %d (%.1f ms)",
            (pending.tool or pending.method)[:64],
            len(line),
            len(made),
            (time.perf_counter() - started) * 1e3,
        )
        self._record_size(pending, len(made), is_inline=False)
        return made

    def _record_size(self, pending: PendingRequest, size: int, *, is_inline: bool) -> None:
        self._policy.record_size(pending.tool, size, pending.mode, is_inline=is_inline, connection=self._session)

    def _handle_tools(self, pending: PendingRequest, message: dict[str, Any], line: Message) -> bytes | None:
        found = self._parse_page(pending, message, line, "tools")
        if found is None:
            return None
        line, message = found
        theirs, gate = message["result"]["tools"], self._policy
        is_last = next_cursor(message["result"]) is None
        gate.learn_tools(theirs, is_complete=is_last and pending.cursor is None)
        expanded = () if is_modern(pending.version) else gate.get_expanded(self._session) or ()
        listed = gate.list_visible(theirs, expanded)
        return extend_list(line, message, "tools", listed, gate.tools.list_definitions() if is_last else [])

    def _handle_resources(self, pending: PendingRequest, message: dict[str, Any], _line: Message) -> bytes | None:
        # There is such a list now, if an empty one.
        return self._empty_list(pending, "resources") if _is_method_not_found(message) else None

    def _handle_templates(self, pending: PendingRequest, message: dict[str, Any], line: Message) -> bytes | None:
        found = self._parse_page(pending, message, line, "resourceTemplates")
        if found is None:
            return None
        line, message = found
        result = message["result"]
        ours = [RESOURCE_TEMPLATE] if next_cursor(result) is None else []
        return extend_list(line, message, "resourceTemplates", result["resourceTemplates"], ours)

    def _parse_page(
        self, pending: PendingRequest, message: dict[str, Any], line: Message, key: str
    ) -> tuple[_Bytes, dict[str, Any]] | None:
        """A page of a server's list, all of it parsed; an empty one where it has no such list."""
        whole = self._empty_list(pending, key) if _is_method_not_found(message) else _read_all(line)
        message = parse_fully(whole)
        result = message.get("result")
        return (whole, message) if isinstance(result, dict) and isinstance(result.get(key), list) else None

    def _empty_list(self, pending: PendingRequest, key: str) -> bytes:
        return result_message(
            pending.id, add_result_fields(pending.method, {key: []}, pending.version, self._server_info)
        )

    def _handle_initialize(self, pending: PendingRequest, message: dict[str, Any], line: Message) -> bytes | None:
        """There are tools and resources now, whatever the server had before."""
        result = message.get("result")
        if not isinstance(result, dict):
            return None
        if pending.method == "initialize":
            self._session.is_negotiated = True
            version = result.get("protocolVersion")
            self._session.version = version if isinstance(version, str) else self._session.version
        capabilities = result.get("capabilities")
        if not isinstance(capabilities, dict):
            return None
        added = {"tools": {}, "resources": {}, **capabilities}
        if self._policy.tools.expand_tool is not None and pending.method == "initialize":
            added["tools"] = {**added["tools"], "listChanged": True}
        if added == capabilities:
            return None
        message = parse_lazy(line)
        return dump({**message, "result": {**message["result"], "capabilities": added}})

    def _set_server_info(self, answer: Any) -> Any:
        """An answer that was made here does not say that the server made it."""
        meta = answer.get("_meta") if isinstance(answer, dict) else None
        if not isinstance(meta, dict) or SERVER_INFO_KEY not in meta:
            return answer
        return {**answer, "_meta": {**meta, SERVER_INFO_KEY: self._server_info}}


def _is_method_not_found(message: dict[str, Any]) -> bool:
    match message:
        case {"error": {"code": int(code)}}:
            return code == METHOD_NOT_FOUND
    return False


def _read_all(line: Message) -> _Bytes:
    return b"".join(line.chunks()) if isinstance(line, Spool) else line


def extend_list(
    line: bytes | bytearray, message: dict[str, Any], key: str, listed: Sequence[Any], added: Sequence[Any]
) -> bytes:
    """The message with `theirs` and `ours` as its list: untouched but for our own, if theirs are what came."""
    result = message["result"]
    if list(listed) != result[key]:
        return dump({**message, "result": {**result, key: [*listed, *added]}})
    end = _core.locate(memoryview(line).toreadonly(), f"/result/{key}")[1] - 1
    comma = b"," if listed and added else b""
    suffix = b",".join(dump(item) for item in added)
    return b"".join((memoryview(line)[:end], comma, suffix, memoryview(line)[end:]))
