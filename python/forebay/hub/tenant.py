"""A tenant is one session, or all stateless clients of one principal with equal capabilities."""

import asyncio
import contextlib
import contextvars
import dataclasses
import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from forebay import telemetry
from forebay.errors import ForebayError, UpstreamFailed
from forebay.hub.connection import ServerConnection
from forebay.hub.exchanges import Exchange
from forebay.hub.routes import Routes
from forebay.hub.translation import SERVER_INFO, translate_params, translate_result
from forebay.operations.responses import wrap_structured_content
from forebay.operations.spec import Identity, OperationSpec
from forebay.operations.tools import call_operation, finish_result
from forebay.outputs.capabilities import record_denial
from forebay.outputs.result import TASK_RESULT_METHODS, BodyResult
from forebay.proxy.calls import make_response, make_tool_call, record_size
from forebay.proxy.list_pages import parse_tools
from forebay.proxy.message_queue import Reply
from forebay.proxy.refusals import find_refusal
from forebay.proxy.request_handler import ForwardedRequest, RequestHandler
from forebay.proxy.response_handler import ResponseHandler
from forebay.proxy.session import PendingRequest, Session
from forebay.store.threads import run_in_pool, wait_all
from forebay.wire.errors import RequestFailed
from forebay.wire.framing import LostMessage, Message
from forebay.wire.lazy_json import LazyJSON, as_lazy, dump, to_text
from forebay.wire.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    dump_line,
    dump_message,
    get_meta,
    get_params,
    make_error_message,
    make_id_key,
    make_result_message,
    parse,
    replace_id,
    replace_result,
    replace_values,
)
from forebay.wire.protocol import (
    CANCELLED_METHOD,
    LIST_METHODS,
    TOOLS_CHANGED_METHOD,
    add_result_fields,
    check_request,
    is_modern,
)
from forebay.wire.tracing import add_trace_context, trace_request

if TYPE_CHECKING:
    from forebay.hub.hub import Hub

__all__ = ["Request", "RoutedRequest", "Tenant"]

_log = logging.getLogger("forebay")

_CONNECT_WAIT_SECONDS = 10.0
"""How long a new client waits for servers. One that connects later is added when it has connected."""

_MAX_INLINE_LIST_BYTES = 256 << 10
"""Lists of tools above this size are rewritten in a thread."""

_MAX_SPLICED_BYTES = 256 << 10
"""Responses above this size get their final id only after we know that they are not stored."""


@dataclasses.dataclass(slots=True)
class Request:
    """Request of a client that is forwarded to a server."""

    pending: PendingRequest
    message: dict[str, Any]
    raw: Message
    reply: Reply

    @property
    def params(self) -> dict[str, Any]:
        return get_params(self.message)

    @property
    def progress_token(self) -> bytes | None:
        """The progress token, as JSON."""
        meta = self.params.get("_meta")
        if isinstance(meta, LazyJSON):
            meta = meta.members(("progressToken",))
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        return None if token is None else dump(token)


@dataclasses.dataclass(slots=True)
class RoutedRequest:
    """A request of a client, the server that it is for, and the name of its tool or prompt there if that differs."""

    request: Request
    connection: ServerConnection
    name: str | None = None


