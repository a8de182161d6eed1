"""Lines of a server's output, read in the event loop."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Iterator
from queue import SimpleQueue

from forebay.system.pipes import EndSignal, count_available
from forebay.wire.framing import Line, LineBuffer, LineSplitter, LostMessage, Spool

assert sys.platform != "win32"  # noqa: S101 - for mypy

__all__ = ["LoopReader"]

_log = logging.getLogger("forebay")

_READ_BYTES = 64 << 10
"""Maximum bytes to read at once, so that the event loop is not busy for long with one server."""

_LONG_READ_BYTES = 1 << 20
"""The same inside of a long line, most of which is only copied."""

_LARGE_LINE_BYTES = 32 << 10
"""Lines above this size are handled in a thread."""

_MAX_LINES = 256
"""Maximum number of lines to pass on in one turn of the event loop, which also sends what they lead to."""


class LoopReader:
    """Reads lines in the event loop, in place of a `LineReader`, and passes each small one to `receive` there.

    Without a thread, a call costs about a quarter less. Large lines go to the thread that iterates over `batches`; the
    reader continues when that thread has handled them. Once `end` is set, it stops at the end of the pipe.
    """

    def __init__(
        self,
        fd: int,
        *,
        end: EndSignal,
        loop: asyncio.AbstractEventLoop,
        receive: Callable[[Line], object],
        buffer: bytearray,
        spool_above_bytes: int,
        make_spool: Callable[[], Spool],
    ) -> None:
        """`buffer` is from `make_buffer`, and may be that of all readers of the loop."""
        self._fd, self._end_fd = fd, end.fileno()
        self._loop = loop
        self._receive = receive
        self._buffer = buffer
        self._splitter = LineSplitter(LineBuffer(spool_above_bytes, make_spool))
        self._batches: SimpleQueue[list[Line] | None] = SimpleQueue()
        self._has_received = self._has_exited = self._has_ended = False
        self._last_bytes = 0
        """How many bytes were in the pipe when the server exited, and are still to be read."""

    @staticmethod
    def make_buffer() -> bytearray:
        return bytearray(_LONG_READ_BYTES)

    def batches(self) -> Iterator[list[Line]]:
        """Yield batches that begin with a large line, and an empty one after the first line."""
        os.set_blocking(self._fd, False)
        self._call_in_loop(self._watch)
        while (lines := self._batches.get()) is not None:
            yield lines
            if lines:
                self._call_in_loop(self._go_on)

    def _call_in_loop(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            # The loop is closed: the program ends.
            self._batches.put(None)

    def _watch(self) -> None:
        self._loop.add_reader(self._fd, self._on_readable)
        self._loop.add_reader(self._end_fd, self._on_exit)

    def _unwatch(self) -> None:
        self._loop.remove_reader(self._fd)
        self._loop.remove_reader(self._end_fd)

    def _on_exit(self) -> None:
        self._has_exited = True
        # Its children may go on writing.
        self._last_bytes = count_available(self._fd)
        self._unwatch()
        self._on_readable()

    def _go_on(self) -> None:
        """Read on, after the thread has handled a batch."""
        if self._has_exited:
            self._on_readable()
        elif not self._has_ended:
            self._watch()

    def _on_readable(self) -> None:
        if self._has_ended:
            return
        size = _LONG_READ_BYTES if self._splitter.is_in_line else _READ_BYTES
        if self._has_exited:
            size = min(size, self._last_bytes)
        try:
            count = os.readv(self._fd, [memoryview(self._buffer)[:size]]) if size else 0
        except BlockingIOError:
            if not self._has_exited:
                return
            count = 0
        except OSError as error:
            _log.warning("forebay: the output of a server cannot be read: %s", error)
            count = 0
        if count:
            self._last_bytes -= count
            self._pass_on(self._splitter.push(self._buffer, count))
        else:
            self._end()

    def _pass_on(self, lines: list[Line]) -> None:
        if lines and not self._has_received:
            self._has_received = True
            self._batches.put([])
        for index, line in enumerate(lines):
            if not isinstance(line, LostMessage) and len(line) > _LARGE_LINE_BYTES:
                self._unwatch()
                self._batches.put(lines[index:])
                return
            if index == _MAX_LINES:
                self._unwatch()
                self._loop.call_soon(self._pass_on_rest, lines[index:])
                return
            try:
                self._receive(line)
            except Exception:
                _log.exception("forebay: a message of a server could not be handled")
        if self._has_exited:
            self._loop.call_soon(self._on_readable)

    def _pass_on_rest(self, lines: list[Line]) -> None:
        if not self._has_exited:
            self._watch()
        self._pass_on(lines)

    def _end(self) -> None:
        self._unwatch()
        self._has_ended = True
        if last := self._splitter.finish():
            self._batches.put(last)
        self._batches.put(None)
