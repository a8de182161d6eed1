"""Printing of results: tables and colours on a terminal, JSON and bytes in a pipe."""

# Rich is imported only on a terminal: importing it takes longer than most commands.

import base64
import codecs
import contextlib
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from forebay.arguments import decode_token
from forebay.cli.errors import OutputFailed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from forebay.store import StoredOutput
    from forebay.store.mirror import MirrorReport
    from forebay.store.pages import Page
    from forebay.store.search import SearchPage

__all__ = [
    "handle_output_errors",
    "print_bytes",
    "print_checks",
    "print_content",
    "print_error",
    "print_events",
    "print_json",
    "print_json_text",
    "print_matches",
    "print_metadata",
    "print_outline",
    "print_page",
    "print_settings",
    "print_stats",
    "print_stored",
    "print_table",
    "replace_controls",
    "show_mirror_progress",
    "show_progress_bar",
    "wants_table",
]

_PROGRESS_MIN_BYTES = 8 << 20
"""`put` shows a progress bar for files from this size on."""


@contextlib.contextmanager
def handle_output_errors() -> Iterator[None]:
    """Flush standard output at the end, and raise `OutputFailed` if it cannot be written."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        # At exit Python tries to write the rest of the buffer again, and would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutputFailed(f"standard output cannot be written: {error.strerror}") from error


def _is_terminal() -> bool:
    if sys.stdout is None:
        raise OutputFailed("standard output is closed")
    return sys.stdout.isatty()


def wants_table(is_json: bool) -> bool:
    return _is_terminal() and not is_json


@functools.cache
def _get_console(*, is_stderr: bool = False) -> "Console":
    from rich.console import Console

    # With NO_COLOR, rich itself leaves out colours, but not bold and dim text.
    return Console(stderr=is_stderr, color_system=None if os.environ.get("NO_COLOR") else "auto")


def _print_rich(*renderables: object, **style: Any) -> None:
    with handle_output_errors():
        _get_console().print(*renderables, soft_wrap=True, **style)


def _write_stdout(data: bytes) -> None:
    # sys.stdout.buffer may be unbuffered (python -u), and then may write only a part.
    with handle_output_errors(), open(sys.stdout.fileno(), "wb", closefd=False) as out:
        out.write(data)


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    import orjson

    print_json_text(orjson.dumps(value))


def print_json_text(text: bytes) -> None:
    """Print JSON, in colour on a terminal."""
    if not _is_terminal():
        _write_stdout(text + b"\n")
        return
    from rich.json import JSON

    visible = text.decode().translate(_REPLACED_CONTROLS)
    try:
        rendered = JSON(visible)
        # Rich decodes escapes such as \u202e, so that characters which were harmless in the text have to be replaced.
        rendered.text.plain = rendered.text.plain.translate(_REPLACED_CONTROLS)
        _print_rich(rendered)
    except (ValueError, RecursionError):
        # Rich parses with `json`, which refuses very long numbers and very deep nesting.
        _print_rich(to_plain_text(visible))


def print_bytes(chunks: Iterable[bytes]) -> None:
    """Print bytes. On a terminal, control characters are replaced."""
    if _is_terminal():
        chunks = (replace_controls(text).encode() for text in codecs.iterdecode(chunks, "utf-8", "replace"))
    for chunk in chunks:
        _write_stdout(chunk)


def print_content(page: "Page") -> None:
    """Print the content of a page to standard output, and how to read the next page to standard error."""
    if page.encoding == "json":
        print_bytes([bytes(page.content), b"\n"])  # type: ignore[arg-type]
    elif page.encoding == "base64":
        print_bytes([base64.b64decode(page.content)])
    else:
        print_bytes([str(page.content).encode()])
    if sys.stderr is None:
        return
    if sys.stderr.isatty():
        _print_position(page, _get_console(is_stderr=True))
    elif page.next_offset is not None or page.truncated or page.hint:
        # The content alone does not show that the page is cut, that another page follows, or that a name is wrong.
        import orjson

        remaining: dict[str, Any] = {
            "next_offset": page.next_offset,
            "total": page.total,
            "truncated": page.truncated,
            **({"hint": page.hint} if page.hint else {}),
        }
        sys.stderr.write(orjson.dumps(remaining).decode() + "\n")


def print_page(page: "Page", fields: Sequence[str] | None = None, *, is_json: bool = False) -> None:
    """Print a page. On a terminal, objects that are reduced to `fields` are the rows of a table."""
    if not wants_table(is_json):
        print_json_text(page.to_json())
        return
    rows = _parse_rows(page) if fields is not None else None
    if fields is not None and rows:
        # The key of an entry of a map is always there.
        fields = [*(["_key"] if all("_key" in row for row in rows) and "_key" not in fields else []), *fields]
        print_table({field: [_get_field(row, _split_field(field)) for row in rows] for field in fields})
    elif isinstance(page.content, bytes):
        print_json_text(page.content)
    else:
        _print_rich(to_plain_text(page.content))
    with handle_output_errors():
        _print_position(page, _get_console())


def _parse_rows(page: "Page") -> list[dict[str, Any]] | None:
    """Return the items of a page if all of them are objects, else `None`."""
    try:
        items = json.loads(page.content)
    except (ValueError, RecursionError):
        # Text, or JSON with very long numbers or very deep nesting.
        return None
    is_table = isinstance(items, list) and all(isinstance(item, dict) for item in items)
    return items if is_table else None


def _split_field(field: str) -> list[str]:
    """Return the keys on the way to a field, which is written as `user.name` or `/user/name`."""
    if not field.startswith("/"):
        return field.split(".")
    return [decode_token(key) for key in field[1:].split("/")]


def _get_field(value: Any, keys: list[str]) -> str | None:
    """Return the text of a field. In a list, it is the list of the field's values."""
    found = _find_field(value, keys)
    if found is None or isinstance(found, str):
        return found
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def _find_field(value: Any, keys: list[str]) -> Any:
    if not keys:
        return value
    if isinstance(value, list):
        return [_find_field(item, keys) for item in value]
    return _find_field(value.get(keys[0]), keys[1:]) if isinstance(value, dict) else None


