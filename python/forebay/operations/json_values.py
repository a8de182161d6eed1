"""JSON types of Python values, equality and lossless conversion."""

import json
import math
import re
from decimal import Decimal
from types import NoneType
from typing import Any

from jsonschema_rs.canonical.json import to_string

__all__ = ["MISSING", "canonicalize", "convert", "copy_json", "count_values", "get_json_type"]

MISSING: Any = object()
"""Marks a missing value, since `None` is JSON's null."""

MAX_NUMBER_CHARACTERS = 400
"""Maximum characters of a number to convert: Python and other parsers refuse very long numbers."""

MAX_COUNT = 1_000_000
"""Number of values at which `count_values` stops."""

_JSON_TYPES = {NoneType: "null", bool: "boolean", int: "integer", float: "number", str: "string"}
_JSON_TYPES |= {dict: "object", list: "array", tuple: "array"}

_NUMBER_PATTERN = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


def get_json_type(value: Any) -> str | None:
    """Return the JSON type of a value, or `None` if it is not JSON. `1.0` is a number, although also integral."""
    name = _JSON_TYPES.get(type(value)) or next(
        (_JSON_TYPES[kind] for kind in _JSON_TYPES if isinstance(value, kind)), None
    )
    return None if name == "number" and not math.isfinite(value) else name


def canonicalize(value: Any) -> str:
    """Return text that is the same for values that are equal in JSON: `1` equals `1.0`, but not `true`."""
    try:
        return to_string(value)
    except ValueError:
        return f"not JSON: {type(value)}"


def convert(value: Any, type_name: str | None) -> Any:
    """Return a scalar as another JSON type, or `MISSING` if that would lose something."""
    match type_name, value:
        case "integer" | "number", bool():
            return int(value)
        case "integer", float() if value.is_integer():
            return value
        case "integer" | "number", str() if len(value) < MAX_NUMBER_CHARACTERS and _NUMBER_PATTERN.fullmatch(value):
            return _parse(value, is_integer=type_name == "integer")
        case "boolean", "true" | "false":
            return value == "true"
        case "boolean", int() | float() if value in (0, 1):
            return bool(value)
        case "string", bool() | float():
            return json.dumps(value)
        case "string", int() if value.bit_length() < MAX_NUMBER_CHARACTERS * 3:
            return str(value)
    return MISSING


def _parse(text: str, *, is_integer: bool) -> Any:
    """Return the number with exactly this value, or `MISSING`. A negative zero is not an integer."""
    exact = Decimal(text)
    if exact.adjusted() >= MAX_NUMBER_CHARACTERS:
        return MISSING
    number = int(exact) if is_integer or text.lstrip("-").isdigit() else float(text)
    parsed = Decimal(repr(number))
    return number if (parsed, parsed.is_signed()) == (exact, exact.is_signed()) else MISSING


def copy_json(value: Any) -> Any:
    """Return a deep copy in which no container occurs twice."""
    if isinstance(value, dict):
        return {name: copy_json(item) for name, item in value.items()}
    return [copy_json(item) for item in value] if isinstance(value, list | tuple) else value


def count_values(value: Any) -> int:
    """Return how many nested values a value has, itself included. Stop counting at about `MAX_COUNT`."""
    count, waiting = 0, [value]
    while waiting and count < MAX_COUNT:
        item = waiting.pop()
        count += 1
        if isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)
    return count
