"""Checks of arguments. The error messages tell a model what to pass instead."""

import contextlib
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
    "decode_token",
    "did_you_mean",
    "is_text",
    "short_repr",
]

_MIN_PAGE_BYTES = 512
"""Minimum bytes of a page that is not escaped. Each escape level raises the minimum by the same amount."""

_SURROGATE_PATTERN = re.compile("[\ud800-\udfff]")


def is_text(value: object) -> bool:
    """Return whether a value is text that UTF-8 can encode. It cannot encode a lone surrogate."""
    return isinstance(value, str) and not _SURROGATE_PATTERN.search(value)


def check_integer(name: str, value: object, minimum: int | None = None) -> None:
    """Raise `InvalidArgument` unless a value is an integer; `True` and `3.0` are refused too."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(f"{name} must be a whole number, such as 100, not {short_repr(value)}")
    if minimum is not None and value < minimum:
        raise InvalidArgument(f"{name} must be at least {minimum}")


def check_flag(name: str, value: object) -> None:
    """Raise `InvalidArgument` unless a value is a boolean."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name} must be true or false, not {short_repr(value)}")


def check_text(name: str, value: object) -> None:
    """Raise `InvalidArgument` unless a value is text that UTF-8 can encode."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} must be a text, not {short_repr(value)}")
    if not is_text(value):
        raise InvalidArgument(f"{name} has half of a surrogate pair, which is no text, and leads nowhere")


def check_pointer(name: str, value: object) -> None:
    """Raise `InvalidArgument` unless a value is a well-formed JSON Pointer."""
    check_text(name, value)
    with contextlib.suppress(PathNotFound):
        locate(b"0", cast("str", value))


def check_fields(fields: object) -> list[str]:
    """Return the names of fields as a list. Raises `InvalidArgument` unless they are a list of texts."""
    if not isinstance(fields, Iterable) or isinstance(fields, str | bytes | Mapping):
        raise InvalidArgument(f'fields must be a list of names, such as ["id", "user.name"], not {short_repr(fields)}')
    names = list(fields)
    for name in names:
        check_text("each of the fields", name)
    return names


def check_budget(max_bytes: int, escape_levels: int) -> None:
    """Raise `InvalidArgument` if `max_bytes` is too small for a page, or `escape_levels` is not 0, 1 or 2."""
    check_integer("escape_levels", escape_levels)
    if escape_levels not in (0, 1, 2):
        raise InvalidArgument(f"escape_levels is 0, 1 or 2, not {short_repr(escape_levels)}")
    check_integer("max_bytes", max_bytes, _MIN_PAGE_BYTES * (1 + escape_levels))


def short_repr(value: object) -> str:
    """Return a short representation of a value, for an error message."""
    try:
        return reprlib.repr(value)
    except ValueError:
        # Python refuses to print integers of very many digits.
        return f"this {type(value).__name__}"


def decode_token(token: str) -> str:
    """Return the key that a token of a JSON Pointer names."""
    return token.replace("~1", "/").replace("~0", "~")


def did_you_mean(name: str, candidates: Iterable[str], fallback: str, prefix: str = "") -> str:
    """Return a question with the candidate that is most similar to a wrong name, or `fallback` if none is similar.

    `prefix` is ignored in all names: a prefix that all candidates have would make them look alike.
    """
    by_normalized = {_normalize(candidate.removeprefix(prefix)): candidate for candidate in candidates}
    # Imported here, because only errors need it.
    import difflib

    matches = difflib.get_close_matches(_normalize(name.removeprefix(prefix)), by_normalized, 1, 0.6)
    return f"did you mean {by_normalized[matches[0]]}?" if matches else fallback


def _normalize(name: str) -> str:
    return name.lower().replace("-", "_")
