"""JSON as HTML, with the digits of numbers as they were stored."""

import json
from collections.abc import Sequence
from typing import Any

from forebay.dashboard.html import Html, element, join

__all__ = ["MISSING", "dump_value", "make_cell", "make_table", "parse_exact"]

_MAX_CELL_CHARS = 160
_MAX_NESTED_CHARS = 60
"""Longer objects and lists are opened by a click."""
_MAX_INDENTED_RATIO = 4
_INDENT = "  "


class _Number(str):
    """A number as it is written in JSON."""

    __slots__ = ()


def parse_exact(text: bytes | str) -> Any:
    """Parse the JSON of one page. Numbers keep their digits."""
    return json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_Number)


def dump_value(value: Any, indent: str | None = None) -> str:
    """Return a parsed value as JSON: on one line, or on several lines if `indent` is given."""
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
    """Return a table cell with a value. A long text is cut, and a long object or list can be opened."""
    if value is None:
        return element("td", "null", class_="fb-null")
    if isinstance(value, _Number):
        return element("td", str(value), class_="fb-numeric")
    if isinstance(value, str):
        return element("td", _cut(value))
    if isinstance(value, bool):
        return element("td", dump_value(value), class_="fb-literal")
    text = dump_value(value)
    if len(text) <= _MAX_NESTED_CHARS:
        return element("td", join(text), class_="fb-nested")
    summary = element("summary", f"{text[:_MAX_NESTED_CHARS]}…")
    indented = dump_value(value, "")
    # The indentation of deep values would make the page many times as large.
    shown = indented if len(indented) <= _MAX_INDENTED_RATIO * len(text) else text
    return element("td", element("details", summary, element("pre", shown)), class_="fb-nested")


MISSING: Any = object()
"""Stands for a value that an item does not have."""


def make_table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, titles: Sequence[str] = (), numbers: Sequence[Html] = ()
) -> Html:
    """Return a table of parsed values. Rows may be shorter than the columns.

    `numbers` is a first column of row numbers, and `titles` are the tooltips of the headings.
    """
    heads = [
        element("th", name, scope="col", title=titles[index] if titles else None, class_=_get_alignment(rows, index))
        for index, name in enumerate(columns)
    ]
    # An empty column takes the width that the other columns do not need.
    filler = element("td", class_="fb-filler")
    corner = element("th", "#", scope="col", class_="fb-numeric") if numbers else None
    body = [
        element(
            "tr",
            element("th", numbers[index], scope="row") if numbers else None,
            [element("td") if value is MISSING else make_cell(value) for value in row],
            [element("td")] * (len(columns) - len(row)),
            filler,
        )
        for index, row in enumerate(rows)
    ]
    head = element("tr", corner, heads, filler)
    return element("table", element("thead", head), element("tbody", body), class_="fb-table")


def _get_alignment(rows: Sequence[Sequence[Any]], index: int) -> str | None:
    """Return the class of a column's heading, which aligns it with the values: numbers are on the right."""
    values = [row[index] for row in rows if index < len(row) and row[index] is not None and row[index] is not MISSING]
    return "fb-numeric" if values and all(isinstance(value, _Number) for value in values) else None


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CELL_CHARS else f"{text[:_MAX_CELL_CHARS]}…"
