"""Handlers that answer or change client requests, and that replace responses of the server."""

import contextlib
import dataclasses
import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from forebay.arguments import short_repr
from forebay.errors import CapabilityDisabled, ForebayError, InvalidArgument, RedactionFailed, UpstreamFailed
from forebay.outputs.app.resource import EXTENSION_KEY, is_app_uri
from forebay.outputs.clients import find_client
from forebay.outputs.handle_response import MAX_MESSAGE_BYTES
from forebay.outputs.modes import MODE_ARGUMENTS, Mode
from forebay.outputs.pipeline import HAS_RUN_NOTE
from forebay.outputs.policy import OutputPolicy
from forebay.outputs.references.resolver import to_lazy
from forebay.outputs.result import (
    TASK_RESULT_METHODS,
    error_result,
    get_task_result,
    set_task_result,
    strip_wrap_result,
)
from forebay.outputs.tool_call import ToolCall
from forebay.outputs.tools import RESOURCE_TEMPLATE, Caller, is_resource_uri, read_resource
from forebay.proxy.list_pages import ListPage, open_page, parse_tools
from forebay.proxy.session import PendingRequest, Session
from forebay.wire.framing import Message
from forebay.wire.lazy_json import LazyJSON, as_lazy, dump, dump_size, open_container, parse_lazy
from forebay.wire.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    dump_message,
    get_meta,
    is_unambiguous,
    make_error_message,
    make_optional_key,
    make_result_message,
)
from forebay.wire.protocol import (
    CLIENT_INFO_KEY,
    CLIENT_NOTIFICATIONS,
    CLIENT_REQUESTS,
    SERVER_INFO_KEY,
    PageLinks,
    add_result_fields,
    get_client_name,
    is_modern,
    next_cursor,
    protocol_version,
)

__all__ = [
    "ForwardedRequest",
    "RequestHandler",
    "ResponseHandler",
    "find_refusal",
    "make_response",
    "make_tool_call",
    "record_size",
]

_log = logging.getLogger("forebay")

_TOOLS_CHANGED_NOTIFICATION = dump({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})

_MAX_PARSED_ARGUMENTS_BYTES = 256 << 10
"""Maximum bytes of a part of a call's arguments that is parsed. As objects it may take twenty times as much."""

_MAX_PARSED_STRING_BYTES = 4096
"""Maximum bytes of a text in a call's arguments that is parsed, such as the path in a reference."""

_MAX_PARSED_DEPTH = 512

_MAX_STRAY_BYTES = 256
"""Maximum bytes of members that a response should not have, beside a result that is stored without them."""

_MAX_HANDSHAKE_BYTES = 1 << 20
"""A larger handshake is forwarded as it is, because its members would take many times the memory."""

_Params = Mapping[str, Any]
_Handler = Callable[[PendingRequest, dict[str, Any], Message], Message | None]


@dataclasses.dataclass(slots=True)
class ForwardedRequest:
    """Client request to forward to the server."""

    pending: PendingRequest
    replacement: Message | None = None
    """Bytes to send instead of the client's message; `None` to send the client's message unchanged."""


