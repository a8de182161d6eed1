"""Types of DuckDB: what a column is cast to for Python and for Parquet."""

import re
from collections.abc import Callable
from typing import Any

from forebay.query.quoting import quote_identifier

__all__ = ["NESTED_TYPES", "find_cast", "get_parquet_type", "has_json", "is_parquet_type"]

NESTED_TYPES = frozenset(["list", "array", "struct", "tuple", "map", "union"])

_PYTHON_TYPES = frozenset(
    [
        *("null", "boolean", "varchar", "enum", "blob", "bit", "uuid", "time", "decimal", "float", "double"),
        *("tinyint", "smallint", "integer", "bigint", "hugeint"),
        *("utinyint", "usmallint", "uinteger", "ubigint", "uhugeint"),
    ]
)
"""Types whose values Python keeps as they are. It has no infinite dates, no months and no nanoseconds, for example."""

_PARQUET_PATTERN = re.compile(
    r"\b(?:BOOLEAN|VARCHAR|JSON|BLOB|UUID|U?(?:TINYINT|SMALLINT|INTEGER|BIGINT)|FLOAT|DOUBLE|DATE|TIME(?:_NS)?|"
    r"TIMESTAMP(?: WITH TIME ZONE|_S|_MS|_NS)?|TIMESTAMPTZ_NS)\b|DECIMAL\([0-9]+,[0-9]+\)"
)
"""Matches types whose values Parquet keeps as they are, and that a text can be cast to."""

_NAME_PATTERN = re.compile(r'"(?:[^"]|"")*"')
_NESTED_PATTERN = re.compile(r"STRUCT\(n t(?:, n t)*\)|(?:MAP|TUPLE)\(t(?:, t)*\)|t(?:\[[0-9]*\])+")
_MAX_DEPTH = 100


def find_cast(column_type: Any) -> str | None:
    """Return the type that a column must be cast to, so that Python gets its exact values; `None` for none."""
    cast = _write_type(column_type, _replace_for_python)
    return None if cast == _write_type(column_type, lambda _: None) else cast


def get_parquet_type(column_type: Any) -> str:
    """Return the type that a column should have in Parquet: DuckDB would change values of some types to write them."""
    return _write_type(column_type, _replace_for_parquet)


def has_json(column_type: Any) -> bool:
    """Return whether a list, struct or other nested type holds JSON, or no type at all: it is written as JSON."""
    if column_type.id not in NESTED_TYPES:
        return False
    children = [child for name, child in column_type.children if name != "size"]
    return not children or any(str(child) == "JSON" or has_json(child) for child in children)


def is_parquet_type(text: str) -> bool:
    """Return whether a text is a type from `get_parquet_type`, and so no other part of a statement."""
    if re.search("[a-z]", _NAME_PATTERN.sub("", text)):
        return False
    text = _PARQUET_PATTERN.sub("t", _NAME_PATTERN.sub("n", text))
    for _ in range(_MAX_DEPTH):
        text, count = _NESTED_PATTERN.subn("t", text)
        if not count:
            break
    return text == "t"


def _replace_for_python(column_type: Any) -> str | None:
    if column_type.id in _PYTHON_TYPES or column_type.id in NESTED_TYPES:
        return None
    return "JSON" if column_type.id == "variant" else "VARCHAR"


def _replace_for_parquet(column_type: Any) -> str | None:
    if (column_type.id in NESTED_TYPES and column_type.id != "union") or _PARQUET_PATTERN.fullmatch(str(column_type)):
        return None
    # Integers of 128 bits would be rounded.
    return "DECIMAL(38,0)" if column_type.id in ("hugeint", "uhugeint") else "VARCHAR"


def _write_type(column_type: Any, replace: Callable[[Any], str | None]) -> str:
    """Return a type in SQL, with other types in place of those for which `replace` returns one."""
    replacement = replace(column_type)
    if replacement is not None or column_type.id not in NESTED_TYPES:
        return replacement or str(column_type)
    children = [(name, child) for name, child in column_type.children if name != "size"]
    if column_type.id == "union":
        # The first one is the number of the member.
        del children[0]
    types = [_write_type(child, replace) for _, child in children]
    match column_type.id:
        case "list":
            return f"{types[0]}[]"
        case "array":
            return f"{types[0]}[{dict(column_type.children)['size']}]"
        case "struct" | "union":
            types = [f"{quote_identifier(name)} {text}" for (name, _), text in zip(children, types, strict=True)]
    return f"{column_type.id.upper()}({', '.join(types)})"
