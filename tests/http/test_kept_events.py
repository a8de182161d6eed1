"""Events that are kept for clients that may resume a stream: limits, and gaps that are noticed."""

import asyncio
from typing import Any

import pytest
from forebay.config.options import Settings
from forebay.http import http_exchange, transport
from forebay.http.http_exchange import EventStream
from forebay.http.transport import Transport, _HTTPSession


class Exchange:
    """An HTTP exchange whose client reads only while `reads` is set."""

    is_disconnected = False

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_ended = False
        self.reads = asyncio.Event()
        self.on_disconnect = lambda: None

    async def start_stream(self, headers: object) -> None:
        del headers

    async def write(self, data: bytes) -> None:
        await self.reads.wait()
        self.written.append(data)

    async def end(self) -> None:
        self.is_ended = True

    async def wait_closed(self) -> None:
        await asyncio.Event().wait()


def make_stream(exchange: Any, number: int, **options: Any) -> EventStream:
    return EventStream(exchange, (), (False, True), 0.0, stream_number=number, **options)


def test_a_client_that_resumes_too_slowly_does_not_miss_events_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_exchange, "_MAX_KEPT_BYTES", 100)

    async def run() -> None:
        first, second, overflows = Exchange(), Exchange(), list[int]()
        stream = make_stream(first, 0, on_overflow=lambda: overflows.append(1))
        first.reads.set()
        for _ in range(3):
            await stream._send_event(b"x" * 30)
        stream.detach(first)  # type: ignore[arg-type]
        resuming = asyncio.create_task(stream.resume(second, 0))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        # The second client does not read the first event yet; meanwhile the others are dropped.
        for _ in range(5):
            await stream._send_event(b"y" * 30)
        second.reads.set()
        await resuming
        assert (len(second.written), second.is_ended, overflows) == (1, True, [1])

    asyncio.run(run())


def test_all_sessions_together_keep_a_limited_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_MAX_KEPT_BYTES", 1000)

    async def run() -> None:
        backend: Any = None
        server = Transport(backend, Settings())
        sessions = [_HTTPSession(None, lambda: None) for _ in range(10)]
        for age, session in enumerate(sessions):
            server._sessions[session.id] = session
            session.idle_since = 10**9
            stream = make_stream(None, 1)
            stream.is_open = True
            await stream._send_event(b"x" * 300)
            await stream.end()
            stream.active_at = 1000.0 + age
            session.keep(stream)
        server.tick(1010.0)
        # The newest are kept.
        assert [len(session.streams) for session in sessions] == 7 * [0] + 3 * [1]

    asyncio.run(run())
