"""Tenants: each handles the requests of one session, or of all stateless clients of a principal that are alike."""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from forebay.errors import ForebayError, RedactionFailed
from forebay.hub.connection import ServerConnection
from forebay.hub.exchanges import Exchange
from forebay.hub.routes import LIST_METHODS, Routes, get_output_schema
from forebay.hub.translation import (
    SERVER_INFO,
    RequestFailed,
    is_input_required,
    open_object,
    translate_params,
    translate_result,
)
from forebay.operations.responses import needs_result_wrapper
from forebay.operations.spec import Identity, OperationSpec
from forebay.operations.tools import call_operation, finish_result
from forebay.outputs.capabilities import record_denial
from forebay.outputs.pipeline import HAS_RUN_NOTE
from forebay.outputs.result import TASK_RESULT_METHODS, BodyResult
from forebay.proxy.intercept import ForwardedRequest, RequestHandler, ResponseHandler, find_refusal, make_tool_call
from forebay.proxy.list_pages import parse_tools
from forebay.proxy.message_queue import Reply
from forebay.proxy.session import PendingRequest, Session
from forebay.store.threads import run_in_pool
from forebay.wire.framing import LostMessage, Message
from forebay.wire.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    LazyJSON,
    as_lazy,
    dump,
    dump_line,
    dump_message,
    make_error_message,
    make_id_key,
    make_result_message,
    parse,
    replace_values,
    to_text,
)
from forebay.wire.protocol import LOG_METHOD, TOOLS_CHANGED_METHOD, add_result_fields, is_modern

if TYPE_CHECKING:
    from forebay.hub.hub import Hub

__all__ = ["InputRequired", "Request", "Tenant", "check_request"]

_log = logging.getLogger("forebay")

_CONNECT_WAIT_SECONDS = 10.0
"""How long a new client waits for servers. One that connects later is added when it has connected."""

_LARGE_LIST_BYTES = 256 << 10
"""Lists of tools above this size are rewritten in a thread."""

_UNREADABLE_REQUEST = "this request cannot be read; look at its jsonrpc, its id, its params and the texts in them"


@dataclasses.dataclass(slots=True)
class Request:
    """Request of a client that is forwarded to a server."""

    pending: PendingRequest
    message: dict[str, Any]
    raw: Message
    reply: Reply
    is_changed: bool = False
    """Whether `raw` is no longer what `message` was parsed from."""

    @property
    def params(self) -> dict[str, Any]:
        params = self.message.get("params")
        return params if isinstance(params, dict) else {}


class InputRequired:
    """Result that asks a client for input which is asked by requests."""

    def __init__(self, result: dict[str, Any]) -> None:
        self.result = result


def check_request(message: Mapping[str, Any]) -> None:
    """Raise `RequestFailed` if a message is not a request of JSON-RPC 2.0."""
    request_id = message["id"]
    is_valid_id = isinstance(request_id, str | int | float | LazyJSON) and not isinstance(request_id, bool)
    is_valid = message.get("jsonrpc") == "2.0" and is_valid_id and isinstance(message["method"], str)
    if not is_valid or not isinstance(message.get("params", {}), dict | LazyJSON | None):
        raise RequestFailed(INVALID_REQUEST, _UNREADABLE_REQUEST)
    if not isinstance(get_meta_value(message), dict | LazyJSON | None):
        raise RequestFailed(INVALID_PARAMS, "_meta is an object; send one, or none")


def get_meta_value(message: Mapping[str, Any]) -> object:
    params = message.get("params")
    return params.get("_meta") if isinstance(params, dict) else None


