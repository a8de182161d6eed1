"""Lists of a server with ours at their end. What is theirs stays as it came, to the byte, wherever it can."""

from collections.abc import Sequence
from typing import Any

from forebay import _core
from forebay.wire.lazy_json import parse_lazy, written
from forebay.wire.lines import Kept

__all__ = ["parsed", "with_ours"]

_ALL = 1 << 62
_DEPTH = 512


def parsed(line: Kept) -> dict[str, Any]:
    """A message of which all is to be looked at; numbers that Python has no room for are `Raw`."""
    message = parse_lazy(line, most_string=_ALL, most_container=_ALL, most_depth=_DEPTH)
    return message if isinstance(message, dict) else {}


def with_ours(
    line: bytes | bytearray, message: dict[str, Any], key: str, theirs: Sequence[Any], ours: Sequence[Any]
) -> bytes:
    """The message with `theirs` and `ours` as its list: untouched but for our own, if theirs are what came."""
    result = message["result"]
    if list(theirs) != result[key]:
        return written({**message, "result": {**result, key: [*theirs, *ours]}})
    end = _core.locate(memoryview(line).toreadonly(), f"/result/{key}")[1] - 1
    added = b",".join(written(one) for one in ours)
    comma = b"," if theirs and ours else b""
    return b"".join((memoryview(line)[:end], comma, added, memoryview(line)[end:]))
