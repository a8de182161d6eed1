"""Sizes, counts and times as people read them."""

from datetime import UTC, datetime

from forebay.dashboard.html import Html, element

__all__ = ["format_age", "format_bytes", "format_count", "format_short", "format_time", "mask_handle"]

_BYTE_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")
_COUNT_UNITS = ("", "k", "M", "G", "T")
_AGES = ((86400, "d"), (3600, "h"), (60, "min"))
_SHOWN_HANDLE_CHARS = 6


def format_bytes(size: int) -> str:
    """Return a size such as `12.3 MB`, in powers of 1,000 as on the command line."""
    if size < 0:
        return f"−{format_bytes(-size)}"
    return "1 byte" if size == 1 else _scale(size, _BYTE_UNITS)


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


def format_age(seconds: float) -> str:
    """Return a duration in its largest unit, such as `5 min`."""
    for size, unit in _AGES:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def format_time(timestamp: object, now: float) -> Html:
    """Return a time of the journal relative to now, with the full time as its title."""
    try:
        seconds = datetime.fromisoformat(str(timestamp)).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return element("span", "unknown")
    distance = now - seconds
    text = f"{format_age(distance)} ago" if distance >= 0 else f"in {format_age(-distance)}"
    return element("time", text, datetime=str(timestamp), title=str(timestamp))


def mask_handle(handle: str) -> str:
    """Return the start of a handle, too short to be used as one."""
    return f"{handle[:_SHOWN_HANDLE_CHARS]}…"
