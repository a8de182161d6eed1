"""The processes of one server, which end together, and with the gateway even if the gateway is killed."""

import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

__all__ = ["Grace", "ProcessGroup"]

_log = logging.getLogger("forebay")

_DEFAULT_GRACE_SECONDS = 1.0
"""Clients kill a gateway that does not end soon: those of the Python SDK after 4 s."""

_KILL_DELAY_SECONDS = 0.5
"""Time between SIGTERM and SIGKILL."""

_POLL_SECONDS = 0.02

_SHELL = "/bin/sh"

_GUARD_SCRIPT = "trap '' HUP INT QUIT TERM; read line; kill -TERM 0; sleep 1; kill -KILL 0"
"""Ends the process group of the shell, shell included, when the shell's input ends."""


class Grace:
    """Time between the end of a server's input and SIGTERM. A shutdown of the gateway has one for all its servers."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = _DEFAULT_GRACE_SECONDS if seconds is None else seconds
        self._deadline: float | None = None

    def start(self) -> None:
        """Start the shutdown of the gateway: from now on, the remaining time shrinks."""
        self._deadline = time.monotonic() + self.seconds

    @property
    def remaining_seconds(self) -> float:
        return self.seconds if self._deadline is None else max(0.0, self._deadline - time.monotonic())


class ProcessGroup:
    """A server process and its children, except children that start a session or a process group of their own.

    A small shell, the guard, leads the group. It waits for the end of a pipe that only the gateway holds, and then
    ends the group. A parent-death signal would end the server alone, and already when the thread that started it ends.
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
            # A process group of its own also keeps Ctrl-C from the server, so that we can end it in order.
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
        """End what still runs by SIGTERM, then by SIGKILL. Call this once."""
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
        # The guard is a member, so signal 0 would always find the group. Without /proc only the server counts.
        with contextlib.suppress(FileNotFoundError):
            return any(self._is_member(int(path.name)) for path in Path("/proc").iterdir() if path.name.isdigit())
        return False

    def _is_member(self, pid: int) -> bool:
        try:
            if os.getpgid(pid) != self._id or (self._guard is not None and pid == self._guard.pid):
                return False
            # Nobody may ever wait for an orphan: in a container, the first process need not.
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
        _log.warning("forebay: a server may outlive a gateway that is killed: %s: %s", _SHELL, error.strerror)
        return None
