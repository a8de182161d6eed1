"""Errors of a server without what we gave it in confidence: some say again what they were sent."""

from collections.abc import Callable
from typing import Any

import orjson

from forebay.wire.lazy_json import written
from forebay.wire.lines import Line, Unspooled
from forebay.wire.messages import read
from forebay.wire.spool import Spool

__all__ = ["without_secrets"]

_MARKS = (b'"error"', b'"isError"')


def without_secrets(line: Line, veiled: Callable[[str], str]) -> Line:
    """A message as it came, but for an error that repeats a secret: an error of the protocol, or of a tool.

    What is no error is the server's own data, which nobody may change: whoever asks a server for what it knows of
    its caller is to have it.
    """
    if isinstance(line, Spool | Unspooled) or not any(mark in line for mark in _MARKS) or not _is_error(read(line)):
        return line
    try:
        message = orjson.loads(line)
    except orjson.JSONDecodeError:
        # Half of a surrogate pair is not for this, but goes on.
        return veiled(line.decode(errors="surrogateescape")).encode(errors="surrogateescape")
    told = _veiled(message, veiled)
    return line if told == message else written(told)


def _is_error(message: Any) -> bool:
    if isinstance(message, list):
        return any(map(_is_error, message))
    if not isinstance(message, dict) or "method" in message:
        return False
    result = message.get("result")
    return "error" in message or (isinstance(result, dict) and result.get("isError") is True)


def _veiled(value: Any, veiled: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return veiled(value)
    if isinstance(value, dict):
        return {veiled(key): _veiled(inner, veiled) for key, inner in value.items()}
    return [_veiled(inner, veiled) for inner in value] if isinstance(value, list) else value
