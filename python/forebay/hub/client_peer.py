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

from forebay.hub.calls import CLIENT_CAPABILITIES

if TYPE_CHECKING:
    from forebay.hub.calls import PausableTimeout

__all__ = ["ClientPeer", "ClientRequest", "current_client_capabilities"]

_current_capabilities: contextvars.ContextVar[Any] = contextvars.ContextVar("capabilities", default=None)

_TOOLS_CHANGED = "notifications/tools/list_changed"

_NOT_FORWARDED = (_TOOLS_CHANGED, "notifications/cancelled", "notifications/subscriptions/acknowledged")
"""What a server says of its own requests, or of ours to it: its client hears of these otherwise, or not at all."""


def current_client_capabilities() -> Any:
    """What the client whose request is under way here can do, if that says so: since 2026-07-28 they do."""
    return _current_capabilities.get()


_Params = Mapping[str, Any] | None


class ClientRequest:
    """A request that is under way, and what its client is still to be told of it."""

    def __init__(self, session: ServerSession, upstream: object, client_token: object) -> None:
        self.session = session
        self.upstream = upstream
        """Whose answer it waits for."""
        self.client_token = client_token
        """By which its client is told of progress."""
        self.upstream_token: object = None
        """By which its server reports progress: others may have the same."""
        self.timeout: PausableTimeout | None = None
        """How long its server may still take."""
        self._queued: deque[tuple[str, _Params]] = deque()
        self._sender: asyncio.Task[None] | None = None

    def notify(self, method: str, params: _Params) -> None:
        """Soon, one after the other: progress that goes back is none."""
        self._queued.append((method, params))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_queued())

    async def _send_queued(self) -> None:
        while self._queued:
            # A client that is gone has nothing to be told.
            with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, MCPError):
                await self.session._request_outbound.notify(*self._queued.popleft())

    async def flush(self) -> None:
        """When all is said: after the answer, nobody listens."""
        if self._sender is not None:
            await self._sender


class ClientPeer:
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
        self.capabilities = dict(capabilities or {}) if connection is not None else CLIENT_CAPABILITIES
        """What may be asked of it."""
        self._active: list[ClientRequest] = []
        self._by_token: dict[object, ClientRequest] = {}
        self._token_prefix = secrets.token_hex(8)
        self._numbers = itertools.count(1)

    @property
    def has_connection(self) -> bool:
        """Whether it is one client, with a connection."""
        return self._connection is not None

    @contextlib.asynccontextmanager
    async def track_request(
        self, session: ServerSession, upstream: object, token: object, capabilities: object = None
    ) -> AsyncIterator[ClientRequest]:
        """While a request is under way."""
        client_request = ClientRequest(session, upstream, token)
        said = _current_capabilities.set(capabilities)
        # Where several share a connection, what comes late by one's token must not be taken for another's.
        is_clear = self.has_connection and isinstance(token, str | int) and token not in self._by_token
        client_request.upstream_token = (
            token if token is None or is_clear else f"forebay-{self._token_prefix}-{next(self._numbers)}"
        )
        self._active.append(client_request)
        if client_request.upstream_token is not None:
            self._by_token[client_request.upstream_token] = client_request
        try:
            yield client_request
        finally:
            _current_capabilities.reset(said)
            self._active.remove(client_request)
            self._by_token.pop(client_request.upstream_token, None)
            await client_request.flush()

    @contextlib.contextmanager
    def continue_request(self, earlier: object, client_request: ClientRequest) -> Iterator[None]:
        """While a request goes on with what an earlier one began: what is reported by that one's token is its own."""
        if client_request.upstream_token is None or earlier is None or earlier == client_request.upstream_token:
            yield
            return
        self._by_token[earlier] = client_request
        try:
            yield
        finally:
            self._by_token.pop(earlier, None)

    async def request(self, method: str, params: _Params, upstream: object) -> dict[str, Any]:
        """What the client answers. Raises `MCPError`, also where there is nobody to ask, or no answer in time."""
        if self._connection is None:
            raise MCPError(code=METHOD_NOT_FOUND, message="Method not found", data=method)
        await self._connection.initialized.wait()
        channel = self._active[-1].session._request_outbound if self._active else self._connection.outbound
        # Nobody knows in which of the server's requests it asks; other servers have no more time for theirs.
        theirs = (client_request.timeout for client_request in self._active if client_request.upstream is upstream)
        limits = [timeout for timeout in theirs if timeout is not None]
        for timeout in limits:
            timeout.pause()
        try:
            async with asyncio.timeout(self._answer_timeout):
                return await channel.send_raw_request(method, params)
        except TimeoutError:
            told = f"the client did not answer within {self._answer_timeout:g} s"
            raise MCPError(code=REQUEST_TIMEOUT, message=told) from None
        finally:
            for timeout in limits:
                timeout.resume()

    def forward_to_request(self, method: str, params: _Params) -> bool:
        """Whether what a server said is of a request under way; if so, its client is told before the answer."""
        match method:
            case "notifications/progress":
                token = (params or {}).get("progressToken")
                client_request = self._by_token.get(token) if isinstance(token, str | int) else None
                if client_request is not None:
                    client_request.notify(method, {**(params or {}), "progressToken": client_request.client_token})
                    if client_request.timeout is not None:
                        client_request.timeout.restart()
                return True
            case "notifications/message" if self._connection is None:
                # Whoever did not ask for them in the very request is not told; of many, nobody knows whose it is.
                if len(self._active) == 1 and _accepts_log_level(self._active[0].session, params):
                    self._active[0].notify(method, params)
                return True
            case "notifications/message" if self._active:
                # Over HTTP, what is said on account of a request goes with its answer.
                self._active[-1].notify(method, params)
                return True
        return False

    async def forward_notification(self, method: str, params: _Params) -> None:
        """Tells the client what a server said of no request, if it is to know."""
        if method not in _NOT_FORWARDED:
            await self._notify(method, params)

    async def notify_tools_changed(self) -> None:
        """Tells the client that there are other tools."""
        await self._notify(_TOOLS_CHANGED, None)

    async def _notify(self, method: str, params: _Params) -> None:
        if (event := event_from_wire(method, params)) is not None:
            # Those who listen are told.
            await self._bus.publish(event)
        if self._connection is not None and self._connection.initialized.is_set():
            await self._connection.outbound.notify(method, params)


def _accepts_log_level(session: ServerSession, logged: _Params) -> bool:
    return (logged or {}).get("level") in session._allowed_log_levels
