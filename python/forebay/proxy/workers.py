"""What takes long, done while other messages pass."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue

__all__ = ["CallOrder", "CallSlot", "WorkerPool"]

_log = logging.getLogger("forebay")

_MAX_WORKERS = 4
_IDLE_SECONDS = 10.0
"""Seconds after which a thread that has nothing to do ends: connections come and go, and theirs must not stay."""


class WorkerPool:
    """A few threads, while there is work. Of `most` jobs at once the next waits where it comes from."""

    def __init__(
        self, max_workers: int = _MAX_WORKERS, *, max_jobs: int | None = None, idle_seconds: float = _IDLE_SECONDS
    ) -> None:
        self._max_workers = max_workers
        self._idle_seconds = idle_seconds
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._capacity = None if max_jobs is None else threading.Semaphore(max_jobs)
        self._changed = threading.Condition()
        self._unfinished = 0
        self._thread_count = 0

    def submit(self, *jobs: Callable[[], None]) -> None:
        """Soon, one after the other, by another thread."""
        if self._capacity is not None:
            self._capacity.acquire()
        with self._changed:
            self._unfinished += 1
            if self._thread_count < min(self._unfinished, self._max_workers):
                self._thread_count += 1
                threading.Thread(target=self._run, name="forebay-work", daemon=True).start()

        def job() -> None:
            for step in jobs:
                step()

        self._jobs.put(job)

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=self._idle_seconds)
            except Empty:
                if self._retire():
                    return
                continue
            try:
                job()
            except Exception:
                _log.exception("forebay: a message could not be answered")
            # What it held must not outlive it until the next one comes.
            del job
            if self._capacity is not None:
                self._capacity.release()
            with self._changed:
                self._unfinished -= 1
                self._changed.notify_all()

    def _retire(self) -> bool:
        """Not if there is a job for each thread: one may be about to come."""
        with self._changed:
            is_spare = self._unfinished < self._thread_count
            self._thread_count -= is_spare
            return is_spare

    def wait_idle(self, seconds: float) -> bool:
        """Waits until all is done; `False` if that takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._unfinished, seconds)


class CallSlot:
    """A place in the line."""

    __slots__ = ("action",)

    def __init__(self) -> None:
        self.action: Callable[[], None] | None = None


class CallOrder:
    """A server that does one thing after the other is to do them as its client asked for them.

    With `most` of them in the line the next one waits where it comes from.
    """

    def __init__(self, max_waiting: int) -> None:
        self._lock = threading.Lock()
        self._capacity = threading.Semaphore(max_waiting)
        self._queue: deque[CallSlot] = deque()
        self._is_running = False

    def __bool__(self) -> bool:
        """Whether anyone would have to wait."""
        with self._lock:
            return self._is_running or bool(self._queue)

    def reserve(self) -> CallSlot:
        self._capacity.acquire()
        with self._lock:
            turn = CallSlot()
            self._queue.append(turn)
            return turn

    def run_in_order(self, turn: CallSlot, step: Callable[[], None]) -> None:
        """What is to be done when it is this one's turn; by whoever is ready last, this one or one before it."""
        with self._lock:
            turn.action = step
        while (next_step := self._next_action()) is not None:
            try:
                next_step()
            finally:
                with self._lock:
                    self._is_running = False
                self._capacity.release()

    def _next_action(self) -> Callable[[], None] | None:
        with self._lock:
            if self._is_running or not self._queue or self._queue[0].action is None:
                return None
            self._is_running = True
            return self._queue.popleft().action
