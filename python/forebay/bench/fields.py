"""A field of the items to filter and group by: one that has few different values."""

import collections
from typing import Any, NamedTuple

import orjson

import forebay
from forebay._core import ItemIndex

__all__ = ["Field", "choose_field"]

_SAMPLE_ITEMS = 2000
_SAMPLE_BYTES = 4 << 20
_MAX_VALUES = 40
_MAX_VALUE_CHARS = 64
_MIN_SHARE = 0.9
"""Which part of the items must have the field."""


class Field(NamedTuple):
    """A field, and the rarest value that it has in a sample."""

    name: str
    value: str


def choose_field(data: bytes, index: ItemIndex) -> Field | None:
    """Return the field of text with the fewest different values, more than one; `None` if there is none."""
    page = forebay.read_items(data, index, 0, _SAMPLE_ITEMS, _SAMPLE_BYTES)
    items = [item for item in orjson.loads(page.content) if isinstance(item, dict)]
    counts: dict[str, collections.Counter[str]] = {}
    for item in items:
        for name, value in item.items():
            if name.isidentifier() and not name.startswith("_") and _is_short_text(value):
                counts.setdefault(name, collections.Counter())[value] += 1
    suitable = {
        name: values
        for name, values in counts.items()
        if 2 <= len(values) <= _MAX_VALUES and values.total() >= _MIN_SHARE * len(items)
    }
    if not suitable:
        return None
    name = min(suitable, key=lambda name: len(suitable[name]))
    values = suitable[name]
    return Field(name, min(values, key=lambda value: (values[value], value)))


def _is_short_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MAX_VALUE_CHARS