class RequestHandler:
    """Handler that decides which requests forebay answers and which it forwards."""

    def __init__(
        self,
        policy: OutputPolicy,
        session: Session,
        server_info: dict[str, Any],
        list_tools: Callable[[Mapping[str, Any]], list[LazyJSON]],
    ) -> None:
        self._policy = policy
        self._session = session
        self._server_info = server_info
        self._list_tools = list_tools
        # `expand_tools` lists all tools, which takes memory, so that only one call of it runs at a time.
        self._expand_lock = threading.Lock()
        self._resolve_lock = threading.Lock()

    def needs_tool_list(self, method: str, params: _Params) -> bool:
        """Return whether the server's tools must be known before a request can be handled."""
        policy = self._policy
        if method == "tools/list":
            return policy.capabilities.is_active and not policy.knows_tools
        if method == "resources/read":
            # The URI of the app depends on the names of the server's tools.
            is_app = is_app_uri(params.get("uri")) and self._session.accepts_apps(get_meta(params))
            return is_app and not policy.knows_tools
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
        meta, session = get_meta(params), self._session
        pending = PendingRequest(method, request["id"], session.version, client=session.client)
        pending.shows_apps = session.accepts_apps(meta)
        if "cursor" in params:
            pending.page_key = make_optional_key(params["cursor"])
        if meta:
            pending.version = protocol_version(params) or session.version
            pending.progress_key = make_optional_key(meta.get("progressToken"))
            pending.client = find_client(get_client_name(meta.get(CLIENT_INFO_KEY))) or session.client
        try:
            if pending.shows_apps and method == "resources/read" and params.get("uri") == self._policy.app.uri:
                return [make_response(pending, self._policy.app.read(), self._server_info)]
            if self._is_resource_read(method, params):
                page = read_resource(self._policy.store, params["uri"], self._make_caller(pending))
                return [make_response(pending, page, self._server_info)]
            if method == "tools/call" and isinstance(params.get("name"), str):
                pending.tool = params["name"]
                if pending.tool in self._policy.tools.names:
                    return self._call_own_tool(pending, params)
                return self._forward_call(pending, request, raw, meta)
        except ForebayError as error:
            return [self.make_error_response(pending, error)]
        if method in TASK_RESULT_METHODS:
            pending.tool, pending.mode = self._policy.tasks.find_call(params, session.task_owners) or (
                "",
                self._policy.resolve_mode("", {}, meta, pending.client)[0],
            )
        return ForwardedRequest(pending)

    def make_error_response(self, pending: PendingRequest, error: ForebayError, **details: Any) -> bytes:
        """Return the response to a failed request: a tool error for the model, or a protocol error for the client."""
        if pending.method == "tools/call":
            return make_response(pending, error_result(error, **details), self._server_info)
        code = INVALID_PARAMS if isinstance(error, LookupError | ValueError) else INTERNAL_ERROR
        return make_error_message(pending.id, code, str(error), {**error.to_dict()["error"], **details})

    def report_unhandled_response(self, pending: PendingRequest) -> bytes | None:
        """Log the current exception. If the response must not be shown unredacted, return an error instead of it."""
        _log.exception("forebay: the answer to %.64s could not be handled", pending.method)
        if not self._policy.store.options.redactions or pending.method not in ("tools/call", *TASK_RESULT_METHODS):
            return None
        error = RedactionFailed("the answer could not be redacted, so it is not shown")
        return self.make_error_response(pending, error, note=HAS_RUN_NOTE)

    def _make_caller(self, pending: PendingRequest) -> Caller:
        return Caller(
            self._session.principal,
            is_public=self._session.is_public,
            max_page_bytes=self._policy.get_max_page_bytes(pending.client),
        )

    def _call_own_tool(self, pending: PendingRequest, params: dict[str, Any]) -> list[bytes]:
        """Call one of forebay's own tools; return its response, after a notification if the list of tools changed."""
        policy, caller = self._policy, self._make_caller(pending)
        if pending.tool != policy.tools.expand_tool:
            return [self._run_own_tool(pending, params, caller)]
        with self._expand_lock:
            connection = None if is_modern(pending.version) else self._session.connection
            expanded_tools = policy.get_expanded_tools(connection)
            expanded_before = set(expanded_tools or ())
            tools = _RewrittenTools(policy, self._list_tools(get_meta(params)))
            caller = dataclasses.replace(caller, tools=tools, expanded_tools=expanded_tools)
            response = self._run_own_tool(pending, params, caller)
            has_changed = expanded_before != (expanded_tools or set())
        return [_TOOLS_CHANGED_NOTIFICATION, response] if has_changed else [response]

    def _run_own_tool(self, pending: PendingRequest, params: dict[str, Any], caller: Caller) -> bytes:
        policy = self._policy
        result = policy.call_own_tool(params.get("arguments"), caller, make_tool_call(pending, policy, self._session))
        response = make_response(pending, result, self._server_info)
        record_size(policy, self._session, pending.tool, len(response))
        return response

    def _forward_call(
        self, pending: PendingRequest, request: dict[str, Any], raw: Message, meta: Mapping[str, Any]
    ) -> list[bytes] | ForwardedRequest:
        policy, principal = self._policy, self._session.principal
        if (refusal := policy.refuse_disabled(pending.tool, principal)) is not None:
            return [make_response(pending, refusal, self._server_info)]
        policy.count_call(pending.tool, principal)
        if not policy.rewrites_arguments:
            pending.mode, _ = policy.resolve_mode(pending.tool, {}, meta, pending.client)
            return ForwardedRequest(pending)
        original = _parse_arguments(raw)
        if not isinstance(original, dict):
            pending.mode = self._resolve_unparsed(pending, original, meta)
            return ForwardedRequest(pending)
        pending.mode, arguments = policy.resolve_mode(pending.tool, original, meta, pending.client)
        if not policy.has_references(arguments):
            return ForwardedRequest(pending, None if arguments is original else _set_arguments(request, arguments))
        # The content of references may be large, so that only one call is resolved at a time.
        with self._resolve_lock:
            return ForwardedRequest(pending, self._resolve_references(pending.tool, request, arguments))

    def _resolve_references(self, tool: str, request: dict[str, Any], arguments: Mapping[str, Any]) -> Message:
        """Return a call with the content of its references."""
        folder = str(self._policy.store.folder or tempfile.gettempdir())
        resolved = self._policy.resolve_references(
            tool, arguments, self._session.principal, convert=lambda value: to_lazy(value, folder)
        )
        return _set_arguments(request, resolved)

    def _resolve_unparsed(self, pending: PendingRequest, arguments: object, meta: Mapping[str, Any]) -> Mode:
        """Return the mode of a call whose arguments are no object, or have too many members to be parsed.

        Raises `InvalidArgument` if they have references or arguments of forebay.
        """
        found: dict[str, Any] = {}
        if isinstance(arguments, LazyJSON):
            found = {name: value.parse() for name, value in arguments.members(MODE_ARGUMENTS).items()}
        mode, remaining = self._policy.resolve_mode(pending.tool, found, meta, pending.client)
        is_object = isinstance(arguments, LazyJSON) and arguments.is_object
        if remaining is not found or (is_object and self._policy.has_references(arguments)):
            raise InvalidArgument(
                "these arguments have too many members to be searched for references and other arguments of forebay; "
                "send less at once, or put the data into a file and pass a reference"
            )
        return mode


