"""Processes of a server, on POSIX: a process group with a guard."""

import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

assert sys.platform != "win32"  # noqa: S101 - for mypy

__all__ = ["KILLED_CODE", "STOP_SIGNALS", "ProcessGroup", "limit_heaps"]

_log = logging.getLogger("forebay")

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that ask this process to end."""

KILLED_CODE = -signal.SIGKILL
"""Exit code of a server that was killed."""

_KILL_DELAY_SECONDS = 0.5
"""Time between SIGTERM and SIGKILL."""

_POLL_SECONDS = 0.02

_SHELL = "/bin/sh"

_GUARD_SCRIPT = "trap '' HUP INT QUIT TERM; read line; kill -TERM 0; sleep 1; kill -KILL 0"
"""Shell script that ends its own process group, including the shell, when its standard input is closed."""


_M_ARENA_MAX = -8
"""Parameter of glibc's `mallopt`: the maximum number of heaps."""


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
            # In another process group the server does not get Ctrl-C, so the gateway can shut it down in order.
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


def limit_heaps(max_heaps: int) -> None:
    """Let all threads of this process share few heaps, if the C library is glibc."""
    # Other C libraries have no `mallopt`.
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, max_heaps)
