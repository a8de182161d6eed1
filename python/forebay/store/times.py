"""Times as text, in UTC."""

import functools
import time

__all__ = ["format_date", "format_timestamp", "is_valid_time"]

_YEAR_10000 = 253_402_300_800


def is_valid_time(seconds: float) -> bool:
    """Return whether a time can be formatted: from 1970 on, in a year of four digits."""
    return 0 <= seconds < _YEAR_10000


def format_timestamp(seconds: float) -> str:
    """Return a time as ISO 8601, to the second."""
    return _format_seconds(int(seconds))


def format_date(seconds: float) -> str:
    """Return the day of a time as `YYYY-MM-DD`."""
    return _format_seconds(int(seconds))[:10]


# Many events fall into the same second.
@functools.lru_cache(8)
def _format_seconds(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
