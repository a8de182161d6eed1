"""What is written to a server, without keeping whoever writes: a server may not read for as long as it likes."""

import contextlib
import os
import select
import threading
from collections import deque
from collections.abc import Iterator
from itertools import chain

from forebay.errors import UpstreamFailed
from forebay.wire.lines import Kept
from forebay.wire.spool import Spool

__all__ = ["NobodyReads", "Outbox"]

_MOST = 64 << 20
"""How many bytes may wait behind the line that is being written, before more is refused."""

_TICK = 1000
"""Milliseconds after which it is looked whether anyone still wants to write."""


class NobodyReads(UpstreamFailed):
    """A server has closed its input, or has ended."""

    def __init__(self) -> None:
        super().__init__("the server does not read any more; ask again in a while")


class Outbox:
    """Lines to a pipe, each whole and in their order. What the pipe does not take at once is written by a thread."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._waiting: deque[tuple[int, Iterator[bytes | memoryview]]] = deque()
        self._size = 0
        self._changed = threading.Condition()
        self._is_closed = False
        self._is_broken = False
        self._is_writing = False
        self._is_begun = False

    def send(self, line: Kept) -> None:
        """Raises `UpstreamFailed` if nobody reads, or not nearly enough."""
        with self._changed:
            if self._is_closed or self._is_broken:
                raise NobodyReads
            # A line may be as large as it likes: a server that is at it does read.
            if self._waiting and self._size - self._waiting[0][0] > _MOST:
                raise UpstreamFailed("the server does not read what it is sent; ask again in a while")
            rest = self._written(line) if not self._waiting and not isinstance(line, Spool) else _pieces(line)
            if rest is not None:
                self._size += len(line)
                self._waiting.append((len(line), rest))
                self._write_on()

    def _written(self, line: bytes | bytearray) -> Iterator[bytes | memoryview] | None:
        """Writes as much as the pipe takes; what is left, if anything is."""
        try:
            # At once, so that nobody wakes up for half of a message.
            sent = os.writev(self._fd, (line, b"\n"))
        except BlockingIOError:
            sent = 0
        except OSError:
            self._is_broken = True
            raise NobodyReads from None
        if sent > len(line):
            return None
        return iter((memoryview(line)[sent:], b"\n"))

    def _write_on(self) -> None:
        if not self._is_writing:
            self._is_writing = True
            threading.Thread(target=self._run, name="forebay-outbox", daemon=True).start()

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._fd, select.POLLOUT)
        try:
            while (line := self._next()) is not None:
                for piece in line:
                    view = memoryview(piece)
                    while view:
                        poller.poll(_TICK)
                        with contextlib.suppress(BlockingIOError):
                            view = view[os.write(self._fd, view) :]
        except OSError:
            with self._changed:
                self._is_broken = True
                self._waiting.clear()
                self._changed.notify_all()

    def _next(self) -> Iterator[bytes | memoryview] | None:
        with self._changed:
            # The one that was written is still the first: whatever comes meanwhile has to wait behind it.
            if self._waiting and self._is_begun:
                self._size -= self._waiting.popleft()[0]
            self._is_begun = bool(self._waiting)
            if not self._waiting:
                self._is_writing = False
                self._changed.notify_all()
                return None
            return self._waiting[0][1]

    def close(self, patience: float) -> bool:
        """Takes nothing more, and waits until what it took is written; `False` if that takes longer."""
        with self._changed:
            self._is_closed = True
            return self._changed.wait_for(lambda: not self._waiting, patience)


def _pieces(line: Kept) -> Iterator[bytes | memoryview]:
    return chain(line.pieces(), [b"\n"]) if isinstance(line, Spool) else iter((memoryview(line), b"\n"))