def _print_position(page: "Page", console: "Console") -> None:
    """Print which part of the payload a page is, and how to read the next page."""
    for truncation in page.truncated:
        value, size = truncation["path"] or truncation["index"], truncation["size_bytes"]
        arguments = {name: value for name, value in truncation["read_with"].items() if name != "output_handle"}
        options = " ".join(f"--{name} {value}" for name, value in arguments.items())
        console.print(to_plain_text(f"cut: {value}, {size:,} bytes in all; {options} reads it"), style="dim")
    for path, size in (page.not_in_items or {}).get("paths", {}).items():
        console.print(to_plain_text(f"not among the items: {size:,} bytes; --path {path} reads them"), style="dim")
    if page.hint is not None:
        console.print(to_plain_text(page.hint), style="dim")
    more = "the end" if page.next_offset is None else f"more from --offset {page.next_offset}"
    kind = "matches" if page.unit == "matches" else page.format
    position = f"{kind}: {page.returned:,} from {page.offset:,} of {page.total:,}; {more}"
    console.print(position, style="dim", highlight=False)


def print_matches(page: "SearchPage", *, is_json: bool = False) -> None:
    if not wants_table(is_json):
        print_json_text(page.to_json())
        return
    if page.matches:
        columns = {name.partition("_")[0]: [match.get(name) for match in page.matches] for name in _MATCH_COLUMNS}
        columns["context"] = [*map(_format_match, page.matches, page.context_offsets)]
        print_table(columns)
    _print_rich(to_plain_text(_format_total(page)), style="dim", highlight=False)


_MATCH_COLUMNS = ("byte_offset", "item", "line", "path")


def _format_total(page: "SearchPage") -> str:
    """Return a sentence about all matches, and how to see more of them."""
    at_least = "at least " if page.total_is_lower_bound else ""
    text = f"{at_least}{page.total_matches:,} match{'' if page.total_matches == 1 else 'es'}"
    if page.items_with_matches is not None:
        text += f" in {page.items_with_matches:,} item{'' if page.items_with_matches == 1 else 's'}"
    if page.searched is not None:
        text += "; searched: " + page.searched.replace("mode='values'", "--mode values")
    return text if page.next_offset is None else f"{text}; more from --offset {page.next_offset}"


def _format_match(match: dict[str, Any], offset: int) -> "Text":
    """Return the value of a match, or its context with the match highlighted."""
    from rich.text import Text

    if "value" in match:
        import orjson

        return to_plain_text(orjson.dumps(match["value"]).decode())
    # Each part is made safe by itself: control characters do not count as many bytes as their replacements.
    context = (match.get("context") or match.get("match") or "").encode()
    parts = context[:offset], context[offset : offset + match["size_bytes"]], context[offset + match["size_bytes"] :]
    before, matched, after = (replace_controls(part.decode(errors="replace")) for part in parts)
    return Text.assemble(before, (matched, "bold red"), after)


