"""Failures of the system and of peers: every request is answered, and later messages are handled."""

import asyncio
import errno
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from forebay.errors import StoreFull, UpstreamFailed
from forebay.outputs.policy import OutputPolicy
from forebay.proxy.inbox import Inbox
from forebay.proxy.pipe_writers import PipeClosed, StdioClient
from forebay.proxy.process_group import Grace
from forebay.proxy.session import UpstreamRejected
from forebay.proxy.stdio import Process, StdioUpstream
from forebay.proxy.workers import WorkerPool
from forebay.wire.framing import HeadTail, LineReader, LostMessage, Message, Spool
from forebay.wire.lazy_json import dump
from relay_peers import Gateway
from waiting import wait_until, wait_until_async

TOO_MANY = b"[" + b",".join([b"{}"] * 10_001) + b"]"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with closing(OutputPolicy((tmp_path / "store").as_uri(), sweep_interval=0, output_mode="auto")) as policy:
        yield Gateway(policy)


@pytest.fixture
def filtering(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway that hides tools."""
    with closing(OutputPolicy((tmp_path / "store").as_uri(), sweep_interval=0, disable_tools=["core"])) as policy:
        yield Gateway(policy)


@pytest.fixture
def referring(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway that looks for references in arguments."""
    options: dict[str, Any] = {"output_mode": "auto", "file_refs": True}
    with closing(OutputPolicy((tmp_path / "store").as_uri(), sweep_interval=0, **options)) as policy:
        policy.learn_tools([{"name": "any", "inputSchema": {"type": "object"}}])
        yield Gateway(policy)


class _Threads:
    """Threads of the system, which has none left while `are_gone` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.are_gone = False
        start = threading.Thread.start

        def start_or_fail(thread: threading.Thread) -> None:
            if self.are_gone:
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_or_fail)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> _Threads:
    return _Threads(monkeypatch)


def _call(gateway: Gateway, number: int, tool: str) -> None:
    gateway.receive_from_client(id=number, method="tools/call", params={"name": tool, "arguments": {}})


def test_calls_and_results_need_no_thread_if_there_is_none_left(referring: Gateway, threads: _Threads) -> None:
    """Calls keep their order, so that one that was never run would block all that follow."""
    result = {"content": [{"type": "text", "text": "x" * 100_000}]}
    for number in range(101):
        # More than the threads of a pool, and than the requests that may wait for them.
        threads.are_gone = number < 100
        _call(referring, number, "any")
        wait_until(lambda: len(referring.server.received) == number + 1)  # noqa: B023 - called at once
        assert referring.server.received[-1]["id"] == number
        referring.receive_from_server(id=number, result=result)
    assert referring.relay.wait_idle(60)
    assert [answer["id"] for answer in referring.client.received] == [*range(101)]
    # All of them are handles.
    assert max(len(dump(answer)) for answer in referring.client.received) <= 4096


def test_a_message_that_cannot_be_changed_goes_on_as_it_came(
    gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The client knows the id of a question from the server that was before this one."""

    def fail(folder: str) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)

    question = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {"x": "x" * 3_000_000}}
    gateway.receive_from_server(**question)
    gateway.relay.on_upstream_end(UpstreamFailed("gone"))
    with Spool(tmp_path) as spool:
        spool.write(dump(question))
        monkeypatch.setattr("forebay.system.files.create_temporary", fail)
        gateway.relay.receive_from_server(spool)
        assert gateway.client.received[-1] == question
    assert "goes on as it came" in caplog.text


