"""The client side of `forebay serve`: it sends requests and notifications of servers to a client."""

import asyncio
import contextlib
import contextvars
import itertools
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import event_from_wire
from mcp_types import METHOD_NOT_FOUND, REQUEST_TIMEOUT

from forebay.adapters.sdk_internals import get_allowed_log_levels, get_request_channel
from forebay.hub.notification_queue import NotificationQueue

if TYPE_CHECKING:
    from forebay.hub.calls import PausableTimeout

__all__ = ["TOOLS_CHANGED_METHOD", "ClientPeer", "ClientRequest", "get_current_capabilities"]

_log = logging.getLogger("forebay")

_current_capabilities: contextvars.ContextVar[Any] = contextvars.ContextVar("capabilities", default=None)

TOOLS_CHANGED_METHOD = "notifications/tools/list_changed"

_UNFORWARDED_METHODS = (TOOLS_CHANGED_METHOD, "notifications/cancelled", "notifications/subscriptions/acknowledged")
"""Notifications that concern only our connection to the server, or that we send ourselves."""


def get_current_capabilities() -> Any:
    """Return the client capabilities that the current request carries, or `None` before version 2026-07-28."""
    return _current_capabilities.get()


_Params = Mapping[str, Any] | None


class ClientRequest:
    """Client request in flight, with the notifications to send before its response."""

    def __init__(self, session: ServerSession, upstream: object, client_progress_token: object) -> None:
        self.session = session
        self.upstream = upstream
        """The upstream that handles the request."""
        self.client_progress_token = client_progress_token
        """The progress token that the client chose."""
        self.upstream_progress_token: object = None
        """The progress token sent to the server. It replaces a client's token that may not be unique at the server."""
        self.timeout: PausableTimeout | None = None
        """The timeout for the server's response."""
        # Only progress and log messages are queued, so nothing can overflow.
        self._notifications = NotificationQueue(get_request_channel(session).notify, on_overflow=lambda: None)

    def notify(self, method: str, params: _Params) -> None:
        """Queue progress or a log message."""
        self._notifications.put(method, params)

    async def flush(self) -> None:
        """Wait until all queued notifications are sent, because the client ignores those that follow the response."""
        await self._notifications.flush()