def print_outline(handle: str, text: str, *, is_json: bool = False) -> None:
    if wants_table(is_json):
        _print_rich(to_plain_text(text))
    else:
        print_json({"output_handle": handle, "outline": text})


def print_stored(entries: Sequence["StoredOutput"], *, is_json: bool = False) -> None:
    if not wants_table(is_json):
        print_json([_name_principal(entry.to_dict()) for entry in entries])
        return
    print_table(
        {
            "handle": [entry.output_handle for entry in entries],
            "type": [entry.mime_type.removeprefix("application/") for entry in entries],
            "size": [_format_size(entry.size_bytes) for entry in entries],
            "items": ["" if entry.item_count is None else f"{entry.item_count:,}" for entry in entries],
            "tool": [entry.source_tool for entry in entries],
            "principal": [_format_principal(entry.principal) for entry in entries],
            "expires (UTC)": [_format_time(entry.expires_at) for entry in entries],
        },
        optional_columns=("principal", "tool"),
    )


def print_metadata(entry: "StoredOutput") -> None:
    print_json(_name_principal(entry.to_dict()))


def print_events(events: Sequence[dict[str, Any]], *, is_json: bool = False) -> None:
    if not wants_table(is_json):
        print_json([_name_principal(event) for event in events])
        return
    print_table(
        {
            "when (UTC)": [_format_time(event.get("ts")) for event in events],
            "event": [str(event.get("event")).removeprefix("output_handle_") for event in events],
            "handle": [event.get("handle") for event in events],
            "size": [_format_size(_get_first(event, _SIZE_KEYS)) for event in events],
            "tool": [_get_first(event, ("tool", "source_tool")) for event in events],
            "path": [event.get("path") for event in events],
            "reason": [_format_reason(event) for event in events],
            "principal": [_format_principal(event.get("principal")) for event in events],
        },
        optional_columns=("principal", "tool", "path"),
    )


_SIZE_KEYS = ("size_bytes", "returned_bytes", "response_bytes")


def _get_first(event: dict[str, Any], keys: Sequence[str]) -> Any:
    return next((event[key] for key in keys if event.get(key) is not None), None)


def _format_reason(event: dict[str, Any]) -> str | None:
    """Return why an operation failed or an event was recorded, if the event says so."""
    match event:
        case {"code": code} if code:
            return str(code).removeprefix("output_handle_")
        case {"capability": capability} if capability:
            return f"capability {capability}"
        case {"budget_bytes": budget}:
            return f"over {_format_size(budget)}"
    return None


def print_stats(
    usage: dict[str, Any], tools: dict[str, dict[str, int]], storage: dict[str, int], *, is_json: bool = False
) -> None:
    """Print the counts of `summarize_calls`, the sizes of `summarize_responses`, and the size of the store."""
    if not wants_table(is_json):
        print_json({"usage": usage, "tools": tools, "storage": storage})
        return
    days = dict([*usage["by_day"].items()][:_MAX_SHOWN_DAYS])
    for heading, groups in (("tool", usage["by_tool"]), ("day (UTC)", days)):
        rows = [*groups.values()]
        if rows:
            print_table(
                {
                    heading: [*groups],
                    "calls": [f"{row['calls']:,}" for row in rows],
                    "handles": [f"{row['handles']:,}" if row["handles"] else "" for row in rows],
                    "saved": [_format_signed_size(row["saved_bytes"]) for row in rows],
                    "tokens": [f"{row['saved_tokens']:,}" if row["saved_tokens"] else "" for row in rows],
                }
            )
    if tools:
        sizes = [*tools.values()]
        print_table(
            {
                "response sizes": [*tools],
                "recorded": [f"{row['count']:,}" for row in sizes],
                **{name: [_format_size(row[f"{name}_bytes"]) for row in sizes] for name in ("max", "average", "p95")},
                "over budget": [row["oversize"] or "" for row in sizes],
            }
        )
    size, on_disk = _format_size(storage["size_bytes"]), _format_size(storage["stored_bytes"])
    saved = _format_signed_size(usage["saved_bytes"]) or "nothing"
    for text in (
        f"saved: {saved}, about {usage['saved_tokens']:,} tokens, in {usage['calls']:,} calls"
        if usage["by_tool"]
        else "no call was counted yet; every call through forebay is counted",
        f"stored: {storage['payloads']:,} payloads, {size}, {on_disk} on disk",
    ):
        _print_rich(text, style="dim", highlight=False)