@pytest.mark.parametrize("method", ["tools/call", "ping"])
def test_a_request_that_fails_for_an_unknown_reason_is_answered(
    method: str, referring: Gateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A call with references is prepared in a thread. Pings are not."""

    def fail(raw: Message) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), len(raw))

    monkeypatch.setattr(referring.server, "send", fail)
    if method == "tools/call":
        _call(referring, 1, "any")
    else:
        referring.receive_from_client(id=1, method=method)
    wait_until(lambda: referring.client.received)
    assert "the gateway failed; its log says why" in referring.client.received[0]["error"]["message"]
    assert "a message of the client could not be handled" in caplog.text


def test_messages_are_refused_while_the_server_takes_none(gateway: Gateway) -> None:
    gateway.is_ready = False
    gateway.receive_from_client(id=1, method="ping")
    gateway.receive_from_client(method="notifications/roots/list_changed")
    gateway.receive_from_client(method="notifications/cancelled", params={})
    (refusal,) = gateway.client.received
    assert (refusal["id"], refusal["error"]["data"]["code"]) == (1, "upstream_failed")
    assert gateway.server.received == []


def test_a_method_that_is_no_text_is_the_server_s_to_refuse(gateway: Gateway) -> None:
    gateway.receive_from_client(id=1, method=5)
    assert gateway.server.received == [{"jsonrpc": "2.0", "id": 1, "method": 5}]


def test_a_message_that_a_filter_cannot_write_again_is_refused(
    filtering: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: str) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)

    message = {"jsonrpc": "2.0", "id": 5, "method": "ping", "params": {"x": "x" * 3_000_000}}
    with Spool(tmp_path) as spool:
        spool.write(dump(message))
        monkeypatch.setattr("forebay.system.files.create_temporary", fail)
        filtering.relay.receive_from_client(spool)
    (refusal,) = filtering.client.received
    assert (refusal["id"], refusal["error"]["data"]["code"]) == (5, "store_full")


@pytest.mark.parametrize("stream_request_id", [None, 1])
def test_a_response_that_was_lost_fails_its_request(stream_request_id: object, gateway: Gateway) -> None:
    error = StoreFull("the disk is full")
    _call(gateway, 1, "any")
    gateway.receive_from_client(id=2, method="resources/read", params={"uri": "x://1"})
    question = HeadTail(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":"', b"")
    assert not gateway.relay.receive_from_server(LostMessage(error, 10**9, question))
    assert gateway.client.received == []
    head = HeadTail(b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"the start', b"")
    assert gateway.relay.receive_from_server(LostMessage(error, 10**9, head), stream_request_id)
    text = gateway.client.received[0]["result"]["content"][0]["text"]
    assert all(part in text for part in ("store_full", "the start", "the tool has run", "1000000000"))
    unknown = HeadTail(b'{"jsonrpc":"2.0","id":9,"result":{', b"")
    assert gateway.relay.receive_from_server(LostMessage(error, 10**9, unknown))
    second = HeadTail(b'{"jsonrpc":"2.0","id":2,"result":{', b"")
    assert gateway.relay.receive_from_server(LostMessage(error, 10**9, second))
    data = gateway.client.received[1]["error"]["data"]
    assert (data["code"], "note" in data) == ("store_full", False)


def test_too_many_messages_on_the_stream_of_a_request_fail_that_request(gateway: Gateway) -> None:
    for number in (1, 2):
        _call(gateway, number, "any")
    assert gateway.relay.receive_from_server(TOO_MANY, 1)
    (answer,) = gateway.client.received
    assert (answer["id"], "too many messages" in answer["result"]["content"][0]["text"]) == (1, True)


def test_a_request_that_was_held_back_too_long_is_answered(gateway: Gateway) -> None:
    gateway.receive_from_client(id=1, method="ping")
    error = UpstreamFailed("gone")
    for line in (b'{"jsonrpc":"2.0","method":"notifications/initialized"}', b'{"jsonrpc":"2.0","id":7,"result":{}}'):
        gateway.relay.on_unsent(line, error)
    assert not gateway.relay.has_reported_failure.is_set()
    gateway.relay.on_unsent(b'{"jsonrpc":"2.0","id":1,"method":"ping"}', error)
    assert gateway.client.received[0]["error"]["message"] == "gone"
    settled: list[bool] = []
    gateway.relay.call_when_settled(1, lambda: settled.append(True))
    assert settled == [True]


def test_only_a_refused_handshake_prevents_a_restart(gateway: Gateway) -> None:
    sent: list[Any] = []

    def send(raw: Message) -> None:
        gateway.server.send(raw)
        request = gateway.server.received[-1]
        sent.append(request["method"])
        if "id" in request:
            gateway.receive_from_server(id=request["id"], error={"code": -32603, "message": "not now"})

    # Without a handshake there is nothing to repeat.
    gateway.relay.replay_session(send)
    assert sent == []
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    gateway.receive_from_client(id=1, method="initialize", params=params)
    gateway.receive_from_server(id=1, result={"protocolVersion": "2025-11-25", "capabilities": {}})
    with pytest.raises(UpstreamRejected):
        gateway.relay.replay_session(send)
    assert sent == ["initialize"]


def test_a_server_may_cancel_its_own_requests(gateway: Gateway) -> None:
    gateway.receive_from_server(id="q", method="elicitation/create", params={})
    for request_id in ("q", "q", "unknown"):
        gateway.receive_from_server(method="notifications/cancelled", params={"requestId": request_id})
    assert [message.get("params") for message in gateway.client.received[1:]] == [
        *({"requestId": "q"} for _ in range(2)),
        {"requestId": "unknown"},
    ]


def test_only_the_last_cancellations_are_remembered(gateway: Gateway) -> None:
    for number in range(1030):
        gateway.receive_from_client(id=number, method="prompts/list")
        gateway.receive_from_client(method="notifications/cancelled", params={"requestId": number})
    assert [number for number in range(1030) if not gateway.relay.pending.was_cancelled(number)] == [*range(6)]


def test_a_job_that_fails_does_not_end_its_thread(caplog: pytest.LogCaptureFixture) -> None:
    pool, done = WorkerPool(1), threading.Event()

    def fail() -> None:
        raise LookupError("a bug")

    pool.submit(fail)
    pool.submit(done.set)
    assert pool.wait_idle(60)
    assert done.is_set()
    assert "LookupError: a bug" in caplog.text


def test_a_message_that_fails_in_the_loop_does_not_stop_the_next(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        inbox, handled = Inbox(), list[int]()

        def handle(number: int) -> None:
            if number == 1:
                raise LookupError("a bug")
            handled.append(number)

        for number in range(3):
            await asyncio.to_thread(inbox.put, 1, lambda number=number: handle(number))  # type: ignore[misc]
        await wait_until_async(lambda: handled == [0, 2])

    asyncio.run(run())
    assert "LookupError: a bug" in caplog.text


@pytest.mark.posix
def test_messages_that_were_held_back_for_a_client_that_is_gone_are_dropped() -> None:
    reading_fd, writing_fd = os.pipe()
    gone: list[bool] = []
    client = StdioClient(writing_fd, lambda: gone.append(True))
    with client.corked():
        client.send(b'{"jsonrpc":"2.0"}')
        os.close(reading_fd)
    assert gone == [True]
    client.flush()
    client.send(b"more")
    assert gone == [True]
    os.close(writing_fd)


ENDS_AT_ONCE = [sys.executable, "-c", "print('{}', flush=True)"]


class _Receiver:
    """A receiver that fails for each message."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def receive_from_server(self, line: object) -> bool:
        raise LookupError(line)

    def on_upstream_end(self, error: UpstreamFailed) -> None:
        self.errors.append(str(error))

    def replay_session(self, send: object) -> None: ...


def _start(command: list[str], folder: Path) -> StdioUpstream:
    def make_reader(*arguments: Any, **options: Any) -> LineReader:
        return LineReader(*arguments, spool_above_bytes=1 << 20, make_spool=lambda: Spool(folder), **options)

    return StdioUpstream(Process(command), command, make_reader=make_reader, grace=Grace(0.1))


@pytest.mark.slow
@pytest.mark.posix
def test_a_server_whose_command_is_gone_is_started_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!{sys.executable}\nprint('{{}}', flush=True)\n")
    program.chmod(0o755)
    upstream, receiver = _start([str(program)], tmp_path), _Receiver()
    assert upstream._process.wait_exit(60) == 0
    program.rename(tmp_path / "elsewhere")
    thread = threading.Thread(target=upstream.run, args=(receiver,))
    thread.start()
    wait_until(lambda: "cannot be started again" in caplog.text)
    (tmp_path / "elsewhere").rename(program)
    wait_until(lambda: len(receiver.errors) >= 2)
    upstream.close()
    thread.join(60)
    assert not thread.is_alive()
    assert "a message of the server could not be handled" in caplog.text


@pytest.mark.slow
def test_messages_for_a_server_that_ends_again_are_left_to_the_next_one(tmp_path: Path) -> None:
    upstream, receiver = _start(ENDS_AT_ONCE, tmp_path), _Receiver()
    process = upstream._process
    assert process.wait_exit(60) == 0

    def is_closed() -> bool:
        try:
            process.send(b"{}")
        except PipeClosed:
            return True
        return False

    # Wine closes the pipes of a process a moment after its end.
    wait_until(is_closed)
    upstream._queued_messages = [b"1", b"2"]
    upstream._resume_session(receiver, process)  # type: ignore[arg-type]
    # The first one fails with the server; `run` notices its end.
    assert upstream._queued_messages == [b"2"]
    other = Process(ENDS_AT_ONCE)
    upstream._resume_session(receiver, other)  # type: ignore[arg-type]
    assert upstream._queued_messages == [b"2"]
    for ended in (process, other):
        ended.terminate(0)
        ended._stdout.close()
