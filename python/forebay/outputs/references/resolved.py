"""What a reference became: bytes, until whoever calls the tool says what it needs them as."""

import codecs
import dataclasses
import json
from collections.abc import Callable
from typing import Any

import orjson

from forebay.errors import InvalidJSON

__all__ = ["Resolved", "as_fragments", "as_objects", "escaped", "mapped"]

_PIECE = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Resolved:
    """A text in UTF-8, or one JSON document."""

    data: bytes
    is_json: bool = False


def as_objects(arguments: Any) -> Any:
    """Arguments for a tool in this process: texts, and what JSON is to Python."""
    return mapped(arguments, _object)


def as_fragments(arguments: Any) -> Any:
    """Arguments for `orjson.dumps`: what was read goes into the message as it stands, on one line."""
    return mapped(arguments, _fragment)


def mapped(arguments: Any, finish: Callable[[Resolved], Any]) -> Any:
    """The same with another value for each that was resolved."""
    if isinstance(arguments, Resolved):
        return finish(arguments)
    if isinstance(arguments, dict):
        return {key: mapped(value, finish) for key, value in arguments.items()}
    if isinstance(arguments, list):
        return [mapped(value, finish) for value in arguments]
    return arguments


def _object(resolved: Resolved) -> Any:
    if not resolved.is_json:
        return resolved.data.decode()
    try:
        # Not by orjson, which makes a float of an integer of more than 64 bits.
        return json.loads(resolved.data)
    except (RecursionError, ValueError):
        raise InvalidJSON("this JSON is too deep, or has a number of too many digits; refer to a part of it") from None


def _fragment(resolved: Resolved) -> orjson.Fragment:
    # A message is one line, and between two values a newline means nothing.
    return orjson.Fragment(resolved.data.translate(None, b"\r\n") if resolved.is_json else escaped(resolved.data))


def escaped(text: bytes, piece: int = _PIECE) -> bytes:
    """A text as a JSON string. In pieces, since one character can make all of a `str` four times as large."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    pieces = [
        orjson.dumps(decoder.decode(text[at : at + piece], at + piece >= len(text)))[1:-1]
        for at in range(0, len(text), piece)
    ]
    return b'"' + b"".join(pieces) + b'"'