_MAX_SHOWN_DAYS = 14


def _format_signed_size(size: int) -> str:
    """Format a size, which is negative if more was read back than saved; 0 is empty."""
    return f"{'-' if size < 0 else ''}{_format_size(abs(size))}" if size else ""


def print_checks(rows: Sequence[dict[str, Any]]) -> None:
    """Print what `forebay doctor` found out about servers. On a terminal, problems follow below a table."""
    if not _is_terminal():
        print_json({"servers": rows, "problems": sum(len(row["problems"]) for row in rows)})
        return
    print_table(
        {
            "client": [row["client"] for row in rows],
            "server": [row["server"] for row in rows],
            "status": [row["status"] for row in rows],
            "forebay": ["yes" if row["behind_forebay"] else "" for row in rows],
            "tools": [row["tools"] for row in rows],
            "start": [_format_seconds(row["start_seconds"]) for row in rows],
            "limit": [_format_seconds(row["start_limit_seconds"]) for row in rows],
            "shows": [row["result_limit"] or "" for row in rows],
        }
    )
    for row in rows:
        for text in (*row["problems"], *([row["note"]] if row["note"] else [])):
            subject = row["path"] if row["server"] is None else f"{row['path']}: {row['server']}"
            _print_rich(to_plain_text(f"{subject}: {text}"), style=None if row["problems"] else "dim", highlight=False)


def print_settings(explanation: dict[str, Any]) -> None:
    """Print options and upstreams. On a terminal, values are shown as forebay.toml would hold them."""
    if not _is_terminal():
        print_json(explanation)
        return
    from forebay.config.option_types import format_toml
    from forebay.config.options import OPTIONS

    if not explanation["options"]:
        text = "no option is set; `forebay config --explain` prints all options and their defaults"
        _print_rich(text, style="dim", highlight=False)
    for row in explanation["options"]:
        option, is_set = OPTIONS[row["name"]], row["source"] != "default"
        # In a configuration, the word `none` sets an option to `None`.
        value = '"none"' if is_set and row["value"] is None else option.format_value(row["value"])
        _print_rich(to_plain_text(f"{row['flag']}  {value}"), style="bold", highlight=False)
        source = f"  set by {row['source']}" if is_set else ""
        names = f"{row['name']}  {row['variable']}  default {option.format_value(row['default'])}{source}"
        folder = (
            f"\n    {'it is' if '://' in row['path'] else 'the folder is'} {row['path']}" if row.get("path") else ""
        )
        _print_rich(to_plain_text(f"    {row['help']}\n    {names}{folder}"), highlight=False)
    for upstream in explanation["upstreams"]:
        _print_rich(to_plain_text(f"[upstreams.{upstream['name']}]"), style="bold", highlight=False)
        for key, value in upstream.items():
            if key != "name":
                _print_rich(to_plain_text(f"    {key} = {format_toml(value)}"), highlight=False)


def _format_time(timestamp: object) -> str:
    """Format a timestamp to the minute, or to the day if it is in another year."""
    day, _, time_of_day = str(timestamp).partition("T")
    is_this_year = day[:4] == time.strftime("%Y", time.gmtime())
    return f"{day[5:]} {time_of_day[:5]}" if is_this_year else day


def _format_seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2g} s" if seconds < 1 else f"{seconds:,.0f} s"


def _format_principal(principal: str | None) -> str | None:
    from forebay.store.handles import format_principal

    return format_principal(principal)


def _name_principal(record: dict[str, Any]) -> dict[str, Any]:
    """Return metadata or an event with the principal as `--principal` takes it and as a table shows it."""
    return {**record, "principal": _format_principal(record["principal"])} if "principal" in record else record


def _format_size(size: object) -> str:
    from rich.filesize import decimal

    return decimal(size) if isinstance(size, int) else ""


_NUMERIC_COLUMNS = {
    *("size", "items", "byte", "item", "line", "calls", "max", "average", "p95", "over budget"),
    *("handles", "saved", "tokens", "recorded"),
    *("tools", "start", "limit"),
}
_UNCUT_COLUMNS = {"handle", "event", "when (UTC)", "expires (UTC)", *_NUMERIC_COLUMNS}
_COLUMN_PADDING = 2
_MIN_CUT_WIDTH = 6
_MIN_REASON_WIDTH = 10


