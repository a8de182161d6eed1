"""A server as a child process, and the pipe to it."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO, cast

from forebay.errors import UpstreamFailed
from forebay.proxy.stdio.outbox import Outbox
from forebay.wire.lines import Kept, Line, widen

__all__ = ["Process"]


class Process:
    """A running server. Its standard error is ours: what it says there is never in the way of the protocol."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | None = None) -> None:
        self._ending = threading.Lock()
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
        self._pipe, self._out = cast("BinaryIO", self._child.stdin), cast("BinaryIO", self._child.stdout)
        for pipe in (self._pipe, self._out):
            widen(pipe.fileno())
        self._outbox = Outbox(self._pipe.fileno())
        self._is_over, is_running = os.pipe()
        threading.Thread(target=self._await_end, args=(is_running,), daemon=True).start()

    def _await_end(self, is_running: int) -> None:
        self._child.wait()
        os.close(is_running)

    def lines(self, lines: Callable[..., Iterable[Line]]) -> Iterator[Line]:
        """What it says, until it has ended: its children may keep its output open for longer than that."""
        try:
            yield from lines(self._out.fileno(), until=self._is_over)
        finally:
            self._out.close()
            os.close(self._is_over)

    def send(self, line: Kept) -> None:
        """A message, whole, as soon as the server reads it. Raises `UpstreamFailed` if it does not."""
        self._outbox.send(line)

    def ended_within(self, seconds: float) -> int | None:
        """Its exit code, if it ends by then."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._child.wait(seconds)
        return None

    def end(self, grace: float) -> int:
        """Ends the server: by closing its input, then by asking, then by force. Gives its exit code."""
        with self._ending:
            if self._outbox.close(grace) and not self._pipe.closed:
                with contextlib.suppress(OSError):
                    self._pipe.close()
        for number, seconds in ((None, grace), (signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
            if number is not None:
                self._signal(number)
            if (code := self.ended_within(seconds)) is not None:
                return code
        return self._child.wait()

    def _signal(self, number: int) -> None:
        # It may have children of its own, as `npx` does.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, number)
