"""What takes long, done while other messages pass."""

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

__all__ = ["Work"]

_log = logging.getLogger("forebay")

_WORKERS = 4
_IDLE = 10.0
"""Seconds after which a thread that has nothing to do ends: connections come and go, and theirs must not stay."""


class Work:
    """A few threads, while there is work. Of `most` jobs at once the next waits where it comes from."""

    def __init__(self, workers: int = _WORKERS, *, most: int | None = None, idle: float = _IDLE) -> None:
        self._workers = workers
        self._seconds = idle
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._room = None if most is None else threading.Semaphore(most)
        self._idle = threading.Condition()
        self._busy = 0
        self._threads = 0

    def do(self, *jobs: Callable[[], None]) -> None:
        """Soon, one after the other, by another thread."""
        if self._room is not None:
            self._room.acquire()
        with self._idle:
            self._busy += 1
            if self._threads < min(self._busy, self._workers):
                self._threads += 1
                threading.Thread(target=self._run, name="forebay-work", daemon=True).start()

        def job() -> None:
            for step in jobs:
                step()

        self._jobs.put(job)

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=self._seconds)
            except Empty:
                if self._may_end():
                    return
                continue
            try:
                job()
            except Exception:
                _log.exception("forebay: a message could not be answered")
            # What it held must not outlive it until the next one comes.
            del job
            if self._room is not None:
                self._room.release()
            with self._idle:
                self._busy -= 1
                self._idle.notify_all()

    def _may_end(self) -> bool:
        """Not if there is a job for each thread: one may be about to come."""
        with self._idle:
            is_spare = self._busy < self._threads
            self._threads -= is_spare
            return is_spare

    def finish(self, seconds: float) -> bool:
        """Waits until all is done; `False` if that takes longer."""
        with self._idle:
            return self._idle.wait_for(lambda: not self._busy, seconds)
