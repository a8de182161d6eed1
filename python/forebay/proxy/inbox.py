"""The way from threads that read messages to the event loop."""

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable

from forebay.wire.framing import Line, LostMessage, count_memory_bytes

__all__ = ["MAX_QUEUED_BYTES", "Inbox", "measure"]

_log = logging.getLogger("forebay")

MAX_QUEUED_BYTES = 4 << 20
"""Default size of the queued messages above which the thread that reads waits. In memory it may be a few times this."""

_MESSAGE_BYTES = 4096
"""Added to the size of each message, for the objects around it."""


def measure(line: Line) -> int:
    """Return the memory that a message takes."""
    return _MESSAGE_BYTES + (0 if isinstance(line, LostMessage) else count_memory_bytes(line))


class Inbox:
    """Queue of functions that another thread passes to the event loop.

    Their sizes count until they are called or, with `must_release`, until `release`.
    """

    def __init__(self, max_bytes: int = MAX_QUEUED_BYTES, *, must_release: bool = False) -> None:
        self._max_bytes = max_bytes
        self._must_release = must_release
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._items: deque[tuple[int, Callable[[], object]]] = deque()
        self._size = 0
        self._is_scheduled = self._is_closed = False
        self._changed = threading.Condition()

    @property
    def is_in_loop(self) -> bool:
        """Whether the calling thread is that of the event loop."""
        return threading.get_ident() == self._loop_thread

    def put(self, size: int, callback: Callable[[], object]) -> None:
        """Call a function in the event loop, after those that were put before.

        If `size` is not 0, block while too much is queued. In the event loop itself, the function is called at once.
        """
        if self.is_in_loop:
            callback()
            return
        with self._changed:
            if size:
                self._changed.wait_for(lambda: self._size <= self._max_bytes or self._is_closed)
            self._size += size
            self._items.append((size, callback))
            must_schedule, self._is_scheduled = not self._is_scheduled, True
        if must_schedule:
            # The event loop may be closed.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        with self._changed:
            self._is_scheduled = False
            items, self._items = self._items, deque()
            if not self._must_release:
                self._size = 0
                self._changed.notify_all()
        for _, callback in items:
            try:
                callback()
            except Exception:
                _log.exception("forebay: a message of a server could not be handled")

    def add(self, size: int) -> None:
        """Count a part of a message that was split, until `release`."""
        with self._changed:
            self._size += size

    def release(self, size: int) -> None:
        """Let the thread go on that waits for room."""
        with self._changed:
            self._size -= size
            self._changed.notify_all()

    def run_blocking(self, function: Callable[[], None]) -> None:
        """Call a function that may block: in another thread, if the calling one is that of the event loop."""
        if self.is_in_loop:
            self._loop.run_in_executor(None, function)
        else:
            function()

    def close(self) -> None:
        """End all waiting."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