def _set_arguments(request: dict[str, Any], arguments: object) -> Message:
    return dump_message({**request, "params": {**request["params"], "arguments": arguments}})


def _parse_arguments(raw: Message) -> Any:
    """Parse the arguments of a call. Long texts, and parts with very many values, stay `LazyJSON`."""
    params = as_lazy(raw).members(("params",))["params"]
    arguments = params.members(("arguments",)).get("arguments")
    return arguments and arguments.parse(
        max_string_bytes=_MAX_PARSED_STRING_BYTES,
        max_container_bytes=_MAX_PARSED_ARGUMENTS_BYTES,
        max_depth=_MAX_PARSED_DEPTH,
    )


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
        return _refuse("params.name must be the name of a tool", method)
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


def make_tool_call(pending: PendingRequest, policy: OutputPolicy, session: Session) -> ToolCall:
    """Return the description of a call that the output pipeline needs."""
    return ToolCall(
        tool=pending.tool or pending.method,
        principal=session.principal,
        protocol_version=pending.version,
        # An id of any type is fine: the pipeline only copies it.
        request_id=cast("str | int | None", pending.id),
        handle_length=session.handle_length or policy.handle_length,
        fetch_with=policy.name_fetch_tool(pending.client),
    ).with_mode(pending.mode)


def make_response(pending: PendingRequest, result: dict[str, Any], server_info: dict[str, Any]) -> bytes:
    return make_result_message(pending.id, add_result_fields(pending.method, result, pending.version, server_info))


