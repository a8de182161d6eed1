"""Handlers that answer or change client requests, and that replace responses of the server."""

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from forebay import _core
from forebay.arguments import short_repr
from forebay.errors import CapabilityDisabled, ForebayError, InvalidArgument, UpstreamFailed
from forebay.outputs.pipeline import ToolCall
from forebay.outputs.policy import OutputPolicy
from forebay.outputs.references.resolver import to_fragments
from forebay.outputs.result import (
    TASK_RESULT_METHODS,
    error_result,
    find_task_id,
    get_task_result,
    set_task_result,
    strip_wrap_result,
)
from forebay.outputs.tools import RESOURCE_TEMPLATE, Caller, is_resource_uri, read_resource
from forebay.proxy.session import PendingRequest, Session, describe_large_list
from forebay.wire.framing import Message, Spool
from forebay.wire.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    LazyJSON,
    as_lazy,
    dump,
    dump_message,
    dump_size,
    get_meta,
    is_unambiguous,
    make_error_message,
    make_result_message,
    parse_fully,
    protocol_version,
)
from forebay.wire.protocol import (
    CLIENT_NOTIFICATIONS,
    CLIENT_REQUESTS,
    MAX_LIST_BYTES,
    SERVER_INFO_KEY,
    add_result_fields,
    is_modern,
    next_cursor,
)

__all__ = ["ForwardedRequest", "RequestHandler", "ResponseHandler", "extend_list", "find_refusal", "make_tool_call"]

_log = logging.getLogger("forebay")

_TOOLS_CHANGED_NOTIFICATION = dump({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})

_MAX_PARSED_CALL_BYTES = 64 << 20
"""Maximum bytes of a call whose arguments are parsed completely."""

_Params = Mapping[str, Any]
_Bytes = bytes | bytearray
_Handler = Callable[[PendingRequest, dict[str, Any], Message], Message | None]


@dataclasses.dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """Client request to forward to the server."""

    pending: PendingRequest
    replacement: bytes | None = None
    """Bytes to send instead of the client's message; `None` to send the client's message unchanged."""


class RequestHandler:
    """Handler that decides which requests forebay answers and which it forwards."""

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
        """Return whether the server's tools must be known before a request can be handled."""
        policy = self._policy
        if method == "tools/list":
            return policy.capabilities.is_active and not policy.knows_tools
        if method != "tools/call" or not isinstance(params.get("name"), str):
            return False
        # Calls that are not inspected are forwarded unchanged, whether or not the server lists the tool.
        is_inspected = (
            policy.capabilities.is_active or policy.rewrites_arguments or params["name"] in policy.tools.names
        )
        return is_inspected and policy.must_list_tools(params["name"])

    def is_slow(self, method: str, params: _Params) -> bool:
        """Return whether handling a request reads the store or files; such requests run in the background."""
        if method == "tools/call" and isinstance(params.get("name"), str):
            return params["name"] in self._policy.tools.names or self._policy.rewrites_arguments
        return self._is_resource_read(method, params)

    def _is_resource_read(self, method: str, params: _Params) -> bool:
        return method == "resources/read" and is_resource_uri(params.get("uri"))

    def __call__(self, request: dict[str, Any], raw: Message) -> list[bytes] | ForwardedRequest:
        """Return the messages for the client, or the request to forward."""
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
                return [_make_response(pending, page, self._server_info)]
            if method == "tools/call" and isinstance(params.get("name"), str):
                pending = dataclasses.replace(pending, tool=params["name"])
                if pending.tool in self._policy.tools.names:
                    return self._call_own_tool(pending, params)
                return self._forward_call(pending, raw)
        except ForebayError as error:
            return [self.make_error_response(pending, error)]
        if method in TASK_RESULT_METHODS:
            tool, mode = self._policy.tasks.find_call(params) or ("", self._policy.resolve_mode("", {})[0])
            pending = dataclasses.replace(pending, tool=tool, mode=mode)
        return ForwardedRequest(pending)

    def make_error_response(self, pending: PendingRequest, error: ForebayError, **details: Any) -> bytes:
        """Return the response to a failed request: a tool error for the model, or a protocol error for the client."""
        if pending.method == "tools/call":
            return _make_response(pending, error_result(error, **details), self._server_info)
        code = INVALID_PARAMS if isinstance(error, LookupError | ValueError) else INTERNAL_ERROR
        return make_error_message(pending.id, code, str(error), {**error.to_dict()["error"], **details})

    def _call_own_tool(self, pending: PendingRequest, params: dict[str, Any]) -> list[bytes]:
        """Call one of forebay's own tools; return its response, after a notification if the list of tools changed."""
        policy, caller = self._policy, Caller()
        if pending.tool == policy.tools.expand_tool:
            session = None if is_modern(pending.version) else self._session
            tools = policy.rewrite_tools(self._list_tools(get_meta(params)))
            caller = dataclasses.replace(caller, tools=tools, expanded_tools=policy.get_expanded_tools(session))
        expanded_before = set(caller.expanded_tools or ())
        result = policy.call_own_tool(params.get("arguments"), caller, make_tool_call(pending, policy))
        response = _make_response(pending, result, self._server_info)
        policy.record_size(pending.tool, len(response), connection=self._session)
        return (
            [response]
            if expanded_before == (caller.expanded_tools or set())
            else [_TOOLS_CHANGED_NOTIFICATION, response]
        )

    def _forward_call(self, pending: PendingRequest, raw: Message) -> list[bytes] | ForwardedRequest:
        policy = self._policy
        if (refusal := policy.refuse_disabled(pending.tool)) is not None:
            return [_make_response(pending, refusal, self._server_info)]
        if not policy.rewrites_arguments:
            return ForwardedRequest(dataclasses.replace(pending, mode=policy.resolve_mode(pending.tool, {})[0]))
        if len(raw) > _MAX_PARSED_CALL_BYTES:
            raise InvalidArgument(
                f"this call has {len(raw)} bytes, and at most {_MAX_PARSED_CALL_BYTES} are searched for references "
                "and other arguments of forebay; send less at once, or put the data into a file and pass a reference"
            )
        # Parse the whole request, because references may be anywhere in the arguments.
        request = parse_fully(raw)
        original = request["params"].get("arguments")
        mode, arguments = policy.resolve_mode(pending.tool, original if isinstance(original, Mapping) else {})
        pending = dataclasses.replace(pending, mode=mode)
        if not isinstance(original, Mapping):
            return ForwardedRequest(pending)
        if policy.has_references(arguments):
            arguments = policy.resolve_references(pending.tool, arguments, convert=to_fragments)
        if arguments is original:
            return ForwardedRequest(pending)
        return ForwardedRequest(pending, dump({**request, "params": {**request["params"], "arguments": arguments}}))


