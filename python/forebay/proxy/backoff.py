"""How soon a server that ended is started again."""

import time
from collections.abc import Callable

__all__ = ["Pace"]


class Pace:
    """At once, then after `delay` seconds, twice that, and so on; never more than `limit` times in a `window`."""

    def __init__(
        self, limit: int = 5, window: float = 60.0, delay: float = 0.5, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = limit
        self._window = window
        self._delay = delay
        self._clock = clock
        self._starts: list[float] = []

    def next(self) -> float | None:
        """The seconds to wait before the next start; `None` if there is to be none."""
        if self._limit == 0:
            return None
        now = self._clock()
        self._starts = [start for start in self._starts if now - start < self._window]
        count = len(self._starts)
        wait = min(self._window, self._delay * 2 ** (count - 1)) if count else 0.0
        if count >= self._limit:
            wait = max(wait, self._starts[-self._limit] + self._window - now)
        self._starts.append(now + wait)
        return wait
