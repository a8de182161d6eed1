"""The calls that a descriptor suggests: ready to use, with fields and values of the payload's first item."""

import csv
import io
import itertools
import re
from collections.abc import Mapping
from typing import Any

import orjson

from forebay.arguments import decode_token
from forebay.store.handles import Descriptor
from forebay.store.payload import get_row_format

__all__ = ["suggest_calls"]

_FETCH_TOOL = "output_fetch"

_MAX_VALUE_LENGTH = 40
"""Maximum characters of a value in a suggested call."""

_SIMPLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
"""Matches field names that need no escaping, neither in a path nor in a quoted SQL identifier."""

_NDJSON_MIME_TYPE = re.compile("ndjson|jsonl|json-seq")

_MAX_FIELDS = 4
_LIMIT = 50
"""Number of items or lines in a suggested call."""


def suggest_calls(descriptor: Descriptor, *, has_query: bool, has_export: bool) -> tuple[dict[str, Any], ...]:
    """Return up to three calls that make sense next, the most useful one first."""
    if not descriptor.fetch_with.endswith(_FETCH_TOOL):
        return ()
    prefix = descriptor.fetch_with.removesuffix(_FETCH_TOOL)

    def make_call(tool: str, **arguments: Any) -> dict[str, Any]:
        return {"tool": prefix + tool, "arguments": {"output_handle": descriptor.output_handle, **arguments}}

    search = make_call("output_search", pattern="error", ignore_case=True, count_only=True)
    if descriptor.item_count:
        scalars = _find_scalars(_read_first_item(descriptor))
        calls = [make_call(_FETCH_TOOL, where={name: value}) for name, value in [*scalars.items()][:1]]
        if has_query:
            calls.append(make_call("output_query", sql=_write_sql(scalars)))
        fields = [*scalars][:_MAX_FIELDS]
        calls.append(make_call(_FETCH_TOOL, limit=_LIMIT, fields=fields) if fields else make_call(_FETCH_TOOL))
        calls.append(search)
    elif descriptor.line_count:
        tail_start = max(descriptor.line_count - _LIMIT, 0)
        calls = [search, make_call(_FETCH_TOOL, format="lines", offset=tail_start)]
        calls.append(make_call(_FETCH_TOOL, format="lines", offset=0, limit=_LIMIT))
    else:
        calls = [make_call(_FETCH_TOOL)] if descriptor.preview is None else [make_call(_FETCH_TOOL), search]
    if has_export:
        calls.insert(min(len(calls), 2), make_call("output_export"))
    return tuple(calls[:3])


def _read_first_item(descriptor: Descriptor) -> Any:
    """Return the first item, as the preview shows it."""
    preview = descriptor.preview or ""
    row_format = get_row_format(descriptor.mime_type)
    if row_format is not None:
        rows = csv.reader(io.StringIO(preview, newline=""), delimiter="," if row_format == "csv" else "\t")
        header_and_row = [*itertools.islice((row for row in rows if row), 2)]
        return dict(zip(*header_and_row, strict=False)) if len(header_and_row) > 1 else None
    first_line, _, other_lines = preview.strip().partition("\n")
    # A single line of NDJSON looks like an object.
    is_ndjson = bool(_NDJSON_MIME_TYPE.search(descriptor.mime_type))
    try:
        value = orjson.loads(first_line if is_ndjson else preview)
    except ValueError:
        is_ndjson = bool(other_lines)
        try:
            value = orjson.loads(first_line)
        except ValueError:
            return None
    if is_ndjson:
        return value
    for token in (descriptor.items_path or "").split("/")[1:]:
        value = value.get(decode_token(token)) if isinstance(value, dict) else None
    if isinstance(value, dict) and value:
        key, entry = next(iter(value.items()))
        has_members = isinstance(entry, dict) and "_key" not in entry
        return {"_key": key, **(entry if has_members else {"_value": entry})}
    return value[0] if isinstance(value, list) and value else None


def _find_scalars(item: Any) -> dict[str, Any]:
    """Return the fields of an item that are short scalars, with their values."""
    if not isinstance(item, Mapping):
        return {}
    return {
        name: value
        for name, value in item.items()
        if _SIMPLE_NAME.fullmatch(name)
        # Not floats: one of many digits would be rounded here.
        and isinstance(value, str | int)
        and value != ""
        and len(str(value)) <= _MAX_VALUE_LENGTH
    }


def _write_sql(scalars: Mapping[str, Any]) -> str:
    """Return a statement that counts the values of a text, or else the items."""
    texts = [name for name, value in scalars.items() if isinstance(value, str)]
    if not texts:
        return "SELECT count(*) FROM items"
    # The first field is often an identifier, of which each value occurs once.
    name = next((name for name in texts if name != next(iter(scalars))), texts[0])
    return f'SELECT "{name}", count(*) FROM items GROUP BY 1 ORDER BY 2 DESC LIMIT 10'  # noqa: S608 - a simple name
