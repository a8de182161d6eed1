"""Times as they are written."""

import functools
import time

__all__ = ["date", "is_time", "timestamp"]

_YEAR_10000 = 253_402_300_800


def is_time(seconds: float) -> bool:
    """Whether it can be written: not before 1970, and in a year of four digits."""
    return 0 <= seconds < _YEAR_10000


def timestamp(seconds: float) -> str:
    """ISO 8601, in UTC, to the second."""
    return _timestamp(int(seconds))


def date(seconds: float) -> str:
    """The day, in UTC."""
    return _timestamp(int(seconds))[:10]


# Many events fall into one second.
@functools.lru_cache(8)
def _timestamp(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
