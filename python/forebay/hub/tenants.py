"""What one client of `forebay serve` has behind it."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError

from forebay.adapters.mcp import get_task_owners
from forebay.hub.client_peer import ClientPeer
from forebay.hub.subscriptions import Subscriptions
from forebay.hub.upstreams import MCPUpstream, Upstreams, retry_until_connected
from forebay.operations.mcp.server import OperationTools
from forebay.operations.registry import OperationRegistry
from forebay.outputs.policy import OutputPolicy

__all__ = ["CONNECT_WAIT_SECONDS", "Tenant", "TenantPool"]

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from forebay.config.options import Settings


CONNECT_WAIT_SECONDS = 10.0
"""Seconds that a client waits for upstreams when it comes; those that take longer are there later."""


class Tenant:
    """All operations, and connections of its own to servers that may have something to say to this very client."""

    def __init__(
        self,
        upstreams: Upstreams,
        client: ClientPeer,
        policy: OutputPolicy,
        settings: "Settings",
        names: dict[str, str],
    ) -> None:
        self.client = client
        self.registry = OperationRegistry()
        prefixes = {config.name: config.prefix for config in upstreams.configs.values() if config.prefix}
        self.tools = OperationTools(
            self.registry,
            prefixes=prefixes,
            assigned_ids=names,
            namespace_order=upstreams.configs,
            call_timeout=settings.call_timeout_seconds,
        )
        self._policy = policy
        self._notify_tasks: set[asyncio.Task[None]] = set()
        self._connect_tasks: list[asyncio.Task[None]] = []
        self._detach = upstreams.attach(self.registry, self._on_tools_changed)
        self.upstreams = {
            config.name: MCPUpstream(config, client, policy, settings, self._on_tools_changed)
            for config in upstreams.configs.values()
            if config.kind in ("command", "url")
        }
        self.is_sole = len(upstreams.configs) == len(self.upstreams) == 1
        """Whether there is one server of MCP, and nothing else."""
        self.subscriptions = Subscriptions(self.upstreams.values())
        self._start_task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Connects what can be connected; whoever comes meanwhile waits for the same."""
        if self._start_task is None:
            self._start_task = asyncio.create_task(self._start())
        await asyncio.shield(self._start_task)

    async def _start(self) -> None:
        tried = []
        # Whatever were connected after it is closed, nobody would ever end.
        for upstream in () if self._is_closed else self.upstreams.values():
            tried.append(asyncio.Event())
            attempt = partial(upstream.connect, self.registry)
            self._connect_tasks.append(asyncio.create_task(retry_until_connected(upstream.name, attempt, tried[-1])))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_WAIT_SECONDS):
                for event in tried:
                    await event.wait()

    def _on_tools_changed(self) -> None:
        self._policy.knows_tools = False
        task = asyncio.ensure_future(self.client.notify_tools_changed())
        self._notify_tasks.add(task)
        task.add_done_callback(self._notify_tasks.discard)

    def find_task_owner(self, ctx: "ServerRequestContext[Any, Any]") -> MCPUpstream | None:
        """Who made the task that a request names, if it names one."""
        call = (
            self._policy.tasks.find_call(ctx.params, get_task_owners(ctx)) if ctx.method.startswith("tasks/") else None
        )
        spec = None if call is None else self.tools.find(ctx, call[0])
        return None if spec is None else self.upstreams.get(spec.namespace)

    @property
    def capabilities(self) -> dict[str, Any]:
        """What can be asked of the servers, all in all."""
        merged: dict[str, Any] = {}
        for upstream in self.upstreams.values():
            for name, said in upstream.capabilities.items():
                before = merged.get(name)
                merged[name] = {**before, **said} if isinstance(before, dict) and isinstance(said, dict) else said
        return merged

    @property
    def instructions(self) -> str | None:
        said = [upstream.initialize_result.get("instructions") for upstream in self.upstreams.values()]
        return "\n\n".join(text for text in said if isinstance(text, str) and text) or None

    async def close(self) -> None:
        self._is_closed = True
        self._detach()
        self.client.listeners.close()
        self.subscriptions.close()
        for task in (*self._connect_tasks, *self._notify_tasks):
            task.cancel()
        # What is just being connected is left by whoever connects it.
        await asyncio.gather(*self._connect_tasks, return_exceptions=True)
        await asyncio.gather(*(upstream.close() for upstream in self.upstreams.values()), return_exceptions=True)


