"""The `headgate` command: readable on a terminal, JSON in a pipe, exit codes that mean something.

0 done · 1 another error · 2 wrong usage · 3 no such handle · 4 damaged · 5 the store is full or cannot be used ·
6 this payload has no such format or path
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import orjson
import typer
from rich.console import Console
from rich.json import JSON
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

from headgate.errors import HeadgateError
from headgate.fetch import Format
from headgate.page import Page
from headgate.store import OPERATOR, Store, open_store

__all__ = ["main"]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
out = Console()
err = Console(stderr=True)

_EXIT_CODES = {
    "output_handle_not_found": 3,
    "output_handle_corrupt": 4,
    "store_full": 5,
    "store_unavailable": 5,
    "invalid_format_for_payload": 6,
    "path_not_found": 6,
    "invalid_argument": 2,
}

_LARGE = 8 << 20
"""From here on a put shows how far it is."""

Where = Annotated[str | None, typer.Option("--store", envvar="HEADGATE_STORE", help="file:///path; else the default")]
Handle = Annotated[str, typer.Argument(help="What `headgate put` or a tool answered: oh_…")]


@app.command()
def put(
    file: Annotated[Path, typer.Argument(help="The payload; - is standard input")],
    mime_type: Annotated[str | None, typer.Option(help="What it is, if not to be found out")] = None,
    ttl: Annotated[float | None, typer.Option(help="Seconds to keep it for")] = None,
    store: Where = None,
) -> None:
    """Store a file and print its descriptor."""
    with _opened(store) as opened, _source(file) as source, _progress(file) as progress:
        descriptor = opened.put(source, mime_type=mime_type, ttl=ttl, source_tool="headgate put", progress=progress)
    _show(descriptor.to_dict())


@app.command()
def ls(store: Where = None) -> None:
    """List what is stored."""
    with _opened(store) as opened:
        stored = sorted(opened.list(principal=OPERATOR), key=lambda entry: entry.created_at, reverse=True)
    if not out.is_terminal:
        _print([entry.to_dict() for entry in stored])
        return
    table = Table("handle", "type", "size", "items", "from", "expires")
    for entry in stored:
        items = "" if entry.item_count is None else f"{entry.item_count:,}"
        table.add_row(
            entry.output_handle,
            _literal(entry.mime_type),
            f"{entry.size_bytes:,}",
            items,
            _literal(entry.source_tool or ""),
            entry.expires_at,
        )
    out.print(table)


@app.command()
def fetch(
    handle: Handle,
    offset: Annotated[int, typer.Option(help="Where to begin: an item, a line or a byte")] = 0,
    limit: Annotated[int | None, typer.Option(help="How many of them at the most")] = None,
    format: Annotated[Format, typer.Option(help="What to show it as")] = "auto",  # noqa: A002
    path: Annotated[str | None, typer.Option(help="A JSON Pointer to a value inside")] = None,
    fields: Annotated[str | None, typer.Option(help="Fields to keep of every item: id,user.name")] = None,
    max_bytes: Annotated[int, typer.Option(help="The most a page may weigh")] = 65536,
    store: Where = None,
) -> None:
    """Print a page of a stored payload."""
    chosen = None if fields is None else [field.strip() for field in fields.split(",")]
    with _opened(store) as opened:
        page = opened.fetch(
            handle,
            offset=offset,
            limit=limit,
            format=format,
            path=path,
            fields=chosen,
            max_bytes=max_bytes,
            principal=OPERATOR,
        )
    if not out.is_terminal:
        _write(page.to_json())
        return
    _show_page(page)


@app.command()
def search(
    handle: Handle,
    pattern: Annotated[str, typer.Argument(help="A text, or with --regex an expression")],
    regex: Annotated[bool, typer.Option("--regex", help="The pattern is a regular expression")] = False,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Upper or lower case is the same")] = False,
    start: Annotated[int, typer.Option(help="The byte to search from")] = 0,
    limit: Annotated[int, typer.Option(help="How many matches at the most")] = 50,
    context: Annotated[int, typer.Option(help="How many bytes to show on either side")] = 80,
    store: Where = None,
) -> None:
    """Find a pattern in a stored payload."""
    with _opened(store) as opened:
        page = opened.search(
            handle,
            pattern,
            regex=regex,
            ignore_case=ignore_case,
            start=start,
            limit=limit,
            context=context,
            principal=OPERATOR,
        )
    if not out.is_terminal:
        _write(page.to_json())
        return
    table = Table("byte", "item", "line", "context")
    for match in page.matches:
        table.add_row(*(_literal(match.get(key)) for key in ("byte_offset", "item", "line", "context")))
    out.print(table)
    if page.next_start is not None:
        out.print(f"[dim]more from --start {page.next_start}[/dim]")


@app.command()
def outline(handle: Handle, max_bytes: Annotated[int, typer.Option()] = 512, store: Where = None) -> None:
    """Print the shape of a stored JSON payload in one line."""
    with _opened(store) as opened:
        shape = opened.outline(handle, max_bytes, principal=OPERATOR)
    if out.is_terminal:
        out.print(_literal(shape), soft_wrap=True)
    else:
        _print({"output_handle": handle, "outline": shape})


@app.command()
def stat(handle: Handle, store: Where = None) -> None:
    """Print what is known of a stored payload."""
    with _opened(store) as opened:
        _show(opened.stat(handle, principal=OPERATOR).to_dict())


@app.command()
def rm(handles: Annotated[list[str], typer.Argument(help="Handles to remove")], store: Where = None) -> None:
    """Remove stored payloads before they expire."""
    removed: list[str] = []
    failed: HeadgateError | None = None
    with _opened(store) as opened:
        for handle in handles:
            try:
                opened.delete(handle, principal=OPERATOR)
                removed.append(handle)
            except HeadgateError as error:
                failed = failed or error
    if removed:
        _show({"removed": removed})
    if failed is not None:
        raise failed


@app.command()
def sweep(store: Where = None) -> None:
    """Remove what has expired, and what crashed writers left."""
    with _opened(store) as opened:
        report = opened.sweep()
    _show({name: getattr(report, name) for name in report.__slots__})


@app.command()
def journal(
    action: Annotated[Literal["recent", "summary"], typer.Argument()] = "recent",
    count: Annotated[int, typer.Option(help="How many events")] = 50,
    store: Where = None,
) -> None:
    """Print what happened in the store."""
    with _opened(store) as opened:
        answer: Any = opened.journal.recent(count) if action == "recent" else opened.journal.summary()
    if action == "recent" and out.is_terminal:
        table = Table("when", "event", "handle", "tool", "bytes")
        for event in answer:
            row = (event.get(key) for key in ("ts", "event", "handle", "source_tool", "size_bytes"))
            table.add_row(*map(_literal, row))
        out.print(table)
        return
    _show(answer)


@contextlib.contextmanager
def _opened(url: str | None) -> Iterator[Store]:
    # A command does one thing; sweeping is another.
    with open_store(url, sweep_interval=0) as store:
        yield store


@contextlib.contextmanager
def _source(file: Path) -> Iterator[BinaryIO]:
    if str(file) == "-":
        yield sys.stdin.buffer
        return
    try:
        source = file.open("rb")
    except OSError as error:
        err.print(f"headgate: {file}: {error.strerror}", markup=False)
        raise typer.Exit(1) from None
    with source:
        yield source


@contextlib.contextmanager
def _progress(file: Path) -> Iterator[Any]:
    size = file.stat().st_size if file.is_file() else None
    if not err.is_terminal or (size is not None and size < _LARGE):
        yield None
        return
    with Progress(BarColumn(), DownloadColumn(), TransferSpeedColumn(), console=err, transient=True) as bar:
        task = bar.add_task("put", total=size)
        yield lambda done: bar.update(task, completed=done)


def _show_page(page: Page) -> None:
    if isinstance(page.content, bytes):
        _print_json(page.content)
    else:
        out.print(_literal(page.content), soft_wrap=True)
    for cut in page.truncated:
        out.print(_literal(f"cut: {cut['path'] or cut['index']}, {cut['size_bytes']:,} bytes in all"), style="dim")
    more = "the end" if page.next_offset is None else f"more from --offset {page.next_offset}"
    out.print(f"[dim]{page.format}: {page.returned:,} from {page.offset:,} of {page.total:,}; {more}[/dim]")


def _show(answer: Any) -> None:
    if out.is_terminal:
        _print_json(orjson.dumps(answer))
    else:
        _print(answer)


def _print_json(answer: bytes) -> None:
    text = answer.decode().translate(_NO_COMMANDS)
    try:
        out.print(JSON(text), soft_wrap=True)
    except (ValueError, RecursionError):
        # Python reads no number of thousands of digits, and no nesting as deep as JSON may have.
        out.print(Text(text), soft_wrap=True)


# What a payload says has no power over the terminal it is shown on.
_NO_COMMANDS = dict.fromkeys(range(127, 160), "\N{REPLACEMENT CHARACTER}")
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | _NO_COMMANDS


def _literal(value: object) -> Text:
    """A value as it is: no markup in it counts, and its control characters are shown as pictures of them."""
    return Text("" if value is None else str(value).replace("\r\n", "\n").translate(_PICTURES))


def _print(answer: Any) -> None:
    _write(orjson.dumps(answer))


def _write(line: bytes) -> None:
    try:
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # Whoever reads has seen enough. What is left to be written at the end must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None


def main() -> None:
    """What the `headgate` command runs."""
    try:
        app()
    except HeadgateError as error:
        if err.is_terminal:
            err.print(f"[red]{error.code}[/red]:", _literal(error), highlight=False)
        else:
            sys.stderr.write(orjson.dumps(error.to_dict()).decode() + "\n")
        raise SystemExit(_EXIT_CODES.get(error.code, 1)) from None