_MESSAGE_MEMBERS = {"jsonrpc", "id", "method", "params", "result", "error"}

_CALL_PARAMS = {"name", "arguments", "_meta", "task", "inputResponses", "requestState"}
"""Parameters of `tools/call` in any version. A server that ignores case could take others for `name`."""


def find_refusal(message: Any, raw: Message, is_id_in_use: Callable[[object], bool]) -> CapabilityDisabled | None:
    """Return why a message must not reach a server whose tools are filtered, or `None`.

    `raw` is the message as the server would get it. The server gets requests and notifications of the protocol, and
    responses, in one reading only. Anything else could be a call to a server that is less strict than the protocol.
    Ids must differ, so that no response is taken for another.
    """
    if not isinstance(message, dict):
        return _refuse("this is not a JSON-RPC message")
    method, params = message.get("method"), message.get("params", {})
    if unknown := message.keys() - _MESSAGE_MEMBERS:
        return _refuse(f"{short_repr(min(unknown))} is not one of JSON-RPC's members", method)
    if not is_unambiguous(raw):
        return _refuse("this is not valid JSON in one line", method)
    if "method" not in message:
        return None
    if not isinstance(method, str) or method not in (CLIENT_REQUESTS if "id" in message else CLIENT_NOTIFICATIONS):
        kind = "requests" if "id" in message else "notifications"
        return _refuse(f"{short_repr(method)} is not one of the protocol's {kind}", method)
    if "id" in message and not _is_request_id(message["id"]):
        return _refuse("the id of a request is a text or a number", method)
    if "id" in message and is_id_in_use(message["id"]):
        return _refuse("the id of this request is in use", method)
    if not isinstance(params, dict):
        return _refuse("params is an object", method)
    if method != "tools/call":
        return None
    name = params.get("name")
    if not isinstance(name, str):
        return _refuse("a call names its tool", method)
    if unknown := params.keys() - _CALL_PARAMS:
        return _refuse(f"{short_repr(min(unknown))} is not one of a call's parameters", name)
    return None


def _refuse(reason: str, tool_or_method: object = None) -> CapabilityDisabled:
    text = tool_or_method if isinstance(tool_or_method, str) else ""
    return CapabilityDisabled(f"{reason}; tools are filtered here, so send what the protocol defines", text, "")


def _is_request_id(request_id: object) -> bool:
    if isinstance(request_id, LazyJSON):
        # A long text, or a number that Python would change.
        return request_id.is_string or request_id.is_number
    return isinstance(request_id, str | int | float) and not isinstance(request_id, bool)


