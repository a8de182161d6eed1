"""What tools list of themselves, when their answers may be handles."""

from collections.abc import Mapping
from typing import Any

__all__ = ["HANDLE_SCHEMA", "or_else", "or_handle"]

HANDLE_SCHEMA: dict[str, Any] = {"required": ["output_handle"]}

_DEFINITIONS = ("$defs", "definitions")
_AT_TOP = ("$schema", *_DEFINITIONS)


def or_handle(schema: Mapping[str, Any]) -> dict[str, Any]:
    """An output schema that takes what it took, or a handle."""
    return or_else(schema, HANDLE_SCHEMA)


def or_else(schema: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """An output schema that takes what it took, or another object.

    Definitions move to its top, where references look for them, and so does what it is a schema of. One that refers to
    itself as a whole cannot be put inside of another: then anything of its type is taken.
    """
    # Only objects were structured once: then the top has to say so.
    top: dict[str, Any] = {"type": "object"} if schema.get("type") == "object" else {}
    if any(not reference.startswith(tuple(f"#/{name}/" for name in _DEFINITIONS)) for reference in _references(schema)):
        return top
    moved = {name: schema[name] for name in _AT_TOP if name in schema}
    original = {name: value for name, value in schema.items() if name not in moved}
    return {**top, **moved, "anyOf": [original, other if top else {"type": "object", **other}]}


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
