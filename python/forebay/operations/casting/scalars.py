"""Which JSON types Python's values are of, which are equal, and which become another without a loss."""

import json
import math
import re
from decimal import Decimal
from typing import Any

__all__ = ["NO", "copied", "is_finite", "is_same", "json_type", "raised", "weight"]


class _No:
    """Stays itself when it is copied."""


NO: Any = _No
"""There is none."""

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")

_LONGEST_NUMBER = 400
"""Python refuses to read or write much longer ones, and so do others."""

_HEAVIEST = 1_000_000

_STRICT = json.JSONEncoder(allow_nan=False)


def json_type(value: Any) -> str | None:
    """The name JSON Schema has for it; `None` for what is not JSON. `1.0` is a number here, though it is an integer."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number" if math.isfinite(value) else None
        case str():
            return "string"
        case dict():
            return "object"
        case list() | tuple():
            return "array"
    return None


def is_same(one: Any, other: Any) -> bool:
    """Equality as JSON has it: `1` is `1.0`, but not `true`."""
    match one:
        case bool():
            return one is other
        case dict():
            return (
                isinstance(other, dict)
                and one.keys() == other.keys()
                and all(is_same(value, other[key]) for key, value in one.items())
            )
        case list() | tuple():
            return (
                isinstance(other, list | tuple)
                and len(one) == len(other)
                and all(is_same(*pair) for pair in zip(one, other, strict=True))
            )
    return not isinstance(other, bool) and bool(one == other)


def is_finite(value: Any) -> bool:
    """Whether there is no number in it, or in what it holds, that JSON does not have."""
    try:
        _STRICT.encode(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def raised(value: Any, wanted: str) -> Any:
    """The value as another type, if that loses nothing; `NO` otherwise."""
    match wanted, value:
        case "integer", bool():
            return int(value)
        case "integer", float() if value.is_integer():
            return value
        case "integer", str() if len(value) < _LONGEST_NUMBER and _NUMBER.fullmatch(value):
            return _integer(value)
        case "number", bool():
            return int(value)
        case "number", str() if len(value) < _LONGEST_NUMBER and _NUMBER.fullmatch(value):
            return _number(value)
        case "boolean", "true" | "false":
            return value == "true"
        case "boolean", int() | float() if value in (0, 1):
            return bool(value)
        case "string", bool() | float():
            return json.dumps(value)
        case "string", int() if value.bit_length() < _LONGEST_NUMBER * 3:
            return str(value)
    return NO


def _integer(text: str) -> Any:
    number = Decimal(text)
    if number.is_zero():
        return NO if number.is_signed() else 0
    is_short = number.adjusted() < _LONGEST_NUMBER
    return int(number) if is_short and number == number.to_integral_value() else NO


def _number(text: str) -> Any:
    if _INTEGER.fullmatch(text):
        return int(text)
    number = float(text)
    return number if math.isfinite(number) and Decimal(text) == Decimal(repr(number)) else NO


def copied(value: Any) -> Any:
    """All of it, and nothing twice: whoever changes one place must not change another."""
    if isinstance(value, dict):
        return {name: copied(item) for name, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list | tuple) else value


def weight(value: Any) -> int:
    """How much is lost with a value: all that is in it, and itself; no more than is worth counting."""
    count, waiting = 0, [value]
    while waiting and count < _HEAVIEST:
        one = waiting.pop()
        count += 1
        if isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, list | tuple):
            waiting.extend(one)
    return count
