"""Process group of a server. All its processes end when the gateway ends, even if the gateway is killed."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

__all__ = ["Grace", "ProcessGroup", "exit_within"]

_log = logging.getLogger("forebay")

_DEFAULT_GRACE_SECONDS = 1.0
"""Short, because clients kill a gateway that does not exit soon. The client of the Python SDK does so after 4 s."""

_KILL_DELAY_SECONDS = 0.5
"""Time between SIGTERM and SIGKILL."""

_POLL_SECONDS = 0.02

_SHELL = "/bin/sh"

_GUARD_SCRIPT = "trap '' HUP INT QUIT TERM; read line; kill -TERM 0; sleep 1; kill -KILL 0"
"""Shell script that ends its own process group, including the shell, when its standard input is closed."""


class Grace:
    """Time between closing a server's input and SIGTERM. When the gateway shuts down, its servers share one period."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = _DEFAULT_GRACE_SECONDS if seconds is None else seconds
        self._deadline: float | None = None

    def start(self) -> None:
        """Start the countdown when the gateway begins to shut down."""
        self._deadline = time.monotonic() + self.seconds

    @property
    def remaining_seconds(self) -> float:
        return self.seconds if self._deadline is None else max(0.0, self._deadline - time.monotonic())


class ProcessGroup:
    """A server process and its children, except children that start a session or a process group of their own.

    A small shell, the guard, leads the group. It reads from a pipe that only the gateway holds open, and ends the group
    when the pipe is closed. A parent-death signal would not do: it reaches only the server, not its children, and it is
    sent when the thread that started the server ends, even if the gateway still runs.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None,
        cwd: str | None,
        stderr: IO[bytes] | None = None,
    ) -> None:
        self._guard = _start_guard()
        try:
            # In another process group the server does not get Ctrl-C either, so that we can shut it down in order.
            self.server = subprocess.Popen(  # noqa: S603 - the operator chooses the command
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=env,
                cwd=cwd,
                process_group=0 if self._guard is None else self._guard.pid,
                bufsize=0,
            )
        except BaseException:
            self._end_guard()
            raise
        self._id = self.server.pid if self._guard is None else self._guard.pid

    def end(self) -> None:
        """End the processes that still run: send SIGTERM, then SIGKILL. Call this only once."""
        if self._is_running():
            self._send_signal(signal.SIGTERM)
            deadline = time.monotonic() + _KILL_DELAY_SECONDS
            while self._is_running() and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
        self._send_signal(signal.SIGKILL)
        self._end_guard()

    def _send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._id, number)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # The server itself may have left the group.
            if self.server.poll() is None and os.getpgid(self.server.pid) != self._id:
                self.server.send_signal(number)

    def _is_running(self) -> bool:
        if self.server.poll() is None:
            return True
        # The guard is a member, so signal 0 would always find the group. Without /proc, only the server is checked.
        with contextlib.suppress(FileNotFoundError):
            return any(self._is_member(int(path.name)) for path in Path("/proc").iterdir() if path.name.isdigit())
        return False

    def _is_member(self, pid: int) -> bool:
        try:
            if os.getpgid(pid) != self._id or (self._guard is not None and pid == self._guard.pid):
                return False
            # Ignore zombies. An orphan may stay a zombie, because PID 1 of a container may never wait for it.
            state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            return False
        return state not in (b"Z", b"X")

    def _end_guard(self) -> None:
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()


def _start_guard() -> "subprocess.Popen[bytes] | None":
    try:
        return subprocess.Popen(  # noqa: S603 - a constant
            [_SHELL, "-c", _GUARD_SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath},
            cwd="/",
            process_group=0,
        )
    except OSError as error:
        _log.warning(
            "forebay: %s cannot be started (%s), so a server may keep running after the gateway is killed",
            _SHELL,
            error.strerror,
        )
        return None


def exit_within(seconds: float, code: int) -> None:
    """Force the process to exit after `seconds`, because Python would wait for worker threads without limit.

    Call this when everything important is closed.
    """

    def force_exit() -> None:
        time.sleep(seconds)
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)

    threading.Thread(target=force_exit, name="forebay-end", daemon=True).start()
