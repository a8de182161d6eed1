"""Things that may take long to be ready, and are then done in the order in which they came."""

import threading
from collections import deque
from collections.abc import Callable

__all__ = ["Turn", "Turns"]


class Turn:
    """A place in the line."""

    __slots__ = ("step",)

    def __init__(self) -> None:
        self.step: Callable[[], None] | None = None


class Turns:
    """A server that does one thing after the other is to do them as its client asked for them.

    With `most` of them in the line the next one waits where it comes from.
    """

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._room = threading.Semaphore(most)
        self._line: deque[Turn] = deque()
        self._is_running = False

    def __bool__(self) -> bool:
        """Whether anyone would have to wait."""
        with self._lock:
            return self._is_running or bool(self._line)

    def take(self) -> Turn:
        self._room.acquire()
        with self._lock:
            turn = Turn()
            self._line.append(turn)
            return turn

    def ready(self, turn: Turn, step: Callable[[], None]) -> None:
        """What is to be done when it is this one's turn; by whoever is ready last, this one or one before it."""
        with self._lock:
            turn.step = step
        while (next_step := self._next()) is not None:
            try:
                next_step()
            finally:
                with self._lock:
                    self._is_running = False
                self._room.release()

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            if self._is_running or not self._line or self._line[0].step is None:
                return None
            self._is_running = True
            return self._line.popleft().step
