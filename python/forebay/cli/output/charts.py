"""Bars and sparklines of text."""

import math
from collections.abc import Sequence

__all__ = ["format_bar", "format_share", "format_sparkline", "get_share"]

_EIGHTHS = " ▏▎▍▌▋▊▉"
_LEVELS = "▁▂▃▄▅▆▇█"
_ASCII_LEVELS = "_.:-=+*#"


def get_share(value: float, largest: float) -> float:
    """Return which part of the largest value a value is, from 0 to 1."""
    return min(max(value / largest, 0.0), 1.0) if largest > 0 else 0.0


def format_bar(share: float, width: int, *, is_ascii: bool = False) -> str:
    """Return a bar of at most `width` characters that fills a share of them.

    Its length is rounded to an eighth of a character, or to a whole one in ASCII. A share above 0 is never invisible,
    and one below 1 never fills the width.
    """
    steps = 1 if is_ascii else len(_EIGHTHS)
    total = width * steps
    filled = round(min(max(share, 0.0), 1.0) * total)
    if share > 0:
        filled = max(filled, 1)
    if share < 1 and total > 1:
        filled = min(filled, total - 1)
    whole, rest = divmod(filled, steps)
    return ("#" if is_ascii else "█") * whole + (_EIGHTHS[rest] if rest else "")


def format_share(share: float, width: int, *, is_ascii: bool = False) -> tuple[str, str]:
    """Return the two parts of a bar of exactly `width` characters: the share, and what is left of it."""
    filled = round(min(max(share, 0.0), 1.0) * width)
    if 0 < share < 1 and width > 1:
        filled = min(max(filled, 1), width - 1)
    full, empty = "#." if is_ascii else "█░"
    return full * filled, empty * (width - filled)


def format_sparkline(values: Sequence[float], width: int, *, is_ascii: bool = False) -> str:
    """Return a column for each value, from the lowest one for 0 and less to the highest one for the largest value.

    If there are more values than `width`, a column shows the largest of several neighbours. The last columns show the
    same number of values each, so that only the first one may show fewer.
    """
    levels = _ASCII_LEVELS if is_ascii else _LEVELS
    group = max(1, math.ceil(len(values) / max(1, width)))
    first = len(values) % group
    columns = [max(values[max(0, end - group) : end]) for end in range(first or group, len(values) + 1, group)]
    largest = max(columns, default=0.0)
    # A value above 0 is always distinguished from 0.
    return "".join(levels[math.ceil(get_share(value, largest) * (len(levels) - 1))] for value in columns)
