"""The connection of a worker to the process that started it, on Windows: pipes, its standard input and output."""

import os
import sys
import threading

assert sys.platform == "win32"  # noqa: S101 - for mypy

__all__ = ["WorkerChannel"]

_MAX_FIRST_BYTES = 1 << 16


class WorkerChannel:
    """The worker's end of the connection."""

    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        # What is printed must not get between messages.
        self._output = os.dup(1)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)

    def receive_first(self) -> tuple[bytes, list[int]]:
        """Wait for a message. Return its first bytes and its files; no bytes at the end, or after the idle time."""
        timer = threading.Timer(self._idle_seconds, os._exit, [0])
        timer.daemon = True
        timer.start()
        try:
            return self.receive(_MAX_FIRST_BYTES), []
        finally:
            timer.cancel()

    def receive(self, max_bytes: int) -> bytes:
        """Return more bytes of a message; none at the end."""
        return os.read(0, max_bytes)

    def send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._output, rest) :]

    def set_deadline(self, seconds: float) -> None:
        """Do nothing: the job of this process ends it with its parent."""
