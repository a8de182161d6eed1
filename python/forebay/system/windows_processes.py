"""Processes of a server, on Windows: a job, which ends them when this process ends."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from ctypes import wintypes
from typing import IO

assert sys.platform == "win32"  # noqa: S101 - for mypy

from forebay.system.windows_api import declare, kernel32
from forebay.system.windows_commands import is_batch_file, make_batch_command
from forebay.system.windows_jobs import CREATE_SUSPENDED, Job

__all__ = ["KILLED_CODE", "STOP_SIGNALS", "ProcessGroup", "limit_heaps"]

# Windows sends SIGBREAK for Ctrl-Break, and when the console is closed, the user logs off or the system ends.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGBREAK)
"""Signals that ask this process to end."""

KILLED_CODE = 1
"""Exit code of a server that was killed."""

_KILL_DELAY_SECONDS = 0.5
"""Time between Ctrl-Break and the end of the job."""

_POLL_SECONDS = 0.02

declare(kernel32.GetConsoleWindow, wintypes.HANDLE)


class ProcessGroup:
    """A server process and all processes that it starts.

    They are in a job that ends them when its handle is closed, which the system does even if the gateway is killed. The
    server is started suspended, so that it starts nothing before it is in the job.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None,
        cwd: str | None,
        stderr: IO[bytes] | None = None,
    ) -> None:
        self._job = Job()
        # Ctrl-C is for the gateway, which shuts the server down in order. A program without a console would open one.
        self._shares_console = bool(kernel32.GetConsoleWindow())
        flags = subprocess.CREATE_NEW_PROCESS_GROUP | CREATE_SUSPENDED
        if not self._shares_console:
            flags |= subprocess.CREATE_NO_WINDOW
        try:
            self.server = subprocess.Popen(  # noqa: S603 - the operator chooses the command
                _resolve(command, env, cwd),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=env,
                cwd=cwd,
                creationflags=flags,
                bufsize=0,
            )
            self._job.start(self.server)
        except BaseException:
            self._job.close()
            raise

    def end(self) -> None:
        """End the processes that still run: send Ctrl-Break, then end the job. Call this only once."""
        if self._is_running() and self._shares_console:
            # Python raises `SystemError` if the process has ended.
            with contextlib.suppress(OSError, SystemError):
                self.server.send_signal(signal.CTRL_BREAK_EVENT)
            deadline = time.monotonic() + _KILL_DELAY_SECONDS
            while self._is_running() and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
        self._job.end(KILLED_CODE)
        self._job.close()

    def _is_running(self) -> bool:
        count = self._job.count_processes()
        return self.server.poll() is None if count is None else count > 0


def _resolve(command: Sequence[str], env: Mapping[str, str] | None, cwd: str | None) -> str | list[str]:
    """Return the command line. Windows finds only programs by name, so `npx.cmd` and its like are looked up here."""
    variables = os.environ if env is None else env
    search_path = next((value for name, value in variables.items() if name.upper() == "PATH"), None)
    name, *arguments = command
    is_relative = os.path.dirname(name) and not os.path.isabs(name)
    found = shutil.which(os.path.join(cwd, name) if cwd and is_relative else name, path=search_path)
    if found is None:
        raise FileNotFoundError(2, os.strerror(2), name)
    if is_batch_file(found):
        shell = os.environ.get(
            "COMSPEC", os.path.join(os.environ.get("SYSTEMROOT", "C:\\Windows"), "System32\\cmd.exe")
        )
        try:
            return make_batch_command(shell, os.path.normpath(found), arguments)
        except ValueError as error:
            raise OSError(22, str(error), name) from None
    return [found, *arguments]


def limit_heaps(max_heaps: int) -> None:
    """Do nothing: all threads of a process share its heap."""
