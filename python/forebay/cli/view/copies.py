"""What can be copied: a value, its JSON Pointer, and the command or tool call that reads the same."""

import json
import shlex
from typing import Any, NamedTuple

from forebay.cli.view.source import Source
from forebay.errors import InvalidArgument

__all__ = ["MAX_COPIED_BYTES", "Place", "format_call", "format_command"]

MAX_COPIED_BYTES = 256 << 10
"""Bytes of a value that is copied. Terminals ignore what is much larger."""


class Place(NamedTuple):
    """Where the cursor is."""

    pointer: str | None = None
    """JSON Pointer of the value; `None` if none leads there."""
    line: int | None = None
    """Number of a line, from 0."""
    byte: tuple[int, int] | None = None
    """Offset and size of a range of bytes."""
    sql: str | None = None
    """The query of whose result this is a row."""


def format_command(source: Source, place: Place) -> str:
    """Return the command that reads what the cursor is at."""
    if source.handle is None and source.name == "-":
        raise InvalidArgument("standard input cannot be read again; store it with `forebay put -`, and view its handle")
    words = ["forebay", *_name_words(source, place), *source.options]
    if source.handle is None and place.sql is None:
        if place.line is not None:
            words = ["sed", "-n", f"{place.line + 1}p", source.name]
        elif place.byte is not None:
            offset, size = place.byte
            words = ["xxd", "-s", str(offset), "-l", str(size), source.name]
    return shlex.join(words)


def _name_words(source: Source, place: Place) -> list[str]:
    target = source.handle or source.name
    if place.sql is not None:
        return ["query", target, place.sql]
    if source.handle is None:
        # The other commands read handles.
        return ["view", target, *([] if place.pointer is None else ["--path", place.pointer])]
    if place.pointer is not None:
        return ["get", target, place.pointer]
    if place.line is not None:
        return ["fetch", target, "--format", "lines", "--offset", str(place.line), "--limit", "1"]
    if place.byte is not None:
        offset, size = place.byte
        return ["fetch", target, "--format", "bytes", "--offset", str(offset), "--limit", str(size)]
    return ["fetch", target]


def format_call(source: Source, place: Place) -> str:
    """Return the tool call that reads what the cursor is at, as JSON."""
    if source.handle is None:
        raise InvalidArgument("tools read handles; store this with `forebay put`, and view its handle")
    arguments: dict[str, Any] = {"output_handle": source.handle}
    tool = "output_fetch"
    if place.sql is not None:
        tool = "output_query"
        arguments["sql"] = place.sql
    elif place.pointer is not None:
        arguments["path"] = place.pointer
    elif place.line is not None:
        arguments |= {"format": "lines", "offset": place.line, "limit": 1}
    elif place.byte is not None:
        arguments |= {"format": "bytes", "offset": place.byte[0], "limit": place.byte[1]}
    return json.dumps({"tool": tool, "arguments": arguments}, ensure_ascii=False)