def record_size(
    policy: OutputPolicy, session: Session, tool: str, size: int, mode: Mode | None = None, *, is_inline: bool = True
) -> None:
    policy.record_size(
        tool, size, mode, is_inline=is_inline, principal=session.principal, connection=session.connection
    )


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
        # A list of tools takes several times its bytes while it is rewritten, so that only one is at a time.
        self._list_lock = threading.Lock()
        self._page_links: dict[str, PageLinks] = {}

    def __call__(self, pending: PendingRequest, message: dict[str, Any], raw: Message) -> Message | None:
        """Return the bytes to send instead of `raw`; `None` to send `raw` unchanged."""
        handler = self._handlers.get(pending.method)
        try:
            return None if handler is None else handler(pending, message, raw)
        except UpstreamFailed as error:
            return make_error_message(pending.id, INTERNAL_ERROR, str(error), error.to_dict()["error"])

    def _handle_call(self, pending: PendingRequest, message: dict[str, Any], raw: Message) -> Message | None:
        envelope, policy = message.get("result"), self._policy
        if pending.mode.allows_inline(len(raw)):
            # Most responses: whatever else is in them, they are forwarded.
            policy.tasks.remember(envelope, pending.tool, pending.mode, self._session.task_owners)
            if policy.monitor is not None and get_task_result(pending.method, envelope) is not None:
                self._record_size(pending, len(raw), is_inline=True)
            return None
        stray = _find_stray_members(message)
        stray_bytes = dump_size(stray) if stray else 0
        if stray_bytes > _MAX_STRAY_BYTES and pending.mode.exceeds_limit(len(raw)):
            return self._handle_message(pending, message, raw)
        policy.tasks.remember(envelope, pending.tool, pending.mode, self._session.task_owners)
        result = get_task_result(pending.method, envelope)
        if result is None:
            return self._handle_error(pending, message, raw, stray_bytes)
        if not isinstance(result, dict | LazyJSON):
            # Not a result as the protocol has them, but it may be too large all the same.
            result = as_lazy(dump(result))
        # Put a single digit in place of the result, to measure the bytes around the result.
        one_digit = set_task_result(pending.method, envelope, 0)
        size = len(raw) - dump_size({**message, "result": one_digit}) + 1
        envelope_bytes = dump_size(self._set_server_info(one_digit)) - 1 + stray_bytes
        call = dataclasses.replace(self._make_call(pending), envelope_bytes=envelope_bytes)
        if policy.pipeline.is_inline(result, pending.mode, call, size=size):
            self._record_size(pending, len(raw), is_inline=True)
            return None
        started = time.perf_counter()
        result = result if isinstance(result, LazyJSON) else strip_wrap_result(result)
        stored = policy.pipeline.store_result(result, call)
        if stored is result:
            return None
        filled = set_task_result(pending.method, envelope, stored)
        response = dump_message({**message, "result": self._set_server_info(filled)})
        return self._record_stored(pending, response, len(raw), started)

    def _handle_message(self, pending: PendingRequest, message: dict[str, Any], raw: Message) -> Message | None:
        """Store a response with much outside of its result or error, with all members but its id."""
        started, policy = time.perf_counter(), self._policy
        members = {key: value for key, value in message.items() if key != "id" and (key, value) != ("jsonrpc", "2.0")}
        some: dict[str, Any] = {"content": []}
        added_bytes = len(make_response(pending, some, self._server_info)) - len(make_result_message(pending.id, some))
        call = dataclasses.replace(self._make_call(pending), envelope_bytes=added_bytes)
        is_small = len(raw) <= max(pending.mode.output_inline_limit_bytes, MAX_MESSAGE_BYTES)
        # What the response would have beside the descriptor makes it larger, too.
        size = dump_size(members) - added_bytes
        if is_small and policy.pipeline.is_inline(members, pending.mode, call, size=size):
            policy.tasks.remember(message.get("result"), pending.tool, pending.mode, self._session.task_owners)
            self._record_size(pending, len(raw), is_inline=True)
            return None
        stored = policy.pipeline.store_result(members, call)
        if stored is members:
            return None
        result = {**stored, "isError": bool(stored.get("isError")) or message.get("error") is not None}
        return self._record_stored(pending, make_response(pending, result, self._server_info), len(raw), started)

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

    def _handle_error(
        self, pending: PendingRequest, message: dict[str, Any], raw: Message, stray_bytes: int
    ) -> Message | None:
        """Store an error that is too large, and keep its code."""
        if message.get("error") is None or not pending.mode.exceeds_limit(len(raw)):
            return None
        call = dataclasses.replace(self._make_call(pending), envelope_bytes=stray_bytes)
        error = self._policy.pipeline.store_error(message["error"], call)
        return None if error is None else dump_message({**message, "error": error})

    def _record_size(self, pending: PendingRequest, size: int, *, is_inline: bool) -> None:
        record_size(self._policy, self._session, pending.tool, size, pending.mode, is_inline=is_inline)

    def _make_call(self, pending: PendingRequest) -> ToolCall:
        call = make_tool_call(pending, self._policy, self._session)
        return dataclasses.replace(call, server_info=self._server_info)

    def _set_server_info(self, result: Any) -> Any:
        """Return a result with forebay's server info in place of the server's, if it has any."""
        meta = result.get("_meta") if isinstance(result, dict) else None
        if not isinstance(meta, dict) or SERVER_INFO_KEY not in meta:
            return result
        return {**result, "_meta": {**meta, SERVER_INFO_KEY: self._server_info}}

    def _handle_tools(self, pending: PendingRequest, message: dict[str, Any], raw: Message) -> bytes | None:
        page, policy = self._open_page(pending, message, raw, "tools"), self._policy
        if page is None:
            if policy.capabilities.is_active and message.get("error") is None:
                raise UpstreamFailed(
                    "the server's list of tools cannot be read, and so not filtered; look at the server"
                )
            return None
        with self._list_lock:
            return self._rewrite_page(pending, page)

    def _rewrite_page(self, pending: PendingRequest, page: ListPage) -> bytes:
        policy = self._policy
        is_last = self._is_last_page(pending, page)
        policy.learn_tools(parse_tools(page.items), is_complete=is_last and pending.page_key is None)
        expanded = () if is_modern(pending.version) else policy.get_expanded_tools(self._session.connection) or ()

        def rewrite(item: LazyJSON, tool: Any) -> LazyJSON | bytes | None:
            visible = policy.list_visible([tool], expanded, shows_apps=pending.shows_apps)
            return None if not visible else item if visible[0] == tool else dump(visible[0])

        replacements = map(rewrite, page.items, parse_tools(page.items))
        added = policy.list_own_tools(shows_apps=pending.shows_apps) if is_last else []
        return page.replace_items(replacements, added)

    def _handle_resources(self, pending: PendingRequest, message: dict[str, Any], raw: Message) -> bytes | None:
        if pending.shows_apps:
            # A list that is too large to be read goes on as it came: a host finds the app by the tools, too.
            with contextlib.suppress(UpstreamFailed):
                return self._add_items(pending, message, raw, "resources", [self._policy.app.define_resource()])
        # forebay announces resources, so the list of resources must exist.
        return self._make_empty_list(pending, "resources") if _is_method_not_found(message) else None

    def _handle_templates(self, pending: PendingRequest, message: dict[str, Any], raw: Message) -> bytes | None:
        return self._add_items(pending, message, raw, "resourceTemplates", [RESOURCE_TEMPLATE])

    def _add_items(
        self, pending: PendingRequest, message: dict[str, Any], raw: Message, key: str, items: list[dict[str, Any]]
    ) -> bytes | None:
        """Return a page of a list, with our items at the end of the last page."""
        page = self._open_page(pending, message, raw, key)
        if page is None:
            return None
        with self._list_lock:
            is_last = self._is_last_page(pending, page)
        return page.add_items(items if is_last else [])

    def _is_last_page(self, pending: PendingRequest, page: ListPage) -> bool:
        links = self._page_links.setdefault(pending.method, PageLinks())
        return links.follow(pending.page_key, make_optional_key(next_cursor(page.result)))

    def _open_page(self, pending: PendingRequest, message: dict[str, Any], raw: Message, key: str) -> ListPage | None:
        """Return a page of a list like `open_page`; if the server does not have the list, the page is empty."""
        if _is_method_not_found(message):
            raw = self._make_empty_list(pending, key)
            message = parse_lazy(raw)
        return open_page(message, raw, key)

    def _make_empty_list(self, pending: PendingRequest, key: str) -> bytes:
        return make_response(pending, {key: []}, self._server_info)

    def _handle_initialize(self, pending: PendingRequest, message: dict[str, Any], _raw: Message) -> Message | None:
        """Announce tools and resources, even if the server has none, and say what a handle is."""
        result = _open_handshake(message.get("result"))
        if not isinstance(result, dict):
            return None
        if pending.method == "initialize":
            self._session.is_negotiated = True
            version = result.get("protocolVersion")
            self._session.version = version if isinstance(version, str) else self._session.version
        capabilities = _open_handshake(result.get("capabilities"))
        if not isinstance(capabilities, dict):
            return None
        extended = {**capabilities, **{name: {} for name in ("tools", "resources") if name not in capabilities}}
        if self._policy.tools.expand_tool is not None and pending.method == "initialize":
            extended["tools"] = {**extended["tools"], "listChanged": True}
        if pending.shows_apps:
            extensions = open_container(extended.get("extensions"))
            extended["extensions"] = {**(extensions if isinstance(extensions, dict) else {}), EXTENSION_KEY: {}}
        instructions = self._extend_instructions(result.get("instructions"))
        return dump_message({**message, "result": {**result, "capabilities": extended, "instructions": instructions}})

    def _extend_instructions(self, instructions: Any) -> Any:
        if not isinstance(instructions, LazyJSON):
            return self._policy.extend_instructions(instructions)
        if instructions.is_spooled or not instructions.is_string:
            return instructions
        # A long text: keep its bytes, and write the note before the closing quote.
        return as_lazy(instructions.json()[:-1] + dump(f"\n\n{self._policy.handle_note}")[1:])


def _open_handshake(value: Any) -> Any:
    """Return an object of a handshake that `parse` has left unparsed, unless it is too large."""
    return open_container(value) if isinstance(value, LazyJSON) and len(value) <= _MAX_HANDSHAKE_BYTES else value


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


class _RewrittenTools:
    """Tools of the server as a client sees them, parsed and rewritten one at a time."""

    def __init__(self, policy: OutputPolicy, items: Sequence[LazyJSON]) -> None:
        self._policy, self._items = policy, items

    def __iter__(self) -> Iterator[Any]:
        return (listed for tool in parse_tools(self._items) for listed in self._policy.rewrite_tools([tool]))
