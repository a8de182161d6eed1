"""What may be asked for. Models ask: whatever they send is answered in words that they can act on."""

import contextlib
import difflib
import re
import reprlib
from collections.abc import Iterable, Mapping
from typing import cast

from forebay._core import locate
from forebay.errors import InvalidArgument, PathNotFound

__all__ = [
    "check_budget",
    "check_fields",
    "check_flag",
    "check_integer",
    "check_pointer",
    "check_text",
    "did_you_mean",
    "is_text",
    "short_repr",
]

_MIN_PAGE_BYTES = 512
"""A page also says where it is from and where to go on; as much again for every time that is escaped."""


_SURROGATE = re.compile("[\ud800-\udfff]")


def is_text(value: object) -> bool:
    """Whether it is text that can be written: half of a surrogate pair can be written nowhere."""
    return isinstance(value, str) and not _SURROGATE.search(value)


def check_integer(name: str, value: object, minimum: int | None = None) -> None:
    """Refuses what is no whole number, `True` and `3.0` too: what was meant by them is a guess."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(f"{name} must be a whole number, such as 100, not {short_repr(value)}")
    if minimum is not None and value < minimum:
        raise InvalidArgument(f"{name} must be at least {minimum}")


def check_flag(name: str, value: object) -> None:
    """Refuses what is neither true nor false."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name} must be true or false, not {short_repr(value)}")


def check_text(name: str, value: object) -> None:
    """Refuses what is no text, or cannot be written and so cannot be in any payload."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} must be a text, not {short_repr(value)}")
    if not is_text(value):
        raise InvalidArgument(f"{name} has half of a surrogate pair, which is no text, and leads nowhere")


def check_pointer(name: str, value: object) -> None:
    """Refuses what is no JSON Pointer before anything is read for it."""
    check_text(name, value)
    with contextlib.suppress(PathNotFound):
        locate(b"0", cast("str", value))


def check_fields(fields: object) -> list[str]:
    """The names of fields, as often as they are needed."""
    if not isinstance(fields, Iterable) or isinstance(fields, str | bytes | Mapping):
        raise InvalidArgument(f'fields must be a list of names, such as ["id", "user.name"], not {short_repr(fields)}')
    names = list(fields)
    for name in names:
        check_text("each of the fields", name)
    return names


def check_budget(max_bytes: int, escape_levels: int) -> None:
    """Refuses a budget that no page fits in."""
    check_integer("escape_levels", escape_levels)
    if escape_levels not in (0, 1, 2):
        raise InvalidArgument(f"escape_levels is 0, 1 or 2, not {short_repr(escape_levels)}")
    check_integer("max_bytes", max_bytes, _MIN_PAGE_BYTES * (1 + escape_levels))


def short_repr(value: object) -> str:
    """A value in a few characters, to name it in a message."""
    try:
        return reprlib.repr(value)
    except ValueError:
        # Numbers of very many digits are not written out.
        return f"this {type(value).__name__}"


def did_you_mean(name: str, candidates: Iterable[str], fallback: str, prefix: str = "") -> str:
    """Names the nearest right name, or says what to do without one.

    A prefix that all of them have makes none of them nearer.
    """
    by_letters = {_normalize(name.removeprefix(prefix)): name for name in candidates}
    near = difflib.get_close_matches(_normalize(name.removeprefix(prefix)), by_letters, 1, 0.6)
    return f"did you mean {by_letters[near[0]]}?" if near else fallback


def _normalize(name: str) -> str:
    return name.lower().replace("-", "_")