def print_table(
    columns: dict[str, list[Any]], optional_columns: Sequence[str] = (), *, keeps_empty: bool = False
) -> None:
    """Print a table without its empty columns. If it is too wide, cells outside of `_UNCUT_COLUMNS` are cut.

    If it would be too wide even so, `optional_columns` are left out, one after the other.
    """
    from rich.table import Table

    filled = {
        name: cells
        for name, cells in columns.items()
        if keeps_empty or any(cell is not None and cell != "" for cell in cells)
    }
    if not filled:
        _print_rich("nothing", style="dim")
        return
    rendered = {name: [_make_cell(name, value) for value in (name, *cells)] for name, cells in filled.items()}
    for name in optional_columns:
        if sum(map(_get_min_width, rendered, rendered.values())) > _get_console().width + _COLUMN_PADDING:
            rendered.pop(name, None)
    table = Table(box=None, padding=(0, _COLUMN_PADDING, 0, 0), pad_edge=False)
    headings, *rows = zip(*rendered.values(), strict=True)
    for name, heading in zip(rendered, headings, strict=True):
        justify: Literal["left", "right"] = "right" if name in _NUMERIC_COLUMNS else "left"
        min_width = _MIN_REASON_WIDTH if name == "reason" else None
        table.add_column(heading, no_wrap=name in _UNCUT_COLUMNS, justify=justify, min_width=min_width)
    for row in rows:
        table.add_row(*row)
    with handle_output_errors():
        _get_console().print(table)


def _get_min_width(column: str, cells: Sequence["Text"]) -> int:
    """Return the width that a column takes at least, with its padding."""
    width = max(cell.cell_len for cell in cells)
    if column not in _UNCUT_COLUMNS:
        width = min(width, _MIN_REASON_WIDTH if column == "reason" else _MIN_CUT_WIDTH)
    return width + _COLUMN_PADDING


def _make_cell(column: str, value: object) -> "Text":
    from rich.text import Text

    cell = value if isinstance(value, Text) else to_plain_text(value)
    # The context of a match is not cut, because the match may be at its end.
    is_cut = column != "context"
    cell.no_wrap, cell.overflow = is_cut, "ellipsis" if is_cut else "fold"
    return cell


def print_error(code: str, message: str) -> None:
    """Print an error in colour to standard error."""
    _get_console(is_stderr=True).print(f"[red]{code}[/red]:", to_plain_text(message), highlight=False, soft_wrap=True)


@contextlib.contextmanager
def show_progress_bar(size: int | None) -> Iterator[Callable[[int], None] | None]:
    """Show a progress bar on a terminal, for large files and files of unknown size."""
    if sys.stderr is None or not sys.stderr.isatty() or (size is not None and size < _PROGRESS_MIN_BYTES):
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    columns = BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=_get_console(is_stderr=True), transient=True) as bar:
        task = bar.add_task("put", total=size)
        yield lambda done: bar.update(task, completed=done)


@contextlib.contextmanager
def show_mirror_progress() -> Iterator[Callable[["MirrorReport"], None] | None]:
    """Show on a terminal how many payloads were mirrored, and how many bytes."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TransferSpeedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TransferSpeedColumn()
    with Progress(*columns, console=_get_console(is_stderr=True), transient=True) as bar:
        task = bar.add_task("mirror", total=None)

        def update(report: "MirrorReport") -> None:
            others = report.skipped + report.expired + report.failed
            text = f"{report.copied:,} copied, {others:,} others, {_format_size(report.bytes)}"
            bar.update(task, description=text, completed=report.bytes)

        yield update


# A payload must not send control sequences to the terminal, nor change the order in which its text is shown.
_BIDI_CONTROLS = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_REPLACED_CONTROLS = dict.fromkeys(
    [*range(127, 160), *_BIDI_CONTROLS, *range(0xD800, 0xE000)], "\N{REPLACEMENT CHARACTER}"
)
_CONTROL_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | _REPLACED_CONTROLS


def to_plain_text(value: object) -> "Text":
    """Return a value as text without markup, with control characters made visible."""
    from rich.text import Text

    return Text(replace_controls("" if value is None else str(value)))


def replace_controls(text: str) -> str:
    """Return a text that is safe to print on a terminal: control characters are replaced by visible ones."""
    return text.replace("\r\n", "\n").translate(_CONTROL_PICTURES)
