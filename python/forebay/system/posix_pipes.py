"""Pipes to and from other processes, on POSIX: waited for by `poll`."""

import contextlib
import fcntl
import os
import select
import sys
import termios
from collections.abc import Sequence

from typing_extensions import Buffer

assert sys.platform != "win32"  # noqa: S101 - for mypy

__all__ = ["EndSignal", "PipeInput", "PipeOutput", "count_available", "enlarge_pipe", "write_some"]

_PIPE_BYTES = 1024 * 1024
"""Pipe capacity to ask the kernel for."""


class EndSignal:
    """A signal, given once, that ends the wait of a `PipeInput`: a pipe that becomes readable."""

    def __init__(self) -> None:
        self._fd, self._write_fd = os.pipe()

    def fileno(self) -> int:
        return self._fd

    def set(self) -> None:
        """Give the signal. Call this only once."""
        os.close(self._write_fd)

    def close(self) -> None:
        """Release the signal, after the last wait for it has ended."""
        os.close(self._fd)


class PipeInput:
    """The readable end of a pipe. Once `end` is set, only what is in the pipe already is read."""

    def __init__(self, fd: int, end: EndSignal | None = None) -> None:
        self._fd = fd
        self._end = end
        self._poller = select.poll()
        self._poller.register(fd, select.POLLIN)
        if end is not None:
            self._poller.register(end.fileno(), select.POLLIN)

    def read_into(self, buffer: bytearray) -> int:
        """Wait for bytes and return how many were read; 0 at the end."""
        while self._wait_readable():
            # Another process that shares the pipe may have made it non-blocking.
            with contextlib.suppress(BlockingIOError):
                return os.readv(self._fd, [buffer])
            self._poller.poll()
        return 0

    def _wait_readable(self) -> bool:
        """Wait for bytes or for the signal; return whether there may be bytes to read."""
        if self._end is None or any(fd == self._fd for fd, _ in self._poller.poll()):
            return True
        # Bytes may have arrived between the checks of the two descriptors.
        return any(fd == self._fd for fd, _ in self._poller.poll(0))


class PipeOutput:
    """The writable end of a pipe whose reader may be slow."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd

    def try_write(self, parts: Sequence[Buffer]) -> int:
        """Write what fits into the pipe without waiting, and return the number of bytes."""
        try:
            return os.writev(self._fd, parts)
        except BlockingIOError:
            return 0

    def write(self, data: Buffer, timeout_ms: int) -> int:
        """Wait until there is room for some of the data, or for this time; return the number of bytes written."""
        poller = select.poll()
        poller.register(self._fd, select.POLLOUT)
        poller.poll(timeout_ms)
        with contextlib.suppress(BlockingIOError):
            return os.write(self._fd, data)
        return 0

    def is_broken(self) -> bool:
        """Return whether the reader has closed its end, as far as the system knows."""
        poller = select.poll()
        poller.register(self._fd, 0)
        return bool(poller.poll(0))


def write_some(fd: int, chunks: Sequence[Buffer]) -> int:
    """Write the first part of the chunks, waiting while the pipe is full; return the number of bytes written."""
    while True:
        # Another process that shares the pipe may have made it non-blocking.
        with contextlib.suppress(BlockingIOError):
            return os.writev(fd, chunks)
        poller = select.poll()
        poller.register(fd, select.POLLOUT)
        poller.poll()


def enlarge_pipe(fd: int) -> None:
    """Raise the capacity of a pipe, where the system allows it, so that large messages need fewer reads."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def count_available(fd: int) -> int:
    """Return how many bytes are in a pipe."""
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)
