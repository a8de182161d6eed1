"""Handler that answers client requests, or changes and forwards them."""

import dataclasses
import logging
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from forebay.errors import ForebayError, InvalidArgument, RedactionFailed
from forebay.outputs.app.resource import is_app_uri
from forebay.outputs.clients import find_client
from forebay.outputs.modes import MODE_ARGUMENTS, Mode
from forebay.outputs.pipeline import HAS_RUN_NOTE
from forebay.outputs.policy import OutputPolicy
from forebay.outputs.references.resolver import to_lazy
from forebay.outputs.result import TASK_RESULT_METHODS, error_result
from forebay.outputs.tools import Caller, is_resource_uri, read_resource
from forebay.proxy.calls import make_response, make_tool_call, record_size
from forebay.proxy.list_pages import parse_tools
from forebay.proxy.session import PendingRequest, Session
from forebay.wire.framing import Message
from forebay.wire.lazy_json import LazyJSON, as_lazy, dump
from forebay.wire.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    dump_message,
    get_meta,
    make_error_message,
    make_optional_key,
)
from forebay.wire.protocol import CLIENT_INFO_KEY, get_client_name, is_modern, protocol_version

__all__ = ["ForwardedRequest", "RequestHandler"]

_log = logging.getLogger("forebay")

_TOOLS_CHANGED_NOTIFICATION = dump({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})

_MAX_PARSED_ARGUMENTS_BYTES = 256 << 10
"""Maximum bytes of an object or array to parse in a call's arguments. Parsed, it may take twenty times the memory."""

_MAX_PARSED_STRING_BYTES = 4096
"""Maximum bytes of a string to parse in a call's arguments, such as the path in a reference."""

_MAX_PARSED_DEPTH = 512

_Params = Mapping[str, Any]


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
        # `expand_tools` lists all tools, which takes memory, so only one call of it runs at a time.
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
        """Log the current exception. Return an error to send instead, if the response must not be sent unredacted."""
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
        # The content of references may be large, so the references of only one call are resolved at a time.
        with self._resolve_lock:
            return ForwardedRequest(pending, self._resolve_references(pending.tool, request, arguments))

    def _resolve_references(self, tool: str, request: dict[str, Any], arguments: Mapping[str, Any]) -> Message:
        """Return a call with each reference replaced by its content."""
        folder = str(self._policy.store.folder or tempfile.gettempdir())
        resolved = self._policy.resolve_references(
            tool, arguments, self._session.principal, convert=lambda value: to_lazy(value, folder)
        )
        return _set_arguments(request, resolved)

    def _resolve_unparsed(self, pending: PendingRequest, arguments: object, meta: Mapping[str, Any]) -> Mode:
        """Return the mode of a call whose arguments are not an object, or have too many members to be parsed.

        Raises `InvalidArgument` if they have references, or arguments that only forebay reads.
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


class _RewrittenTools:
    """Tools of the server as a client sees them, parsed and rewritten one at a time."""

    def __init__(self, policy: OutputPolicy, items: Sequence[LazyJSON]) -> None:
        self._policy, self._items = policy, items

    def __iter__(self) -> Iterator[Any]:
        return (listed for tool in parse_tools(self._items) for listed in self._policy.rewrite_tools([tool]))
