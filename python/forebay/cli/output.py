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

from forebay.cli.errors import OutputFailed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from forebay.store import StoredOutput
    from forebay.store.pages import Page, SearchPage

__all__ = [
    "handle_output_errors",
    "print_bytes",
    "print_content",
    "print_error",
    "print_events",
    "print_json",
    "print_json_text",
    "print_matches",
    "print_outline",
    "print_page",
    "print_settings",
    "print_stats",
    "print_stored",
    "progress_bar",
]

_PROGRESS_MIN_BYTES = 8 << 20
"""From here on a put shows how far it is."""


@contextlib.contextmanager
def handle_output_errors() -> Iterator[None]:
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


def _print_rich(*shown: object, **style: Any) -> None:
    with handle_output_errors():
        _console().print(*shown, soft_wrap=True, **style)


def _write_stdout(data: bytes) -> None:
    # Python's own may be unbuffered, and then writes less than it was given.
    with handle_output_errors(), open(sys.stdout.fileno(), "wb", closefd=False) as out:
        out.write(data)


def print_json(said: Any) -> None:
    """An answer that is its own explanation."""
    import orjson

    print_json_text(orjson.dumps(said))


def print_json_text(text: bytes) -> None:
    """JSON: coloured, or as it is."""
    if not _is_terminal():
        _write_stdout(text + b"\n")
        return
    from rich.json import JSON

    shown = text.decode().translate(_REPLACED_CONTROLS)
    try:
        _print_rich(JSON(shown))
    except (ValueError, RecursionError):
        # Python reads no number of thousands of digits, and no nesting as deep as JSON may have.
        _print_rich(plain_text(shown))


def print_bytes(pieces: Iterable[bytes]) -> None:
    """Bytes as they are, but for what a terminal would obey."""
    if _is_terminal():
        pieces = (_replace_controls(text).encode() for text in codecs.iterdecode(pieces, "utf-8", "replace"))
    for piece in pieces:
        _write_stdout(piece)


def print_content(shown: "Page") -> None:
    """What is on a page, without what it says of itself."""
    if shown.encoding == "json":
        print_bytes([bytes(shown.content), b"\n"])  # type: ignore[arg-type]
    elif shown.encoding == "base64":
        print_bytes([base64.b64decode(shown.content)])
    else:
        print_bytes([str(shown.content).encode()])
    if sys.stderr is None:
        return
    if sys.stderr.isatty():
        _print_position(shown, _error_console())
    elif shown.next_offset is not None or shown.truncated:
        # Whoever takes the content alone must still know that it is not all.
        import orjson

        told = {"next_offset": shown.next_offset, "total": shown.total, "truncated": shown.truncated}
        sys.stderr.write(orjson.dumps(told).decode() + "\n")


def print_page(shown: "Page") -> None:
    if not _is_terminal():
        _write_stdout(shown.to_json() + b"\n")
        return
    if isinstance(shown.content, bytes):
        print_json_text(shown.content)
    else:
        _print_rich(plain_text(shown.content))
    with handle_output_errors():
        _print_position(shown, _console())


def _print_position(shown: "Page", console: "Console") -> None:
    """What of the payload a page is, and how to go on."""
    for cut in shown.truncated:
        what, options = (
            cut["path"] or cut["index"],
            " ".join(f"--{name} {value}" for name, value in cut["read_with"].items()),
        )
        console.print(plain_text(f"cut: {what}, {cut['size_bytes']:,} bytes in all; {options} reads it"), style="dim")
    more = "the end" if shown.next_offset is None else f"more from --offset {shown.next_offset}"
    told = f"{shown.format}: {shown.returned:,} from {shown.offset:,} of {shown.total:,}; {more}"
    console.print(told, style="dim", highlight=False)


def print_matches(found: "SearchPage") -> None:
    if not _is_terminal():
        _write_stdout(found.to_json() + b"\n")
        return
    names = ("byte_offset", "item", "line", "context")
    _print_table({name.partition("_")[0]: [match.get(name) for match in found.matches] for name in names})
    if found.next_start is not None:
        _print_rich(f"more from --start {found.next_start}", style="dim", highlight=False)


def print_outline(handle: str, shape: str) -> None:
    if _is_terminal():
        _print_rich(plain_text(shape))
    else:
        print_json({"output_handle": handle, "outline": shape})


def print_stored(entries: Sequence["StoredOutput"]) -> None:
    if not _is_terminal():
        print_json([entry.to_dict() for entry in entries])
        return
    _print_table(
        {
            "handle": [entry.output_handle for entry in entries],
            "type": [entry.mime_type.removeprefix("application/") for entry in entries],
            "size": [_format_size(entry.size_bytes) for entry in entries],
            "items": ["" if entry.item_count is None else f"{entry.item_count:,}" for entry in entries],
            "tool": [entry.source_tool for entry in entries],
            "whose": [_format_principal(entry.principal) for entry in entries],
            "until (UTC)": [_format_time(entry.expires_at) for entry in entries],
        }
    )


