"""Pipes to and from other processes, on Windows: a thread waits in each read and write.

A thread cannot wait for an inherited pipe and for something else at once, so a read that must end is cancelled.
"""

import ctypes
import errno
import io
import os
import sys
import threading
from collections.abc import Sequence
from ctypes import wintypes

from typing_extensions import Buffer

assert sys.platform == "win32"  # noqa: S101 - for mypy

from forebay.system.windows_api import IoStatus, get_handle, kernel32, ntdll

__all__ = ["EndSignal", "PipeInput", "PipeOutput", "count_available", "enlarge_pipe", "write_some"]

_CANCEL_SECONDS = 0.01
"""How often to cancel a read: it may be about to begin when the first attempt is made."""

# FILE_PIPE_LOCAL_INFORMATION: ten numbers.
_PIPE_LOCAL_INFORMATION, _PIPE_INFORMATION_COUNT = 24, 10
_STATE_INDEX, _CLOSING_STATE = 8, 4

_MAX_WRITE_BYTES = 64 << 10
"""Maximum bytes of several chunks that are copied together, to write them in one call."""


class EndSignal:
    """A signal, given once, that ends the wait of a `PipeInput`."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._input: PipeInput | None = None

    def connect(self, pipe: "PipeInput") -> None:
        self._input = pipe

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        """Give the signal. Call this only once."""
        self._event.set()
        pipe = self._input
        if pipe is not None:
            pipe.cancel()

    def close(self) -> None:
        """Release the signal, after the last wait for it has ended."""
        self._input = None


class PipeInput:
    """The readable end of a pipe. Once `end` is set, only what is in the pipe already is read."""

    def __init__(self, fd: int, end: EndSignal | None = None) -> None:
        self._file = io.FileIO(fd, "rb", closefd=False)
        self._fd = fd
        self._end = end
        self._changed = threading.Condition()
        self._is_idle = True
        if end is not None:
            end.connect(self)

    def read_into(self, buffer: bytearray) -> int:
        """Wait for bytes and return how many were read; 0 at the end."""
        while True:
            with self._changed:
                self._is_idle = False
            try:
                if self._end is not None and self._end.is_set:
                    size = min(len(buffer), count_available(self._fd))
                    return self._file.readinto(memoryview(buffer)[:size]) or 0 if size else 0
                return self._file.readinto(buffer) or 0
            except OSError:
                # Cancelled, or the pipe is broken: then it has no bytes either.
                if self._end is None or not self._end.is_set:
                    return 0
            finally:
                with self._changed:
                    self._is_idle = True
                    self._changed.notify_all()

    def cancel(self) -> None:
        """End the read in which a thread waits."""
        # The pipe may be closed as soon as nothing is read.
        with self._changed:
            while not self._is_idle:
                kernel32.CancelIoEx(get_handle(self._fd), None)
                self._changed.wait(_CANCEL_SECONDS)


class PipeOutput:
    """The writable end of a pipe whose reader may be slow."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def try_write(self, parts: Sequence[Buffer]) -> int:  # noqa: ARG002 - nothing is written without waiting
        """Write what fits into the pipe without waiting, and return the number of bytes: none.

        Raises `BrokenPipeError` if the reader has closed its end.
        """
        if self.is_broken():
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        return 0

    def write(self, data: Buffer, timeout_ms: int) -> int:  # noqa: ARG002 - a pipe has no timeout
        """Wait until there is room for some of the data; return the number of bytes written."""
        return os.write(self._fd, memoryview(data)[:_MAX_WRITE_BYTES])

    def is_broken(self) -> bool:
        """Return whether the reader has closed its end."""
        information = (wintypes.ULONG * _PIPE_INFORMATION_COUNT)()
        status = ntdll.NtQueryInformationFile(
            get_handle(self._fd),
            ctypes.byref(IoStatus()),
            information,
            ctypes.sizeof(information),
            _PIPE_LOCAL_INFORMATION,
        )
        return bool(status == 0 and information[_STATE_INDEX] == _CLOSING_STATE)


def write_some(fd: int, chunks: Sequence[Buffer]) -> int:
    """Write the first part of the chunks, waiting while the pipe is full; return the number of bytes written."""
    views = [memoryview(chunk) for chunk in chunks]
    if len(views) == 1 or views[0].nbytes > _MAX_WRITE_BYTES:
        return os.write(fd, views[0][: 16 * _MAX_WRITE_BYTES])
    return os.write(fd, b"".join(views))


def enlarge_pipe(fd: int) -> None:
    """Do nothing: the capacity of a pipe is chosen when it is made."""


def count_available(fd: int) -> int:
    """Return how many bytes are in a pipe."""
    count = wintypes.DWORD()
    is_open = kernel32.PeekNamedPipe(get_handle(fd), None, 0, None, ctypes.byref(count), None)
    return count.value if is_open else 0
