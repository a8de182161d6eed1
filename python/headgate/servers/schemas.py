"""What tools list of themselves, when their answers may be handles."""

import copy
from collections.abc import Mapping
from typing import Any

__all__ = ["HANDLE_SCHEMA", "or_else", "or_handle"]

HANDLE_SCHEMA: dict[str, Any] = {"required": ["output_handle"]}

_DEFINITIONS = ("$defs", "definitions")


def or_handle(schema: Mapping[str, Any]) -> dict[str, Any]:
    """An output schema that takes what it took, or a handle."""
    return or_else(schema, HANDLE_SCHEMA)


def or_else(schema: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """An output schema that takes what it took, or something else.

    Definitions move to its top, where references look for them. One that refers to itself as a whole cannot be put
    inside of another: then any object is taken.
    """
    if any(not reference.startswith(tuple(f"#/{name}/" for name in _DEFINITIONS)) for reference in _references(schema)):
        return {"type": "object"}
    original = copy.copy(dict(schema))
    moved = {name: original.pop(name) for name in _DEFINITIONS if name in original}
    return {"type": "object", **moved, "anyOf": [original, other]}


def _references(schema: Any) -> list[str]:
    found: list[str] = []
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if key in ("$ref", "$dynamicRef") and isinstance(inner, str):
                    found.append(inner)
                elif key in ("$id", "$anchor"):
                    # A name that others may use; moved, it would be another's.
                    found.append("")
                else:
                    waiting.append(inner)
        elif isinstance(value, list):
            waiting.extend(value)
    return found
