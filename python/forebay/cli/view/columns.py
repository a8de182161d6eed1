"""The columns of a table of items: chosen from the first items, and their cells."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len

from forebay._core import locate, values_at
from forebay.arguments import decode_token, is_text
from forebay.cli.view.cells import decode_value, make_safe
from forebay.cli.view.rows import Row
from forebay.errors import ForebayError, InvalidJSON
from forebay.store.rest import encode_token

__all__ = ["KEY", "VALUE", "Column", "choose_columns", "find_empty", "get_entry_value", "name_columns", "read_cells"]

KEY = "_key"
"""The member of an entry of a map that holds its key."""

VALUE = "_value"
"""The member that holds the value of an entry, if the value is no object or has a `_key` itself."""

_MAX_COLUMNS = 40
_MAX_WIDTH = 40
_MIN_WIDTH = 3
_MAX_FLATTENED = 8
"""An object with at most this many members has a column for each of them."""

_NUMBER = re.compile(r"-?\d[\d.eE+-]*")
_KEY_MEMBER = re.compile(rb'\{\s*"_key"\s*:\s*"(?:[^"\\]|\\.)*"\s*,?\s*')
_WHITE_SPACE = re.compile(r"\s+")


class Column(NamedTuple):
    """A column. An item without keys is a cell of the column with an empty path."""

    name: str
    path: tuple[str, ...]
    width: int
    is_right: bool = False
    """Whether the cells are numbers, which are aligned at their right end."""

    @property
    def field(self) -> str:
        """The column as `--fields` and `where` name it."""
        return ".".join(key.replace("\\", "\\\\").replace(".", "\\.") for key in self.path)

    @property
    def pointer(self) -> str:
        """JSON Pointer from the item to the value."""
        return "".join(f"/{encode_token(key)}" for key in self.path)


def choose_columns(rows: Sequence[Row], names: Sequence[str] | None = None, *, is_map: bool = False) -> list[Column]:
    """Return the columns for items like these: the fields that they have, or those with the given names."""
    items = [_parse(row.data) for row in rows]
    objects = [item for item in items if isinstance(item, dict)]
    paths: list[tuple[str, ...]]
    if names is not None:
        paths = [_parse_field(name) for name in names]
    elif len(objects) * 2 < len(items) or not objects:
        paths = [()]
    else:
        paths = _find_paths(objects, is_map=is_map)
    columns = [Column(_name(path), path, 0) for path in paths]
    cells = [read_cells(row.data, columns) for row in rows]
    return [
        _measure(column, [row[number] for row in cells if number < len(row)]) for number, column in enumerate(columns)
    ]


def find_empty(rows: Sequence[Row], columns: Sequence[Column]) -> list[Column]:
    """Return the columns of fields that none of these items has."""
    if any(row.full is not None for row in rows) or not rows:
        # The overview of a large item does not have all of its fields.
        return []
    return [column for column in columns if not any(_has(row.data, column.pointer) for row in rows)]


def _has(item: bytes, pointer: str) -> bool:
    try:
        locate(item, pointer)
    except ForebayError:
        return False
    return True


def name_columns(columns: Sequence[Column]) -> str:
    """Return the names of columns as they can be typed."""
    return ",".join(column.field for column in columns)


def read_cells(item: bytes, columns: Sequence[Column]) -> list[str]:
    """Return the cells of an item, as safe text. A missing value is an empty cell.

    An item that is no object has one cell for the whole row.
    """
    if not item.startswith(b"{"):
        return [_draw(item)]
    cells = [""] * len(columns)
    paths = [column.path for column in columns]
    # Inside of a value at a path no others are searched for, so each path that leads into another one is read alone.
    alone = [n for n, path in enumerate(paths) if path and any(path[:k] in paths for k in range(1, len(path)))]
    together = [n for n, path in enumerate(paths) if path and n not in alone]
    for numbers in ([together] if together else []) + [[n] for n in alone]:
        try:
            found = values_at((item, 0, len(item)), [paths[n] for n in numbers])
        except InvalidJSON:
            continue
        for which, start, end in reversed(found):
            # If a key is repeated, the first one counts, as in paths.
            cells[numbers[which]] = _draw(item[start:end].strip())
    for number, path in enumerate(paths):
        if not path:
            cells[number] = _draw(get_entry_value(item))
    return cells


def _parse(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        # Very long numbers, or very deep nesting.
        return None


def _find_paths(objects: Sequence[dict[str, Any]], *, is_map: bool) -> list[tuple[str, ...]]:
    """Return the paths of fields, in the order in which they first occur. If there are too many, the rare ones go."""
    counts: Counter[tuple[str, ...]] = Counter()
    nested: dict[str, list[Any]] = {}
    for item in objects:
        for key, value in item.items():
            if not is_text(key):
                # Half of a surrogate pair: no path leads there.
                continue
            counts[(key,)] += 1
            if value is not None:
                nested.setdefault(key, []).append(value)
    fields = [path for path in counts if path != (KEY,)]
    if is_map and sum(counts[path] for path in fields) * 2 < len(fields) * len(objects):
        # The entries of the map have little in common.
        return [(KEY,), ()]
    paths: list[tuple[str, ...]] = []
    for path in [*counts]:
        values = nested.get(path[0], [])
        members = dict.fromkeys(key for value in values if isinstance(value, dict) for key in value if is_text(key))
        if members and len(members) <= _MAX_FLATTENED and all(isinstance(value, dict) for value in values):
            for key in members:
                counts[*path, key] = sum(key in value for value in values)
                paths.append((*path, key))
        else:
            paths.append(path)
    if len(paths) > _MAX_COLUMNS:
        kept = set(sorted(paths, key=lambda path: -counts[path])[:_MAX_COLUMNS])
        paths = [path for path in paths if path in kept]
    return paths or [()]


def _name(path: tuple[str, ...]) -> str:
    return make_safe(".".join(path)) if path else "value"


def _parse_field(name: str) -> tuple[str, ...]:
    """Return the keys of a field that is written as `user.name` or `/user/name`; `value` alone is the whole item."""
    if name.startswith("/"):
        return tuple(decode_token(key) for key in name[1:].split("/"))
    keys = re.findall(r"(?:\\.|[^.\\])+", name)
    return tuple(re.sub(r"\\(.)", r"\1", key) for key in keys)


def _measure(column: Column, cells: Sequence[str]) -> Column:
    filled = [cell for cell in cells if cell and cell != "null"]
    widest = max(map(cell_len, [column.name, *cells]), default=0)
    is_right = bool(filled) and all(_NUMBER.fullmatch(cell) for cell in filled)
    return column._replace(width=min(max(widest, _MIN_WIDTH), _MAX_WIDTH), is_right=is_right)


def get_entry_value(item: bytes) -> bytes:
    """Return the value of an entry of a map, given the entry as an item."""
    match = _KEY_MEMBER.match(item)
    if match is None:
        return item
    found = values_at((item, 0, len(item)), [[VALUE]])
    if found and item[match.end() :].startswith(b'"_value"'):
        return item[found[0][1] : found[0][2]].strip()
    return b"{" + item[match.end() :]


def _draw(raw: bytes) -> str:
    text = decode_value(raw)
    if not raw.startswith(b'"'):
        # White space between tokens has no meaning.
        text = _WHITE_SPACE.sub(" ", text)
    return make_safe(text)
