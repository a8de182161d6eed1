"""Principals whose requests stand alone: each has a scope of its own for as long as it is used, and a while longer."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from mcp.shared.exceptions import MCPError

from forebay.hub.tenant import Scope

__all__ = ["Scopes"]

_log = logging.getLogger("forebay")

_REFUSED = -32000


class _Held:
    """A principal's scope, and how many of its requests are under way."""

    def __init__(self, principal: str | None, scope: Scope) -> None:
        self.principal = principal
        self.scope = scope
        self.users = 0
        self.has_room = asyncio.Event()
        self.is_left = asyncio.Event()
        self.expiry: asyncio.TimerHandle | None = None


class Scopes:
    """At most `most` at a time, those that are still being closed included.

    One that nobody used for `idle` seconds is closed; with `None` it stays. Where there are too many, the one that was
    idle for longest is closed. One in use never is, until all are.
    """

    def __init__(self, make: Callable[[], Scope], most: int, idle: float | None) -> None:
        self._make = make
        self._most = most
        self._idle = idle
        # Those that are idle stand in the order in which they became so.
        self._held: dict[str | None, _Held] = {}
        self._room = asyncio.Semaphore(most)
        self._keepers: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @contextlib.asynccontextmanager
    async def used_by(self, principal: str | None) -> AsyncIterator[Scope]:
        """A principal's scope, while a request of it is under way. Raises `MCPError` if there is no room for it."""
        held = self._held.get(principal) or self._new(principal)
        held.users += 1
        if held.expiry is not None:
            held.expiry.cancel()
        try:
            await held.has_room.wait()
            await held.scope.start()
            yield held.scope
        finally:
            held.users -= 1
            if not held.users:
                self._rest(held)

    def _new(self, principal: str | None) -> _Held:
        if self._is_closed:
            raise MCPError(code=_REFUSED, message="this server is about to end; try again in a while")
        if len(self._held) >= self._most:
            self._leave(self._idle_longest())
        held = self._held[principal] = _Held(principal, self._make())
        keeper = asyncio.create_task(self._keep(held))
        self._keepers.add(keeper)
        keeper.add_done_callback(self._keepers.discard)
        return held

    def _idle_longest(self) -> _Held:
        found = next((held for held in self._held.values() if not held.users), None)
        if found is None:
            message = (
                f"{self._most} principals are being served, and that is all that may be at once; try again in a while, "
                "or ask whoever runs this server to raise max_principals"
            )
            raise MCPError(code=_REFUSED, message=message)
        return found

    async def _keep(self, held: _Held) -> None:
        # Processes of one that is closed may take a while to end: until then they count.
        async with self._room:
            held.has_room.set()
            await held.is_left.wait()
            await held.scope.close()

    def _rest(self, held: _Held) -> None:
        if self._held.get(held.principal) is not held:
            return
        self._held[held.principal] = self._held.pop(held.principal)
        if self._idle is not None:
            held.expiry = asyncio.get_running_loop().call_later(self._idle, self._leave, held)

    def _leave(self, held: _Held) -> None:
        _log.debug("forebay: the connections of a principal are closed")
        if held.expiry is not None:
            held.expiry.cancel()
        del self._held[held.principal]
        held.is_left.set()

    async def close(self) -> None:
        """Closes all, in use or not, and waits until they are."""
        self._is_closed = True
        for held in [*self._held.values()]:
            self._leave(held)
        await asyncio.gather(*self._keepers)
