"""The wall clock of a store, which a user may replace."""

import time
from collections.abc import Callable

from forebay.arguments import short_repr
from forebay.errors import InvalidArgument
from forebay.store.handles import is_valid_time

__all__ = ["check_clock"]


def check_clock(clock: object) -> Callable[[], float]:
    """Return a clock that raises `InvalidArgument` if the given one raises or returns no valid time."""
    if isinstance(clock, _CheckedClock) or clock is time.time:
        return clock
    if not callable(clock):
        raise InvalidArgument("clock is a function that returns seconds, such as time.time")
    return _CheckedClock(clock)


class _CheckedClock:
    """A user's clock, whose every time is checked."""

    def __init__(self, clock: Callable[[], object]) -> None:
        self._clock = clock

    def __call__(self) -> float:
        try:
            now = self._clock()
        except Exception as error:
            raise InvalidArgument(
                f"the clock of this store failed: {error!r:.200}; pass one such as time.time"
            ) from error
        if isinstance(now, bool) or not isinstance(now, int | float) or not is_valid_time(now):
            raise InvalidArgument(
                f"the clock of this store returned {short_repr(now)}; pass one that returns seconds since 1970, "
                "such as time.time"
            )
        return now
