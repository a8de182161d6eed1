"""The app: it opens screens for values, items and lines, and has what they share."""

import asyncio
import contextlib
import os
import re
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import App
from textual.binding import BindingType
from typing_extensions import Buffer

from forebay import _core
from forebay.cli.errors import OutputFailed
from forebay.cli.output.units import format_size
from forebay.cli.view.cells import decode_text, decode_value, make_safe, wrap
from forebay.cli.view.columns import choose_columns, get_entry_value
from forebay.cli.view.help import HELP
from forebay.cli.view.items_screen import ItemsScreen
from forebay.cli.view.jobs import Job
from forebay.cli.view.parts import BufferView, PartView, index_entries
from forebay.cli.view.rows import HexRows, ItemRows, LineRows, Row, Rows, TextRows, read_sample
from forebay.cli.view.screen import PagerScreen
from forebay.cli.view.source import Source
from forebay.cli.view.text_screen import TextScreen
from forebay.cli.view.tree import MAX_TREE_BYTES, build_tree
from forebay.cli.view.tree_screen import TreeScreen
from forebay.errors import CorruptIndex, InvalidFormat, InvalidJSON, PathNotFound
from forebay.store.payload import is_mostly_items, skip_bom
from forebay.store.reader import View
from forebay.store.threads import start_in_thread
from forebay.system.processes import STOP_SIGNALS, handle_stop_signals

if TYPE_CHECKING:
    from forebay.cli.view.find import Pattern
    from forebay.store.queries import QueryPage

__all__ = ["ViewApp"]

_MAX_TEXT_BYTES = 1 << 20
"""Bytes of a string that are shown as lines."""

_MAX_QUERY_BYTES = 4 << 20
_QUERY_SECONDS = 60.0
_OUTLINE_BYTES = 4096
_EXPORT_ENDINGS = (".json", ".ndjson", ".csv", ".parquet")

_FIRST_SCREEN_SECONDS = 0.25
"""Time to wait for the whole payload before only its beginning is shown."""

_OpenScreen = Callable[[], PagerScreen]


