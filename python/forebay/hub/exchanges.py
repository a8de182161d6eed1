"""Requests to one MCP server that wait for their responses, with ids that the hub gives them."""

import asyncio
import contextlib
import dataclasses
import itertools
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from forebay.errors import UpstreamFailed, UpstreamTimeout
from forebay.proxy.message_queue import Reply

if TYPE_CHECKING:
    from concurrent.futures import Future

    from forebay.hub.connection import Client, ServerConnection
    from forebay.wire.framing import Message

__all__ = ["Asker", "Exchange", "Exchanges", "Response", "keep_response"]

_MAX_EXCHANGES = 4096
"""Maximum number of requests that wait for the response of one server."""

_LARGE_RESPONSE_BYTES = 8 << 20

_MAX_ID = 1 << 53
"""Some servers read numbers as doubles."""


class Asker(Protocol):
    """Who answers the questions that a server asks during a request."""

    @property
    def identity(self) -> object:
        """A value that is equal for requests whose clients may get each other's questions."""

    def supports(self, method: str, params: Mapping[str, Any], /) -> bool:
        """Return whether the client can be asked this."""

    async def ask(
        self, connection: "ServerConnection", message: Mapping[str, Any], raw: "Message", exchange: "Exchange | None", /
    ) -> dict[str, Any]:
        """Return the answer as the `result` or `error` of a response. Raises `RequestFailed`."""


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
    future: "asyncio.Future[Any] | Future[Any]"
    client: "Client | None" = None
    asker: Asker | None = None
    reply: Reply | None = None
    token: bytes | None = None
    """The progress token that the client chose, as JSON. Its server gets the id of the request instead."""
    log_level: int | None = None
    """Severity of the log messages that a stateless request wants."""
    finish: Callable[[dict[str, Any], "Message"], Any] = keep_response
    """Makes the result of the exchange from the response. Runs in a thread if the response is large."""
    inline_limit: int = _LARGE_RESPONSE_BYTES
    """Size of a response above which `finish` runs in a thread."""
    on_event: Callable[[str, Mapping[str, Any]], None] | None = None
    """Receives the notifications of a subscription."""
    is_answered: bool = False
    """Whether the response has arrived, so that only `finish` is left to do."""
    timeout: float | None = None
    timer: asyncio.TimerHandle | None = None
    pauses: int = 0
    on_settled: list[Callable[[], None]] | None = dataclasses.field(default_factory=list)
    """Functions to call when the exchange has ended; `None` afterwards."""


class Exchanges:
    """The open requests to one server, by id. Only `find`, `add` and `call_when_settled` may be used in threads."""

    def __init__(self, server_name: str, *, has_secret_ids: bool = False) -> None:
        """With `has_secret_ids`, no client can guess the ids of another client's requests."""
        self._server_name = server_name
        self._has_secret_ids = has_secret_ids
        self._loop = asyncio.get_running_loop()
        self._open: dict[object, Exchange] = {}
        self._ids = itertools.count(1)
        self._settling_lock = threading.Lock()

    def __iter__(self) -> Iterator[Exchange]:
        """Iterate over the open requests, the newest last."""
        # A copy, because another thread may add one.
        return iter(list(self._open.values()))

    def __contains__(self, exchange: Exchange) -> bool:
        return exchange.id in self._open

    def new(self, method: str, future: "Future[Any] | None" = None) -> Exchange:
        """Return a new request, which is not open yet. Raises `UpstreamFailed` if too many are open."""
        if len(self._open) >= _MAX_EXCHANGES:
            raise UpstreamFailed(
                f"{self._server_name} has not answered {_MAX_EXCHANGES:,} requests yet; "
                "wait for some of the answers, and ask again"
            )
        request_id = secrets.randbelow(_MAX_ID) if self._has_secret_ids else next(self._ids)
        return Exchange(request_id, method, future or self._loop.create_future())

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

    def settle(self, exchange: Exchange) -> bool:
        """Close a request that has ended; return whether it was still open."""
        if exchange.timer is not None:
            exchange.timer.cancel()
        with self._settling_lock:
            was_open = self._open.pop(exchange.id, None) is not None
            callbacks, exchange.on_settled = exchange.on_settled or (), None
        for callback in callbacks:
            callback()
        return was_open

    def call_when_settled(self, request_id: object, callback: Callable[[], None]) -> None:
        """Call a function when a request has ended; at once if it is not open."""
        exchange = self.find(request_id)
        with self._settling_lock:
            if exchange is not None and exchange.on_settled is not None:
                exchange.on_settled.append(callback)
                return
        callback()

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

    def restart_timer(self, exchange: Exchange, on_expired: Callable[[Exchange], None]) -> None:
        """Start the timeout of a request again, unless it is paused."""
        if exchange.timer is not None:
            exchange.timer.cancel()
            exchange.timer = None
        if exchange.timeout is not None and not exchange.pauses and not exchange.is_answered and exchange in self:
            exchange.timer = self._loop.call_later(exchange.timeout, on_expired, exchange)

    @contextlib.contextmanager
    def paused(self, exchanges: Iterable[Exchange], on_expired: Callable[[Exchange], None]) -> Iterator[None]:
        """Stop the timeouts of requests while their client answers a question."""
        paused = [*exchanges]
        for exchange in paused:
            exchange.pauses += 1
            self.restart_timer(exchange, on_expired)
        try:
            yield
        finally:
            for exchange in paused:
                exchange.pauses -= 1
                self.restart_timer(exchange, on_expired)

    def make_timeout_error(self, exchange: Exchange) -> UpstreamTimeout:
        text = f"{self._server_name}: {exchange.method} took too long; ask for less, or allow it longer"
        return UpstreamTimeout(text)
