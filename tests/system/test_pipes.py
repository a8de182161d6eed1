"""Pipes behave the same on all systems."""

import os
import threading
from collections.abc import Iterator

import pytest
from forebay.system.pipes import EndSignal, PipeInput, PipeOutput, count_available, write_some
from waiting import wait_until


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for fd in (reading, writing):
        os.close(fd)


@pytest.fixture
def end() -> Iterator[EndSignal]:
    signal = EndSignal()
    yield signal
    signal.close()


def read(pipe_input: PipeInput, size: int = 100) -> bytes:
    buffer = bytearray(size)
    return bytes(buffer[: pipe_input.read_into(buffer)])


def test_bytes_arrive_unchanged(pipe: tuple[int, int]) -> None:
    data = bytes(range(256)) + b"\r\n\x1a\n"
    assert write_some(pipe[1], (data[:10], data[10:])) == len(data)
    assert count_available(pipe[0]) == len(data)
    assert read(PipeInput(pipe[0]), 1000) == data


def test_a_closed_pipe_has_an_end() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"last")
    os.close(writing)
    pipe_input = PipeInput(reading)
    assert [read(pipe_input), read(pipe_input)] == [b"last", b""]
    os.close(reading)


def test_a_signal_ends_a_read_although_the_pipe_is_open(pipe: tuple[int, int], end: EndSignal) -> None:
    pipe_input, results = PipeInput(pipe[0], end), list[bytes]()
    thread = threading.Thread(target=lambda: results.extend([read(pipe_input), read(pipe_input)]))
    thread.start()
    os.write(pipe[1], b"first")
    wait_until(lambda: results or not count_available(pipe[0]))
    end.set()
    thread.join(60)
    assert results == [b"first", b""]


def test_bytes_already_in_the_pipe_are_read_after_the_signal(pipe: tuple[int, int], end: EndSignal) -> None:
    pipe_input = PipeInput(pipe[0], end)
    os.write(pipe[1], b"abcdef")
    end.set()
    assert [read(pipe_input, 4), read(pipe_input, 4), read(pipe_input, 4)] == [b"abcd", b"ef", b""]


def test_data_larger_than_the_pipe_is_written_as_room_becomes_free(pipe: tuple[int, int]) -> None:
    output, data, received = PipeOutput(pipe[1]), os.urandom(3 << 20), bytearray()
    view = memoryview(data)[output.try_write((data, b"")) :]

    def receive() -> None:
        pipe_input = PipeInput(pipe[0])
        while len(received) < len(data):
            received.extend(read(pipe_input, 100_000))

    thread = threading.Thread(target=receive)
    thread.start()
    while view:
        view = view[output.write(view, 1000) :]
    thread.join(60)
    assert received == data