class ViewApp(App[None]):
    """The pager."""

    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = []
    CSS = "Screen { background: ansi_default; }"

    def __init__(self, source: Source, *, path: str | None = None, where: str | None = None) -> None:
        super().__init__(ansi_color=True)
        self.source = source
        self.pattern: Pattern | None = None
        self.histories: dict[str, list[str]] = {}
        self._path = path
        self._where = where

    @property
    def has_parent_screen(self) -> bool:
        """Whether there is a screen to go back to."""
        # The first one is an empty screen of Textual.
        return len(self.screen_stack) > 2

    async def on_mount(self) -> None:
        """Show the beginning of the payload, and then what it is."""
        numbers = [number for number in STOP_SIGNALS if number != signal.SIGINT]
        handle_stop_signals(asyncio.get_running_loop(), lambda _: self.action_exit_now(), numbers)
        job = Job("index")
        future = start_in_thread(lambda: self._prepare_first(job), daemon=True)
        # Keys that are pressed before the first screen is there wait for it.
        waiting = asyncio.wrap_future(future)
        # An error is shown by the job below. One that nobody looks at would be logged onto the screen.
        waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait([waiting], timeout=_FIRST_SCREEN_SECONDS)
        if future.done() and future.exception() is None:
            self._start(future.result()(), self.push_screen)
            return
        # If the rest is not wanted, the beginning stays.
        beginning = self.source.view
        first = self._make_lines_screen(beginning, about=f"the first {format_size(beginning.size)}")
        await self.push_screen(first)

        def show(open_screen: _OpenScreen) -> None:
            screen = open_screen()
            if isinstance(screen, TextScreen):
                # The user may have scrolled already.
                screen.list.top, screen.list.cursor = first.list.top, first.list.cursor
            self._start(screen, self.switch_screen)

        first.run_job("index", lambda shown: shown.follow(job, future), show)

    def _start(self, screen: PagerScreen, show: Callable[[PagerScreen], object]) -> None:
        """Show the screen of the whole payload, and apply the filter of the command line."""
        show(screen)
        if self._where is not None and isinstance(screen, ItemsScreen):
            screen.call_after_refresh(screen.set_filter, self._where)

    def _prepare_first(self, job: Job) -> _OpenScreen:
        self.source.load(job)
        return self._prepare_root(job) if self._path is None else self._prepare_path(self._path, job)

    async def on_event(self, event: events.Event) -> None:
        """Pass keys to the prompt of the screen, if it is open."""
        screen = self.screen if self.screen_stack else None
        if isinstance(screen, PagerScreen):
            if isinstance(event, events.Key) and not event.is_forwarded:
                if screen.intercept_key(event.key, event.character):
                    return
            elif isinstance(event, events.Paste) and not event.is_forwarded:
                screen.intercept_paste(event.text)
                return
        await super().on_event(event)

    def action_exit_now(self) -> None:
        """End the app, whatever it does."""
        self.exit()

    # Opening of values. `_prepare_…` runs in a thread, and returns what makes the screen.

    @property
    def _title(self) -> str:
        return "standard input" if self.source.name == "-" else Path(self.source.name).name

    def _prepare_root(self, job: Job) -> _OpenScreen:
        view = self.source.view
        # A single item is easier to read in a tree of the document.
        if is_mostly_items(view.items, view.size) and not (
            len(view.items) == 1 and view.size <= MAX_TREE_BYTES and view.nature == "json"
        ):
            # Only the beginning of a file was validated.
            with contextlib.suppress(InvalidJSON, CorruptIndex):
                return self._prepare_items(ItemRows(view, view.items), self.source.map, view.items_path, job)
        elif view.nature in ("json", "ndjson"):
            return self._prepare_value(_Value(view, 0, view.size), "", job)
        return lambda: self._make_lines_screen(view)

    def _prepare_items(
        self,
        items: ItemRows,
        map_payload: Callable[[Job], Buffer],
        base: str | None,
        job: Job,
        *,
        title: str | None = None,
        sql: str | None = None,
        about: str | None = None,
    ) -> _OpenScreen:
        job.start("read", 0)
        columns = choose_columns(read_sample(items), is_map=items.index.kind == "map")
        if about is None:
            where = f" at {base}" if base else ""
            noun = "row" if items.index.columns is not None else "entry" if items.index.kind == "map" else "item"
            about = f"{_plural(items.count, noun)}{where}   {format_size(items.view.size)}"
        return lambda: ItemsScreen(
            items, columns, map_payload, title=title or self._title, about=about, base=base, sql=sql
        )

    def _prepare_value(self, value: "_Value", pointer: str | None, job: Job) -> _OpenScreen:
        """Open a value: as a tree if it is small, else as a table of its entries or as text."""
        title = f"{self._title} {pointer}" if pointer else self._title
        if value.size <= MAX_TREE_BYTES:
            data = bytes(skip_bom(value.read(0, value.size)))
            job.start("read", 0)
            nodes = build_tree(data)
            about = format_size(len(data))
            return lambda: TreeScreen(data, nodes, title=title, about=about, pointer=pointer)
        first = bytes(value.read(0, 16)).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        if first not in (b"{", b"["):
            return self._prepare_string(bytes(value.read(0, _MAX_TEXT_BYTES)), value.size, pointer)
        part = PartView(value.view, value.start, value.size)
        job.start("index", value.size)
        part.items = index_entries(part, job)

        def map_part(job: Job) -> Buffer:
            return memoryview(value.map(self.source, job))[value.start : value.start + value.size]

        return self._prepare_items(ItemRows(part, part.items), map_part, pointer, job, title=title)

    def _prepare_string(self, raw: bytes, size: int, pointer: str | None) -> _OpenScreen:
        text = decode_value(raw, _MAX_TEXT_BYTES)
        about = format_size(size)
        if size > len(raw):
            about += f"; the first {format_size(len(raw))}"
        width = self.size.width
        lines = _wrap_text(text, width)
        title = f"{self._title} {pointer}" if pointer else self._title
        return lambda: TextScreen(TextRows(lines), title=title, about=about, pointer=pointer)

    def _prepare_path(self, pointer: str, job: Job) -> _OpenScreen:
        view = self.source.view
        if view.nature not in ("json", "ndjson") and view.items is None:
            raise InvalidFormat("a path leads into JSON, and this is not")
        base = view.items_path
        rest = pointer.removeprefix(base)
        match = re.fullmatch(r"/(0|[1-9]\d{0,17})(/.*)?", rest, re.DOTALL) if pointer.startswith(base) else None
        if view.items is not None and match is not None and view.items.kind != "map":
            # The index leads to an item without a scan.
            items, number = ItemRows(view, view.items), int(match[1])
            if number >= items.count:
                raise PathNotFound(f"nothing at {pointer}; there are {items.count:,} items")
            (row,) = items.read(number, 1)
            if row.full is None:
                start, end = _locate(row.data, match[2] or "", pointer)
                return self._prepare_value(_Value(BufferView(row.data), start, end - start), pointer, job)
        if view.items is not None and rest == "" and pointer.startswith(base) and view.items.kind in ("array", "map"):
            return self._prepare_items(ItemRows(view, view.items), self.source.map, base, job)
        data = skip_bom(self.source.map(job))
        shift = view.size - len(data)
        job.start("find", 0)
        start, end = _locate(data, pointer, pointer)
        return self._prepare_value(_Value(view, start + shift, end - start), pointer, job)

    def _make_lines_screen(self, view: View, about: str | None = None) -> TextScreen:
        lines = view.lines
        rows: Rows = HexRows(view) if lines is None else LineRows(view, lines)
        if about is None:
            noun = "binary" if lines is None else _plural(len(lines), "line")
            about = f"{noun}   {format_size(view.size)}"
        return TextScreen(rows, title=self._title, about=about, map_payload=self.source.map)

    # What screens ask for.

    def open_item(self, screen: ItemsScreen, row: Row) -> None:
        """Open an item."""
        base = None if screen.sql is not None else screen.get_pointer(row)

        def prepare(job: Job) -> _OpenScreen:
            if row.full is not None:
                return self._prepare_value(_Value(screen.items.view, *row.full), base, job)
            data = get_entry_value(row.data) if screen.items.index.kind == "map" else row.data
            return self._prepare_value(_Value(BufferView(data), 0, len(data)), base, job)

        self._open(screen, "open", prepare)

    def open_line(self, screen: TextScreen, row: Row) -> None:
        """Open a line: as a tree if it is JSON, else wrapped."""

        def prepare(job: Job) -> _OpenScreen:
            size = len(row.data) if row.full is None else row.full[1]
            data = row.data
            if row.full is not None and isinstance(screen.list.rows, LineRows):
                start = row.full[0]
                data = bytes(screen.list.rows.view.read(start, start + min(size, _MAX_TEXT_BYTES)))
            if data.lstrip()[:1] in (b"{", b"[") and len(data) == size:
                with contextlib.suppress(ValueError):
                    _core.locate(data, "")
                    return self._prepare_value(_Value(BufferView(data), 0, size), None, job)
            about = f"line {row.number:,}   {format_size(size)}"
            if size > len(data):
                about += f"; the first {format_size(len(data))}"
            lines = _wrap_text(decode_text(data), self.size.width)
            return lambda: TextScreen(TextRows(lines), title=self._title, about=about)

        self._open(screen, "open", prepare)

    def open_string(self, screen: PagerScreen, raw: bytes, pointer: str | None) -> None:
        """Open a string as wrapped lines."""
        self._open(screen, "open", lambda _: self._prepare_string(raw[:_MAX_TEXT_BYTES], len(raw), pointer))

    def open_path(self, screen: PagerScreen, pointer: str) -> None:
        """Open the value at a JSON Pointer."""
        pointer = pointer if pointer in ("", "/") or pointer.startswith("/") else f"/{pointer}"
        pointer = "" if pointer == "/" else pointer
        self._open(screen, "find", lambda job: self._prepare_path(pointer, job))

    def toggle_text(self, screen: PagerScreen) -> None:
        """Show the lines of the payload instead of its items, or the items again."""
        if isinstance(screen, TextScreen):
            screen.action_back()
            return

        def prepare(job: Job) -> _OpenScreen:
            view = self.source.view
            job.start("index", 0)
            # Indexes the lines, if nobody did so before.
            _ = view.lines
            return lambda: self._make_lines_screen(view)

        self._open(screen, "index", prepare)

    def show_outline(self, screen: PagerScreen) -> None:
        """Show the shape of the document."""

        def outline(job: Job) -> _OpenScreen:
            view = self.source.view
            if view.items is not None and view.items.columns is not None:
                lines = [name.encode() for name in view.items.columns]
            elif view.nature not in ("json", "ndjson"):
                raise InvalidFormat("only JSON, CSV and TSV have an outline; this is text")
            else:
                data = self.source.map(job)
                job.start("outline", 0)
                lines = _spread_outline(_core.outline(skip_bom(data), _OUTLINE_BYTES))
            return lambda: TextScreen(TextRows(lines), title=f"outline of {self._title}", about="Esc goes back")

        self._open(screen, "outline", outline)

    def show_help(self) -> None:
        """Show the keys."""
        lines = [line.encode() for line in HELP.strip("\n").split("\n")]
        self.push_screen(TextScreen(TextRows(lines), title="keys", about="Esc goes back"))

    def start_query(self, screen: PagerScreen, sql: str) -> None:
        """Run a query, and show its rows."""
        if not sql.strip():
            return
        from forebay.store.export import name_columns
        from forebay.store.queries import QueryRequest

        def run(job: Job) -> _OpenScreen:
            stored = self.source.open_stored(job)
            job.start("query", 0)
            request = QueryRequest(sql=sql, timeout=_QUERY_SECONDS, max_bytes=_MAX_QUERY_BYTES)
            try:
                page: QueryPage = stored.store.query_page(stored.handle, request, principal=stored.principal)
            except InvalidFormat:
                # The handle of a file is not known to the user. A large file may have items that are not all JSON.
                raise InvalidFormat(
                    f"{self._title} has no items to query: it is not a JSON array or map, NDJSON, CSV or TSV; "
                    "/ searches it"
                ) from None
            data = _core.name_rows(page.content, name_columns(page), 1 << 62)
            view = BufferView(data)
            index = _core.index_items(data, "", validate=False)
            shown = _plural(len(index), "row")
            if page.truncated:
                shown = f"first {shown} of {'more' if page.row_count is None else f'{page.row_count:,}'}"
            return self._prepare_items(
                ItemRows(view, index),
                lambda _: data,
                None,
                job,
                title=sql,
                sql=sql,
                about=f"{shown}   {page.ms:.0f} ms",
            )

        self._open(screen, "query", run)

    def ask_export(self, screen: PagerScreen) -> None:
        """Ask for a file name, and write the items that are shown to the file."""
        items = screen if isinstance(screen, ItemsScreen) else None
        conditions, sql = (items.conditions, items.sql) if items is not None else (None, None)
        what = "rows of the query" if sql is not None else "items of the filter" if conditions else "whole payload"
        screen.ask(
            "export to",
            lambda name: self._export(screen, name, conditions, sql) if name.strip() else None,
            hint=f"{what}; {' '.join(_EXPORT_ENDINGS)}" if self.source.view.items is not None else f"{what}, as it is",
        )

    def _export(self, screen: PagerScreen, name: str, conditions: str | None, sql: str | None) -> None:
        from forebay.outputs.export import guess_format, write_chunks

        path = Path(name.strip()).expanduser()
        ending = path.suffix.lower()
        is_whole = conditions is None and sql is None
        if is_whole and self.source.view.items is None:
            # It is written as it is. A condition that was typed into the wrong prompt, such as `= 1.5`, has no ending.
            if re.fullmatch(r"\.\w*[a-z]\w*", ending) is None:
                screen.say(f"the file name {path.name} has no ending; add one, such as .txt")
                return
        elif ending not in (*_EXPORT_ENDINGS, ".jsonl") and not (
            is_whole and ending and ending == Path(self.source.name).suffix.lower()
        ):
            screen.say(
                f"the file name {path.name} does not say the format; end it in one of {' '.join(_EXPORT_ENDINGS)}"
            )
            return

        def write(job: Job) -> str:
            if os.path.lexists(path):
                raise OutputFailed(f"there is a file {path} already; name another one")
            stored = self.source.open_stored(job)
            job.start("export", 0)
            file_format = guess_format(path.name, is_selection=conditions is not None or sql is not None)
            with stored.store.open_export(
                stored.handle, format=file_format, where=conditions, sql=sql, principal=stored.principal
            ) as export:
                try:
                    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".forebay-") as folder:
                        part = Path(folder) / "part"
                        with open(part, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                            size = write_chunks(export, file)
                        # Unlike a rename, a link fails if another process has made the file meanwhile.
                        os.link(part, path)
                except OSError as error:
                    raise OutputFailed(f"{path} cannot be written: {error.strerror or error}") from None
                rows = "" if export.rows is None else f"{_plural(export.rows, 'row')}, "
                return f"wrote {rows}{format_size(size)} to {path}"

        screen.run_job("export", write, screen.say)

    def _open(self, screen: PagerScreen, label: str, prepare: Callable[[Job], _OpenScreen]) -> None:
        """Prepare another screen in a thread, and show it, unless the user went somewhere else meanwhile."""

        def show(open_screen: _OpenScreen) -> None:
            if self.screen is screen:
                self.push_screen(open_screen())

        screen.run_job(label, prepare, show)


class _Value:
    """A value inside a view."""

    def __init__(self, view: View, start: int, size: int) -> None:
        self.view = view
        self.start = start
        self.size = size

    def read(self, start: int, end: int) -> memoryview:
        return self.view.read(self.start + start, self.start + min(end, self.size))

    def map(self, source: Source, job: Job) -> Buffer:
        """Return all bytes of the view."""
        if isinstance(self.view, BufferView):
            return self.view.data
        if isinstance(self.view, PartView):
            return self.view.map(source.map, job)
        return source.map(job)


def _locate(data: Buffer, pointer: str, full_pointer: str) -> tuple[int, int]:
    """Return the span of the value at a pointer. An error names the pointer that the user typed."""
    try:
        return _core.locate(data, pointer)
    except PathNotFound:
        raise PathNotFound(f"nothing at {full_pointer}; o shows the outline") from None


def _wrap_text(text: str, width: int) -> list[bytes]:
    """Return a text as lines that fit into the width of the screen."""
    lines: list[bytes] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        lines += [part.encode("utf-8", "replace") for part in wrap(make_safe(line, tab="    "), width - 2)]
    return lines


def _spread_outline(outline: str) -> list[bytes]:
    """Return an outline with one member on each line."""
    lines: list[str] = []
    depth, line = 0, ""
    for part in re.findall(r'"(?:[^"\\]|\\.)*"|[{}]|, |[^"{},]+|.', outline):
        match part:
            case "{":
                lines.append(f"{'  ' * depth}{line}{{")
                depth, line = depth + 1, ""
            case "}":
                lines.append(f"{'  ' * depth}{line}")
                depth, line = max(depth - 1, 0), "}"
            case ", ":
                lines.append(f"{'  ' * depth}{line}")
                line = ""
            case _:
                line += part
    return [each.encode() for each in [*lines, f"{'  ' * depth}{line}"] if each.strip()]


def _plural(count: int, noun: str) -> str:
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else many}"
