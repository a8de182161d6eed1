"""JSON as HTML, with the digits of numbers as they were stored."""

import json
from typing import Any

from forebay.dashboard.html import Html, element, join

__all__ = ["dump_value", "make_cell", "parse_exact"]

_MAX_CELL_CHARS = 160
_INDENT = "  "


class _Number(str):
    """A number as it is written in JSON."""

    __slots__ = ()


def parse_exact(text: bytes | str) -> Any:
    """Parse the JSON of one page. Numbers keep their digits."""
    return json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_Number)


def dump_value(value: Any, indent: str | None = None) -> str:
    """Return a parsed value as JSON, in one line or, from an indent on, in several."""
    if isinstance(value, _Number):
        return str(value)
    if not isinstance(value, dict | list) or not value:
        return json.dumps(value, ensure_ascii=False)
    inner = None if indent is None else indent + _INDENT
    if isinstance(value, dict):
        members = [f"{json.dumps(key, ensure_ascii=False)}: {dump_value(item, inner)}" for key, item in value.items()]
        start, end = "{", "}"
    else:
        members, (start, end) = [dump_value(item, inner) for item in value], "[]"
    if indent is None:
        return f"{start}{', '.join(members)}{end}"
    separator = f",\n{inner}"
    return f"{start}\n{inner}{separator.join(members)}\n{indent}{end}"


def make_cell(value: Any) -> Html:
    """Return a cell of a table with as much of a value as fits."""
    if value is None:
        return element("td", "null", class_="fb-null")
    if isinstance(value, _Number):
        return element("td", str(value), class_="fb-numeric")
    if isinstance(value, str):
        return element("td", _cut(value))
    if isinstance(value, bool):
        return element("td", dump_value(value), class_="fb-literal")
    return element("td", join(_cut(dump_value(value))), class_="fb-nested")


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CELL_CHARS else f"{text[:_MAX_CELL_CHARS]}…"
