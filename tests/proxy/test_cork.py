"""Messages that are held back and written together: none is lost, and the order stays."""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from io import FileIO
from pathlib import Path

import pytest
from forebay.proxy.pipe_writers import Outbox, PipeClosed, StdioClient
from forebay.wire.framing import LineReader, Message, Spool
from gateway_harness import connect, wrap

Cork = Callable[[], AbstractContextManager[None]]
MESSAGE_COUNT = 2000


def make_spool() -> Spool:
    raise AssertionError("these messages are small")


@contextmanager
def open_pipe() -> Iterator[tuple[FileIO, FileIO]]:
    reading, writing = os.pipe()
    with FileIO(reading) as reader, FileIO(writing, "w") as writer:
        yield reader, writer


def make_sender(kind: str, file: FileIO) -> tuple[Callable[[Message], None], Cork]:
    """Return the method that sends, and the context in which messages are held back."""
    if kind == "client":
        client = StdioClient(file.fileno(), lambda: None)
        return client.send, client.corked
    outbox = Outbox(file.fileno())

    @contextmanager
    def corked() -> Iterator[None]:
        outbox.cork()
        try:
            yield
        finally:
            assert outbox.uncork() == []

    return outbox.send, corked


@pytest.mark.parametrize("kind", ["client", "outbox"])
def test_messages_of_several_threads_arrive_whole_and_in_the_order_of_each(kind: str) -> None:
    with open_pipe() as (reading, writing):
        send, corked = make_sender(kind, writing)

        def send_batches() -> None:
            for start in range(0, MESSAGE_COUNT, 100):
                with corked():
                    for number in range(start, start + 100):
                        send(b"corked %d %s" % (number, b"x" * (number % 1500)))

        def send_each() -> None:
            for number in range(MESSAGE_COUNT):
                send(b"plain %d" % number)

        threads = [threading.Thread(target=target) for target in (send_batches, send_each)]
        for thread in threads:
            thread.start()
        numbers: dict[bytes, list[int]] = {b"corked": [], b"plain": []}
        lines = iter(LineReader(reading.fileno(), spool_above_bytes=1 << 20, make_spool=make_spool))
        for _ in range(2 * MESSAGE_COUNT):
            line = next(lines)
            assert isinstance(line, bytes | bytearray)
            name, number, *filler = bytes(line).split(b" ")
            assert filler == ([b"x" * (int(number) % 1500)] if name == b"corked" else [])
            numbers[name].append(int(number))
        for thread in threads:
            thread.join()
    assert numbers[b"corked"] == numbers[b"plain"] == [*range(MESSAGE_COUNT)]


@pytest.mark.posix
@pytest.mark.parametrize("kind", ["client", "outbox"])
def test_only_messages_of_the_corked_thread_wait(kind: str) -> None:
    with open_pipe() as (reading, writing):
        send, corked = make_sender(kind, writing)
        os.set_blocking(reading.fileno(), False)
        with corked():
            send(b"1")
            assert reading.read(100) is None
            thread = threading.Thread(target=send, args=(b"2",))
            thread.start()
            thread.join()
            assert reading.read(100) == b"1\n2\n"
            send(b"3")
        assert reading.read(100) == b"3\n"
        send(b"4")
        assert reading.read(100) == b"4\n"


@pytest.mark.posix
@pytest.mark.parametrize("kind", ["client", "outbox"])
def test_few_messages_and_bytes_wait(kind: str) -> None:
    with open_pipe() as (reading, writing):
        send, corked = make_sender(kind, writing)
        with corked():
            for _ in range(65):
                send(b"x")
            assert reading.read(1000) == b"x\n" * 65
            send(b"y")
            send(b"z" * (64 << 10))
            assert reading.read(2) == b"y\n"


@pytest.mark.posix
def test_messages_that_a_server_does_not_read_any_more_come_back() -> None:
    with open_pipe() as (reading, writing):
        outbox = Outbox(writing.fileno())
        outbox.cork()
        for raw in (b"1", b"2"):
            outbox.send(raw)
        reading.close()
        outbox.flush()
        assert outbox.uncork() == [b"1", b"2"]
        with pytest.raises(PipeClosed):
            outbox.send(b"3")


@pytest.mark.posix
def test_a_message_is_refused_if_the_server_did_not_read_before() -> None:
    with open_pipe() as (reading, writing):
        outbox = Outbox(writing.fileno())
        reading.close()
        outbox.cork()
        with pytest.raises(PipeClosed):
            outbox.send(b"1")
        assert outbox.uncork() == []


SERVER = """
import json, os, sys, time
for line in sys.stdin:
    message = json.loads(line)
    if message.get("id") == "last":
        os.close(0)
        print(json.dumps({"jsonrpc": "2.0", "id": "last", "result": {}}), flush=True)
        time.sleep(600)
    if "id" in message:
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@pytest.mark.slow
def test_requests_in_one_write_are_answered_if_the_server_has_closed_its_input(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, server=[sys.executable, "-c", SERVER])) as client:
        client.send({"jsonrpc": "2.0", "id": "last", "method": "ping"})
        assert json.loads(client.read_line())["id"] == "last"
        requests = [
            {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "x"}} for number in "ab"
        ]
        client.send(b"\n".join(json.dumps(request).encode() for request in requests))
        responses = [json.loads(client.read_line()) for _ in requests]
        assert [response["id"] for response in responses] == ["a", "b"]
        assert all("the server has stopped reading" in str(response["result"]) for response in responses)
