"""Tenants of stateless clients (2026-07-28), and the pool that keeps them open between requests."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import orjson

from forebay.hub.connection import ServerConnection
from forebay.hub.exchanges import Exchange
from forebay.hub.paused_calls import PausableCall, has_answers
from forebay.hub.subscriptions import Listener, subscribe
from forebay.hub.tenant import Request, RoutedRequest, Tenant
from forebay.hub.translation import SERVER_INFO
from forebay.proxy.message_queue import Reply
from forebay.proxy.session import Session
from forebay.store.threads import run_in_pool
from forebay.wire.errors import RequestFailed
from forebay.wire.framing import Message
from forebay.wire.messages import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, get_meta, make_result_message, parse
from forebay.wire.protocol import (
    INPUT_METHODS,
    LOG_LEVEL_KEY,
    LOG_LEVELS,
    LOG_METHOD,
    MODERN_VERSION,
    SERVER_BUSY,
    add_result_fields,
    normalize_capabilities,
)

if TYPE_CHECKING:
    from forebay.hub.hub import Hub

__all__ = ["StatelessTenant", "TenantPool"]

_log = logging.getLogger("forebay")

_MAX_LISTENERS = 1024
"""Maximum number of subscriptions of one tenant."""

_REMOVED_METHODS = ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")
"""Methods of earlier versions. They still work if one of the servers speaks an earlier version."""


class StatelessTenant(Tenant):
    """All stateless clients of one principal that have the same capabilities."""

    is_stateless = True

    def __init__(self, hub: "Hub", session: Session, capabilities: Mapping[str, Any]) -> None:
        super().__init__(hub, session, capabilities)
        self.listeners: set[Listener] = set()

    async def _handle(self, message: dict[str, Any], raw: Message, reply: Reply) -> Message:
        if message["method"] == "server/discover":
            await self.start()
            caching = {"ttlMs": 0, "cacheScope": "private"}
            return self._respond_first(message, MODERN_VERSION, {"supportedVersions": [MODERN_VERSION], **caching})
        if message["method"] == "initialize":
            raise RequestFailed(METHOD_NOT_FOUND, "Method not found", "initialize")
        return await super()._handle(message, raw, reply)

    async def _dispatch(self, method: str, request: Request) -> Message:
        if method in _REMOVED_METHODS and all(connection.is_modern for connection in self.connections.values()):
            raise RequestFailed(METHOD_NOT_FOUND, "Method not found", method)
        if method == "subscriptions/listen":
            return await self._listen(request)
        return await super()._dispatch(method, request)

    # Messages to the client.

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification to those who listen. There is no other way to a stateless client."""
        for listener in [*self.listeners]:
            listener.publish(method, params or {})

    def on_log_message(self, severity: int, raw: bytes, source: Exchange | None) -> None:
        if source is None or source.log_level is None or source.reply is None:
            return
        if severity >= source.log_level:
            source.reply.send(raw, LOG_METHOD)

    async def _listen(self, request: Request) -> Message:
        if len(self.listeners) >= _MAX_LISTENERS:
            raise RequestFailed(INTERNAL_ERROR, "Subscription limit reached")
        listener = Listener(request.pending.id, request.params, request.reply)
        self.listeners.add(listener)
        try:
            groups = await self._group_by_server(listener.uris)
            async with subscribe(groups, listener, listener.publish) as refused:
                listener.acknowledge([uri for uris in groups.values() for uri in uris if uri not in refused])
                return self._respond(request, await listener.wait_ended())
        finally:
            self.listeners.discard(listener)

    async def _group_by_server(self, uris: list[str]) -> dict[ServerConnection, list[str]]:
        groups: dict[ServerConnection, list[str]] = {}
        for uri in uris:
            try:
                groups.setdefault(await self.routes.find_resource(uri), []).append(uri)
            except RequestFailed as error:
                _log.debug("forebay: no server has the resource of a subscription: %s", error)
        return groups

    def stop_listening(self) -> None:
        """End all subscriptions, which would never end by themselves."""
        for listener in self.listeners:
            listener.end()

    async def close(self) -> None:
        self.stop_listening()
        await super().close()

    # Requests to servers.

    def _begin(self, routed: RoutedRequest) -> Exchange:
        exchange = super()._begin(routed)
        level = get_meta(routed.request.params).get(LOG_LEVEL_KEY)
        exchange.log_level = LOG_LEVELS.index(level) if level in LOG_LEVELS else None
        return exchange

    async def forward(self, routed: RoutedRequest) -> Message:
        request, connection = routed.request, routed.connection
        paused_calls, principal = self.hub.paused_calls, self.session.principal
        call = None if connection.is_modern else paused_calls.resume(routed, principal)
        if call is None:
            if not connection.is_modern and has_answers(request.params):
                return await self._continue_elsewhere(routed)
            exchange = self._begin(routed)
            raw = self._make_message(routed, exchange)
            if connection.is_modern or not self.capabilities or request.pending.method not in INPUT_METHODS:
                response: Message = await connection.complete(exchange, raw)
                return response
            # On stdio there is one client. Over HTTP, each anonymous request may come from another client.
            identity = principal or (object() if self.hub.is_over_http else "stdio")
            call = PausableCall(routed, principal, identity, self.capabilities)
            call.start(exchange, raw, self._keep_open)
        outcome = await paused_calls.wait(call)
        if isinstance(outcome, dict):
            return _respond_with_questions(request, outcome)
        finish = partial(self._finish, routed, *outcome)
        is_small = len(outcome[1]) <= request.pending.mode.output_inline_limit_bytes
        final = finish() if is_small else await run_in_pool(finish)
        return cast("Message", final)

    async def _continue_elsewhere(self, routed: RoutedRequest) -> Message:
        """Continue a call that another replica has paused."""
        handover, request = self.hub.handover, routed.request
        outcome = None
        if handover is not None:
            outcome = await handover.continue_call(self.session.principal, self.capabilities, request)
        if outcome is None:
            text = "this requestState is unknown or has expired; repeat the call without it"
            raise RequestFailed(INVALID_PARAMS, text)
        if isinstance(outcome, dict):
            return _respond_with_questions(request, outcome)
        return cast("Message", await run_in_pool(partial(self._finish, routed, parse(outcome), outcome)))

    def _keep_open(self) -> AbstractAsyncContextManager[object]:
        return self.hub.stateless_tenants.acquire(self.session.principal, self.capabilities)