class ClientPeer:
    """One connected client, or from protocol version 2026-07-28 on all equally capable clients of one principal."""

    def __init__(
        self,
        connection: Connection | None = None,
        capabilities: Mapping[str, Any] | None = None,
        answer_timeout: float | None = None,
        end_session: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._connection = connection
        self._end_session = end_session
        self._end_task: asyncio.Future[None] | None = None
        self._has_logged_overflow = False
        self._answer_timeout = answer_timeout
        # Each peer has a bus of its own, so that events reach only the listeners of this peer.
        self._bus = InMemorySubscriptionBus()
        self.listeners = ListenHandler(self._bus)
        self.capabilities = dict(capabilities or {})
        """The capabilities that servers see."""
        self._active_requests: list[ClientRequest] = []
        self._requests_by_token: dict[object, ClientRequest] = {}
        self._token_prefix = secrets.token_hex(8)
        self._token_numbers = itertools.count(1)

    @property
    def has_connection(self) -> bool:
        """Whether this is one connected client, not a group of stateless clients."""
        return self._connection is not None

    @contextlib.asynccontextmanager
    async def track_request(
        self, session: ServerSession, upstream: object, token: object, capabilities: object = None
    ) -> AsyncIterator[ClientRequest]:
        """Track a client request until its response, so that progress and log messages can be sent before it."""
        client_request = ClientRequest(session, upstream, token)
        reset_token = _current_capabilities.set(capabilities)
        # On a shared connection, late progress of one request must not be taken for progress of another request.
        is_unique = self.has_connection and isinstance(token, str | int) and token not in self._requests_by_token
        client_request.upstream_progress_token = (
            token if token is None or is_unique else f"forebay-{self._token_prefix}-{next(self._token_numbers)}"
        )
        self._active_requests.append(client_request)
        if client_request.upstream_progress_token is not None:
            self._requests_by_token[client_request.upstream_progress_token] = client_request
        try:
            yield client_request
        finally:
            _current_capabilities.reset(reset_token)
            self._active_requests.remove(client_request)
            self._requests_by_token.pop(client_request.upstream_progress_token, None)
            await client_request.flush()

    @contextlib.contextmanager
    def continue_request(self, earlier_token: object, client_request: ClientRequest) -> Iterator[None]:
        """Forward progress with `earlier_token` to `client_request`, which continues the request with that token."""
        if (
            client_request.upstream_progress_token is None
            or earlier_token is None
            or earlier_token == client_request.upstream_progress_token
        ):
            yield
            return
        self._requests_by_token[earlier_token] = client_request
        try:
            yield
        finally:
            self._requests_by_token.pop(earlier_token, None)

    async def request(self, method: str, params: _Params, upstream: object) -> dict[str, Any]:
        """Send a server request to the client and return its answer.

        Raises `MCPError` if the client answers with an error or too late, or is not connected.
        """
        if self._connection is None:
            raise MCPError(code=METHOD_NOT_FOUND, message="Method not found", data=method)
        await self._connection.initialized.wait()
        channel = (
            get_request_channel(self._active_requests[-1].session)
            if self._active_requests
            else self._connection.outbound
        )
        # The server request names no call, so pause all calls to this upstream, but not those to others.
        calls = [client_request for client_request in self._active_requests if client_request.upstream is upstream]
        timeouts = [call.timeout for call in calls if call.timeout is not None]
        for timeout in timeouts:
            timeout.pause()
        try:
            async with asyncio.timeout(self._answer_timeout):
                return await channel.send_raw_request(method, params)
        except TimeoutError:
            message = f"the client did not answer within {self._answer_timeout:g} s"
            raise MCPError(code=REQUEST_TIMEOUT, message=message) from None
        finally:
            for timeout in timeouts:
                timeout.resume()

    def forward_to_client_request(self, method: str, params: _Params) -> bool:
        """Queue a notification for the client request it belongs to. Return whether there is such a request."""
        match method:
            case "notifications/progress":
                token = (params or {}).get("progressToken")
                client_request = self._requests_by_token.get(token) if isinstance(token, str | int) else None
                if client_request is not None:
                    client_request.notify(
                        method, {**(params or {}), "progressToken": client_request.client_progress_token}
                    )
                    if client_request.timeout is not None:
                        client_request.timeout.restart()
                return True
            case "notifications/message" if self._connection is None:
                # A log message names no request, so its request is known only if exactly one is in flight.
                if len(self._active_requests) == 1 and _accepts_log_level(self._active_requests[0].session, params):
                    self._active_requests[0].notify(method, params)
                return True
            case "notifications/message" if self._active_requests:
                # Over HTTP, the message goes into the stream of the newest request.
                self._active_requests[-1].notify(method, params)
                return True
        return False

    async def forward_notification(self, method: str, params: _Params) -> None:
        """Send the client a notification that belongs to none of its requests."""
        if method not in _UNFORWARDED_METHODS:
            await self.notify(method, params)

    def on_overflow(self) -> None:
        """End the session of a client that does not read: it must not miss notifications without knowing it."""
        if self._end_session is None:
            # On stdio there is no session to end without ending the program.
            if not self._has_logged_overflow:
                self._has_logged_overflow = True
                _log.error("forebay: the client does not read its notifications; they are dropped until it does")
        elif self._end_task is None:
            _log.warning("forebay: the session of a client is ended, because it does not read its notifications")
            self._end_task = asyncio.ensure_future(self._end_session())

    async def notify(self, method: str, params: _Params) -> None:
        """Send the client a notification of any method."""
        if (event := event_from_wire(method, params)) is not None:
            await self._bus.publish(event)
        if self._connection is not None and self._connection.initialized.is_set():
            await self._connection.outbound.notify(method, params)


def _accepts_log_level(session: ServerSession, params: _Params) -> bool:
    return (params or {}).get("level") in get_allowed_log_levels(session)
