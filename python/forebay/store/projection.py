"""Select fields of items: as objects, or as the columns of a table."""

import re
from collections.abc import Sequence

from forebay._core import items, name_rows, project, values_at
from forebay.arguments import decode_token
from forebay.errors import InvalidArgument
from forebay.store.reader import UNLIMITED

__all__ = ["Projection", "split_field"]

_NULL = b"null"
_KEY_PATTERN = re.compile(r"(?:\\.|[^.\\]|\\$)+")
"""Matches a key of a field such as `user.name`, in which a backslash escapes a dot."""


class Projection:
    """Fields of items, each one a path such as `user.name` or `/user/name`."""

    def __init__(self, fields: Sequence[str], names: Sequence[str]) -> None:
        if not fields:
            raise InvalidArgument("fields is empty; name some, such as id,user.name, or leave it out")
        # Of fields with the same name, the first one counts.
        self.names = list(dict.fromkeys(names))
        """The names of the columns, in the given order."""
        self.fields = [fields[names.index(name)] for name in self.names]
        self._paths = [split_field(field) for field in self.fields]
        # Raise the error of an invalid field now, not at the first item.
        self.select(b"[]")

    def select(self, content: bytes) -> bytes:
        """Return the objects of a JSON array with these fields only."""
        return project(content, self.fields)

    def flatten(self, content: bytes) -> bytes:
        """Return the objects of a JSON array with one member per field, under its column name. A missing field is null.

        For a field of objects in a list, the value is the list, in which the objects have only this field.
        """
        rows = [self._make_row(content[start:end]) for start, end in items((content, 0, len(content)), UNLIMITED)]
        return name_rows(b"[" + b",".join(rows) + b"]", self.names, UNLIMITED)

    def _make_row(self, item: bytes) -> bytes:
        cells: list[bytes | None] = [None] * len(self._paths)
        for number, start, end in values_at((item, 0, len(item)), self._paths):
            # If a key is repeated, the first one counts.
            cells[number] = cells[number] or item[start:end]
        found = [self._find_nested(item, number) if cell is None else cell for number, cell in enumerate(cells)]
        return b"[" + b",".join(found) + b"]"

    def _find_nested(self, item: bytes, number: int) -> bytes:
        """Return the value of a field that its path alone did not find: the list that it is in, or a key with slashes.

        `null` if there is none.
        """
        path = self._paths[number]
        selected = project(b"[" + item + b"]", [self.fields[number]])[1:-1]
        for length in range(len(path), 0, -1):
            for _, start, end in values_at((selected, 0, len(selected)), [path[:length]]):
                value = selected[start:end]
                return value if length == len(path) or value.startswith(b"[") else _NULL
        # A field such as `/user/name` may also be the name of one key.
        single = values_at((selected, 0, len(selected)), [[self.fields[number]]])
        return selected[single[0][1] : single[0][2]] if single else _NULL


def split_field(field: str) -> list[str]:
    """Return the keys on the way to a field."""
    if field.startswith("/"):
        return [decode_token(token) for token in field[1:].split("/")]
    return [re.sub(r"\\(.)", r"\1", key) for key in _KEY_PATTERN.findall(field)]
