"""Serialization of parameter values in the styles of OpenAPI, and checks of headers and cookies."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

from forebay.operations.errors import CallError
from forebay.store.payload import encode

__all__ = [
    "NON_SECRET_HEADERS",
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

NON_SECRET_HEADERS = frozenset(
    {"accept", "accept-encoding", "accept-language", "connection", "content-length", "content-type"}
    | {"host", "transfer-encoding", "user-agent"}
)
"""Lower-case names of headers that never carry credentials. All others are treated as secret."""

_UNESCAPED_RESERVED = ":/?@!$'()*,;="
"""Characters that `allowReserved` leaves unescaped. `#`, `&`, `+` and brackets would change the query's meaning."""

_DELIMITERS = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}

_FORBIDDEN_IN_HEADER_PATTERN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")


def percent_encode(text: str, *, allow_reserved: bool = False) -> str:
    """Escape `text` for any part of a URL."""
    return quote(text, safe=_UNESCAPED_RESERVED if allow_reserved else "")


def to_text(value: Any) -> str:
    """Return a value as the text of a parameter. Nested lists and objects, which have no style, become JSON.

    Raises `ValueError` or `TypeError` for a value that cannot be sent.
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
    """Return a value as JSON. Raises `ValueError` for NaN and infinities, which `encode` would turn into null."""
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
    """Return the text that replaces `{name}` in a path."""
    if style == "matrix":
        return "".join(f";{key}={text}" if text else f";{key}" for key, text in _iter_pairs(name, value, explode))
    prefix, delimiter = (".", "." if explode else ",") if style == "label" else ("", ",")
    return prefix + _join_parts(name, value, delimiter, explode, percent_encode)


def format_header(name: str, value: Any, explode: bool) -> str:
    """Return the value of a header."""
    return _join_parts(name, value, ",", explode, lambda text: text)


def format_pairs(name: str, value: Any, style: str, explode: bool, *, allow_reserved: bool = False) -> Pairs:
    """Return the escaped names and values of a parameter in a query, a form or cookies."""

    def escape(text: str) -> str:
        return percent_encode(text, allow_reserved=allow_reserved)

    if style == "deepObject" and isinstance(value, Mapping):
        return [(percent_encode(key), escape(text)) for key, text in _iter_deep_pairs(name, value)]
    if isinstance(value, list | tuple | Mapping) and not explode and style in _DELIMITERS:
        return [(percent_encode(name), _join_parts(name, value, _DELIMITERS[style], False, escape))] if value else []
    return list(_iter_pairs(name, value, explode, escape))


def _join_parts(name: str, value: Any, delimiter: str, explode: bool, escape: Callable[[str], str]) -> str:
    """Join the parts of a value. Raises `ValueError` if a part contains the delimiter."""
    parts = list(_iter_parts(value, explode, escape))
    if isinstance(value, list | tuple | Mapping) and any(delimiter in part for part in parts):
        raise ValueError(f"a value of {name!r:.64} has {unquote(delimiter)!r} in it, which stands between values there")
    return delimiter.join(parts)


def _iter_parts(value: Any, explode: bool, escape: Callable[[str], str]) -> Iterator[str]:
    """Yield the parts of a value: for an object `key=value` if it explodes, else keys and values alternately."""
    match value:
        case Mapping():
            for key, inner in value.items():
                if explode:
                    yield f"{escape(str(key))}={escape(to_text(inner))}"
                else:
                    yield escape(str(key))
                    yield escape(to_text(inner))
        case list() | tuple():
            yield from (escape(to_text(item)) for item in value)
        case _:
            yield escape(to_text(value))


def _iter_pairs(
    name: str, value: Any, explode: bool, escape: Callable[[str], str] = percent_encode
) -> Iterator[tuple[str, str]]:
    """Yield a value as name and text pairs; an object that explodes uses its keys as names."""
    match value:
        case Mapping() if explode:
            yield from ((percent_encode(str(key)), escape(to_text(inner))) for key, inner in value.items())
        case list() | tuple() if explode:
            yield from ((percent_encode(name), escape(to_text(item))) for item in value)
        case _:
            yield percent_encode(name), _join_parts(name, value, ",", False, escape)


def _iter_deep_pairs(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield a value in the `deepObject` style, such as `filter[price][min]`."""
    match value:
        case Mapping():
            for key, inner in value.items():
                yield from _iter_deep_pairs(f"{name}[{key}]", inner)
        case list() | tuple():
            for inner in value:
                yield from _iter_deep_pairs(name, inner)
        case _:
            yield name, to_text(value)


def check_header_value(name: str, text: str) -> str:
    """Return a header value without surrounding spaces. Raises `CallError` for line breaks and control characters."""
    if _FORBIDDEN_IN_HEADER_PATTERN.search(text):
        # The value may be a secret, so the message shows only the name.
        raise CallError("VALIDATION_ERROR", f"the header {name!r:.64} cannot have line breaks or control characters")
    return text.strip(" \t")


def merge_cookies(cookies: str, additional_cookies: str) -> str:
    """Append the cookies of `additional_cookies` whose names are not in `cookies` yet."""
    first = [cookie.strip() for cookie in cookies.split(";")]
    names = {cookie.partition("=")[0] for cookie in first}
    others = (cookie.strip() for cookie in additional_cookies.split(";"))
    return "; ".join(filter(None, [*first, *(cookie for cookie in others if cookie.partition("=")[0] not in names)]))
