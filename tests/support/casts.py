"""Casts that tell what they throw away, and schemas in few words."""

from typing import Any

import pytest
from forebay.operations import cast


def lossless(schema: Any, value: Any) -> Any:
    """What a cast makes of a value of which nothing is thrown away."""
    return cast(schema, value, on_replaced=lambda path, old: pytest.fail(f"{old!r} at {path!r} was replaced"))


def replaced(schema: Any, value: Any) -> tuple[Any, list[tuple[str, Any]]]:
    """What a cast makes of a value, and what it throws away."""
    told: list[tuple[str, Any]] = []
    return cast(schema, value, on_replaced=lambda path, old: told.append((path, old))), told


def named(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


INTEGER, NUMBER, STRING, BOOLEAN, NULL = ({"type": name} for name in ("integer", "number", "string", "boolean", "null"))


NODE = {
    "$defs": {"node": {**named(name=STRING, next={"$ref": "#/$defs/node"}), "required": ["name"]}},
    "$ref": "#/$defs/node",
}
