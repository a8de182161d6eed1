"""The start of servers, how long they get to end, and the end of the gateway itself."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO

from forebay.errors import UpstreamFailed
from forebay.system.processes import ProcessGroup

__all__ = ["Grace", "exit_within", "start_server"]

_DEFAULT_GRACE_SECONDS = 1.0
"""Short, because clients kill a gateway that does not exit soon. The client of the Python SDK does so after 4 s."""


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


def start_server(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stderr: IO[bytes] | None = None,
) -> ProcessGroup:
    """Start a server. Raises `UpstreamFailed` if that is not possible."""
    try:
        return ProcessGroup(command, env=env, cwd=cwd, stderr=stderr)
    except OSError as error:
        raise UpstreamFailed(f"{command[0]} cannot be started: {error.strerror}; check the command") from None


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