def _respond_with_questions(request: Request, result: dict[str, Any]) -> bytes:
    fields = add_result_fields("", result, request.pending.version, SERVER_INFO)
    return make_result_message(request.pending.id, {**fields, "resultType": "input_required"})


_TenantKey = tuple[str | None, bytes]
"""A principal and normalized client capabilities."""


class _PoolEntry:
    """A tenant in the pool, and the context of each request that uses it: it is not closed meanwhile."""

    # Its own context, because a generator with `asynccontextmanager` costs several times as much, for each request.

    def __init__(self, key: _TenantKey, tenant: StatelessTenant, on_idle: "Callable[[_PoolEntry], None]") -> None:
        self.key = key
        self.tenant = tenant
        self.request_count = 0
        self.is_admitted = asyncio.Event()
        self.is_released = asyncio.Event()
        self.expiry_timer: asyncio.TimerHandle | None = None
        self._on_idle = on_idle

    async def __aenter__(self) -> StatelessTenant:
        self.request_count += 1
        if self.expiry_timer is not None:
            self.expiry_timer.cancel()
        if not self.is_admitted.is_set():
            try:
                await self.is_admitted.wait()
            except BaseException:
                await self.__aexit__()
                raise
        return self.tenant

    async def __aexit__(self, *_: object) -> None:
        self.request_count -= 1
        if not self.request_count:
            self._on_idle(self)


