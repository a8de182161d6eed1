"""How a parameter is written: the styles of OpenAPI, for one value, a list and an object each."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

from forebay.store.payload import encoded

__all__ = ["Pairs", "as_json", "as_text", "in_header", "in_path", "pairs", "percent_encoded"]

Pairs = list[tuple[str, str]]

_KEPT = ":/?@!$'()*,;="
"""What `allowReserved` leaves. `#`, `&`, `+` and brackets would not arrive as what they are."""

_DELIMITERS = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}


def percent_encoded(text: str, *, allow_reserved: bool = False) -> str:
    """Text that can stand anywhere in a URL."""
    return quote(text, safe=_KEPT if allow_reserved else "")


def as_text(value: Any) -> str:
    """A value as it stands in a parameter. Lists and objects inside of others have no style: they are JSON.

    Raises `ValueError` or `TypeError` for what cannot stand there.
    """
    match value:
        case str():
            return value
        case None:
            return ""
        case bytes():
            return value.decode()
        case float() if not math.isfinite(value):
            raise ValueError(f"{value} is no number that can be sent")
    return as_json(value).decode()


def as_json(value: Any) -> bytes:
    """A value as JSON. Raises `ValueError` for NaN and infinities, of which `encoded` would make null."""
    text = encoded(value)
    if b"null" in text:
        json.dumps(value, allow_nan=False, skipkeys=True, default=_of_plain_types)
    return text


def _of_plain_types(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value)


def in_path(name: str, value: Any, style: str, explode: bool) -> str:
    """What replaces `{name}` in a path."""
    if style == "matrix":
        return "".join(f";{key}={text}" if text else f";{key}" for key, text in _named(name, value, explode))
    lead, delimiter = (".", "." if explode else ",") if style == "label" else ("", ",")
    return lead + _joined(name, value, delimiter, explode, percent_encoded)


def in_header(name: str, value: Any, explode: bool) -> str:
    """The value of a header."""
    return _joined(name, value, ",", explode, lambda text: text)


def pairs(name: str, value: Any, style: str, explode: bool, *, allow_reserved: bool = False) -> Pairs:
    """Names and values of a query, or of a form or cookies, ready to be joined."""

    def write(text: str) -> str:
        return percent_encoded(text, allow_reserved=allow_reserved)

    if style == "deepObject" and isinstance(value, Mapping):
        return [(percent_encoded(key), write(text)) for key, text in _deep(name, value)]
    if isinstance(value, list | tuple | Mapping) and not explode and style in _DELIMITERS:
        return [(percent_encoded(name), _joined(name, value, _DELIMITERS[style], False, write))] if value else []
    return list(_named(name, value, explode, write))


def _joined(name: str, value: Any, delimiter: str, explode: bool, write: Callable[[str], str]) -> str:
    """The parts of a value in one. Raises `ValueError` where whoever takes it apart would find others."""
    parts = list(_listed(value, explode, write))
    if isinstance(value, list | tuple | Mapping) and any(delimiter in part for part in parts):
        raise ValueError(f"a value of {name!r:.64} has {unquote(delimiter)!r} in it, which stands between values there")
    return delimiter.join(parts)


def _listed(value: Any, explode: bool, write: Callable[[str], str]) -> Iterator[str]:
    """The parts of a value; those of an object are names and values by turns, or pairs if it explodes."""
    match value:
        case Mapping():
            for key, inner in value.items():
                if explode:
                    yield f"{write(str(key))}={write(as_text(inner))}"
                else:
                    yield write(str(key))
                    yield write(as_text(inner))
        case list() | tuple():
            yield from (write(as_text(each)) for each in value)
        case _:
            yield write(as_text(value))


def _named(
    name: str, value: Any, explode: bool, write: Callable[[str], str] = percent_encoded
) -> Iterator[tuple[str, str]]:
    """The same, each under a name: its own in an object that explodes."""
    match value:
        case Mapping() if explode:
            yield from ((percent_encoded(str(key)), write(as_text(inner))) for key, inner in value.items())
        case list() | tuple() if explode:
            yield from ((percent_encoded(name), write(as_text(each))) for each in value)
        case _:
            yield percent_encoded(name), _joined(name, value, ",", False, write)


def _deep(name: str, value: Any) -> Iterator[tuple[str, str]]:
    match value:
        case Mapping():
            for key, inner in value.items():
                yield from _deep(f"{name}[{key}]", inner)
        case list() | tuple():
            for inner in value:
                yield from _deep(name, inner)
        case _:
            yield name, as_text(value)
