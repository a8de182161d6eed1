"""The connection of a worker to the process that started it, on POSIX: a socket, which is its standard input."""

import _socket
import signal
import sys

assert sys.platform != "win32"  # noqa: S101 - for mypy

__all__ = ["WorkerChannel"]

_MAX_FIRST_BYTES = 1 << 16
_MAX_RECEIVED_FILES = 16


class WorkerChannel:
    """The worker's end of the connection."""

    def __init__(self, idle_seconds: float) -> None:
        # The parent may ignore alarms, and a child inherits that.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        self._socket = _socket.socket(fileno=0)
        self._socket.settimeout(idle_seconds)

    def receive_first(self) -> tuple[bytes, list[int]]:
        """Wait for a message. Return its first bytes and its files; no bytes at the end, or after the idle time."""
        try:
            data, ancillary, _, _ = self._socket.recvmsg(_MAX_FIRST_BYTES, _socket.CMSG_SPACE(4 * _MAX_RECEIVED_FILES))
        except TimeoutError:
            return b"", []
        return data, [file for *_, content in ancillary for file in memoryview(content).cast("i").tolist()]

    def receive(self, max_bytes: int) -> bytes:
        """Return more bytes of a message; none at the end."""
        return self._socket.recv(max_bytes)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def set_deadline(self, seconds: float) -> None:
        """Let this process die after this time, even if its parent is gone; 0 for never."""
        signal.setitimer(signal.ITIMER_REAL, seconds)
