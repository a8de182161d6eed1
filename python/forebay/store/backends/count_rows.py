"""Rows of counts by principal and tool, in memory and as JSON."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import orjson

__all__ = ["COUNTERS", "MAX_ROWS", "OTHER_TOOLS", "CountKey", "add_counts", "decode_counts", "encode_counts"]

CountKey: TypeAlias = "tuple[str | None, str]"
"""Principal and tool."""

COUNTERS = ("calls", "handles", "stored_bytes", "shown_bytes")

MAX_ROWS = 1000
"""Maximum number of principals and tools that are counted in a day. Further ones are counted together."""

OTHER_TOOLS = "others"
_MAX_COUNT = 1 << 62
"""A larger count is damaged: adding to it could exceed what JSON can hold."""


def add_counts(rows: dict[CountKey, list[int]], key: CountKey, values: Iterable[int]) -> None:
    """Add to a row. If there are too many rows for a new one, add to the row of all other tools."""
    if key not in rows and len(rows) >= MAX_ROWS:
        # Without a principal, so that nobody gets the counts of somebody else.
        key = (None, OTHER_TOOLS)
    rows[key] = [old + new for old, new in zip(rows.get(key, [0] * len(COUNTERS)), values, strict=True)]


def encode_counts(rows: Mapping[CountKey, Iterable[int]]) -> bytes:
    """Return rows as JSON."""
    return orjson.dumps(
        [
            {"principal": principal, "tool": tool, **dict(zip(COUNTERS, values, strict=True))}
            for (principal, tool), values in rows.items()
        ]
    )


def decode_counts(data: bytes) -> dict[CountKey, list[int]]:
    """Return the rows in JSON, without those that are damaged."""
    rows: dict[CountKey, list[int]] = {}
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return rows
    for row in _select_valid(value):
        add_counts(rows, (row["principal"], row["tool"]), [row[name] for name in COUNTERS])
    return rows


def _select_valid(value: object) -> Iterator[dict[str, Any]]:
    """Return the rows that have a principal, a tool and all counters."""
    for row in value if isinstance(value, list) else ():
        if (
            isinstance(row, dict)
            and isinstance(row.get("tool"), str)
            and isinstance(row.get("principal", 0), str | None)
            and all(isinstance(row.get(name), int) and 0 <= row[name] < _MAX_COUNT for name in COUNTERS)
        ):
            yield row
