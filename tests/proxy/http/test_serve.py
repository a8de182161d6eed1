"""An HTTP upstream in the event loop of its receiver, without threads between them."""

import asyncio
import errno
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faulty_server import Server
from forebay.errors import UpstreamFailed, UpstreamTimeout
from forebay.proxy.http import upstream as upstream_module
from forebay.proxy.http.upstream import HttpUpstream
from forebay.wire.framing import Line, LostMessage, Message, Spool
from waiting import wait_until_async
from wires import LEGACY, MODERN, make_request

pytestmark = pytest.mark.slow


class Receiver:
    """A receiver whose requests are pending until they are answered. It notes the threads that call it."""

    def __init__(self) -> None:
        self.redact: Callable[[str], str] = str
        self.redact_line: Callable[[Line], Line] = lambda line: line
        self.negotiated_version: str | None = None
        self.pending: dict[object, asyncio.Future[dict[str, Any]]] = {}
        self.threads: set[int] = set()

    def add(self, request_id: object) -> "asyncio.Future[dict[str, Any]]":
        future = self.pending[request_id] = asyncio.get_running_loop().create_future()
        return future

    def receive_from_server(self, line: Line, stream_request_id: object = None) -> bool:
        assert not isinstance(line, Spool | LostMessage)
        self.threads.add(threading.get_ident())
        response = json.loads(line)
        assert response["id"] == stream_request_id
        self.pending.pop(response["id"]).set_result(response)
        return True

    def is_pending(self, request_id: object) -> bool:
        return request_id in self.pending

    def call_when_settled(self, request_id: object, callback: Callable[[], None]) -> None:
        self.pending[request_id].add_done_callback(lambda _: callback())

    def fail_request(self, request_id: object, error: UpstreamFailed) -> None:
        self.threads.add(threading.get_ident())
        if (future := self.pending.pop(request_id, None)) is not None:
            future.set_exception(error)

    def replay_session(self, send: Callable[[Message], None]) -> None:
        raise AssertionError(f"no session is lost here: {send}")

    def cancel_server_requests(self, reason: str) -> None:
        raise AssertionError(reason)

    def on_upstream_end(self, error: UpstreamFailed) -> None:
        raise error


def make_upstream(server: Server, folder: Path) -> HttpUpstream:
    return HttpUpstream(server.url, spool_above_bytes=1 << 20, make_spool=lambda: Spool(folder))


def call(number: int, tool: str) -> bytes:
    return json.dumps(make_request(number, "tools/call", {"name": tool, "arguments": {}}, MODERN)).encode()


def test_requests_are_answered_in_the_loop_of_the_caller(server: Server, tmp_path: Path) -> None:
    async def test() -> None:
        receiver, upstream = Receiver(), make_upstream(server, tmp_path)
        # What is sent before the start waits for it.
        first = receiver.add(0)
        upstream.send(call(0, "plain"))
        serving = asyncio.create_task(upstream.serve(receiver))
        others = [receiver.add(number) for number in range(1, 100)]
        for number in range(1, 100):
            upstream.send(call(number, "plain"))
        responses = await asyncio.gather(first, *others)
        assert [response["id"] for response in responses] == [*range(100)]
        assert receiver.threads == {threading.get_ident()}
        upstream.close()
        await serving
        with pytest.raises(UpstreamFailed):
            upstream.send(call(100, "plain"))

    asyncio.run(test())


def test_closing_fails_the_requests_in_flight_and_those_that_wait(server: Server, tmp_path: Path) -> None:
    async def test() -> None:
        receiver, upstream = Receiver(), make_upstream(server, tmp_path)
        serving = asyncio.create_task(upstream.serve(receiver))
        futures = [receiver.add(number) for number in range(100)]
        for number in range(100):
            upstream.send(call(number, "waits"))
        while not server.called:
            await asyncio.sleep(0)
        upstream.close()
        await serving
        assert all(isinstance(future.exception(), UpstreamFailed) for future in futures)

    asyncio.run(test())


def test_an_error_that_never_ends_does_not_block_later_notifications(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_module, "_ACCEPT_TIMEOUT_SECONDS", 0.2)
    server.stalls_on = "notifications/first"

    async def test() -> None:
        upstream = make_upstream(server, tmp_path)
        serving = asyncio.create_task(upstream.serve(Receiver()))
        for method in ("notifications/first", "notifications/second"):
            upstream.send(json.dumps({"jsonrpc": "2.0", "method": method}).encode())
        await wait_until_async(lambda: server.headers_of("notifications/second"))
        upstream.close()
        await serving

    asyncio.run(test())


def test_an_upstream_that_is_closed_before_its_start_ends_at_once(server: Server, tmp_path: Path) -> None:
    upstream = make_upstream(server, tmp_path)
    upstream.close()
    assert upstream.run(Receiver()) == 0
    assert server.requests == []


def test_the_number_of_subscriptions_is_limited(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_module, "_MAX_LISTENERS", 0)

    async def test() -> None:
        receiver, upstream = Receiver(), make_upstream(server, tmp_path)
        serving = asyncio.create_task(upstream.serve(receiver))
        response = receiver.add(1)
        upstream.send(json.dumps(make_request(1, "subscriptions/listen", {}, MODERN)).encode())
        with pytest.raises(UpstreamFailed, match="there are 0 subscriptions, and no more at once"):
            await response
        upstream.close()
        await serving

    asyncio.run(test())


def test_a_message_that_the_disk_lost_fails_alone(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(path: str) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    async def test() -> None:
        receiver, upstream = Receiver(), make_upstream(server, tmp_path)
        serving = asyncio.create_task(upstream.serve(receiver))
        with Spool(tmp_path) as request, Spool(tmp_path) as notification:
            request.write(call(1, "plain"))
            notification.write(b'{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}')
            lost = receiver.add(1)
            with monkeypatch.context() as patch:
                patch.setattr("forebay.system.files.open_shared", fail)
                upstream.send(request)
                upstream.send(notification)
                with pytest.raises(UpstreamFailed, match="could not be sent, for a fault of the gateway"):
                    await lost
                await wait_until_async(lambda: "a message could not be sent" in caplog.text)
            response = receiver.add(2)
            upstream.send(call(2, "plain"))
            assert (await response)["id"] == 2
        upstream.close()
        await serving

    asyncio.run(test())


def test_a_session_that_cannot_be_renewed_in_time_is_an_error(server: Server, tmp_path: Path) -> None:
    class SlowReceiver(Receiver):
        negotiated_version = "2025-06-18"

        def replay_session(self, send: Callable[[Message], None]) -> None:
            raise UpstreamTimeout(f"the server did not answer {send.__name__} in time")

        def cancel_server_requests(self, reason: str) -> None:
            assert reason == "the server has forgotten the session"

    async def test() -> None:
        receiver, upstream = SlowReceiver(), make_upstream(server, tmp_path)
        serving = asyncio.create_task(upstream.serve(receiver))
        first = receiver.add(1)
        upstream.send(json.dumps(make_request(1, "initialize", {}, LEGACY)).encode())
        await first
        # The server forgets the session.
        server.sessions += 1
        response = receiver.add(2)
        upstream.send(json.dumps(make_request(2, "tools/call", {"name": "plain"}, LEGACY)).encode())
        with pytest.raises(UpstreamFailed, match="the server did not answer resend in time"):
            await response
        upstream.close()
        await serving

    asyncio.run(test())
