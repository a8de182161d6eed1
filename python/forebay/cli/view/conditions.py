"""Conditions on items, as people type them: `status = failed and total > 200`."""

import json
import re
from typing import Any

from forebay.errors import InvalidArgument

__all__ = ["parse_conditions"]

_EXAMPLE = "status = failed and total > 200, or JSON as for --where"

_CONDITION = re.compile(
    r"""
      \s*
      (?P<field> "(?:[^"\\]|\\.)*" | [^\s=!<>~]+ )
      \s*
      (?: (?P<sign> == | != | <> | <= | >= | = | < | > | ~ )
        | (?P<word> contains | matches | exists | missing | in ) (?= \s | \( | \[ | $ )
      )
      \s*
    """,
    re.VERBOSE | re.IGNORECASE,
)
_SIGNS = {"==": "=", "<>": "!=", "~": "matches"}
_SIGN_RUN = re.compile(r"[=!<>~]+")
_OPERATORS = "= != < <= > >= ~ contains in exists missing"
_TEXT_VALUE = re.compile(r'\s*("(?:[^"\\]|\\.)*")')
_AND = re.compile(r"(?:\s+|(?<=\s))(?:and|&&?)\s+|\s*$", re.IGNORECASE)


def parse_conditions(text: str) -> str:
    """Return conditions as the JSON that `where` takes. Raises `InvalidArgument`.

    Text that starts with a brace is that JSON already. Otherwise there are conditions with `and` between them. Each is
    a field, then `=`, `!=`, `<`, `<=`, `>`, `>=`, `~` (a regular expression), `contains` or `in` and a value, or
    `exists` or `missing`. A value is read as JSON (`200`, `true`, `"200"`) if it is JSON, and else as text.
    """
    text = text.strip()
    if text.startswith("{"):
        return text
    conditions: dict[str, dict[str, Any]] = {}
    position = 0
    while position < len(text):
        match = _CONDITION.match(text, position)
        if match is None:
            raise InvalidArgument(f"{text[position:]!r:.64} is no condition; write {_EXAMPLE}")
        _check_sign(text, match)
        field = json.loads(match["field"]) if match["field"].startswith('"') else match["field"]
        word = (match["word"] or "").lower()
        operator = word or _SIGNS.get(match["sign"], match["sign"])
        value: Any
        if word in ("exists", "missing"):
            operator, value, position = "exists", word == "exists", match.end()
        else:
            value, position = _read_value(text, match.end())
            if operator == "in":
                value = _split_list(value)
        operators = conditions.setdefault(field, {})
        if operator in operators:
            raise InvalidArgument(f"{field} has {operator} twice; use `in` for several values")
        operators[operator] = value
        separator = _AND.match(text, position)
        if separator is None:
            raise InvalidArgument(f"{text[position:].strip()!r:.64} follows a condition; put `and` between two of them")
        position = separator.end()
    return json.dumps(conditions, ensure_ascii=False)


def _check_sign(text: str, match: re.Match[str]) -> None:
    """Raise an error if the sign of a condition goes on, as in `>>` or `=~`: its rest is no part of the value."""
    if match["sign"] is None:
        return
    run = _SIGN_RUN.match(text, match.start("sign"))
    if run is not None and run[0] != match["sign"]:
        raise InvalidArgument(f"{run[0]} is no operator; there are {_OPERATORS}; quote a value that starts with a sign")


def _read_value(text: str, start: int) -> tuple[Any, int]:
    """Return the value that starts at a position of a text, and the position of its end."""
    quoted = _TEXT_VALUE.match(text, start)
    if quoted is not None and _AND.match(text, quoted.end()):
        return _parse_value(quoted[1]), quoted.end()
    separator = _AND.search(text, start)
    end = len(text) if separator is None else separator.start()
    value = text[start:end].strip()
    if not value:
        raise InvalidArgument(f"a value is missing; write {_EXAMPLE}")
    return _parse_value(value), end


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str)
    except ValueError:
        return text


def _split_list(value: Any) -> list[Any]:
    """Return the values of `in`, which are written as JSON, or as `a, b` with or without parentheses."""
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        return [value]
    return [_parse_value(part.strip()) for part in value.strip("()").split(",")]
