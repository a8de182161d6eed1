"""What one client of `forebay serve` has behind it."""

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from forebay.adapters.mcp import owners_of
from forebay.hub.client_peer import Front
from forebay.hub.subscriptions import Subscriptions
from forebay.hub.upstreams import MCPUpstream, Sources, retried
from forebay.operations.mcp.serving import OperationTools
from forebay.operations.registry import OperationRegistry
from forebay.outputs.policy import Gate

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from forebay.config.options import Settings

__all__ = ["PATIENCE", "Scope"]

PATIENCE = 10.0
"""Seconds that a client waits for upstreams when it comes; those that take longer are there later."""


class Scope:
    """All operations, and connections of its own to servers that may have something to say to this very client."""

    def __init__(self, sources: Sources, front: Front, gate: Gate, settings: "Settings", names: dict[str, str]) -> None:
        self.front = front
        self.registry = OperationRegistry()
        prefixes = {target.name: target.prefix for target in sources.targets.values() if target.prefix}
        self.tools = OperationTools(
            self.registry,
            prefixes=prefixes,
            given=names,
            order=sources.targets,
            call_timeout=settings.call_timeout_seconds,
        )
        self._gate = gate
        self._telling: set[asyncio.Task[None]] = set()
        self._connecting: list[asyncio.Task[None]] = []
        self._detach = sources.attach(self.registry, self._changed)
        self.upstreams = {
            target.name: MCPUpstream(target, front, gate, settings, self._changed)
            for target in sources.targets.values()
            if target.kind in ("command", "url")
        }
        self.is_sole = len(sources.targets) == len(self.upstreams) == 1
        """Whether there is one server of MCP, and nothing else."""
        self.subscriptions = Subscriptions(self.upstreams.values())
        self._started: asyncio.Task[None] | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Connects what can be connected; whoever comes meanwhile waits for the same."""
        if self._started is None:
            self._started = asyncio.create_task(self._start())
        await asyncio.shield(self._started)

    async def _start(self) -> None:
        tried = []
        # Whatever were connected after it is closed, nobody would ever end.
        for upstream in () if self._is_closed else self.upstreams.values():
            tried.append(asyncio.Event())
            attempt = partial(upstream.connect, self.registry)
            self._connecting.append(asyncio.create_task(retried(upstream.name, attempt, tried[-1])))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                for event in tried:
                    await event.wait()

    def _changed(self) -> None:
        self._gate.has_learnt = False
        task = asyncio.ensure_future(self.front.changed())
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    def made(self, ctx: "ServerRequestContext[Any, Any]") -> MCPUpstream | None:
        """Who made the task that a request names, if it names one."""
        call = self._gate.tasks.call_of(ctx.params, owners_of(ctx)) if ctx.method.startswith("tasks/") else None
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
        said = [upstream.hello.get("instructions") for upstream in self.upstreams.values()]
        return "\n\n".join(text for text in said if isinstance(text, str) and text) or None

    async def close(self) -> None:
        self._is_closed = True
        self._detach()
        self.front.listeners.close()
        self.subscriptions.close()
        for task in (*self._connecting, *self._telling):
            task.cancel()
        # What is just being connected is left by whoever connects it.
        await asyncio.gather(*self._connecting, return_exceptions=True)
        await asyncio.gather(*(upstream.close() for upstream in self.upstreams.values()), return_exceptions=True)
