"""What takes long, done while other messages pass."""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

__all__ = ["Work"]

_log = logging.getLogger("headgate")

_WORKERS = 4


class Work:
    """A few threads, which end with the process. Large messages wait in their pipe for one of them, not in memory."""

    def __init__(self, workers: int = _WORKERS) -> None:
        self._workers = workers
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._room = threading.Semaphore(workers)
        self._idle = threading.Condition()
        self._busy = 0
        self._threads = 0

    def do(self, *jobs: Callable[[], None], is_large: bool = False) -> None:
        """Soon, one after the other, by another thread."""

        def job() -> None:
            for step in jobs:
                step()

        if is_large:
            self._room.acquire()
        with self._idle:
            self._busy += 1
            if self._threads < min(self._busy, self._workers):
                self._threads += 1
                threading.Thread(target=self._run, name="headgate-work", daemon=True).start()
        self._jobs.put(self._releasing(job) if is_large else job)

    def _releasing(self, job: Callable[[], None]) -> Callable[[], None]:
        def released() -> None:
            try:
                job()
            finally:
                self._room.release()

        return released

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job()
            except Exception:
                _log.exception("headgate: a message could not be answered")
            # What it held must not outlive it until the next one comes.
            del job
            with self._idle:
                self._busy -= 1
                self._idle.notify_all()

    def finish(self, seconds: float) -> bool:
        """Waits until all is done; `False` if that takes longer."""
        with self._idle:
            return self._idle.wait_for(lambda: not self._busy, seconds)
