"""Lines that are read in the event loop: all of them, in order, however they are cut and whichever thread gets them."""

import asyncio
import errno
import itertools
import os
import tempfile
import threading
from collections.abc import Callable, Coroutine
from typing import Any
from unittest import mock

import pytest
from forebay.proxy import loop_reader
from forebay.proxy.loop_reader import LoopReader
from forebay.system.pipes import EndSignal
from forebay.wire.framing import Line, LostMessage, Spool
from hypothesis import given
from hypothesis import strategies as st
from waiting import wait_until_async

pytestmark = pytest.mark.posix

LARGE_LINE_BYTES, SPOOL_ABOVE_BYTES = 20, 100


def read(line: Line) -> bytes:
    assert not isinstance(line, LostMessage)
    return b"".join(line.chunks()) if isinstance(line, Spool) else bytes(line)


class Reading:
    """A reader of a pipe, and the thread that waits for its large lines."""

    def __init__(self) -> None:
        self.fd, self.writing_fd = os.pipe()
        self.end = EndSignal()
        self.lines: list[bytes] = []
        self.batch_count = 0
        self.may_handle = threading.Event()
        self.may_handle.set()
        self._loop_thread = threading.get_ident()
        self.reader = LoopReader(
            self.fd,
            end=self.end,
            loop=asyncio.get_running_loop(),
            receive=self._receive,
            buffer=LoopReader.make_buffer(),
            spool_above_bytes=SPOOL_ABOVE_BYTES,
            make_spool=lambda: Spool(tempfile.gettempdir()),
        )
        self.thread = threading.Thread(target=self._run, args=(self.reader,))
        self.thread.start()

    def _receive(self, line: Line) -> None:
        assert threading.get_ident() == self._loop_thread
        assert len(read(line)) <= LARGE_LINE_BYTES
        self.lines.append(read(line))

    def _run(self, reader: LoopReader) -> None:
        for lines in reader.batches():
            self.may_handle.wait(60)
            self.batch_count += 1
            self.lines += map(read, lines)

    async def join(self) -> None:
        await wait_until_async(lambda: not self.thread.is_alive())
        os.close(self.fd)
        self.end.close()


def run(test: Callable[[], Coroutine[Any, Any, None]], read_bytes: int = 7) -> None:
    limits: dict[str, Any] = {
        "_LARGE_LINE_BYTES": LARGE_LINE_BYTES,
        "_READ_BYTES": read_bytes,
        "_LONG_READ_BYTES": 3 * read_bytes,
        "_MAX_LINES": 3,
    }
    with mock.patch.multiple(loop_reader, **limits):
        asyncio.run(test())


@given(
    st.lists(st.sampled_from([b"\n", b"a", b"bc", b"\r", b"x" * 15, b"y" * 60]), max_size=40),
    st.integers(1, 80),
    st.booleans(),
)
def test_all_lines_arrive_in_order(pieces: list[bytes], read_bytes: int, has_exited_first: bool) -> None:
    async def test() -> None:
        reading = Reading()
        if has_exited_first:
            for piece in pieces:
                os.write(reading.writing_fd, piece)
            reading.end.set()
        else:
            for piece in pieces:
                os.write(reading.writing_fd, piece)
                await asyncio.sleep(0)
            os.close(reading.writing_fd)
        await reading.join()
        if has_exited_first:
            os.close(reading.writing_fd)
        else:
            reading.end.set()
        assert reading.lines == [line for line in b"".join(pieces).split(b"\n") if line]
        assert reading.batch_count > 0 or not reading.lines

    run(test, read_bytes)


def test_nothing_is_read_while_a_large_line_is_handled() -> None:
    async def test() -> None:
        reading = Reading()
        reading.may_handle.clear()
        # The reader's first batch only tells that there was a line.
        os.write(reading.writing_fd, b"small\n" + b"l" * 30 + b"\n")
        await wait_until_async(lambda: reading.lines == [b"small"])
        os.write(reading.writing_fd, b"later\n")
        for _ in range(20):
            await asyncio.sleep(0)
        assert reading.lines == [b"small"]
        reading.may_handle.set()
        await wait_until_async(lambda: reading.lines == [b"small", b"l" * 30, b"later"])
        os.close(reading.writing_fd)
        await reading.join()
        reading.end.set()

    run(test, 1000)


def test_other_work_of_the_loop_is_done_between_many_lines() -> None:
    async def test() -> None:
        reading = Reading()
        counts: list[int] = []

        def count_lines() -> None:
            counts.append(len(reading.lines))
            if counts[-1] < 30:
                asyncio.get_running_loop().call_soon(count_lines)

        count_lines()
        os.write(reading.writing_fd, b"1\n" * 30)
        await wait_until_async(lambda: len(reading.lines) == 30)
        assert {after - before for before, after in itertools.pairwise(counts)} <= {0, 3}
        os.close(reading.writing_fd)
        await reading.join()
        reading.end.set()

    run(test, 1000)


def test_a_line_that_cannot_be_handled_does_not_stop_the_reader(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        reading = Reading()
        # The assertion in `_receive` fails for a line that is counted as small and is not.
        with mock.patch.object(loop_reader, "_LARGE_LINE_BYTES", 1000):
            os.write(reading.writing_fd, b"1\n" + b"l" * 30 + b"\n2\n")
            await wait_until_async(lambda: reading.lines == [b"1", b"2"])
        os.close(reading.writing_fd)
        await reading.join()
        reading.end.set()

    run(test, 1000)
    assert "could not be handled" in caplog.text


def test_the_thread_ends_with_the_loop() -> None:
    async def test() -> Reading:
        reading = Reading()
        os.write(reading.writing_fd, b"l" * 30 + b"\n")
        reading.may_handle.clear()
        await asyncio.sleep(0.01)
        return reading

    with mock.patch.object(loop_reader, "_LARGE_LINE_BYTES", LARGE_LINE_BYTES):
        reading = asyncio.run(test())
        reading.may_handle.set()
        reading.thread.join(60)
    assert not reading.thread.is_alive()
    reading.end.set()
    reading.end.close()
    for fd in (reading.fd, reading.writing_fd):
        os.close(fd)


def test_a_pipe_that_another_reader_has_emptied_is_waited_for() -> None:
    async def test() -> None:
        reading = Reading()
        os.write(reading.writing_fd, b"1\n")
        await wait_until_async(lambda: reading.lines == [b"1"])
        # As if it had been woken for bytes that are gone.
        reading.reader._on_readable()
        os.write(reading.writing_fd, b"2\n")
        await wait_until_async(lambda: reading.lines == [b"1", b"2"])
        reading.reader._has_exited, reading.reader._last_bytes = True, 5
        reading.reader._on_readable()
        await reading.join()
        os.close(reading.writing_fd)
        reading.end.set()

    run(test, 1000)


def test_output_that_cannot_be_read_ends_the_reader(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(fd: int, buffers: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO), f"{fd} {buffers}")

    async def test() -> None:
        reading = Reading()
        os.write(reading.writing_fd, b"1\n")
        await wait_until_async(lambda: reading.lines == [b"1"])
        monkeypatch.setattr(os, "readv", fail)
        os.write(reading.writing_fd, b"2\n")
        await reading.join()
        assert reading.lines == [b"1"]
        os.close(reading.writing_fd)
        reading.end.set()

    run(test, 1000)
    assert "the output of a server cannot be read" in caplog.text
