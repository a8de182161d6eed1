"""How a parameter is written: the styles of OpenAPI, for one value, a list and an object each."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

from forebay.operations.errors import CallError
from forebay.store.payload import encode

__all__ = [
    "PUBLIC_HEADERS",
    "Pairs",
    "check_header_value",
    "dump_strict",
    "format_header",
    "format_pairs",
    "format_path",
    "merge_cookies",
    "percent_encode",
    "to_text",
]

Pairs = list[tuple[str, str]]

_UNESCAPED_RESERVED = ":/?@!$'()*,;="
"""What `allowReserved` leaves. `#`, `&`, `+` and brackets would not arrive as what they are."""

_DELIMITERS = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}


def percent_encode(text: str, *, allow_reserved: bool = False) -> str:
    """Text that can stand anywhere in a URL."""
    return quote(text, safe=_UNESCAPED_RESERVED if allow_reserved else "")


def to_text(value: Any) -> str:
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
    return dump_strict(value).decode()


def dump_strict(value: Any) -> bytes:
    """A value as JSON. Raises `ValueError` for NaN and infinities, of which `encoded` would make null."""
    text = encode(value)
    if b"null" in text:
        json.dumps(value, allow_nan=False, skipkeys=True, default=_to_plain_types)
    return text


def _to_plain_types(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value)


def format_path(name: str, value: Any, style: str, explode: bool) -> str:
    """What replaces `{name}` in a path."""
    if style == "matrix":
        return "".join(f";{key}={text}" if text else f";{key}" for key, text in _iter_named_parts(name, value, explode))
    lead, delimiter = (".", "." if explode else ",") if style == "label" else ("", ",")
    return lead + _join_parts(name, value, delimiter, explode, percent_encode)


def format_header(name: str, value: Any, explode: bool) -> str:
    """The value of a header."""
    return _join_parts(name, value, ",", explode, lambda text: text)


def format_pairs(name: str, value: Any, style: str, explode: bool, *, allow_reserved: bool = False) -> Pairs:
    """Names and values of a query, or of a form or cookies, ready to be joined."""

    def write(text: str) -> str:
        return percent_encode(text, allow_reserved=allow_reserved)

    if style == "deepObject" and isinstance(value, Mapping):
        return [(percent_encode(key), write(text)) for key, text in _iter_deep_pairs(name, value)]
    if isinstance(value, list | tuple | Mapping) and not explode and style in _DELIMITERS:
        return [(percent_encode(name), _join_parts(name, value, _DELIMITERS[style], False, write))] if value else []
    return list(_iter_named_parts(name, value, explode, write))


def _join_parts(name: str, value: Any, delimiter: str, explode: bool, write: Callable[[str], str]) -> str:
    """The parts of a value in one. Raises `ValueError` where whoever takes it apart would find others."""
    parts = list(_iter_parts(value, explode, write))
    if isinstance(value, list | tuple | Mapping) and any(delimiter in part for part in parts):
        raise ValueError(f"a value of {name!r:.64} has {unquote(delimiter)!r} in it, which stands between values there")
    return delimiter.join(parts)


def _iter_parts(value: Any, explode: bool, write: Callable[[str], str]) -> Iterator[str]:
    """The parts of a value; those of an object are names and values by turns, or pairs if it explodes."""
    match value:
        case Mapping():
            for key, inner in value.items():
                if explode:
                    yield f"{write(str(key))}={write(to_text(inner))}"
                else:
                    yield write(str(key))
                    yield write(to_text(inner))
        case list() | tuple():
            yield from (write(to_text(each)) for each in value)
        case _:
            yield write(to_text(value))


def _iter_named_parts(
    name: str, value: Any, explode: bool, write: Callable[[str], str] = percent_encode
) -> Iterator[tuple[str, str]]:
    """The same, each under a name: its own in an object that explodes."""
    match value:
        case Mapping() if explode:
            yield from ((percent_encode(str(key)), write(to_text(inner))) for key, inner in value.items())
        case list() | tuple() if explode:
            yield from ((percent_encode(name), write(to_text(each))) for each in value)
        case _:
            yield percent_encode(name), _join_parts(name, value, ",", False, write)


def _iter_deep_pairs(name: str, value: Any) -> Iterator[tuple[str, str]]:
    match value:
        case Mapping():
            for key, inner in value.items():
                yield from _iter_deep_pairs(f"{name}[{key}]", inner)
        case list() | tuple():
            for inner in value:
                yield from _iter_deep_pairs(name, inner)
        case _:
            yield name, to_text(value)


PUBLIC_HEADERS = frozenset(
    {"accept", "accept-encoding", "accept-language", "connection", "content-length", "content-type"}
    | {"host", "transfer-encoding", "user-agent"}
)
"""Headers that anyone may see. Any other may be what tells us from everyone else."""

_FORBIDDEN_IN_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")


def check_header_value(name: str, text: str) -> str:
    """The value of a header. Refuses what would end the line; it is not shown, for it may be a secret."""
    if _FORBIDDEN_IN_HEADER.search(text):
        raise CallError("VALIDATION_ERROR", f"the header {name!r:.64} cannot have line breaks or control characters")
    return text.strip(" \t")


def merge_cookies(own: str, more: str) -> str:
    """The cookies of a request, and of more of them those that have other names."""
    given = [each.strip() for each in own.split(";")]
    names = {each.partition("=")[0] for each in given}
    others = (each.strip() for each in more.split(";"))
    return "; ".join(filter(None, [*given, *(each for each in others if each.partition("=")[0] not in names)]))
