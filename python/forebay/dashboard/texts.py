"""Sizes, counts and times as people read them."""

from datetime import UTC, datetime

from forebay.dashboard.html import Html, element

__all__ = ["format_bytes", "format_count", "format_duration", "format_short", "format_time", "mask_handle"]

_BYTE_UNITS = ("kB", "MB", "GB", "TB", "PB")
_COUNT_UNITS = ("", "k", "M", "G", "T")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_SHOWN_HANDLE_CHARS = 6


def format_bytes(size: int) -> str:
    """Return a size with one decimal, such as `12.3 MB`, in powers of 1,000. The command line formats sizes alike."""
    if size < 0:
        return f"−{format_bytes(-size)}"
    amount, unit = float(size), "B"
    for larger in _BYTE_UNITS:
        # Of 999,960 bytes, one decimal would make 1000.0 kB.
        if amount < (1000 if unit == "B" else 999.95):
            break
        amount, unit = amount / 1000, larger
    return f"{size} B" if unit == "B" else f"{amount:,.1f} {unit}"


def format_short(count: int) -> str:
    """Return a large count such as `12.3 M`."""
    return f"−{format_short(-count)}" if count < 0 else _scale(count, _COUNT_UNITS).strip()


def _scale(value: float, units: tuple[str, ...]) -> str:
    index = 0
    # What would be rounded to 1,000 takes the next unit.
    while value >= 999.5 and index < len(units) - 1:
        value /= 1000
        index += 1
    digits = 0 if index == 0 or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {units[index]}"


def format_count(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun, such as `1 item` or `2,000 items`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def format_duration(seconds: float) -> str:
    """Return a duration in its largest unit, rounded: `45 s`, `12 min`, `3 h`, `5 d`."""
    if round(seconds) < _MINUTE:
        return f"{max(0, round(seconds))} s"
    if round(seconds / _MINUTE) < _HOUR // _MINUTE:
        return f"{round(seconds / _MINUTE)} min"
    # Up to two days in hours, because one and a half days are more than `1 d` tells.
    return f"{round(seconds / _HOUR)} h" if seconds < 2 * _DAY else f"{round(seconds / _DAY):,} d"


def format_time(timestamp: object, now: float) -> Html:
    """Return a time of the journal relative to now, with the full time as its title."""
    try:
        seconds = datetime.fromisoformat(str(timestamp)).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return element("span", "unknown")
    distance = now - seconds
    text = f"{format_duration(distance)} ago" if distance >= 0 else f"in {format_duration(-distance)}"
    return element("time", text, datetime=str(timestamp), title=str(timestamp))


def mask_handle(handle: str) -> str:
    """Return the start of a handle, too short to be used as one."""
    return f"{handle[:_SHOWN_HANDLE_CHARS]}…"