_log = logging.getLogger("forebay")

_SERVER_BUSY = -32000


class _PoolEntry:
    """A principal's scope, and how many of its requests are under way."""

    def __init__(self, principal: str | None, tenant: Tenant) -> None:
        self.principal = principal
        self.tenant = tenant
        self.users = 0
        self.is_admitted = asyncio.Event()
        self.is_released = asyncio.Event()
        self.expiry: asyncio.TimerHandle | None = None


class TenantPool:
    """At most `most` at a time, those that are still being closed included.

    One that nobody used for `idle` seconds is closed; with `None` it stays. Where there are too many, the one that was
    idle for longest is closed. One in use never is, until all are.
    """

    def __init__(self, make: Callable[[], Tenant], max_tenants: int, idle_seconds: float | None) -> None:
        self._make = make
        self._max_tenants = max_tenants
        self._idle_seconds = idle_seconds
        # Those that are idle stand in the order in which they became so.
        self._entries: dict[str | None, _PoolEntry] = {}
        self._slots = asyncio.Semaphore(max_tenants)
        self._entry_tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @contextlib.asynccontextmanager
    async def acquire(self, principal: str | None) -> AsyncIterator[Tenant]:
        """A principal's scope, while a request of it is under way. Raises `MCPError` if there is no room for it."""
        held = self._entries.get(principal) or self._add_entry(principal)
        held.users += 1
        if held.expiry is not None:
            held.expiry.cancel()
        try:
            await held.is_admitted.wait()
            await held.tenant.start()
            yield held.tenant
        finally:
            held.users -= 1
            if not held.users:
                self._mark_idle(held)

    def _add_entry(self, principal: str | None) -> _PoolEntry:
        if self._is_closed:
            raise MCPError(code=_SERVER_BUSY, message="this server is about to end; try again in a while")
        if len(self._entries) >= self._max_tenants:
            self._release(self._find_longest_idle())
        held = self._entries[principal] = _PoolEntry(principal, self._make())
        keeper = asyncio.create_task(self._hold_slot(held))
        self._entry_tasks.add(keeper)
        keeper.add_done_callback(self._entry_tasks.discard)
        return held

    def _find_longest_idle(self) -> _PoolEntry:
        found = next((held for held in self._entries.values() if not held.users), None)
        if found is None:
            message = (
                f"{self._max_tenants} principals are being served, and that is all that may be at once; try again in "
                "a while, or ask whoever runs this server to raise max_connections"
            )
            raise MCPError(code=_SERVER_BUSY, message=message)
        return found

    async def _hold_slot(self, held: _PoolEntry) -> None:
        # Processes of one that is closed may take a while to end: until then they count.
        async with self._slots:
            held.is_admitted.set()
            await held.is_released.wait()
            await held.tenant.close()

    def _mark_idle(self, held: _PoolEntry) -> None:
        if self._entries.get(held.principal) is not held:
            return
        self._entries[held.principal] = self._entries.pop(held.principal)
        if self._idle_seconds is not None:
            held.expiry = asyncio.get_running_loop().call_later(self._idle_seconds, self._release, held)

    def _release(self, held: _PoolEntry) -> None:
        _log.debug("forebay: the connections of a principal are closed")
        if held.expiry is not None:
            held.expiry.cancel()
        del self._entries[held.principal]
        held.is_released.set()

    async def close(self) -> None:
        """Closes all, in use or not, and waits until they are."""
        self._is_closed = True
        for held in [*self._entries.values()]:
            self._release(held)
        await asyncio.gather(*self._entry_tasks)