def make_tool_call(pending: PendingRequest, policy: OutputPolicy) -> ToolCall:
    """Return the description of a call that the output pipeline needs."""
    return ToolCall(
        tool=pending.tool or pending.method,
        protocol_version=pending.version,
        # An id of any type is fine: the pipeline only copies it.
        request_id=cast("str | int | None", pending.id),
        handle_length=policy.handle_length,
        contract=pending.mode.contract,
    )


def _make_response(pending: PendingRequest, result: dict[str, Any], server_info: dict[str, Any]) -> bytes:
    return make_result_message(pending.id, add_result_fields(pending.method, result, pending.version, server_info))


class ResponseHandler:
    """Handler that replaces large results by handles, and adds forebay's own entries to lists."""

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

    def __call__(self, pending: PendingRequest, message: dict[str, Any], raw: Message) -> Message | None:
        """Return the bytes to send instead of `raw`; `None` to send `raw` unchanged."""
        handler = self._handlers.get(pending.method)
        try:
            return None if handler is None else handler(pending, message, raw)
        except UpstreamFailed as error:
            return make_error_message(pending.id, INTERNAL_ERROR, str(error), error.to_dict()["error"])

    def _handle_call(self, pending: PendingRequest, message: dict[str, Any], raw: Message) -> Message | None:
        envelope, policy = message.get("result"), self._policy
        stray = _find_stray_members(message)
        if stray and pending.mode.exceeds_limit(dump_size(stray)):
            return self._store_message(pending, message, raw)
        if find_task_id(envelope) is not None:
            policy.tasks.remember(envelope, pending.tool, pending.mode)
        result = get_task_result(pending.method, envelope)
        if result is None:
            return self._handle_error(pending, message, raw)
        if not isinstance(result, dict | LazyJSON):
            # Not a result as the protocol has them, but it may be too large all the same.
            result = as_lazy(dump(result))
        # Put a single digit in place of the result, to measure the bytes around the result.
        one_digit = set_task_result(pending.method, envelope, 0)
        size = len(raw) - dump_size({**message, "result": one_digit}) + 1
        if policy.pipeline.is_inline(result, pending.mode, size=size):
            self._record_size(pending, len(raw), is_inline=True)
            return None
        started = time.perf_counter()
        result = result if isinstance(result, LazyJSON) else strip_wrap_result(result)
        call = dataclasses.replace(make_tool_call(pending, policy), envelope_bytes=dump_size(one_digit) - 1)
        stored = policy.pipeline.store_result(result, call)
        if stored is result:
            return None
        filled = set_task_result(pending.method, envelope, self._set_server_info(stored))
        response = dump_message({**message, "result": self._set_server_info(filled)})
        return self._record_stored(pending, response, len(raw), started)

    def _store_message(self, pending: PendingRequest, message: dict[str, Any], raw: Message) -> Message | None:
        """Store a response that is too large outside of its result or error, with all members but its id."""
        started = time.perf_counter()
        members = {key: value for key, value in message.items() if key != "id" and (key, value) != ("jsonrpc", "2.0")}
        stored = self._policy.pipeline.store_result(members, make_tool_call(pending, self._policy))
        if stored is members:
            return None
        result = {**stored, "isError": bool(stored.get("isError")) or message.get("error") is not None}
        return self._record_stored(pending, _make_response(pending, result, self._server_info), len(raw), started)

    def _record_stored(self, pending: PendingRequest, response: Message, original_size: int, started: float) -> Message:
        """Record and return a response that refers to a stored result."""
        _log.info(
            "forebay: %s answered %d bytes, of which the client gets %d (%.1f ms)",
            (pending.tool or pending.method)[:64],
            original_size,
            len(response),
            (time.perf_counter() - started) * 1e3,
        )
        self._record_size(pending, len(response), is_inline=False)
        return response

    def _handle_error(self, pending: PendingRequest, message: dict[str, Any], raw: Message) -> Message | None:
        """Store an error that is too large, and keep its code."""
        if message.get("error") is None or not pending.mode.exceeds_limit(len(raw)):
            return None
        error = self._policy.pipeline.store_error(message["error"], make_tool_call(pending, self._policy))
        return None if error is None else dump_message({**message, "error": error})

    def _record_size(self, pending: PendingRequest, size: int, *, is_inline: bool) -> None:
        self._policy.record_size(pending.tool, size, pending.mode, is_inline=is_inline, connection=self._session)

    def _set_server_info(self, result: Any) -> Any:
        """Return a result with forebay's server info in place of the server's, if it has any."""
        meta = result.get("_meta") if isinstance(result, dict) else None
        if not isinstance(meta, dict) or SERVER_INFO_KEY not in meta:
            return result
        return {**result, "_meta": {**meta, SERVER_INFO_KEY: self._server_info}}

    def _handle_tools(self, pending: PendingRequest, message: dict[str, Any], raw: Message) -> bytes | None:
        page, policy = self._parse_page(pending, message, raw, "tools"), self._policy
        if page is None:
            if policy.capabilities.is_active and message.get("error") is None:
                raise UpstreamFailed(
                    "the server's list of tools cannot be read, and so not filtered; look at the server"
                )
            return None
        raw, message = page
        tools = message["result"]["tools"]
        is_last = next_cursor(message["result"]) is None
        policy.learn_tools(tools, is_complete=is_last and pending.cursor is None)
        expanded = () if is_modern(pending.version) else policy.get_expanded_tools(self._session) or ()
        visible = policy.list_visible(tools, expanded)
        return extend_list(raw, message, "tools", visible, policy.tools.list_definitions() if is_last else [])

    def _handle_resources(self, pending: PendingRequest, message: dict[str, Any], _raw: Message) -> bytes | None:
        # forebay announces resources, so the list of resources must exist.
        return self._make_empty_list(pending, "resources") if _is_method_not_found(message) else None

    def _handle_templates(self, pending: PendingRequest, message: dict[str, Any], raw: Message) -> bytes | None:
        page = self._parse_page(pending, message, raw, "resourceTemplates")
        if page is None:
            return None
        raw, message = page
        result = message["result"]
        added = [RESOURCE_TEMPLATE] if next_cursor(result) is None else []
        return extend_list(raw, message, "resourceTemplates", result["resourceTemplates"], added)

    def _parse_page(
        self, pending: PendingRequest, message: dict[str, Any], raw: Message, key: str
    ) -> tuple[_Bytes, dict[str, Any]] | None:
        """Return a page of a list as bytes and as a parsed message; `None` if the message is not such a page.

        If the server does not have the list, the page is empty. Raises `UpstreamFailed` if the page is too large.
        """
        if len(raw) > MAX_LIST_BYTES and message.get("result") is not None:
            raise UpstreamFailed(describe_large_list(len(raw)))
        data = self._make_empty_list(pending, key) if _is_method_not_found(message) else _read_all(raw)
        message = parse_fully(data)
        result = message.get("result")
        return (data, message) if isinstance(result, dict) and isinstance(result.get(key), list) else None

    def _make_empty_list(self, pending: PendingRequest, key: str) -> bytes:
        return _make_response(pending, {key: []}, self._server_info)

    def _handle_initialize(self, pending: PendingRequest, message: dict[str, Any], _raw: Message) -> Message | None:
        """Announce tools and resources, even if the server has none."""
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
        extended = {"tools": {}, "resources": {}, **capabilities}
        if self._policy.tools.expand_tool is not None and pending.method == "initialize":
            extended["tools"] = {**extended["tools"], "listChanged": True}
        if extended == capabilities:
            return None
        return dump_message({**message, "result": {**result, "capabilities": extended}})


