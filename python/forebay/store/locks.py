"""Locks that a forked child finds open: whichever thread held one when the process was forked is not in the child."""

import os
import threading
import weakref
from types import TracebackType

__all__ = ["Lock"]


class Lock:
    """A lock between threads, which the thread that holds it may take again."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def renew(self) -> None:
        self._lock = threading.RLock()


_all: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_all):
        lock.renew()


os.register_at_fork(after_in_child=_renew_all)
