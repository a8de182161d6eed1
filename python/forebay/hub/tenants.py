"""Tenants: the operations and upstream connections of one client or principal."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
from mcp.shared.exceptions import MCPError

from forebay.adapters.mcp import get_task_owners
from forebay.hub.calls import normalize_capabilities
from forebay.hub.client_peer import TOOLS_CHANGED_METHOD, ClientPeer
from forebay.hub.notification_queue import NotificationQueue
from forebay.hub.subscriptions import Subscriptions
from forebay.hub.upstreams import MCPUpstream, Upstreams, retry_until_connected
from forebay.operations.mcp.server import OperationTools, Origin
from forebay.operations.registry import OperationRegistry
from forebay.outputs.policy import OutputPolicy

__all__ = ["CONNECT_WAIT_SECONDS", "Tenant", "TenantPool"]

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from forebay.config.options import Settings


CONNECT_WAIT_SECONDS = 10.0
"""How long a new client waits for upstreams. An upstream that connects later is added when it has connected."""


class Tenant:
    """The operations and upstream connections of one client or principal."""

    def __init__(
        self,
        upstreams: Upstreams,
        client: ClientPeer,
        policy: OutputPolicy,
        settings: "Settings",
        origins: dict[str, Origin],
    ) -> None:
        self.client = client
        self.registry = OperationRegistry()
        prefixes = {config.name: config.prefix for config in upstreams.configs.values() if config.prefix}
        self.tools = OperationTools(
            self.registry,
            prefixes=prefixes,
            origins=origins,
            namespace_order=upstreams.configs,
            call_timeout=settings.call_timeout_seconds,
        )
        self._policy = policy
        # A queue, so that notifications to a client that does not read do not pile up.
        self._notifications = NotificationQueue(client.notify, client.on_overflow)
        self._connect_tasks: list[asyncio.Task[None]] = []
        self._detach = upstreams.attach(self.registry, self._on_tools_changed)
        self.upstreams = {
            config.name: MCPUpstream(config, client, policy, settings, upstreams.grace, self._on_tools_changed)
            for config in upstreams.configs.values()
            if config.upstream_type in ("command", "url")
        }
        self.has_single_upstream = len(upstreams.configs) == len(self.upstreams) == 1
        """Whether there is only one upstream and it is an MCP server."""
        self.subscriptions = Subscriptions(self.upstreams.values())
        self._start_task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Connect the upstreams. Concurrent callers share one attempt."""
        if self._start_task is None:
            self._start_task = asyncio.create_task(self._start())
        await asyncio.shield(self._start_task)

    async def _start(self) -> None:
        first_attempts = []
        # Do not connect if the tenant is closed already: nothing would close the connections.
        for upstream in () if self._is_closed else self.upstreams.values():
            first_attempts.append(asyncio.Event())
            attempt = partial(upstream.connect, self.registry)
            self._connect_tasks.append(
                asyncio.create_task(retry_until_connected(upstream.name, attempt, first_attempts[-1]))
            )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_WAIT_SECONDS):
                for event in first_attempts:
                    await event.wait()

    def _on_tools_changed(self) -> None:
        self._policy.knows_tools = False
        self._notifications.put(TOOLS_CHANGED_METHOD, None)

    def find_task_owner(self, ctx: "ServerRequestContext[Any, Any]") -> MCPUpstream | None:
        """Return the upstream that runs the task named in a `tasks/…` request; `None` if there is none."""
        call = (
            self._policy.tasks.find_call(ctx.params, get_task_owners(ctx)) if ctx.method.startswith("tasks/") else None
        )
        spec = None if call is None else self.tools.find(ctx, call[0])
        return None if spec is None else self.upstreams.get(spec.namespace)

    @property
    def capabilities(self) -> dict[str, Any]:
        """The merged capabilities of all upstreams."""
        merged: dict[str, Any] = {}
        for upstream in self.upstreams.values():
            for name, value in upstream.capabilities.items():
                known = merged.get(name)
                merged[name] = {**known, **value} if isinstance(known, dict) and isinstance(value, dict) else value
        return merged

    @property
    def instructions(self) -> str | None:
        texts = [upstream.initialize_result.get("instructions") for upstream in self.upstreams.values()]
        return "\n\n".join(text for text in texts if isinstance(text, str) and text) or None

    async def close(self) -> None:
        self._is_closed = True
        self._detach()
        self.client.listeners.close()
        self.subscriptions.close()
        self._notifications.close()
        for task in self._connect_tasks:
            task.cancel()
        # Wait for the cancelled connection attempts, because each cleans up after itself.
        await asyncio.gather(*self._connect_tasks, return_exceptions=True)
        await asyncio.gather(*(upstream.close() for upstream in self.upstreams.values()), return_exceptions=True)