def _find_stray_members(message: dict[str, Any]) -> dict[str, Any]:
    """Return the members that a response should not have: those besides its id, its version and one result or error."""
    body_key = "error" if message.get("result") is None else "result"
    return {
        key: value
        for key, value in message.items()
        if key not in ("id", body_key) and value is not None and (key, value) != ("jsonrpc", "2.0")
    }


def _is_method_not_found(message: dict[str, Any]) -> bool:
    match message:
        case {"error": {"code": int(code)}}:
            return code == METHOD_NOT_FOUND
    return False


def _read_all(raw: Message) -> _Bytes:
    return b"".join(raw.chunks()) if isinstance(raw, Spool) else raw


def extend_list(
    raw: bytes | bytearray, message: dict[str, Any], key: str, listed_items: Sequence[Any], added_items: Sequence[Any]
) -> bytes:
    """Return a list page with `listed_items` from the server and `added_items` from forebay.

    If the server's items are unchanged, their original bytes are copied.
    """
    result = message["result"]
    if list(listed_items) != result[key]:
        return dump({**message, "result": {**result, key: [*listed_items, *added_items]}})
    end = _core.locate(memoryview(raw).toreadonly(), f"/result/{key}")[1] - 1
    comma = b"," if listed_items and added_items else b""
    suffix = b",".join(dump(item) for item in added_items)
    return b"".join((memoryview(raw)[:end], comma, suffix, memoryview(raw)[end:]))
