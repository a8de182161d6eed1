"""Worker threads for slow work, and a queue that keeps calls in order."""

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue

from forebay.system import processes

__all__ = ["CallOrder", "CallSlot", "Capacity", "ResponseWorkers", "WorkerPool", "limit_heaps"]

_log = logging.getLogger("forebay")

_MAX_WORKERS = 4

_MAX_STORING_BYTES = 12 << 20
"""Maximum bytes of responses that are stored at once. Each takes about twice its bytes."""

_SPOOLED_RESPONSE_BYTES = 8 << 20
"""The memory that a spooled response counts for."""

_IDLE_TIMEOUT_SECONDS = 10.0
"""Idle threads end after this time: each connection has its own pools, so idle threads would add up."""


def limit_heaps(max_heaps: int) -> None:
    """Let all threads share few heaps, unless the operator has set `MALLOC_ARENA_MAX`.

    By default, glibc creates up to eight heaps for each processor, and each keeps memory of the largest messages that
    its threads have handled.
    """
    if "MALLOC_ARENA_MAX" not in os.environ:
        processes.limit_heaps(max_heaps)


class Capacity:
    """Limit on the number and on the total bytes of messages that are handled at once.

    A single message is always accepted, whatever its size.
    """

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count, self._max_bytes = max_count, max_bytes
        self._count = self._bytes = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def wait_for_room(self, timeout: float | None = None) -> bool:
        """Wait until there is room for a small message, or until `close`; return `False` on timeout."""
        with self._changed:
            return self._changed.wait_for(self._has_room, timeout)

    def _has_room(self, size: int = 1) -> bool:
        fits = self._count < self._max_count and self._bytes + size <= self._max_bytes
        return fits or not self._count or self._is_closed

    def acquire(self, size: int) -> None:
        """Wait until there is room for a message of `size` bytes, and count it."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_room(size))
            self.add(size)

    def add(self, size: int) -> None:
        """Count a message of `size` bytes, even if there is no room."""
        with self._changed:
            self._count += 1
            self._bytes += size

    def release(self, size: int) -> None:
        with self._changed:
            self._count -= 1
            self._bytes -= size
            self._changed.notify_all()

    def close(self) -> None:
        """End all waiting."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class WorkerPool:
    """Thread pool that starts threads as needed and ends idle ones."""

    def __init__(self, max_workers: int = _MAX_WORKERS, *, idle_seconds: float = _IDLE_TIMEOUT_SECONDS) -> None:
        self._max_workers = max_workers
        self._idle_seconds = idle_seconds
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._changed = threading.Condition()
        self._unfinished = 0
        self._thread_count = 0

    def submit(self, *steps: Callable[[], None]) -> None:
        """Run the steps one after another in a worker thread, or in this one if the system has no thread left."""

        def job() -> None:
            for step in steps:
                step()

        with self._changed:
            self._unfinished += 1
            if self._thread_count < min(self._unfinished, self._max_workers):
                with contextlib.suppress(RuntimeError):
                    threading.Thread(target=self._run, name="forebay-work", daemon=True).start()
                    self._thread_count += 1
            has_thread = self._thread_count > 0
        if has_thread:
            self._jobs.put(job)
        else:
            _run_job(job)
            self._end_job()

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=self._idle_seconds)
            except Empty:
                if self._retire():
                    return
                continue
            _run_job(job)
            # Free the job and its message now, not only when the next job arrives.
            del job
            self._end_job()

    def _end_job(self) -> None:
        with self._changed:
            self._unfinished -= 1
            self._changed.notify_all()

    def _retire(self) -> bool:
        """Unregister the calling thread. Return `False` if it must stay, because there are as many jobs as threads."""
        with self._changed:
            is_spare = self._unfinished < self._thread_count
            self._thread_count -= is_spare
            return is_spare

    def wait_idle(self, seconds: float) -> bool:
        """Wait until all jobs are done; return `False` on timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._unfinished, seconds)


def _run_job(job: Callable[[], None]) -> None:
    try:
        job()
    except Exception:
        _log.exception("forebay: a message could not be answered")


class ResponseWorkers(WorkerPool):
    """Threads that store large responses, with a limit on their memory."""

    def __init__(self) -> None:
        super().__init__()
        self._capacity = Capacity(_MAX_WORKERS, _MAX_STORING_BYTES)

    def submit_response(self, method: str, size: int, job: Callable[[], None]) -> None:
        """Run a job for a response of `size` bytes to a request; wait while too much is stored."""
        # Lists are parsed, which takes more memory.
        memory_bytes = min(size * (2 if method.endswith("/list") else 1), _SPOOLED_RESPONSE_BYTES)
        self._capacity.acquire(memory_bytes)
        self.submit(job, lambda: self._capacity.release(memory_bytes))


class CallSlot:
    """Position of one call in a `CallOrder`."""

    __slots__ = ("action",)

    def __init__(self) -> None:
        self.action: Callable[[], None] | None = None


class CallOrder:
    """Queue that runs actions in the order in which their slots were reserved, not in which they are ready.

    Calls are prepared in parallel but must reach the server in the client's order.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: deque[CallSlot] = deque()
        self._is_running = False

    def __bool__(self) -> bool:
        """Return whether a new call would have to wait."""
        with self._lock:
            return self._is_running or bool(self._queue)

    def reserve(self) -> CallSlot:
        """Take the next slot; `run_in_order` must follow."""
        with self._lock:
            slot = CallSlot()
            self._queue.append(slot)
            return slot

    def run_in_order(self, slot: CallSlot, action: Callable[[], None]) -> None:
        """Set the action of a slot, and run every action whose turn has come."""
        with self._lock:
            slot.action = action
        while (next_action := self._next_action()) is not None:
            try:
                next_action()
            finally:
                with self._lock:
                    self._is_running = False

    def _next_action(self) -> Callable[[], None] | None:
        with self._lock:
            if self._is_running or not self._queue or self._queue[0].action is None:
                return None
            self._is_running = True
            return self._queue.popleft().action