class Tenant:
    """Handles the requests of its clients, with connections that it may share with other tenants."""

    is_stateless = False

    client_info: object = None
    """The `clientInfo` of the handshake."""

    def __init__(self, hub: "Hub", session: Session, capabilities: Mapping[str, Any]) -> None:
        self.hub = hub
        self.session = session
        self.capabilities = capabilities
        """The capabilities that servers see."""
        self.connections: dict[str, ServerConnection] = {}
        self._policy = hub.policy
        self._request_handler = RequestHandler(hub.policy, session, SERVER_INFO, self._list_tools)
        self._response_handler = ResponseHandler(hub.policy, session, SERVER_INFO)
        principal = session.principal
        self._identity = None if principal is None else Identity(principal, frozenset())
        self.routes = Routes(self.connections, hub.operations.registry, hub.names, self._identity)
        self._in_flight: dict[bytes, asyncio.Task[Any]] = {}
        self._cancelled: set[asyncio.Task[Any]] = set()
        self._start_task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Connect the servers. Concurrent callers share one attempt."""
        if self._start_task is None:
            self._start_task = asyncio.create_task(self._start())
        if not self._start_task.done():
            await asyncio.shield(self._start_task)

    async def _start(self) -> None:
        if self._is_closed:
            # Nothing would close the connections.
            return
        for config in self.hub.server_configs:
            self.connections[config.name] = self.hub.servers.acquire(config, self)
        await wait_all((connection.first_attempt for connection in self.connections.values()), _CONNECT_WAIT_SECONDS)
        self.routes.forget()

    async def close(self) -> None:
        """Give the connections back. Those that nobody else uses are closed."""
        self._is_closed = True
        self.hub.tenants.discard(self)
        if self._start_task is not None:
            self._start_task.cancel()
        connections = [*self.connections.values()]
        await asyncio.gather(*(self.hub.servers.release(connection, self) for connection in connections))

    # Messages to the client.

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send the client a notification that belongs to none of its requests."""
        raise NotImplementedError

    def on_tools_changed(self) -> None:
        """Forget what was known of the tools, and tell the client."""
        self.routes.forget()
        self._policy.knows_tools = False
        if self._start_task is not None and self._start_task.done():
            self.notify(TOOLS_CHANGED_METHOD)

    def on_notification(self, connection: ServerConnection, method: str, params: Mapping[str, Any]) -> None:
        """Handle a notification of a server that belongs to none of the client's requests."""
        self.routes.forget(connection)
        self.notify(method, params)

    def on_log_message(self, severity: int, raw: bytes, source: Exchange | None) -> None:
        """Send a log message to the client, if it wants that severity. `source` is the request that it belongs to."""
        raise NotImplementedError

    # Notifications of the client.

    def on_client_notification(self, message: dict[str, Any], raw: Message) -> None:
        """Cancel a request, or forward another notification of the client to its servers."""
        method = message["method"]
        if method == CANCELLED_METHOD:
            self.cancel_request(get_params(message).get("requestId"))
            return
        if not isinstance(method, str) or not method.startswith("notifications/"):
            # A lenient server could run anything else as a call.
            return
        if self._policy.capabilities.is_active:
            try:
                raw = self._check_and_serialize(message)
            except RequestFailed:
                return
        for connection in self.connections.values():
            with contextlib.suppress(UpstreamFailed):
                connection.send_notification(raw)

    # Requests of the client.

    async def handle_request(self, message: dict[str, Any], raw: Message, reply: Reply) -> Message | None:
        """Return the response to a request; `None` if the client has cancelled it."""
        key, task = make_id_key(message["id"]), cast("asyncio.Task[Any]", asyncio.current_task())
        try:
            check_request(message)
            if self._policy.capabilities.is_active:
                raw = self._check_and_serialize(message)
            self._in_flight[key] = task
            if not telemetry.is_active():
                return await self._handle(message, raw, reply)
            with trace_request(message, self.session.version):
                return await self._handle(message, raw, reply)
        except RequestFailed as error:
            return error.to_message(message["id"])
        except asyncio.CancelledError:
            if task not in self._cancelled:
                raise
            task.uncancel()
            return None
        except Exception:
            _log.exception("forebay: a request could not be handled")
            return make_error_message(
                message["id"], INTERNAL_ERROR, "the gateway failed; its log says why; try other arguments"
            )
        finally:
            self._cancelled.discard(task)
            if self._in_flight.get(key) is task:
                del self._in_flight[key]

    def cancel_request(self, request_id: object) -> None:
        task = self._in_flight.get(make_id_key(request_id))
        if task is not None:
            self._cancelled.add(task)
            task.cancel()

    def _check_and_serialize(self, message: dict[str, Any]) -> Message:
        """Serialize a message again, because a lenient server could read another call in the client's bytes.

        Raises `RequestFailed` if that could still happen.
        """
        line = dump_line(message)
        if isinstance(line, LostMessage):
            raise RequestFailed(INTERNAL_ERROR, str(line.error), line.error.to_dict()["error"])
        # No check for duplicate ids: servers get ours.
        refusal = find_refusal(message, line, lambda _: False)
        if refusal is not None:
            record_denial(self._policy.store.journal, refusal, self.session.principal)
            _log.warning("forebay: a message of a client was refused: %s", refusal)
            raise RequestFailed(INVALID_REQUEST, str(refusal))
        return line

    async def _handle(self, message: dict[str, Any], raw: Message, reply: Reply) -> Message:
        await self.start()
        method, params = message["method"], get_params(message)
        handler = self._request_handler
        if method == "tools/call" and isinstance(params.get("name"), LazyJSON):
            raise RequestFailed(INVALID_REQUEST, "the tool name is too long")
        if handler.needs_tool_list(method, params):
            self._policy.learn_tools(parse_tools(self._list_tools({})))
        if handler.is_slow(method, params):
            outcome = await run_in_pool(partial(handler, message, raw))
        else:
            outcome = handler(message, raw)
        if not isinstance(outcome, ForwardedRequest):
            *notifications, response = outcome
            if notifications:
                self.notify(TOOLS_CHANGED_METHOD)
            return response
        if outcome.replacement is not None:
            raw = outcome.replacement
            message = parse(raw)
        request = Request(outcome.pending, message, raw, reply)
        try:
            return await self._dispatch(method, request)
        except ForebayError as error:
            return handler.make_error_response(request.pending, error)

    async def _dispatch(self, method: str, request: Request) -> Message:
        match method:
            case "tools/call":
                return await self._call_tool(request)
            case "ping":
                return self._respond(request, {})
            case "tools/list":
                return await self._respond_with_tools(request)
            case "resources/subscribe" | "resources/unsubscribe":
                return await self._change_subscription(request)
            case "logging/setLevel":
                return await self._set_log_level(request)
        connections = [*self.connections.values()]
        owner = connections[0] if len(connections) == 1 else self._find_task_server(request)
        if owner is not None:
            return await self.forward(RoutedRequest(request, owner))
        return await self._find_and_forward(method, request)

    async def _find_and_forward(self, method: str, request: Request) -> Message:
        params = request.params
        # We have resources of our own, but no prompts.
        if method in LIST_METHODS and (self.connections or method != "prompts/list"):
            return self._rewrite(request.pending, self._respond(request, await self.routes.merge_lists(method, params)))
        ref = params.get("ref") if method == "completion/complete" else None
        ref = ref if isinstance(ref, dict) else {}
        subject = ref or params
        name, uri = to_text(subject.get("name")), to_text(subject.get("uri"))
        match method, ref.get("type"):
            case "prompts/get", _ if name is not None:
                connection, original = await self.routes.find_prompt(name)
                return await self.forward(RoutedRequest(request, connection, original))
            case "completion/complete", "ref/prompt" if name is not None:
                connection, original = await self.routes.find_prompt(name)
                message = {**request.message, "params": {**params, "ref": {**ref, "name": original}}}
                request = dataclasses.replace(request, message=message, raw=dump_message(message))
                return await self.forward(RoutedRequest(request, connection))
            case ("resources/read", _) | ("completion/complete", "ref/resource") if uri is not None:
                return await self.forward(RoutedRequest(request, await self.routes.find_resource(uri)))
        raise RequestFailed(METHOD_NOT_FOUND, "Method not found", method)

    def _find_task_server(self, request: Request) -> ServerConnection | None:
        """Return the server that runs the task named in a `tasks/…` request, or `None`."""
        if not request.pending.method.startswith("tasks/"):
            return None
        call = self._policy.tasks.find_call(request.params, self.session.task_owners)
        route = None if call is None else self.routes.find_tool(call[0])
        return route[0] if isinstance(route, tuple) else None

    def _respond(self, request: Request, result: dict[str, Any]) -> bytes:
        return make_response(request.pending, result, SERVER_INFO)

    def _rewrite(self, pending: PendingRequest, raw: Message) -> Message:
        """Add what forebay itself offers to a response."""
        replacement = self._response_handler(pending, parse(raw), raw)
        return raw if replacement is None else replacement

    def _respond_first(self, message: Mapping[str, Any], version: str, fields: Mapping[str, Any]) -> Message:
        """Return the response to `initialize` or `server/discover`: these fields, and what all servers offer."""
        pending = PendingRequest(message["method"], message["id"], version)
        pending.shows_apps = self.session.accepts_apps(get_meta(get_params(message)))
        return self._rewrite(pending, make_response(pending, {**fields, **self._describe_servers()}, SERVER_INFO))

    def _describe_servers(self) -> dict[str, Any]:
        """Return the capabilities and instructions of all servers, merged."""
        merged: dict[str, Any] = {"tools": {}}
        for connection in self.connections.values():
            for name, value in connection.server_capabilities.items():
                known = merged.get(name)
                merged[name] = {**known, **value} if isinstance(known, dict) and isinstance(value, dict) else value
        if isinstance(merged["tools"], dict):
            merged["tools"] = {**merged["tools"], "listChanged": True}
        texts = [connection.instructions for connection in self.connections.values()]
        instructions = "\n\n".join(text for text in texts if text)
        return {"capabilities": merged, **({"instructions": instructions} if instructions else {})}

    # Tools.

    def _list_tools(self, _meta: Mapping[str, Any]) -> list[LazyJSON]:
        return self.routes.list_tools(is_legacy=not self.is_stateless)

    async def _respond_with_tools(self, request: Request) -> Message:
        tools = b"[" + b",".join(item.json() for item in self._list_tools({})) + b"]"
        extras = {}
        if self.hub.has_single_upstream:
            (connection,) = self.connections.values()
            extras = connection.list_extras
        response = self._respond(request, {**extras, "tools": as_lazy(tools)})
        if len(response) <= _MAX_INLINE_LIST_BYTES:
            return self._rewrite(request.pending, response)
        return await run_in_pool(partial(self._rewrite, request.pending, response))

    async def _call_tool(self, request: Request) -> Message:
        name = request.params.get("name")
        if not isinstance(name, str):
            raise RequestFailed(INVALID_PARAMS, "params.name must be the name of a tool")
        route = self.routes.find_tool(name)
        if route is None:
            if not self.hub.has_single_upstream:
                raise self.routes.make_unknown_tool_error(name, self.hub.operations.unloaded)
            # Forward the call although the tool is unknown: the server may have tools that it does not list.
            (connection,) = self.connections.values()
            return await self.forward(RoutedRequest(request, connection))
        if isinstance(route, OperationSpec):
            return await self._call_operation(route, request, name)
        connection, original = route
        return await self.forward(RoutedRequest(request, connection, None if original == name else original))

    async def _call_operation(self, spec: OperationSpec, request: Request, name: str) -> Message:
        pending, policy = request.pending, self._policy
        params = as_lazy(request.raw).members(("params",))["params"]
        arguments = params.members(("arguments",)).get("arguments")
        try:
            value = {} if arguments is None else arguments.to_object()
        except (RecursionError, ValueError):
            text = "arguments are nested too deeply, or a number in them has too many digits; send simpler ones"
            raise RequestFailed(INVALID_PARAMS, text) from None
        if not isinstance(value, dict | None):
            raise RequestFailed(INVALID_PARAMS, "params.arguments must be an object if present")
        call = make_tool_call(pending, policy, self.session)
        limits = pending.mode.contract
        with policy.make_context(
            call.principal, call.handle_length, limits=limits, fetch_with=call.fetch_with
        ) as context:
            result = await call_operation(
                self.hub.operations.registry,
                spec,
                value or {},
                tool=name,
                identity=self._identity,
                request_id=pending.id if isinstance(pending.id, str | int) else None,
                timeout=self.hub.settings.call_timeout_seconds,
                is_legacy=not is_modern(pending.version),
            )
        # Before the result is stored, because the response with all its fields must fit into the limit.
        template = result.template if isinstance(result, BodyResult) else result
        template = add_result_fields(pending.method, template, pending.version, SERVER_INFO)
        result = dataclasses.replace(result, template=template) if isinstance(result, BodyResult) else template
        call = dataclasses.replace(call, contract_responses=context.responses)
        final, is_inline = await finish_result(result, policy.pipeline, pending.mode, call)
        response = make_result_message(pending.id, final)
        record_size(policy, self.session, pending.tool, len(response), pending.mode, is_inline=is_inline)
        return response

    # Requests to servers.

    async def forward(self, routed: RoutedRequest) -> Message:
        """Send a request to a server, and return the response for the client. Raises `UpstreamFailed`."""
        raise NotImplementedError

    def _begin(self, routed: RoutedRequest) -> Exchange:
        pending, connection = routed.request.pending, routed.connection
        if not connection.is_connected:
            raise connection.make_unreachable_error()
        exchange = connection.exchanges.new(pending.method)
        exchange.tenant, exchange.tool, exchange.reply = self, pending.tool, routed.request.reply
        exchange.timeout = connection.call_timeout
        exchange.finish = partial(self._finish, routed)
        if telemetry.is_active():
            # It may run in a thread that knows nothing of the request's span.
            exchange.finish = partial(contextvars.copy_context().run, exchange.finish)
        if pending.method == "tools/call" or pending.method in TASK_RESULT_METHODS:
            exchange.inline_limit = pending.mode.output_inline_limit_bytes
        exchange.progress_token = routed.request.progress_token
        return exchange

    def _make_message(
        self, routed: RoutedRequest, exchange: Exchange, extra_params: Mapping[str, Any] | None = None
    ) -> Message:
        """Return a request with the id of its exchange, in the protocol era of the server."""
        return add_trace_context(self._translate_request(routed, exchange, extra_params))

    def _translate_request(
        self, routed: RoutedRequest, exchange: Exchange, extra_params: Mapping[str, Any] | None
    ) -> Message:
        request, connection, name = routed.request, routed.connection, routed.name
        is_translated = connection.is_modern != is_modern(request.pending.version)
        params = request.message.get("params")
        if not extra_params and (not is_translated or (isinstance(params, dict) and "_meta" in params)):
            values: dict[tuple[str, ...], bytes] = {("id",): b"%d" % exchange.id}
            if name is not None:
                values["params", "name"] = dump(name)
            if is_translated:
                meta = self._translate_params(connection, exchange, {"_meta": params["_meta"]})  # type: ignore[index]
                values["params", "_meta"] = dump(meta.get("_meta", {}))
            elif exchange.progress_token is not None:
                values["params", "_meta", "progressToken"] = b"%d" % exchange.id
            return replace_values(request.raw, values)
        if isinstance(params, LazyJSON) and params.is_object:
            params = params.open_object()
        params = self._translate_params(connection, exchange, params if isinstance(params, dict) else {})
        if name is not None:
            params["name"] = name
        return dump_message({**request.message, "id": exchange.id, "params": {**params, **(extra_params or {})}})

    def _translate_params(
        self, connection: ServerConnection, exchange: Exchange, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the params of a request in the protocol era of the server."""
        params = translate_params(
            params, to_modern=connection.is_modern, client_info=self.client_info, capabilities=self.capabilities
        )
        if exchange.progress_token is not None:
            params["_meta"] = {**params.get("_meta", {}), "progressToken": exchange.id}
        return params

    def _finish(self, routed: RoutedRequest, message: dict[str, Any], raw: Message) -> Message | dict[str, Any]:
        """Return the response for the client, or the result of a server that asks its client first.

        May run in a thread.
        """
        pending = routed.request.pending
        try:
            return self._translate(routed, message, raw)
        except Exception:
            # The call has already run, so the client gets its result even without our changes.
            return self._request_handler.report_unhandled_response(pending) or replace_id(raw, pending.id)

    def _translate(self, routed: RoutedRequest, message: dict[str, Any], raw: Message) -> Message | dict[str, Any]:
        pending, connection = routed.request.pending, routed.connection
        original = result = message.get("result")
        if connection.is_modern and not is_modern(pending.version) and isinstance(result, dict):
            if result.get("resultType") == "input_required":
                return result
            if "structuredContent" in result:
                schema = connection.get_schema("outputSchema", routed.name or pending.tool)
                result = wrap_structured_content(result, schema)
        result = translate_result(pending.method, result, pending.version)
        message = {**message, "id": pending.id}
        if result is not original:
            message["result"] = result

        def finalize() -> Message:
            return replace_id(raw, pending.id) if result is original else replace_result(raw, message, original)

        # The size is that of what the client gets. A large response is likely to be replaced, so do not copy it first.
        is_large = len(raw) > _MAX_SPLICED_BYTES and pending.method not in LIST_METHODS
        replacement = self._response_handler(pending, message, raw if is_large else finalize())
        return finalize() if replacement is None else replacement

    # Subscriptions and log levels.

    async def _find_resource_server(self, request: Request) -> ServerConnection:
        uri = to_text(request.params.get("uri"))
        if uri is None:
            raise RequestFailed(INVALID_PARAMS, "params.uri must be the URI of a resource")
        return await self.routes.find_resource(uri)

    async def _change_subscription(self, request: Request) -> Message:
        return await self.forward(RoutedRequest(request, await self._find_resource_server(request)))

    async def _set_log_level(self, request: Request) -> Message:
        connections = [*self.connections.values()]
        if len(connections) != 1:
            connections = self.routes.find_capable("logging")
        if not connections:
            raise RequestFailed(METHOD_NOT_FOUND, "Method not found", request.pending.method)
        responses = [await self._set_level_at(connection, request) for connection in connections]
        return responses[0]

    async def _set_level_at(self, connection: ServerConnection, request: Request) -> Message:
        return await self.forward(RoutedRequest(request, connection))
