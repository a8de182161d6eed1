"""A server as a child process, and the pipe to it."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import BinaryIO, cast

from headgate.errors import UpstreamFailed
from headgate.gateway.lines import Kept, widen
from headgate.gateway.spool import Spool

__all__ = ["Process", "send_line"]


class Process:
    """A running server. Its standard error is ours: what it says there is never in the way of the protocol."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | None = None) -> None:
        try:
            # In a group of its own, so that an interrupt at the terminal leaves it to us to end it.
            self._child = subprocess.Popen(  # noqa: S603 - whoever runs the gateway says what is to be run
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=None if env is None else {**os.environ, **env},
                cwd=cwd,
                process_group=0,
                bufsize=0,
            )
        except OSError as error:
            raise UpstreamFailed(f"{command[0]} cannot be started: {error.strerror}; check the command") from None
        self._pipe = cast("BinaryIO", self._child.stdin)
        self._in, self.out = self._pipe.fileno(), cast("BinaryIO", self._child.stdout).fileno()
        self._lock = threading.Lock()
        self._is_open = True
        widen(self._in)
        widen(self.out)

    def send(self, line: Kept) -> None:
        """Writes a message and the end of its line, whole. Raises `UpstreamFailed` if nobody reads."""
        with self._lock:
            if not self._is_open:
                raise UpstreamFailed("the server's input is closed")
            try:
                send_line(self._in, line)
            except OSError:
                raise UpstreamFailed("the server does not read any more; ask again in a while") from None

    def _close_input(self, patience: float) -> None:
        """Tells the server that there is nothing more to come, unless it does not even read what has come."""
        if not self._lock.acquire(timeout=patience):
            return
        with contextlib.suppress(OSError):
            self._is_open = False
            self._pipe.close()
        self._lock.release()

    def end(self, grace: float) -> int:
        """Ends the server: by closing its input, then by asking, then by force. Gives its exit code."""
        self._close_input(grace)
        for number, seconds in ((None, grace), (signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
            if number is not None:
                self._signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._child.wait(seconds)
        return self._child.wait()

    def _signal(self, number: int) -> None:
        # It may have children of its own, as `npx` does.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, number)


def send_line(fd: int, line: Kept) -> None:
    """A message and the end of its line, whole, however little a pipe takes at once."""
    if isinstance(line, Spool):
        for piece in line.pieces():
            _write(fd, piece)
        _write(fd, b"\n")
        return
    # At once, so that nobody wakes up for half of a message.
    sent = os.writev(fd, (line, b"\n"))
    if sent <= len(line):
        _write(fd, memoryview(line)[sent:])
        _write(fd, b"\n")


def _write(fd: int, piece: bytes | memoryview) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(fd, view) :]
