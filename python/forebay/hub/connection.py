"""Connections to MCP servers: each may be shared by several clients, and is opened again when it is lost."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from forebay.errors import UpstreamFailed, UpstreamTimeout
from forebay.hub.exchanges import Exchange, Exchanges, Response
from forebay.hub.questions import Questions
from forebay.hub.receiver import ServerReceiver
from forebay.hub.subscriptions import ResourceSubscriptions
from forebay.hub.translation import SERVER_INFO, translate_params
from forebay.operations.sources import retry_until_connected
from forebay.outputs.known_tools import parse_definition
from forebay.proxy.http.upstream import HttpUpstream
from forebay.proxy.list_pages import ToolPages, index_tools
from forebay.proxy.session import make_cancellation
from forebay.proxy.workers import ResponseWorkers
from forebay.store.threads import run_in_thread
from forebay.wire.errors import RequestFailed
from forebay.wire.framing import Message
from forebay.wire.lazy_json import LazyJSON, dump, to_text
from forebay.wire.messages import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    dump_message,
    get_meta,
    get_params,
    parse,
    read_bytes,
    replace_values,
)
from forebay.wire.protocol import (
    ACKNOWLEDGED_METHOD,
    CANCELLED_METHOD,
    LEGACY_VERSION,
    LIST_CHANGED_KEYS,
    LOG_LEVELS,
    LOG_METHOD,
    MODERN_VERSION,
    PROGRESS_METHOD,
    SUBSCRIPTION_ID_KEY,
    TOOLS_CHANGED_METHOD,
    UNSUPPORTED_VERSION,
    UPDATED_METHOD,
)

if TYPE_CHECKING:
    from forebay.hub.tenant import Tenant
    from forebay.proxy.stdio import StdioUpstream

__all__ = ["ServerConnection"]

_log = logging.getLogger("forebay")

_RECONNECT_DELAY_SECONDS = 1.0
"""Delay before the first attempt to connect again."""

_CONNECT_TIMEOUT_SECONDS = 30.0

_STOP_TIMEOUT_SECONDS = 2.0
"""How long the last output of a server that has ended may take to be read."""

_DISCOVER_TIMEOUT_SECONDS = 5.0
"""How long a server may take to answer `server/discover`. Some ignore requests that they do not know."""

_LISTING_INTERVAL_SECONDS = 1.0
"""Minimum time between two listings of the tools, however many changes a server announces."""

_UNSUPPORTED_CODES = (METHOD_NOT_FOUND, INVALID_REQUEST, INVALID_PARAMS, UNSUPPORTED_VERSION)
"""Error codes of a server that does not support `initialize` or `subscriptions/listen`."""

_MIN_LISTEN_DELAY_SECONDS, _MAX_LISTEN_DELAY_SECONDS = 0.5, 30.0

_ABOVE_ALL_LEVELS = len(LOG_LEVELS)
"""Severity of a log message that each client gets, whatever level it wants."""

_OnNotification = Callable[[str, Mapping[str, Any]], None]


class ServerConnection:
    """Connection to one MCP server. Use it in the event loop only; `receiver` takes messages in other threads."""

    def __init__(
        self,
        name: str,
        make_upstream: "Callable[[ServerConnection], StdioUpstream | HttpUpstream]",
        workers: ResponseWorkers,
        *,
        prefers_handshake: bool,
        client_capabilities: Mapping[str, Any],
        call_timeout: float | None,
        has_many_principals: bool = False,
    ) -> None:
        self.name = name
        self.call_timeout = call_timeout
        self.tenants: dict[Tenant, None] = {}
        """The tenants that use this connection, in the order in which they came."""
        self.has_many_principals = has_many_principals
        """Whether tenants of several principals use this connection, so that none may get what is for another."""
        self.is_connected = False
        self.is_modern = False
        """Whether the server speaks 2026-07-28, which has no handshake."""
        self.initialize_result: dict[str, Any] = {}
        """The result of `initialize` or `server/discover`."""
        self.tools: dict[str, LazyJSON] = {}
        self.list_extras: dict[str, Any] = {}
        """What the server's list of tools has besides tools and paging, from all pages."""
        self.first_attempt = asyncio.Event()
        """Set when the first attempt to connect has succeeded or failed."""
        self.log_level: str | None = None
        """The level that was set last, in the handshake era."""
        # A message of one principal may hold what a lenient server takes for the id of another's request.
        self.exchanges = Exchanges(name, self._send_cancellation, has_secret_ids=has_many_principals)
        self.questions = Questions(self)
        self.subscriptions = ResourceSubscriptions(self)
        self.receiver = ServerReceiver(self, self.exchanges, workers)
        self._make_upstream = make_upstream
        self._prefers_handshake = prefers_handshake
        self._client_capabilities = client_capabilities
        self._initialize_params = {
            "protocolVersion": LEGACY_VERSION,
            "capabilities": client_capabilities,
            "clientInfo": SERVER_INFO,
        }
        self.loop = asyncio.get_running_loop()
        self._upstream: StdioUpstream | HttpUpstream | None = None
        self._serve_task: asyncio.Task[None] | None = None
        self._has_connected, self._has_stopped = asyncio.Event(), asyncio.Event()
        self._listing_lock = asyncio.Lock()
        self._listing_task: asyncio.Task[None] | None = None
        self._is_listing_wanted = False
        self._listen_task: asyncio.Task[None] | None = None
        self._cork: contextlib.AbstractContextManager[None] | None = None
        """Holds back messages to a process until the end of this turn of the event loop."""
        self._connect_task = asyncio.create_task(self._keep_connected())

    # The life of the connection.

    async def _keep_connected(self) -> None:
        while True:
            await retry_until_connected(self.name, self._connect, self.first_attempt)
            self._notify_tools_changed()
            await self._has_stopped.wait()
            self.is_connected = False
            self._has_connected.clear()
            await asyncio.sleep(_RECONNECT_DELAY_SECONDS)

    async def _connect(self) -> None:
        starting = asyncio.ensure_future(run_in_thread(partial(self._make_upstream, self), daemon=True))
        try:
            self._upstream = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The process may be about to start, and must not be left behind.
            with contextlib.suppress(Exception):
                await run_in_thread((await starting).close, daemon=True)
            raise
        self._has_stopped.clear()
        if isinstance(self._upstream, HttpUpstream):
            self._serve_task = asyncio.create_task(self._upstream.serve(self.receiver))
            self._serve_task.add_done_callback(lambda _: self._has_stopped.set())
        else:
            threading.Thread(target=self._run, args=(self._upstream,), name="forebay-upstream", daemon=True).start()
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_SECONDS):
                await self._open_session()
                await self._list_tools()
        except BaseException as error:
            await self._stop()
            if self._prefers_handshake and isinstance(error, RequestFailed) and error.code in _UNSUPPORTED_CODES:
                # On a new connection, because the first request decides the era of a connection.
                self._prefers_handshake = False
                await self._connect()
                return
            if isinstance(error, TimeoutError):
                text = f"the server did not answer within {_CONNECT_TIMEOUT_SECONDS:g} s"
                raise UpstreamTimeout(text) from None
            raise
        self.is_connected = True
        self._has_connected.set()
        self.subscriptions.restore()
        if self.is_modern and self._listen_task is None:
            self._listen_task = asyncio.create_task(self._follow_changes())

    def _run(self, upstream: "StdioUpstream") -> None:
        try:
            upstream.run(self.receiver)
        finally:
            self.receiver.post(self._has_stopped.set)

    async def _stop(self) -> None:
        upstream, self._upstream, self.is_connected = self._upstream, None, False
        if upstream is not None:
            await asyncio.shield(asyncio.ensure_future(run_in_thread(upstream.close, daemon=True)))
            # Its output is read in this loop, which may be about to end.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_stopped.wait(), _STOP_TIMEOUT_SECONDS)

    async def close(self) -> None:
        """Close the connection, and end the server if we have started it."""
        self.receiver.close()
        tasks = [task for task in (self._connect_task, self._listing_task, self._listen_task) if task is not None]
        for task in tasks:
            task.cancel()
        self.questions.cancel_all()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._stop()
        self.exchanges.fail_all(UpstreamFailed("the gateway is about to end; retry when it is back"))

    async def wait_connected(self) -> None:
        """Wait until the server is connected, for the first time or again."""
        await self._has_connected.wait()

    @property
    def server_capabilities(self) -> dict[str, Any]:
        """The capabilities of the server; empty while it is not connected."""
        capabilities = self.initialize_result.get("capabilities") if self.is_connected else None
        return capabilities if isinstance(capabilities, dict) else {}

    @property
    def instructions(self) -> str | None:
        return to_text(self.initialize_result.get("instructions")) if self.is_connected else None

    async def _open_session(self) -> None:
        if self._prefers_handshake:
            await self._initialize()
            return
        attempts = [asyncio.create_task(self._discover())]
        try:
            await asyncio.wait(attempts, timeout=_DISCOVER_TIMEOUT_SECONDS)
            if not attempts[0].done() or isinstance(attempts[0].exception(), RequestFailed):
                # It may have ignored the request, or just be slow to start. So take the first success of either.
                attempts.append(asyncio.create_task(self._initialize()))
            for attempt in asyncio.as_completed(attempts):
                try:
                    await attempt
                    return
                except RequestFailed as error:
                    _log.debug("forebay: %s refuses one way to connect: %s", self.name, error)
            await attempts[-1]
        finally:
            for attempt in attempts:
                attempt.cancel()
            await asyncio.gather(*attempts, return_exceptions=True)

    async def _initialize(self) -> None:
        self.is_modern, self.receiver.negotiated_version = False, None
        result = await self.request("initialize", self._initialize_params)
        self._check_capabilities(result)
        self.is_modern, self.initialize_result = False, result
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def _discover(self) -> None:
        self.is_modern = True
        result = await self.request("server/discover", {})
        self._check_capabilities(result)
        if MODERN_VERSION not in (result.get("supportedVersions") or ()):
            raise RequestFailed(UNSUPPORTED_VERSION, f"the server does not support {MODERN_VERSION}")
        self.is_modern, self.initialize_result = True, result

    def _check_capabilities(self, result: dict[str, Any]) -> None:
        if not isinstance(result.get("capabilities"), dict):
            raise RequestFailed(INVALID_REQUEST, f"the first answer of {self.name} has no capabilities")

    # Requests and notifications to the server.

    def make_unreachable_error(self) -> UpstreamFailed:
        return UpstreamFailed(f"{self.name} cannot be reached just now; retry later")

    async def complete(self, exchange: Exchange, raw: Message) -> Any:
        """Send a request and return its result, as made by `exchange.finish`. Raises `UpstreamFailed`."""
        self.exchanges.add(exchange)
        try:
            self.send_raw(raw)
        except UpstreamFailed:
            self.exchanges.settle(exchange)
            raise
        if exchange.timeout is not None:
            self.exchanges.restart_timer(exchange)
        try:
            return await exchange.future
        except asyncio.CancelledError:
            self.exchanges.cancel(exchange, "the client has cancelled the request")
            raise

    def _send_cancellation(self, exchange: Exchange, reason: str) -> None:
        with contextlib.suppress(UpstreamFailed):
            self.send_raw(make_cancellation(exchange.id, reason))

    async def request(self, method: str, params: Mapping[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """Return the result of a request of our own, parsed lazily.

        Raises `RequestFailed`, `UpstreamFailed` and, after `timeout` seconds, `UpstreamTimeout`.
        """
        message, _ = await self.request_message(method, params, timeout=timeout)
        result = message["result"]
        if isinstance(result, LazyJSON) and result.is_object:
            result = result.open_object()
        return result if isinstance(result, dict) else {}

    async def request_message(
        self,
        method: str,
        params: Mapping[str, Any],
        on_notification: _OnNotification | None = None,
        timeout: float | None = None,
    ) -> Response:
        """Return the response to a request of our own, parsed lazily and as bytes.

        `on_notification` receives the notifications of a subscription. Raises `RequestFailed` and `UpstreamFailed`.
        """
        exchange = self.exchanges.new(method)
        exchange.on_notification, exchange.timeout = on_notification, timeout
        if self.is_modern:
            params = translate_params(params, to_modern=True, capabilities=self._client_capabilities)
        request = {"jsonrpc": "2.0", "id": exchange.id, "method": method, "params": params}
        message, raw = await self.complete(exchange, dump(request))
        if message.get("result") is None:
            raise RequestFailed.from_response(message)
        return message, raw

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a notification or a response; drop it if the server is gone."""
        with contextlib.suppress(UpstreamFailed):
            self.send_raw(dump_message(message))

    def send_raw(self, raw: Message) -> None:
        """Send a message. Those of one turn of the event loop are written together. Raises `UpstreamFailed`."""
        upstream = self._upstream
        if upstream is None:
            raise self.make_unreachable_error()
        if self._cork is None and not isinstance(upstream, HttpUpstream):
            self._cork = upstream.corked(self._on_unsent)
            self._cork.__enter__()
            self.loop.call_soon(self._uncork)
        upstream.send(raw)

    def _uncork(self) -> None:
        if self._cork is not None:
            cork, self._cork = self._cork, None
            cork.__exit__(None, None, None)

    def _on_unsent(self, raw: Message, error: UpstreamFailed) -> None:
        """Fail a request that was held back and cannot be sent any more."""
        message = parse(raw)
        exchange = self.exchanges.find(message.get("id")) if isinstance(message, dict) else None
        if exchange is not None and "method" in message:
            self.exchanges.fail(exchange, error)

    def send_notification(self, raw: Message) -> None:
        """Send a notification of a client. Raises `UpstreamFailed` if the server is gone or takes them too slowly."""
        if self._upstream is not None and not self._upstream.has_room:
            _log.debug("forebay: a notification to %s is dropped, because it reads too slowly", self.name)
            raise UpstreamFailed(f"{self.name} reads too slowly: earlier messages are still queued; retry later")
        self.send_raw(raw)

    async def replay_session(self, send: Callable[[Message], None]) -> None:
        """Repeat the handshake and what followed to a server that has lost its session. `send` may block."""
        if not self.is_modern and self.receiver.negotiated_version is not None:
            message = await self._replay_request(send, "initialize", self._initialize_params)
            if "result" not in message:
                raise UpstreamFailed("the server refused what it was asked")
            if isinstance(message["result"], dict):
                self.initialize_result = message["result"]
            initialized = dump({"jsonrpc": "2.0", "method": "notifications/initialized"})
            await run_in_thread(partial(send, initialized), daemon=True)
            if self.log_level is not None:
                await self._replay_request(send, "logging/setLevel", {"level": self.log_level})
            for uri in [*self.subscriptions.subscribers]:
                await self._replay_request(send, "resources/subscribe", {"uri": uri})
        self.schedule_listing()

    async def _replay_request(
        self, send: Callable[[Message], None], method: str, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        exchange = self.exchanges.new(method)
        self.exchanges.add(exchange)
        raw = dump({"jsonrpc": "2.0", "id": exchange.id, "method": method, "params": params})
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_SECONDS):
                await run_in_thread(partial(send, raw), daemon=True)
                message, _ = await exchange.future
                return message  # type: ignore[no-any-return]
        except TimeoutError:
            raise UpstreamTimeout(f"the server did not answer within {_CONNECT_TIMEOUT_SECONDS:g} s") from None
        finally:
            self.exchanges.settle(exchange)

    # Requests and notifications from the server.

    def on_server_message(self, message: dict[str, Any], raw: Message, stream_request_id: object) -> None:
        method, params = message["method"], get_params(message)
        if not isinstance(method, str):
            return
        if "id" in message:
            self.questions.add(message, raw, stream_request_id)
        elif method == PROGRESS_METHOD:
            self._on_progress(params, raw, stream_request_id)
        elif method == CANCELLED_METHOD:
            self.questions.cancel(params.get("requestId"))
        elif method == LOG_METHOD:
            self._on_log_message(params, raw, stream_request_id)
        else:
            self._on_other_notification(method, params)

    def _on_progress(self, params: Mapping[str, Any], raw: Message, stream_request_id: object) -> None:
        exchange = self.exchanges.find(params.get("progressToken"))
        if exchange is None or stream_request_id not in (None, exchange.id):
            return
        if exchange.reply is not None and exchange.progress_token is not None:
            renamed = replace_values(raw, {("params", "progressToken"): exchange.progress_token})
            exchange.reply.send(read_bytes(renamed), PROGRESS_METHOD)
        self.exchanges.restart_timer(exchange)

    def _on_log_message(self, params: Mapping[str, Any], raw: Message, stream_request_id: object) -> None:
        """Send a log message to the client of the request that it belongs to.

        If that is not clear, all sessions get it, or nobody if the server has many principals.
        """
        level = params.get("level")
        severity = LOG_LEVELS.index(level) if level in LOG_LEVELS else _ABOVE_ALL_LEVELS
        if len(self.tenants) == 1 and not next(iter(self.tenants)).is_stateless:
            # The server knows the level of its only session.
            severity = _ABOVE_ALL_LEVELS
        if stream_request_id is None and self.has_many_principals:
            # It may be about a request of any of them, also one that has ended.
            return
        data = read_bytes(raw)
        sources = [exchange for exchange in self.exchanges.list_sources(stream_request_id) if exchange.reply]
        if len({exchange.tenant for exchange in sources}) == 1:
            source = sources[-1]
            is_clear = len(sources) == 1 or (source.tenant is not None and not source.tenant.is_stateless)
            if source.tenant is not None and is_clear:
                source.tenant.on_log_message(severity, data, source)
        elif not self.has_many_principals:
            for tenant in [*self.tenants]:
                tenant.on_log_message(severity, data, None)

    def _on_other_notification(self, method: str, params: Mapping[str, Any]) -> None:
        meta = get_meta(params)
        # Clients do not know the hub's subscriptions.
        subscription = meta.pop(SUBSCRIPTION_ID_KEY, None)
        if subscription is not None and not meta:
            params = {key: value for key, value in params.items() if key != "_meta"}
        exchange = self.exchanges.find(subscription)
        if exchange is not None and exchange.on_notification is not None:
            exchange.on_notification(method, params)
        elif subscription is None and method != ACKNOWLEDGED_METHOD:
            self.broadcast(method, params)

    def broadcast(self, method: str, params: Mapping[str, Any]) -> None:
        """Pass a notification to all clients; a change of the tools only after they were listed."""
        if method == TOOLS_CHANGED_METHOD:
            self.schedule_listing()
            return
        if self.has_many_principals and method != UPDATED_METHOD and method not in LIST_CHANGED_KEYS:
            # It does not say which client it is for.
            return
        for tenant in [*self.tenants]:
            tenant.on_notification(self, method, params)

    # The tools of the server.

    def schedule_listing(self) -> None:
        """List the tools soon, and tell all clients."""
        self._is_listing_wanted = True
        if self._listing_task is None or self._listing_task.done():
            self._listing_task = asyncio.create_task(self._list_while_wanted())

    async def _list_while_wanted(self) -> None:
        while self._is_listing_wanted:
            self._is_listing_wanted = False
            try:
                async with asyncio.timeout(_CONNECT_TIMEOUT_SECONDS):
                    await self._list_tools()
            except (RequestFailed, UpstreamFailed, TimeoutError) as error:
                reason = str(error) or "the server does not answer"
                _log.warning("forebay: the tools of %s cannot be listed just now: %s", self.name, reason)
            self._notify_tools_changed()
            await asyncio.sleep(_LISTING_INTERVAL_SECONDS)

    def _notify_tools_changed(self) -> None:
        for tenant in [*self.tenants]:
            tenant.on_tools_changed()

    async def _list_tools(self) -> None:
        async with self._listing_lock:
            pages = ToolPages()
            try:
                for cursor in pages:
                    pages.add(*await self.request_message("tools/list", cursor))
            except RequestFailed as error:
                if error.code != METHOD_NOT_FOUND:
                    raise
            self.tools, self.list_extras = index_tools(pages.tools, self.name), pages.extras

    def get_schema(self, key: str, tool: str) -> Mapping[str, Any] | None:
        """Return the `inputSchema` or `outputSchema` that the server lists for a tool."""
        item = self.tools.get(tool)
        definition = None if item is None else parse_definition(item)
        schema = definition.get(key) if isinstance(definition, dict) else None
        return schema if isinstance(schema, Mapping) else None

    # Changes that a server of 2026-07-28 announces.

    async def _follow_changes(self) -> None:
        """Keep a subscription to changed lists open, with retries, unless the server refuses subscriptions."""
        wanted = {"notifications": dict.fromkeys(LIST_CHANGED_KEYS.values(), True)}
        await self.keep_listening(wanted, self._on_change)

    def _on_change(self, method: str, params: Mapping[str, Any]) -> None:
        if method in LIST_CHANGED_KEYS:
            self.broadcast(method, params)

    async def keep_listening(self, params: Mapping[str, Any], on_notification: _OnNotification) -> None:
        """Keep a subscription at the server open until this task is cancelled, or the server refuses it."""
        delay = _MIN_LISTEN_DELAY_SECONDS
        while True:
            started = self.loop.time()
            try:
                await self.request_message("subscriptions/listen", params, on_notification)
            except (RequestFailed, UpstreamFailed) as error:
                _log.debug("forebay: %s cannot be listened to: %s", self.name, error)
                if isinstance(error, RequestFailed) and error.code in _UNSUPPORTED_CODES:
                    return
            if self.loop.time() - started > _MAX_LISTEN_DELAY_SECONDS:
                delay = _MIN_LISTEN_DELAY_SECONDS
            await asyncio.sleep(delay)
            delay = min(2 * delay, _MAX_LISTEN_DELAY_SECONDS)
