"""Casts that collect what they replace, and short schemas."""

from typing import Any

import pytest
from forebay.operations import cast


def lossless(schema: Any, value: Any) -> Any:
    """Cast a value, and fail if anything is replaced."""
    return cast(schema, value, on_replaced=lambda path, old: pytest.fail(f"{old!r} at {path!r} was replaced"))


def replaced(schema: Any, value: Any) -> tuple[Any, list[tuple[str, Any]]]:
    """Cast a value; return the result, and the path and old value of everything that was replaced."""
    old_values: list[tuple[str, Any]] = []
    return cast(schema, value, on_replaced=lambda path, old: old_values.append((path, old))), old_values


def named(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


INTEGER, NUMBER, STRING, BOOLEAN, NULL = ({"type": name} for name in ("integer", "number", "string", "boolean", "null"))


NODE = {
    "$defs": {"node": {**named(name=STRING, next={"$ref": "#/$defs/node"}), "required": ["name"]}},
    "$ref": "#/$defs/node",
}