_log = logging.getLogger("forebay")

_SERVER_BUSY_CODE = -32000


_TenantKey = tuple[str | None, bytes]
"""A principal and normalized client capabilities."""


class _PoolEntry:
    """Tenant and the number of its requests in flight."""

    def __init__(self, key: _TenantKey, tenant: Tenant) -> None:
        self.key = key
        self.tenant = tenant
        self.request_count = 0
        self.is_admitted = asyncio.Event()
        self.is_released = asyncio.Event()
        self.expiry_timer: asyncio.TimerHandle | None = None


class TenantPool:
    """The tenants of stateless principals, at most `max_tenants` including tenants that are still closing.

    A principal has a tenant for each set of client capabilities, because a server with a handshake is told once what
    its client can do; `max_tenants_per_principal` keeps one principal from using the whole pool.

    A tenant is closed after `idle_seconds` without requests (`None`: never). When the pool is full, the tenant that
    was idle for longest is closed. A tenant with requests in flight is closed only with the pool.
    """

    def __init__(
        self,
        make_tenant: Callable[[dict[str, Any]], Tenant],
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

    @contextlib.asynccontextmanager
    async def acquire(self, principal: str | None, capabilities: object) -> AsyncIterator[Tenant]:
        """Yield the tenant for a request of a client with these capabilities. Raises `MCPError` if the pool is full."""
        normalized = normalize_capabilities(capabilities)
        key = principal, orjson.dumps(normalized)
        async with self._use(self._entries.get(key) or self._add_entry(key, normalized)) as tenant:
            yield tenant

    @contextlib.asynccontextmanager
    async def acquire_open(self, principal: str | None) -> AsyncIterator[list[Tenant]]:
        """Yield the open tenants of a principal; none is created."""
        async with contextlib.AsyncExitStack() as stack:
            yield [await stack.enter_async_context(self._use(entry)) for entry in self._find_entries(principal)]

    def _find_entries(self, principal: str | None) -> list[_PoolEntry]:
        return [entry for entry in self._entries.values() if entry.key[0] == principal]

    @contextlib.asynccontextmanager
    async def _use(self, entry: _PoolEntry) -> AsyncIterator[Tenant]:
        entry.request_count += 1
        if entry.expiry_timer is not None:
            entry.expiry_timer.cancel()
        try:
            await entry.is_admitted.wait()
            await entry.tenant.start()
            yield entry.tenant
        finally:
            entry.request_count -= 1
            if not entry.request_count:
                self._mark_idle(entry)

    def _add_entry(self, key: _TenantKey, capabilities: dict[str, Any]) -> _PoolEntry:
        if self._is_closed:
            raise MCPError(code=_SERVER_BUSY_CODE, message="this server is about to end; try again in a while")
        self._make_room(key[0])
        entry = self._entries[key] = _PoolEntry(key, self._make_tenant(capabilities))
        task = asyncio.create_task(self._hold_slot(entry))
        self._entry_tasks.add(task)
        task.add_done_callback(self._entry_tasks.discard)
        return entry

    def _make_room(self, principal: str | None) -> None:
        """Close the tenant that was idle for longest, if a limit is reached."""
        candidates = self._find_entries(principal)
        if len(candidates) >= self._max_tenants_per_principal:
            message = (
                f"calls of clients with {len(candidates)} different sets of capabilities are in flight, and that is "
                "all that may be at once; try again in a while, or send the same capabilities with each request"
            )
        elif len(self._entries) >= self._max_tenants:
            candidates = [*self._entries.values()]
            message = (
                f"{self._max_tenants} groups of clients are being served, and that is all that may be at once; try "
                "again in a while, or ask whoever runs this server to raise max_connections"
            )
        else:
            return
        longest_idle = next((entry for entry in candidates if not entry.request_count), None)
        if longest_idle is None:
            raise MCPError(code=_SERVER_BUSY_CODE, message=message)
        self._release(longest_idle)

    async def _hold_slot(self, entry: _PoolEntry) -> None:
        # Server processes of a closed tenant count until they have ended.
        async with self._slots:
            entry.is_admitted.set()
            await entry.is_released.wait()
            await entry.tenant.close()

    def _mark_idle(self, entry: _PoolEntry) -> None:
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