class Tenant:
    """The upstreams of one session or of several equal clients, and the handling of their requests."""

    is_stateless = False

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
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CONNECT_WAIT_SECONDS):
                for connection in self.connections.values():
                    await connection.first_attempt.wait()
        self.routes.forget()

    async def close(self) -> None:
        """Give the connections back. Those that nobody else uses are closed."""
        self._is_closed = True
        self.hub.tenants.discard(self)
        if self._start_task is not None:
            self._start_task.cancel()
        connections = [*self.connections.values()]
        await asyncio.gather(*(self.hub.servers.release(connection, self) for connection in connections))

    # Clients of connections.

    @property
    def identity(self) -> object:
        return self

    def supports(self, method: str, params: Mapping[str, Any]) -> bool:
        raise NotImplementedError

    async def ask(
        self, connection: ServerConnection, message: Mapping[str, Any], raw: Message, exchange: Exchange | None
    ) -> dict[str, Any]:
        raise NotImplementedError

    def notify(self, raw: bytes, method: str) -> None:
        """Send the client a message that belongs to none of its requests."""
        raise NotImplementedError

    def on_tools_changed(self) -> None:
        self.routes.forget()
        self._policy.knows_tools = False
        if self._start_task is not None and self._start_task.done():
            self.notify(_TOOLS_CHANGED, TOOLS_CHANGED_METHOD)

    def on_notification(self, connection: ServerConnection, method: str, params: Mapping[str, Any]) -> None:
        self.routes.forget(connection)
        self.notify(dump({"jsonrpc": "2.0", "method": method, "params": params}), method)

    def on_log_message(self, severity: int, raw: bytes, reply: Reply | None) -> None:
        del severity
        if reply is not None:
            reply.send(raw, LOG_METHOD)
        else:
            self.notify(raw, LOG_METHOD)

    # Requests of the client.

    async def handle_request(self, message: dict[str, Any], raw: Message, reply: Reply) -> Message | None:
        """Return the response to a request; `None` if the client has cancelled it."""
        key, task = make_id_key(message["id"]), cast("asyncio.Task[Any]", asyncio.current_task())
        try:
            if self._policy.capabilities.is_active:
                raw = self._filter(message)
            self._in_flight[key] = task
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

    def cancel_request(self, request_id: object) -> bool:
        """Cancel a request of the client; return whether there is one."""
        task = self._in_flight.get(make_id_key(request_id))
        if task is None:
            return False
        self._cancelled.add(task)
        task.cancel()
        return True

    def _filter(self, message: dict[str, Any]) -> Message:
        """Return the only bytes that the server may get if tools are filtered. Raises `RequestFailed`."""
        # Serialize the message again: the server might parse the client's bytes differently and see another call.
        line = dump_line(message)
        if isinstance(line, LostMessage):
            raise RequestFailed(INTERNAL_ERROR, str(line.error), line.error.to_dict()["error"])
        # Ids may be in use: clients without sessions choose theirs independently, and servers get ours.
        refusal = find_refusal(message, line, lambda _: False)
        if refusal is not None:
            record_denial(self._policy.store.journal, refusal, self.session.principal)
            _log.warning("forebay: a message of a client was refused: %s", refusal)
            raise RequestFailed(INVALID_REQUEST, str(refusal))
        return line

    async def _handle(self, message: dict[str, Any], raw: Message, reply: Reply) -> Message:
        await self.start()
        method, params = message["method"], message.get("params")
        params = params if isinstance(params, dict) else {}
        handler = self._request_handler
        if method == "tools/call" and isinstance(params.get("name"), LazyJSON):
            raise RequestFailed(INVALID_REQUEST, _UNREADABLE_REQUEST)
        if handler.needs_tool_list(method, params):
            self._policy.learn_tools(parse_tools(self._list_tools({})))
        if handler.is_slow(method, params):
            outcome = await run_in_pool(partial(handler, message, raw))
        else:
            outcome = handler(message, raw)
        if not isinstance(outcome, ForwardedRequest):
            *notifications, response = outcome
            for notification in notifications:
                self.notify(notification, TOOLS_CHANGED_METHOD)
            return response
        is_changed = outcome.replacement is not None
        request = Request(outcome.pending, message, outcome.replacement if is_changed else raw, reply, is_changed)  # type: ignore[arg-type]
        try:
            return await self._route(method, request)
        except ForebayError as error:
            return handler.make_error_response(request.pending, error)

    async def _route(self, method: str, request: Request) -> Message:
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
        owner = connections[0] if len(connections) == 1 else self._find_task_owner(request)
        if owner is not None:
            return await self.forward(owner, request)
        return await self._route_to_server(method, request)

    async def _route_to_server(self, method: str, request: Request) -> Message:
        params = request.params
        if method in LIST_METHODS and (self.connections or method != "prompts/list"):
            return self._rewrite(request, self._respond(request, await self.routes.merge_lists(method, params)))
        ref = params.get("ref") if method == "completion/complete" else None
        ref = ref if isinstance(ref, dict) else {}
        named = ref or params
        name, uri = to_text(named.get("name")), to_text(named.get("uri"))
        match method, ref.get("type"):
            case "prompts/get", _ if name is not None:
                connection, original = await self.routes.find_prompt(name)
                return await self.forward(connection, request, name=original)
            case "completion/complete", "ref/prompt" if name is not None:
                connection, original = await self.routes.find_prompt(name)
                message = {**request.message, "params": {**params, "ref": {**ref, "name": original}}}
                return await self.forward(
                    connection, dataclasses.replace(request, message=message, raw=dump_message(message))
                )
            case ("resources/read", _) | ("completion/complete", "ref/resource") if uri is not None:
                return await self.forward(await self.routes.find_resource(uri), request)
        raise RequestFailed(METHOD_NOT_FOUND, "Method not found", method)

    def _find_task_owner(self, request: Request) -> ServerConnection | None:
        """Return the server that runs the task named in a `tasks/…` request, or `None`."""
        if not request.pending.method.startswith("tasks/"):
            return None
        call = self._policy.tasks.find_call(request.params, self.session.task_owners)
        route = None if call is None else self.routes.find_tool(call[0])
        return route[0] if isinstance(route, tuple) else None

    def _respond(self, request: Request, result: dict[str, Any]) -> bytes:
        pending = request.pending
        return make_result_message(pending.id, add_result_fields(pending.method, result, pending.version, SERVER_INFO))

    def _rewrite(self, request: Request, raw: Message) -> Message:
        """Add what forebay itself offers to a response."""
        replacement = self._response_handler(request.pending, parse(raw), raw)
        return raw if replacement is None else replacement

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
        if len(response) <= _LARGE_LIST_BYTES:
            return self._rewrite(request, response)
        return await run_in_pool(partial(self._rewrite, request, response))

    async def _call_tool(self, request: Request) -> Message:
        name = request.params.get("name")
        if not isinstance(name, str):
            raise RequestFailed(INVALID_PARAMS, "a call names its tool; send params with a name")
        route = self.routes.find_tool(name)
        if route is None:
            if not self.hub.has_single_upstream:
                raise self.routes.make_unknown_tool_error(name)
            # Forward the call although the tool is unknown: the server may have tools that it does not list.
            (connection,) = self.connections.values()
            return await self.forward(connection, request)
        if isinstance(route, OperationSpec):
            return await self._call_operation(route, request)
        connection, original = route
        return await self.forward(connection, request, name=None if original == name else original)

    async def _call_operation(self, spec: OperationSpec, request: Request) -> Message:
        pending, policy = request.pending, self._policy
        params = as_lazy(request.raw).members(("params",))["params"]
        arguments = params.members(("arguments",)).get("arguments")
        try:
            value = {} if arguments is None else arguments.to_object()
        except (RecursionError, ValueError):
            text = "arguments are nested too deeply, or a number in them has too many digits; send simpler ones"
            raise RequestFailed(INVALID_PARAMS, text) from None
        if not isinstance(value, dict | None):
            raise RequestFailed(INVALID_PARAMS, "arguments is an object; send one, or none")
        call = make_tool_call(pending, policy, self.session)
        limits = pending.mode.contract
        with policy.make_context(
            call.principal, call.handle_length, limits=limits, fetch_with=call.fetch_with
        ) as context:
            result = await call_operation(
                self.hub.operations.registry,
                spec,
                value or {},
                identity=self._identity,
                request_id=pending.id if isinstance(pending.id, str | int) else None,
                timeout=self.hub.settings.call_timeout_seconds,
                is_legacy=not is_modern(pending.version),
            )
        # Before the result is stored, because the response with all its fields must fit into the limit.
        if isinstance(result, BodyResult):
            template = add_result_fields(pending.method, result.template, pending.version, SERVER_INFO)
            result = dataclasses.replace(result, template=template)
        else:
            result = add_result_fields(pending.method, result, pending.version, SERVER_INFO)
        call = dataclasses.replace(call, contract_responses=context.responses)
        final, is_inline = await finish_result(result, policy.pipeline, pending.mode, call)
        response = make_result_message(pending.id, final)
        policy.record_size(
            pending.tool,
            len(response),
            pending.mode,
            is_inline=is_inline,
            principal=call.principal,
            connection=self.session.connection,
        )
        return response

    # Requests to servers.

    async def forward(self, connection: ServerConnection, request: Request, *, name: str | None = None) -> Message:
        """Send a request to a server, and return the response for the client. Raises `UpstreamFailed`.

        `name` is the name of the tool or prompt at the server, if it differs.
        """
        exchange = self._begin(connection, request, name)
        raw = self._make_message(connection, exchange, request, name)
        outcome = await self._complete(connection, exchange, request, name, raw)
        if isinstance(outcome, InputRequired):
            return await self._resolve_inputs(connection, request, name, outcome)
        response: Message = outcome
        return response

    def _begin(self, connection: ServerConnection, request: Request, name: str | None) -> Exchange:
        pending = request.pending
        exchange = connection.begin(pending.method)
        exchange.client = self
        exchange.reply = request.reply
        exchange.timeout = connection.call_timeout
        exchange.finish = partial(self._finish, request, connection, name)
        if pending.method == "tools/call" or pending.method in TASK_RESULT_METHODS:
            exchange.inline_limit = pending.mode.output_inline_limit_bytes
        meta = request.params.get("_meta")
        if isinstance(meta, LazyJSON):
            meta = meta.members(("progressToken",))
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        if token is not None:
            exchange.token = dump(token)
        return exchange

    async def _complete(
        self, connection: ServerConnection, exchange: Exchange, request: Request, name: str | None, raw: Message
    ) -> "Message | InputRequired":
        raise NotImplementedError

    async def _resolve_inputs(
        self, connection: ServerConnection, request: Request, name: str | None, required: InputRequired
    ) -> Message:
        raise NotImplementedError

    def _make_message(
        self,
        connection: ServerConnection,
        exchange: Exchange,
        request: Request,
        name: str | None,
        extra_params: Mapping[str, Any] | None = None,
    ) -> Message:
        """Return a request with the id of its exchange, in the protocol era of the server."""
        is_translated = connection.is_modern != is_modern(request.pending.version)
        message = parse(request.raw) if request.is_changed and is_translated else request.message
        params = message.get("params")
        if not extra_params and (not is_translated or (isinstance(params, dict) and "_meta" in params)):
            values: dict[tuple[str, ...], bytes] = {("id",): b"%d" % exchange.id}
            if name is not None:
                values["params", "name"] = dump(name)
            if is_translated:
                meta = self._translate_params(connection, exchange, {"_meta": params["_meta"]})  # type: ignore[index]
                values["params", "_meta"] = dump(meta.get("_meta", {}))
            elif exchange.token is not None:
                values["params", "_meta", "progressToken"] = b"%d" % exchange.id
            return replace_values(request.raw, values)
        if isinstance(params, LazyJSON) and params.is_object:
            params = open_object(params)
        params = params if isinstance(params, dict) else {}
        if is_translated:
            params = self._translate_params(connection, exchange, params)
        if name is not None:
            params = {**params, "name": name}
        return dump_message({**message, "id": exchange.id, "params": {**params, **(extra_params or {})}})

    def _translate_params(
        self, connection: ServerConnection, exchange: Exchange, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the params of a request in the protocol era of the server."""
        params = translate_params(
            params, to_modern=connection.is_modern, client_info=self.client_info, capabilities=self.capabilities
        )
        if exchange.token is not None:
            params["_meta"]["progressToken"] = exchange.id
        return params

    @property
    def client_info(self) -> object:
        """The `clientInfo` of the handshake."""
        return None

    def _finish(
        self, request: Request, connection: ServerConnection, name: str | None, message: dict[str, Any], raw: Message
    ) -> "Message | InputRequired":
        """Return the response for the client. May run in a thread."""
        pending = request.pending
        try:
            return self._translate(request, connection, name, message, raw)
        except Exception:
            _log.exception("forebay: the answer to %.64s could not be handled", pending.method)
            if self._policy.store.options.redactions and pending.method in ("tools/call", *TASK_RESULT_METHODS):
                error = RedactionFailed("the answer could not be redacted, so it is not shown")
                return self._request_handler.make_error_response(pending, error, note=HAS_RUN_NOTE)
            # The call has already run, so the client gets its result even without our changes.
            return _set_id(raw, pending.id)

    def _translate(
        self, request: Request, connection: ServerConnection, name: str | None, message: dict[str, Any], raw: Message
    ) -> "Message | InputRequired":
        pending = request.pending
        original = result = message.get("result")
        is_modern_client = is_modern(pending.version)
        if connection.is_modern and not is_modern_client:
            if is_input_required(result):
                return InputRequired(result)  # type: ignore[arg-type]
            result = _wrap_structured_content(result, connection, name or pending.tool)
        if result is not None and (is_modern_client or not isinstance(result, dict) or "resultType" in result):
            result = translate_result(pending.method, result, pending.version)
        is_same = result is original
        message = {**message, "id": pending.id} if is_same else {**message, "id": pending.id, "result": result}
        if pending.method in LIST_METHODS:
            # The handler splices its own entries into the bytes.
            raw = _set_id(raw, pending.id) if is_same else dump_message(message)
            replacement = self._response_handler(pending, message, raw)
            return raw if replacement is None else replacement
        if len(raw) > _LARGE_LIST_BYTES:
            replacement = self._response_handler(pending, message, raw)
            if replacement is not None:
                return replacement
            return _set_id(raw, pending.id) if is_same else dump_message(message)
        # With the final id, so that the size is that of what the client gets.
        raw = _set_id(raw, pending.id) if is_same else _set_result(raw, message, original)
        replacement = self._response_handler(pending, message, raw)
        return raw if replacement is None else replacement

    # Subscriptions and log levels.

    async def _find_resource_server(self, request: Request) -> ServerConnection:
        uri = to_text(request.params.get("uri"))
        if uri is None:
            raise RequestFailed(INVALID_PARAMS, "a subscription names its resource; send params with a uri")
        connections = [*self.connections.values()]
        return connections[0] if len(connections) == 1 else await self.routes.find_resource(uri)

    async def _change_subscription(self, request: Request) -> Message:
        return await self.forward(await self._find_resource_server(request), request)

    async def _set_log_level(self, request: Request) -> Message:
        connections = [*self.connections.values()]
        if len(connections) != 1:
            connections = self.routes.find_capable("logging")
        if not connections:
            raise RequestFailed(METHOD_NOT_FOUND, "Method not found", request.pending.method)
        responses = [await self._forward_log_level(connection, request) for connection in connections]
        return responses[0]

    async def _forward_log_level(self, connection: ServerConnection, request: Request) -> Message:
        return await self.forward(connection, request)


_TOOLS_CHANGED = dump({"jsonrpc": "2.0", "method": TOOLS_CHANGED_METHOD})


def _set_id(raw: Message, request_id: object) -> Message:
    return replace_values(raw, {("id",): dump(request_id)})


def _set_result(raw: Message, message: Mapping[str, Any], original: object) -> Message:
    """Return the bytes of a message whose result has replaced another one, `original`."""
    result = message["result"]
    if not isinstance(original, dict) or not isinstance(result, dict):
        return dump_message(message)
    if any(name not in result or result[name] is not value for name, value in original.items()):
        return dump_message(message)
    added = {name: value for name, value in result.items() if name not in original}
    return replace_values(raw, {("id",): dump(message["id"])}, {("result",): dump(added)[1:-1]})


def _wrap_structured_content(result: Any, connection: ServerConnection, tool: str) -> Any:
    """Wrap structured content if it or its schema is not of type object, as versions before 2026-07-28 require."""
    if not isinstance(result, dict) or "structuredContent" not in result:
        return result
    structured = result["structuredContent"]
    is_object = isinstance(structured, dict) or (isinstance(structured, LazyJSON) and structured.is_object)
    if is_object and not needs_result_wrapper(get_output_schema(connection, tool)):
        return result
    return {**result, "structuredContent": {"result": structured}}
