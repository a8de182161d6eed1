"""A limit on work: an amount at once, which then becomes available again over time."""

import time
from collections.abc import Callable

__all__ = ["Allowance"]


class Allowance:
    """An allowance of `units_per_second` units; unused units are kept for one second."""

    def __init__(self, units_per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._units_per_second = units_per_second
        self._clock = clock
        self._units = float(units_per_second)
        self._updated_at = clock()

    def take(self) -> bool:
        """Use one unit, and return whether there was one."""
        now = self._clock()
        refilled = self._units + (now - self._updated_at) * self._units_per_second
        self._units, self._updated_at = min(refilled, self._units_per_second), now
        if self._units < 1:
            return False
        self._units -= 1
        return True
