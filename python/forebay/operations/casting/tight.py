"""Schemas that only take what a cast would not change: a quick way to see that there is nothing to do.

One of these may refuse what a cast would not change, and never takes what it would.
"""

from collections.abc import Callable
from typing import Any

from forebay.operations.dialect import Schema, mapped

__all__ = ["tightened"]

_Referred = Callable[[Any], Schema]


def tightened(schema: Schema, referred: _Referred) -> Schema:
    """A schema whose objects have all that is put in where it is missing, and nothing that is taken out."""

    def change(told: dict[str, Any]) -> dict[str, Any]:
        if not told.keys() & {"properties", "patternProperties"}:
            return told
        required = told.get("required", [])
        named = {**dict.fromkeys(required, True), **told.get("properties", {})}
        defaults = [name for name, member in named.items() if name not in required and _has_default(member, referred)]
        return {"additionalProperties": False, **told, "properties": named, "required": [*required, *defaults]}

    tight: Schema = mapped(schema, change)
    return tight


def _has_default(schema: Schema, referred: _Referred) -> bool:
    """Whether there is one in a schema, or in what it refers to."""
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, bool) or id(one) in seen:
            continue
        if "default" in one:
            return True
        seen.add(id(one))
        waiting += [*([referred(one)] if "$ref" in one else ()), *one.get("allOf", ())]
    return False
