"""Requests to one MCP server that wait for their responses, with ids that the hub gives them."""

import asyncio
import contextlib
import dataclasses
import itertools
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from forebay.errors import UpstreamFailed
from forebay.proxy.message_queue import Reply
from forebay.proxy.session import make_call_timeout

if TYPE_CHECKING:
    from forebay.hub.paused_calls import PausableCall
    from forebay.hub.sessions import ClientSession
    from forebay.hub.tenant import Tenant
    from forebay.wire.framing import Message

__all__ = ["Exchange", "Exchanges", "Response", "keep_response"]

_MAX_EXCHANGES = 4096
"""Maximum number of requests that wait for the response of one server."""

_LARGE_RESPONSE_BYTES = 8 << 20

_MAX_ID = 1 << 53
"""Some servers read numbers as doubles."""

Response = tuple[dict[str, Any], "Message"]
"""A response, parsed lazily and as bytes."""


def keep_response(message: dict[str, Any], raw: "Message") -> Response:
    """Return a response as it came."""
    return message, raw


@dataclasses.dataclass(eq=False, slots=True)
class Exchange:
    """Request to a server that waits for its response."""

    id: int
    method: str
    future: "asyncio.Future[Any]"
    tool: str = ""
    """The tool of a call, by the name that the client has called."""
    tenant: "Tenant | None" = None
    """Whose request it is; `None` for a request of the hub itself."""
    respondent: "ClientSession | PausableCall | None" = None
    """Who answers the server's questions during the request."""
    reply: Reply | None = None
    progress_token: bytes | None = None
    """The token that the client chose, as JSON. Its server gets the id of the request instead."""
    log_level: int | None = None
    """Severity of the log messages that a stateless request wants."""
    finish: Callable[[dict[str, Any], "Message"], Any] = keep_response
    """Makes the result of the exchange from the response. Runs in a thread if the response is large."""
    inline_limit: int = _LARGE_RESPONSE_BYTES
    """Size of a response above which `finish` runs in a thread."""
    on_notification: Callable[[str, Mapping[str, Any]], None] | None = None
    """Receives the notifications of a subscription."""
    is_answered: bool = False
    """Whether the response has arrived, so that only `finish` is left to do."""
    timeout: float | None = None
    timer: asyncio.TimerHandle | None = None
    pauses: int = 0


class Exchanges:
    """The open requests to one server, by id. Other threads than that of the event loop may only look for requests."""

    def __init__(
        self, server_name: str, on_cancelled: Callable[[Exchange, str], None], *, has_secret_ids: bool = False
    ) -> None:
        """`on_cancelled` gets a request that nobody waits for any more, and the reason.

        With `has_secret_ids`, no client can guess the ids of another client's requests.
        """
        self._server_name = server_name
        self._on_cancelled = on_cancelled
        self._has_secret_ids = has_secret_ids
        self._loop = asyncio.get_running_loop()
        self._open: dict[object, Exchange] = {}
        self._ids = itertools.count(1)

    def __iter__(self) -> Iterator[Exchange]:
        """Iterate over the open requests, the newest last."""
        # A copy, because the event loop may add one.
        return iter(list(self._open.values()))

    def __contains__(self, exchange: Exchange) -> bool:
        return exchange.id in self._open

    def new(self, method: str) -> Exchange:
        """Return a new request, which is not open yet. Raises `UpstreamFailed` if too many are open."""
        if len(self._open) >= _MAX_EXCHANGES:
            raise UpstreamFailed(f"{self._server_name} has not answered {_MAX_EXCHANGES:,} requests yet; retry later")
        request_id = secrets.randbelow(_MAX_ID) if self._has_secret_ids else next(self._ids)
        return Exchange(request_id, method, self._loop.create_future())

    def list_unanswered(self) -> list[Exchange]:
        """Return the open requests whose response has not arrived."""
        return [exchange for exchange in self if not exchange.is_answered]

    def add(self, exchange: Exchange) -> None:
        """Open a request, before it is sent."""
        self._open[exchange.id] = exchange

    def find(self, request_id: object) -> Exchange | None:
        """Return the open request with this id."""
        # In Python, `True` is 1, but in JSON it is not.
        is_number = isinstance(request_id, int | float) and not isinstance(request_id, bool)
        return self._open.get(request_id) if is_number else None

    def list_sources(self, stream_request_id: object) -> list[Exchange]:
        """Return the requests that a message of the server may belong to, the newest last.

        Before 2026-07-28 a message does not name its request. Over HTTP the stream of a response tells.
        """
        if stream_request_id is None:
            return [*self]
        exchange = self.find(stream_request_id)
        return [] if exchange is None else [exchange]

    def settle(self, exchange: Exchange) -> bool:
        """Close a request that has ended; return whether it was still open."""
        if exchange.timer is not None:
            exchange.timer.cancel()
        return self._open.pop(exchange.id, None) is not None

    def call_when_settled(self, request_id: object, callback: Callable[[], None]) -> None:
        """Call a function soon after a request has ended; at once if it is not open."""
        exchange = self.find(request_id)
        if exchange is None:
            callback()
        else:
            exchange.future.add_done_callback(lambda _: callback())

    def resolve(self, exchange: Exchange, result: Any) -> None:
        """End a request with its result, unless it has ended already."""
        if self.settle(exchange) and not exchange.future.done():
            exchange.future.set_result(result)

    def fail(self, exchange: Exchange, error: Exception) -> None:
        """End a request with an error, unless it has ended already."""
        if self.settle(exchange) and not exchange.future.done():
            exchange.future.set_exception(error)

    def fail_all(self, error: UpstreamFailed, exchanges: Iterable[Exchange] | None = None) -> None:
        """Fail these requests, or all that are open."""
        for exchange in self if exchanges is None else exchanges:
            # Each gets its own exception, because raising one adds a traceback to it.
            self.fail(exchange, UpstreamFailed(str(error)))

    def cancel(self, exchange: Exchange, reason: str) -> None:
        """Forget a request that nobody waits for any more."""
        if self.settle(exchange):
            self._on_cancelled(exchange, reason)

    def restart_timer(self, exchange: Exchange) -> None:
        """Start the timeout of a request again, unless it is paused."""
        if exchange.timer is not None:
            exchange.timer.cancel()
            exchange.timer = None
        if exchange.timeout is not None and not exchange.pauses and not exchange.is_answered and exchange in self:
            exchange.timer = self._loop.call_later(exchange.timeout, self._expire, exchange)

    def _expire(self, exchange: Exchange) -> None:
        if not exchange.is_answered:
            self.fail(exchange, make_call_timeout(exchange.tool or exchange.method, exchange.timeout or 0))
            self._on_cancelled(exchange, "timeout")

    @contextlib.contextmanager
    def paused(self, tenant: "Tenant") -> Iterator[None]:
        """Stop the timeouts of a client's requests while the client answers a question."""
        paused = [exchange for exchange in self if exchange.tenant is tenant]
        for exchange in paused:
            exchange.pauses += 1
            self.restart_timer(exchange)
        try:
            yield
        finally:
            for exchange in paused:
                exchange.pauses -= 1
                self.restart_timer(exchange)
