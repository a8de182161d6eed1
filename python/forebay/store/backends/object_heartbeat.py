"""A timer that tells the ledger regularly that a replica is alive, and soon what it has deleted."""

import contextlib
import os
import threading
from collections.abc import Callable

from forebay.store.threads import fork_safe_lock

__all__ = ["Heartbeat"]

_HEARTBEAT_SECONDS = 20.0
_SOON_SECONDS = 0.5


class Heartbeat:
    """Calls of `beat` by a thread, as long as it returns that another one is needed.

    `beat` is called with true after a whole interval, and with false when it was asked for earlier.
    """

    def __init__(self, beat: Callable[[bool], bool]) -> None:
        self._beat = beat
        self._pid = os.getpid()
        self._lock = fork_safe_lock()
        self._timer: threading.Timer | None = None

    def start(self, *, soon: bool = False) -> None:
        """Make sure that `beat` will be called: after the usual interval, or soon."""
        seconds = _SOON_SECONDS if soon else _HEARTBEAT_SECONDS
        with self._lock:
            if self._timer is not None and self._timer.interval <= seconds:
                return
            if self._timer is not None:
                self._timer.cancel()
            self._timer = threading.Timer(seconds, self._run, [not soon])
            self._timer.daemon = True
            # No thread can start while the interpreter exits.
            with contextlib.suppress(RuntimeError):
                self._timer.start()

    def _run(self, is_regular: bool) -> None:
        with self._lock:
            self._timer = None
        if os.getpid() == self._pid and self._beat(is_regular):
            self.start()

    def stop(self) -> None:
        """Call `beat` no more."""
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