def print_events(happened: Sequence[dict[str, Any]]) -> None:
    if not _is_terminal():
        print_json(happened)
        return
    _print_table(
        {
            "when (UTC)": [_format_time(event.get("ts")) for event in happened],
            "event": [str(event.get("event")).removeprefix("output_handle_") for event in happened],
            "handle or error": [event.get("handle", event.get("code")) for event in happened],
            "size": [_format_size(event.get("size_bytes", event.get("returned_bytes"))) for event in happened],
            "tool": [event.get("source_tool") for event in happened],
            "whose": [_format_principal(event.get("principal")) for event in happened],
        }
    )


def print_stats(tools: dict[str, dict[str, int]], storage: dict[str, int]) -> None:
    if not _is_terminal():
        print_json({"tools": tools, "storage": storage})
        return
    rows = list(tools.values())
    if rows:
        _print_table(
            {
                "tool": list(tools),
                "calls": [f"{row['count']:,}" for row in rows],
                **{name: [_format_size(row[f"{name}_bytes"]) for row in rows] for name in ("max", "average", "p95")},
                "over budget": [row["oversize"] or "" for row in rows],
            }
        )
    else:
        _print_rich(
            "no responses are noted; servers note them with --journal or --contract", style="dim", highlight=False
        )
    size, on_disk = _format_size(storage["size_bytes"]), _format_size(storage["stored_bytes"])
    _print_rich(f"stored: {storage['payloads']:,} payloads, {size}, {on_disk} on disk", style="dim", highlight=False)


def print_settings(said: dict[str, Any]) -> None:
    """Options with what is in force; on a terminal a few lines each, since a table of them is wider than any."""
    if not _is_terminal():
        print_json(said)
        return
    for row in said["options"]:
        _print_rich(plain_text(f"{row['flag']}  {row['value']}"), style="bold", highlight=False)
        names = "  ".join(filter(None, (row["key"], row["variable"], f"default {row['default']}")))
        _print_rich(plain_text(f"    {names}\n    from {row['source']}: {row['help']}"), highlight=False)
    for upstream in said["upstreams"]:
        _print_rich(plain_text(f"[upstreams.{upstream['name']}]"), style="bold", highlight=False)
        for key, value in upstream.items():
            _print_rich(plain_text(f"    {key}  {value}"), highlight=False)


def _format_time(timestamp: object) -> str:
    """To the minute, or in another year to the day."""
    day, _, time_of_day = str(timestamp).partition("T")
    is_this_year = day[:4] == time.strftime("%Y", time.gmtime())
    return f"{day[5:]} {time_of_day[:5]}" if is_this_year else day


def _format_principal(principal: str | None) -> str | None:
    from forebay.store.principals import format_principal

    return format_principal(principal)


def _format_size(size: object) -> str:
    from rich.filesize import decimal

    return decimal(size) if isinstance(size, int) else ""


_NUMERIC_COLUMNS = {"size", "items", "byte", "item", "line", "calls", "max", "average", "p95", "over budget"}
_UNCUT_COLUMNS = {"handle", "handle or error", "event", "when (UTC)", "until (UTC)", *_NUMERIC_COLUMNS}


def _print_table(columns: dict[str, list[Any]]) -> None:
    """The columns that say something, a line a row. Where there is no room, what is not needed whole is cut."""
    from rich.table import Table

    told = {name: cells for name, cells in columns.items() if any(cell not in (None, "") for cell in cells)}
    if not told:
        _print_rich("nothing", style="dim")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in told:
        justify: Literal["left", "right"] = "right" if name in _NUMERIC_COLUMNS else "left"
        table.add_column(_make_cell(name, name), no_wrap=name in _UNCUT_COLUMNS, justify=justify)
    for row in zip(*told.values(), strict=True):
        table.add_row(*map(_make_cell, told, row))
    with handle_output_errors():
        _console().print(table)


def _make_cell(column: str, value: object) -> "Text":
    cell = plain_text(value)
    # What was searched for may stand at the end of its context.
    is_cut = column != "context"
    cell.no_wrap, cell.overflow = is_cut, "ellipsis" if is_cut else "fold"
    return cell


def print_error(code: str, message: str) -> None:
    """An error, on standard error."""
    _error_console().print(f"[red]{code}[/red]:", plain_text(message), highlight=False, soft_wrap=True)


@contextlib.contextmanager
def progress_bar(size: int | None) -> Iterator[Callable[[int], None] | None]:
    """A bar on standard error, if that is a terminal and there is much to wait for; unknown is much."""
    if sys.stderr is None or not sys.stderr.isatty() or (size is not None and size < _PROGRESS_MIN_BYTES):
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    columns = BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=_error_console(), transient=True) as bar:
        task = bar.add_task("put", total=size)
        yield lambda done: bar.update(task, completed=done)


# What a payload says has no power over the terminal it is shown on.
_REPLACED_CONTROLS = dict.fromkeys([*range(127, 160), *range(0xD800, 0xE000)], "\N{REPLACEMENT CHARACTER}")
_CONTROL_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | _REPLACED_CONTROLS


def plain_text(value: object) -> "Text":
    """A value as it is: no markup in it counts, and its control characters are shown as pictures of them."""
    from rich.text import Text

    return Text(_replace_controls("" if value is None else str(value)))


def _replace_controls(text: str) -> str:
    return text.replace("\r\n", "\n").translate(_CONTROL_PICTURES)
