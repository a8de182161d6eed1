"""The client at the other end of our standard input and output."""

import contextlib
import os
import select
import sys
import threading
from collections.abc import Callable

from forebay.wire.lines import Kept, widen
from forebay.wire.spool import Spool

__all__ = ["Client", "private_stdout"]


class Client:
    """Where answers go. One that is gone is told nothing more."""

    def __init__(self, fd: int, on_gone: Callable[[], None]) -> None:
        self._fd = fd
        self._on_gone = on_gone
        self._lock = threading.Lock()
        self._is_gone = False
        widen(fd)

    def send(self, line: Kept) -> None:
        """A message and the end of its line, whole."""
        with self._lock:
            if self._is_gone:
                return
            try:
                _send(self._fd, line)
            except OSError:
                self._is_gone = True
        if self._is_gone:
            self._on_gone()


def private_stdout() -> int:
    """Standard output, for the protocol alone: whatever else is printed goes to standard error."""
    sys.stdout.flush()
    fd = os.dup(1)
    os.dup2(2, 1)
    return fd


def _send(fd: int, line: Kept) -> None:
    """A message and the end of its line, whole, however little a pipe takes at once."""
    if isinstance(line, Spool):
        for piece in line.pieces():
            _write(fd, piece)
        _write(fd, b"\n")
        return
    # At once, so that nobody wakes up for half of a message.
    sent = _written(fd, line, b"\n")
    if sent <= len(line):
        _write(fd, memoryview(line)[sent:])
        _write(fd, b"\n")


def _write(fd: int, piece: bytes | memoryview) -> None:
    view = memoryview(piece)
    while view:
        view = view[_written(fd, view) :]


def _written(fd: int, *pieces: bytes | bytearray | memoryview) -> int:
    """How much of it the pipe takes: it waits, also where whoever shares it has made it one that does not."""
    while True:
        with contextlib.suppress(BlockingIOError):
            return os.writev(fd, pieces)
        poller = select.poll()
        poller.register(fd, select.POLLOUT)
        poller.poll()