class TenantPool:
    """The tenants of stateless principals, at most `max_tenants` including tenants that are still closing.

    A principal has a tenant for each set of client capabilities, because a server with a handshake is told once what
    its client can do; `max_tenants_per_principal` keeps one principal from using the whole pool.

    A tenant is closed after `idle_seconds` without requests (`None`: never). When the pool is full, the tenant that
    was idle for longest is closed. A tenant with requests in flight is closed only with the pool.
    """

    def __init__(
        self,
        make_tenant: Callable[[str | None, dict[str, Any]], StatelessTenant],
        max_tenants: int,
        idle_seconds: float | None,
        max_tenants_per_principal: int = 8,
    ) -> None:
        self._make_tenant = make_tenant
        self._max_tenants = max_tenants
        self._max_tenants_per_principal = max_tenants_per_principal
        self._idle_seconds = idle_seconds
        # Idle entries are in the order in which they became idle.
        self._entries: dict[_TenantKey, _PoolEntry] = {}
        self._slots = asyncio.Semaphore(max_tenants)
        self._entry_tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def acquire(self, principal: str | None, capabilities: object) -> _PoolEntry:
        """Return a context with the tenant for a request of a client with these capabilities.

        Raises `RequestFailed` if the pool is full.
        """
        normalized = normalize_capabilities(capabilities) if capabilities else {}
        key = principal, orjson.dumps(normalized)
        return self._entries.get(key) or self._add_entry(key, normalized)

    @contextlib.asynccontextmanager
    async def acquire_open(self, principal: str | None) -> AsyncIterator[list[StatelessTenant]]:
        """Yield the open tenants of a principal; none is created."""
        async with contextlib.AsyncExitStack() as stack:
            yield [await stack.enter_async_context(entry) for entry in self._find_entries(principal)]

    def __iter__(self) -> Iterator[StatelessTenant]:
        return (entry.tenant for entry in [*self._entries.values()])

    def _find_entries(self, principal: str | None) -> list[_PoolEntry]:
        return [entry for entry in self._entries.values() if entry.key[0] == principal]

    def _add_entry(self, key: _TenantKey, capabilities: dict[str, Any]) -> _PoolEntry:
        if self._is_closed:
            raise RequestFailed(SERVER_BUSY, "this server is about to end; retry later")
        self._make_room(key[0])
        entry = self._entries[key] = _PoolEntry(key, self._make_tenant(key[0], capabilities), self._on_idle)
        task = asyncio.create_task(self._hold_slot(entry))
        self._entry_tasks.add(task)
        task.add_done_callback(self._entry_tasks.discard)
        return entry

    def _make_room(self, principal: str | None) -> None:
        """Close the tenant that was idle for longest, if a limit is reached."""
        candidates = self._find_entries(principal)
        if len(candidates) >= self._max_tenants_per_principal:
            message = (
                f"requests with {len(candidates)} different sets of client capabilities are in flight, which is the "
                "limit; retry later, or send the same capabilities with every request"
            )
        elif len(self._entries) >= self._max_tenants:
            candidates = [*self._entries.values()]
            message = (
                f"{self._max_tenants} groups of clients are being served, which is the limit; "
                "retry later, or ask whoever runs this server to raise max_connections"
            )
        else:
            return
        longest_idle = next((entry for entry in candidates if not entry.request_count), None)
        if longest_idle is None:
            raise RequestFailed(SERVER_BUSY, message)
        self._release(longest_idle)

    async def _hold_slot(self, entry: _PoolEntry) -> None:
        # Server processes of a closed tenant count until they have ended.
        async with self._slots:
            entry.is_admitted.set()
            await entry.is_released.wait()
            await entry.tenant.close()

    def _on_idle(self, entry: _PoolEntry) -> None:
        """Start the idle time of an entry whose last request has ended."""
        if self._entries.get(entry.key) is not entry:
            return
        self._entries[entry.key] = self._entries.pop(entry.key)
        if self._idle_seconds is not None:
            entry.expiry_timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._release, entry)

    def _release(self, entry: _PoolEntry) -> None:
        _log.debug("forebay: the connections of a principal are closed")
        if entry.expiry_timer is not None:
            entry.expiry_timer.cancel()
        del self._entries[entry.key]
        entry.is_released.set()

    async def close(self) -> None:
        """Close all tenants, also those with requests in flight, and wait until they are closed."""
        self._is_closed = True
        for entry in [*self._entries.values()]:
            self._release(entry)
        await asyncio.gather(*self._entry_tasks)
