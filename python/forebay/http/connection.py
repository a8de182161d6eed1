"""A connection of an HTTP client that may not take all day to say what it wants."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["Connection"]

_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Connection(H11Protocol):
    """uvicorn's, which waits for ever for what is left of a request, and has as many of these as there are files."""

    def __init__(self, *args: Any, read_timeout: float, max_connections: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self._read_timeout, self._max_connections = read_timeout, max_connections
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._max_connections:
            self._close(_TOO_MANY)
        else:
            self._arm()

    def data_received(self, data: bytes) -> None:
        # What comes after we have hung up is nobody's.
        if not self.transport.is_closing():
            super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """From the first byte of a request to the last of its body; until the next begins, it may be idle."""
        if not self._has_begun() or self.transport.is_closing():
            self._unwatch()
        elif self._deadline is None:
            self._arm()

    def _has_begun(self) -> bool:
        state = self.conn.their_state
        return state is h11.SEND_BODY or (state is h11.IDLE and bool(self.conn.trailing_data[0]))

    def _arm(self) -> None:
        self._deadline = self.loop.call_later(self._read_timeout, self._give_up)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        is_answered = self.conn.their_state is h11.SEND_BODY and self.cycle.response_started
        # Who has asked nothing would take this for the answer to what it asks next.
        self._close(_TOO_SLOW if self._has_begun() and not is_answered else b"")

    def _close(self, last_words: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(last_words)
            self.transport.close()
