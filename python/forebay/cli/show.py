"""How answers are shown: as tables and colours on a terminal, as they are in a pipe."""

# Rich is imported where there is a terminal: it takes longer than most commands.

import base64
import codecs
import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from forebay.cli.failures import OutputFailed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from forebay.store import Stored
    from forebay.store.pages import Page, SearchPage

__all__ = [
    "answer",
    "complaint",
    "content",
    "events",
    "json_text",
    "matches",
    "outline",
    "page",
    "printing",
    "progress",
    "raw",
    "settings",
    "stats",
    "stored",
]

_LARGE = 8 << 20
"""From here on a put shows how far it is."""


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """Within it, what cannot be written is an error of ours, and is known to be at the end."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        # Python tries to write what is left once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutputFailed(f"standard output cannot be written: {error.strerror}") from error


def _is_terminal() -> bool:
    if sys.stdout is None:
        raise OutputFailed("standard output is closed")
    return sys.stdout.isatty()


@functools.cache
def _console() -> "Console":
    from rich.console import Console

    return Console()


@functools.cache
def _error_console() -> "Console":
    from rich.console import Console

    return Console(stderr=True)


def _print(*shown: object, **style: Any) -> None:
    with printing():
        _console().print(*shown, soft_wrap=True, **style)


def _write(data: bytes) -> None:
    # Python's own may be unbuffered, and then writes less than it was given.
    with printing(), open(sys.stdout.fileno(), "wb", closefd=False) as out:
        out.write(data)


def answer(said: Any) -> None:
    """An answer that is its own explanation."""
    import orjson

    json_text(orjson.dumps(said))


def json_text(text: bytes) -> None:
    """JSON: coloured, or as it is."""
    if not _is_terminal():
        _write(text + b"\n")
        return
    from rich.json import JSON

    shown = text.decode().translate(_NO_COMMANDS)
    try:
        _print(JSON(shown))
    except (ValueError, RecursionError):
        # Python reads no number of thousands of digits, and no nesting as deep as JSON may have.
        _print(literal(shown))


def raw(pieces: Iterable[bytes]) -> None:
    """Bytes as they are, but for what a terminal would obey."""
    if _is_terminal():
        pieces = (_harmless(text).encode() for text in codecs.iterdecode(pieces, "utf-8", "replace"))
    for piece in pieces:
        _write(piece)


def content(shown: "Page") -> None:
    """What is on a page, without what it says of itself."""
    if shown.encoding == "json":
        raw([bytes(shown.content), b"\n"])  # type: ignore[arg-type]
    elif shown.encoding == "base64":
        raw([base64.b64decode(shown.content)])
    else:
        raw([str(shown.content).encode()])
    if sys.stderr is None:
        return
    if sys.stderr.isatty():
        _say_where(shown, _error_console())
    elif shown.next_offset is not None or shown.truncated:
        # Whoever takes the content alone must still know that it is not all.
        import orjson

        told = {"next_offset": shown.next_offset, "total": shown.total, "truncated": shown.truncated}
        sys.stderr.write(orjson.dumps(told).decode() + "\n")


def page(shown: "Page") -> None:
    if not _is_terminal():
        _write(shown.to_json() + b"\n")
        return
    if isinstance(shown.content, bytes):
        json_text(shown.content)
    else:
        _print(literal(shown.content))
    with printing():
        _say_where(shown, _console())


def _say_where(shown: "Page", console: "Console") -> None:
    """What of the payload a page is, and how to go on."""
    for cut in shown.truncated:
        what, options = (
            cut["path"] or cut["index"],
            " ".join(f"--{name} {value}" for name, value in cut["read_with"].items()),
        )
        console.print(literal(f"cut: {what}, {cut['size_bytes']:,} bytes in all; {options} reads it"), style="dim")
    more = "the end" if shown.next_offset is None else f"more from --offset {shown.next_offset}"
    told = f"{shown.format}: {shown.returned:,} from {shown.offset:,} of {shown.total:,}; {more}"
    console.print(told, style="dim", highlight=False)


def matches(found: "SearchPage") -> None:
    if not _is_terminal():
        _write(found.to_json() + b"\n")
        return
    names = ("byte_offset", "item", "line", "context")
    _table({name.partition("_")[0]: [match.get(name) for match in found.matches] for name in names})
    if found.next_start is not None:
        _print(f"more from --start {found.next_start}", style="dim", highlight=False)


def outline(handle: str, shape: str) -> None:
    if _is_terminal():
        _print(literal(shape))
    else:
        answer({"output_handle": handle, "outline": shape})


def stored(entries: Sequence["Stored"]) -> None:
    if not _is_terminal():
        answer([entry.to_dict() for entry in entries])
        return
    _table(
        {
            "handle": [entry.output_handle for entry in entries],
            "type": [entry.mime_type.removeprefix("application/") for entry in entries],
            "size": [_size(entry.size_bytes) for entry in entries],
            "items": ["" if entry.item_count is None else f"{entry.item_count:,}" for entry in entries],
            "tool": [entry.source_tool for entry in entries],
            "whose": [_whose(entry.principal) for entry in entries],
            "until (UTC)": [_when(entry.expires_at) for entry in entries],
        }
    )


def events(happened: Sequence[dict[str, Any]]) -> None:
    if not _is_terminal():
        answer(happened)
        return
    _table(
        {
            "when (UTC)": [_when(event.get("ts")) for event in happened],
            "event": [str(event.get("event")).removeprefix("output_handle_") for event in happened],
            "handle or error": [event.get("handle", event.get("code")) for event in happened],
            "size": [_size(event.get("size_bytes", event.get("returned_bytes"))) for event in happened],
            "tool": [event.get("source_tool") for event in happened],
            "whose": [_whose(event.get("principal")) for event in happened],
        }
    )


def stats(tools: dict[str, dict[str, int]], storage: dict[str, int]) -> None:
    if not _is_terminal():
        answer({"tools": tools, "storage": storage})
        return
    rows = list(tools.values())
    if rows:
        _table(
            {
                "tool": list(tools),
                "calls": [f"{row['count']:,}" for row in rows],
                **{name: [_size(row[f"{name}_bytes"]) for row in rows] for name in ("max", "average", "p95")},
                "over budget": [row["oversize"] or "" for row in rows],
            }
        )
    else:
        _print("no responses are noted; servers note them with --journal or --contract", style="dim", highlight=False)
    size, on_disk = _size(storage["size_bytes"]), _size(storage["stored_bytes"])
    _print(f"stored: {storage['payloads']:,} payloads, {size}, {on_disk} on disk", style="dim", highlight=False)


def settings(said: dict[str, Any]) -> None:
    """Options with what is in force; on a terminal a few lines each, since a table of them is wider than any."""
    if not _is_terminal():
        answer(said)
        return
    for row in said["options"]:
        _print(literal(f"{row['flag']}  {row['value']}"), style="bold", highlight=False)
        names = "  ".join(filter(None, (row["key"], row["variable"], f"default {row['default']}")))
        _print(literal(f"    {names}\n    from {row['source']}: {row['help']}"), highlight=False)
    for upstream in said["upstreams"]:
        _print(literal(f"[upstreams.{upstream['name']}]"), style="bold", highlight=False)
        for key, value in upstream.items():
            _print(literal(f"    {key}  {value}"), highlight=False)


def _when(timestamp: object) -> str:
    """To the minute, or in another year to the day."""
    day, _, time_of_day = str(timestamp).partition("T")
    is_this_year = day[:4] == time.strftime("%Y", time.gmtime())
    return f"{day[5:]} {time_of_day[:5]}" if is_this_year else day


def _whose(principal: str | None) -> str | None:
    from forebay.store.principals import shown

    return shown(principal)


def _size(size: object) -> str:
    from rich.filesize import decimal

    return decimal(size) if isinstance(size, int) else ""


_NUMBERS = {"size", "items", "byte", "item", "line", "calls", "max", "average", "p95", "over budget"}
_WHOLE = {"handle", "handle or error", "event", "when (UTC)", "until (UTC)", *_NUMBERS}


def _table(columns: dict[str, list[Any]]) -> None:
    """The columns that say something, a line a row. Where there is no room, what is not needed whole is cut."""
    from rich.table import Table

    told = {name: cells for name, cells in columns.items() if any(cell not in (None, "") for cell in cells)}
    if not told:
        _print("nothing", style="dim")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in told:
        justify: Literal["left", "right"] = "right" if name in _NUMBERS else "left"
        table.add_column(_cell(name, name), no_wrap=name in _WHOLE, justify=justify)
    for row in zip(*told.values(), strict=True):
        table.add_row(*map(_cell, told, row))
    with printing():
        _console().print(table)


def _cell(column: str, value: object) -> "Text":
    cell = literal(value)
    # What was searched for may stand at the end of its context.
    is_cut = column != "context"
    cell.no_wrap, cell.overflow = is_cut, "ellipsis" if is_cut else "fold"
    return cell


def complaint(code: str, message: str) -> None:
    """An error, on standard error."""
    _error_console().print(f"[red]{code}[/red]:", literal(message), highlight=False, soft_wrap=True)


@contextlib.contextmanager
def progress(size: int | None) -> Iterator[Callable[[int], None] | None]:
    """A bar on standard error, if that is a terminal and there is much to wait for; unknown is much."""
    if sys.stderr is None or not sys.stderr.isatty() or (size is not None and size < _LARGE):
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    columns = BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=_error_console(), transient=True) as bar:
        task = bar.add_task("put", total=size)
        yield lambda done: bar.update(task, completed=done)


# What a payload says has no power over the terminal it is shown on.
_NO_COMMANDS = dict.fromkeys([*range(127, 160), *range(0xD800, 0xE000)], "\N{REPLACEMENT CHARACTER}")
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | _NO_COMMANDS


def literal(value: object) -> "Text":
    """A value as it is: no markup in it counts, and its control characters are shown as pictures of them."""
    from rich.text import Text

    return Text(_harmless("" if value is None else str(value)))


def _harmless(text: str) -> str:
    return text.replace("\r\n", "\n").translate(_PICTURES)
