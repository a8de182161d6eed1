"""The client's side of `forebay serve`: what servers behind it have to say to a client, or to ask of it."""

import asyncio
import contextlib
import contextvars
import itertools
import secrets
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import event_from_wire
from mcp_types import METHOD_NOT_FOUND, REQUEST_TIMEOUT

from forebay.hub.calls import CAPABILITIES

if TYPE_CHECKING:
    from forebay.hub.timeouts import Limit

__all__ = ["Asking", "Front", "capabilities_of_request"]

_capabilities: contextvars.ContextVar[Any] = contextvars.ContextVar("capabilities", default=None)

_CHANGED = "notifications/tools/list_changed"

_OURS = (_CHANGED, "notifications/cancelled", "notifications/subscriptions/acknowledged")
"""What a server says of its own requests, or of ours to it: its client hears of these otherwise, or not at all."""


def capabilities_of_request() -> Any:
    """What the client whose request is under way here can do, if that says so: since 2026-07-28 they do."""
    return _capabilities.get()


_Params = Mapping[str, Any] | None


class Asking:
    """A request that is under way, and what its client is still to be told of it."""

    def __init__(self, session: ServerSession, upstream: object, token: object) -> None:
        self.session = session
        self.upstream = upstream
        """Whose answer it waits for."""
        self.token = token
        """By which its client is told of progress."""
        self.used: object = None
        """By which its server reports progress: others may have the same."""
        self.limit: Limit | None = None
        """How long its server may still take."""
        self._left: deque[tuple[str, _Params]] = deque()
        self._telling: asyncio.Task[None] | None = None

    def say(self, method: str, params: _Params) -> None:
        """Soon, one after the other: progress that goes back is none."""
        self._left.append((method, params))
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        while self._left:
            # A client that is gone has nothing to be told.
            with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, MCPError):
                await self.session._request_outbound.notify(*self._left.popleft())

    async def told(self) -> None:
        """When all is said: after the answer, nobody listens."""
        if self._telling is not None:
            await self._telling


class Front:
    """One client whose connection lasts or, without a connection, those of one principal whose requests stand alone."""

    def __init__(
        self,
        connection: Connection | None = None,
        capabilities: Mapping[str, Any] | None = None,
        answer_timeout: float | None = None,
    ) -> None:
        self._connection = connection
        self._answer_timeout = answer_timeout
        # Its own: what is told here is nobody else's to hear.
        self._bus = InMemorySubscriptionBus()
        self.listeners = ListenHandler(self._bus)
        self.capabilities = dict(capabilities or {}) if connection is not None else CAPABILITIES
        """What may be asked of it."""
        self._asking: list[Asking] = []
        self._by_token: dict[object, Asking] = {}
        self._name = secrets.token_hex(8)
        self._numbers = itertools.count(1)

    @property
    def is_lasting(self) -> bool:
        """Whether it is one client, with a connection."""
        return self._connection is not None

    @contextlib.asynccontextmanager
    async def asking(
        self, session: ServerSession, upstream: object, token: object, capabilities: object = None
    ) -> AsyncIterator[Asking]:
        """While a request is under way."""
        asking = Asking(session, upstream, token)
        said = _capabilities.set(capabilities)
        # Where several share a connection, what comes late by one's token must not be taken for another's.
        is_clear = self.is_lasting and isinstance(token, str | int) and token not in self._by_token
        asking.used = token if token is None or is_clear else f"forebay-{self._name}-{next(self._numbers)}"
        self._asking.append(asking)
        if asking.used is not None:
            self._by_token[asking.used] = asking
        try:
            yield asking
        finally:
            _capabilities.reset(said)
            self._asking.remove(asking)
            self._by_token.pop(asking.used, None)
            await asking.told()

    @contextlib.contextmanager
    def going_on(self, earlier: object, asking: Asking) -> Iterator[None]:
        """While a request goes on with what an earlier one began: what is reported by that one's token is its own."""
        if asking.used is None or earlier is None or earlier == asking.used:
            yield
            return
        self._by_token[earlier] = asking
        try:
            yield
        finally:
            self._by_token.pop(earlier, None)

    async def ask(self, method: str, params: _Params, upstream: object) -> dict[str, Any]:
        """What the client answers. Raises `MCPError`, also where there is nobody to ask, or no answer in time."""
        if self._connection is None:
            raise MCPError(code=METHOD_NOT_FOUND, message="Method not found", data=method)
        await self._connection.initialized.wait()
        channel = self._asking[-1].session._request_outbound if self._asking else self._connection.outbound
        # Nobody knows in which of the server's requests it asks; other servers have no more time for theirs.
        theirs = (asking.limit for asking in self._asking if asking.upstream is upstream)
        limits = [limit for limit in theirs if limit is not None]
        for limit in limits:
            limit.pause()
        try:
            async with asyncio.timeout(self._answer_timeout):
                return await channel.send_raw_request(method, params)
        except TimeoutError:
            told = f"the client did not answer within {self._answer_timeout:g} s"
            raise MCPError(code=REQUEST_TIMEOUT, message=told) from None
        finally:
            for limit in limits:
                limit.go_on()

    def says_of_request(self, method: str, params: _Params) -> bool:
        """Whether what a server said is of a request under way; if so, its client is told before the answer."""
        match method:
            case "notifications/progress":
                token = (params or {}).get("progressToken")
                asking = self._by_token.get(token) if isinstance(token, str | int) else None
                if asking is not None:
                    asking.say(method, {**(params or {}), "progressToken": asking.token})
                    if asking.limit is not None:
                        asking.limit.begin_again()
                return True
            case "notifications/message" if self._connection is None:
                # Whoever did not ask for them in the very request is not told; of many, nobody knows whose it is.
                if len(self._asking) == 1 and _is_wanted(self._asking[0].session, params):
                    self._asking[0].say(method, params)
                return True
            case "notifications/message" if self._asking:
                # Over HTTP, what is said on account of a request goes with its answer.
                self._asking[-1].say(method, params)
                return True
        return False

    async def tell(self, method: str, params: _Params) -> None:
        """Tells the client what a server said of no request, if it is to know."""
        if method not in _OURS:
            await self._notify(method, params)

    async def changed(self) -> None:
        """Tells the client that there are other tools."""
        await self._notify(_CHANGED, None)

    async def _notify(self, method: str, params: _Params) -> None:
        if (event := event_from_wire(method, params)) is not None:
            # Those who listen are told.
            await self._bus.publish(event)
        if self._connection is not None and self._connection.initialized.is_set():
            await self._connection.outbound.notify(method, params)


def _is_wanted(session: ServerSession, logged: _Params) -> bool:
    return (logged or {}).get("level") in session._allowed_log_levels
