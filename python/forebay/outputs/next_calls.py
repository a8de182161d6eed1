"""The calls that a descriptor suggests: ready to use, with fields and values of the payload's first items."""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from forebay.arguments import decode_token
from forebay.outputs.text_calls import suggest_text_calls
from forebay.store.handles import Descriptor
from forebay.store.payload import get_row_format

__all__ = ["suggest_calls"]

_FETCH_TOOL = "output_fetch"

_MAX_VALUE_LENGTH = 40
"""Maximum characters of a value in a suggested call."""

_SIMPLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
"""Matches field names that need no escaping, neither in a path nor in a quoted SQL identifier."""

_NDJSON_MIME_TYPE = re.compile("ndjson|jsonl|json-seq")

_CUT_LIST_KEYS = {"items", "totalCount", "showing"}
"""Keys of the object that stands for a list that is cut."""

_BLOCK_TYPES = {"text", "image", "audio", "resource", "resource_link"}

_MAX_FIELDS = 4
_LIMIT = 50
"""Number of items in a suggested call."""


def suggest_calls(descriptor: Descriptor, *, has_query: bool, has_export: bool) -> tuple[dict[str, Any], ...]:
    """Return up to three calls that make sense next, the most useful one first."""
    if not descriptor.fetch_with.endswith(_FETCH_TOOL):
        return ()
    prefix = descriptor.fetch_with.removesuffix(_FETCH_TOOL)

    def make_call(tool: str, **arguments: Any) -> dict[str, Any]:
        return {"tool": prefix + tool, "arguments": {"output_handle": descriptor.output_handle, **arguments}}

    search = make_call("output_search", pattern="error", ignore_case=True, count_only=True)
    items = _read_items(descriptor) if descriptor.item_count else []
    if descriptor.items_path == "/content" and items and all(map(_is_block, items)):
        # The text of a block may be larger than any row or page, and conditions on it say little.
        calls = [make_call(_FETCH_TOOL), search]
    elif descriptor.item_count:
        scalars = _find_scalars(items[0], is_cut=descriptor.preview_items == 0) if items else {}
        calls = [make_call(_FETCH_TOOL, where={name: value}) for name, value in [*scalars.items()][:1]]
        if has_query:
            calls.append(make_call("output_query", sql=_write_sql(scalars, items)))
        fields = [*scalars][:_MAX_FIELDS]
        calls.append(make_call(_FETCH_TOOL, limit=_LIMIT, fields=fields) if fields else make_call(_FETCH_TOOL))
        calls.append(search)
    elif descriptor.line_count:
        calls = [make_call(tool, **arguments) for tool, arguments in suggest_text_calls(descriptor)]
    else:
        calls = [make_call(_FETCH_TOOL)] if descriptor.preview is None else [make_call(_FETCH_TOOL), search]
    if has_export:
        calls.insert(min(len(calls), 2), make_call("output_export"))
    return tuple(calls[:3])


def _read_items(descriptor: Descriptor) -> list[Any]:
    """Return the items that the preview shows; of a long list of lines, those that are whole."""
    preview = descriptor.preview or ""
    row_format = get_row_format(descriptor.mime_type)
    if row_format is not None:
        rows = csv.reader(io.StringIO(preview, newline=""), delimiter="," if row_format == "csv" else "\t")
        header, *others = [row for row in rows if row] or [[]]
        # A repeated name gets a number, and the last cell may be cut.
        names = [name if header.index(name) == number else "" for number, name in enumerate(header)]
        others[-1:] = [row[:-1] for row in others[-1:]]
        return [dict(zip(names, row, strict=False)) for row in others]
    first_line, _, other_lines = preview.strip().partition("\n")
    # A single line of NDJSON looks like an object.
    is_ndjson = bool(_NDJSON_MIME_TYPE.search(descriptor.mime_type))
    try:
        value = _parse(first_line if is_ndjson else preview)
    except ValueError:
        return _parse_lines(preview) if other_lines else []
    if is_ndjson:
        return _parse_lines(preview)
    for token in map(decode_token, (descriptor.items_path or "").split("/")[1:]):
        # The items may be under any key of this name.
        is_unique = isinstance(value, _Object) and token not in value.repeated
        value = value.get(token) if is_unique else None
    if isinstance(value, dict):
        return [_make_entry(key, entry) for key, entry in value.items()]
    return value if isinstance(value, list) else []


class _Object(dict[str, Any]):
    """A JSON object with the first value of each key, which is the one that `where` compares."""

    def __init__(self, members: Sequence[tuple[str, Any]]) -> None:
        super().__init__()
        self.repeated: set[str] = set()
        for key, value in members:
            if key in self:
                self.repeated.add(key)
            else:
                self[key] = value


# orjson keeps the last value of a key. Here it only reads the numbers, so that none is too large for it to write.
_DECODER = json.JSONDecoder(object_pairs_hook=_Object, parse_int=orjson.loads, parse_float=orjson.loads)


def _parse(text: str) -> Any:
    """Parse JSON, with objects as `_Object`. Raises `ValueError` for what is not JSON, or nested too deeply."""
    # It refuses what the standard library takes, such as NaN and lone surrogates.
    orjson.loads(text)
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("this is nested too deeply") from None


def _parse_lines(text: str) -> list[Any]:
    """Return the values of lines of JSON, up to the first line that is not: it may be cut."""
    values = []
    for line in filter(str.strip, text.split("\n")):
        try:
            values.append(_parse(line))
        except ValueError:
            break
    return values


def _is_block(item: Any) -> bool:
    """Return whether an item looks like a content block of a tool result."""
    return isinstance(item, Mapping) and item.get("type") in _BLOCK_TYPES


def _make_entry(key: str, entry: Any) -> dict[str, Any]:
    """Return an entry of a map as a page shows it."""
    has_members = isinstance(entry, dict) and "_key" not in entry
    return {"_key": key, **(entry if has_members else {"_value": entry})}


def _find_scalars(item: Any, *, is_cut: bool) -> dict[str, Any]:
    """Return the fields of an item that are short scalars, with their values, except texts that may be cut."""
    if not isinstance(item, Mapping) or (is_cut and item.keys() == _CUT_LIST_KEYS):
        return {}
    return {
        name: value
        for name, value in item.items()
        if _SIMPLE_NAME.fullmatch(name)
        # Not floats: one of many digits would be rounded here.
        and isinstance(value, str | int)
        and value != ""
        and len(str(value)) <= _MAX_VALUE_LENGTH
        and not (is_cut and isinstance(value, str) and value.endswith("..."))
    }


def _write_sql(scalars: Mapping[str, Any], items: Sequence[Any]) -> str:
    """Return a statement that counts the values of a text, or else the items. `scalars` are of the first item."""
    texts = [name for name, value in scalars.items() if isinstance(value, str)]
    if not texts:
        return "SELECT count(*) FROM items"
    # The first field is often an identifier, of which each value occurs once.
    default = next((name for name in texts if name != next(iter(scalars))), texts[0])
    repeated = {name: count for name in texts if (count := _count_repeated(name, items)) > 0}
    # A field that has the same value everywhere says little.
    name = next((name for name, count in repeated.items() if count > 1), next(iter(repeated), default))
    return f'SELECT "{name}", count(*) FROM items GROUP BY 1 ORDER BY 2 DESC LIMIT 10'  # noqa: S608 - a simple name


def _count_repeated(name: str, items: Sequence[Any]) -> int:
    """Return how many values a field of these items has, or 0 if each occurs once."""
    values = [item[name] for item in items if isinstance(item, Mapping) and isinstance(item.get(name), str)]
    count = len(set(values))
    return count if count < len(values) else 0
