"""Items as a table: fields are columns, and the cursor is in a cell."""

import bisect
from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from typing_extensions import Buffer

from forebay._core import locate
from forebay.arguments import is_text
from forebay.cli.view.cells import cut, fit
from forebay.cli.view.columns import KEY, VALUE, Column, choose_columns, find_empty, name_columns, read_cells
from forebay.cli.view.conditions import parse_conditions
from forebay.cli.view.copies import Place
from forebay.cli.view.filter import filter_items
from forebay.cli.view.find import ByteFinder, Finder, RowFinder
from forebay.cli.view.jobs import Job
from forebay.cli.view.row_list import DIM, PLAIN
from forebay.cli.view.rows import ItemRows, MatchRows, Row, read_sample
from forebay.cli.view.screen import PagerScreen, bind, highlight
from forebay.cli.view.tree import decode_key
from forebay.errors import ForebayError
from forebay.store.rest import encode_token

__all__ = ["ItemsScreen"]

_MAX_WIDTH = 40
_GAP = 2
_MAX_CERTAIN_KEY_BYTES = 1024
"""Size of keys that no overview cuts."""
_BOLD = Style(bold=True)
_HEADING = Style(bold=True, underline=True)
_NUMBER = Style(color="cyan")
_CURSOR_CELL = Style(reverse=True)
_CURRENT_COLUMN = Style(bold=True, reverse=True)


class ItemsScreen(PagerScreen):
    """The items of a payload, or those that a filter left, or the rows of a query."""

    unit = "item"

    BINDINGS: ClassVar[list[BindingType]] = [
        bind("c", "ask_columns"),
        bind("0,circumflex_accent", "edge_column(0)"),
        bind("dollar_sign", "edge_column(-1)"),
    ]

    def __init__(
        self,
        items: ItemRows,
        columns: list[Column],
        map_payload: Callable[[Job], Buffer],
        *,
        title: str,
        about: str,
        base: str | None,
        sql: str | None = None,
        rows: ItemRows | MatchRows | None = None,
    ) -> None:
        self.items = items
        self.columns = columns
        self.column = 0
        self._first_column = 0
        self._map = map_payload
        self._base = base
        """JSON Pointer of the collection; `None` if the items are no part of the payload."""
        self._sql = sql
        self._about = about
        self._conditions = rows.conditions if isinstance(rows, MatchRows) else None
        self._layout: tuple[object, list[int]] = (None, [])
        self._typed_filter = ""
        """The filter as the user typed it."""
        self._is_found = False
        """Whether the cursor is to go to the column of a match, once the row is there."""
        super().__init__(rows or items, title, about)
        self._show_title()

    @property
    def conditions(self) -> str | None:
        """The filter, as `where` takes it."""
        return self._conditions

    @property
    def sql(self) -> str | None:
        """The query of whose result these are the rows."""
        return self._sql

    @property
    def can_search_values(self) -> bool:
        return self.items.index.columns is None

    # Drawing.

    @property
    def _gutter(self) -> int:
        return len(f"{max(self.items.count, 1):,}") + 1

    def _measure(self, width: int) -> list[int]:
        """Return the width of each column. What is left of the screen goes to columns that are cut."""
        key = (width, tuple(self.columns), self._first_column)
        if self._layout[0] == key:
            return self._layout[1]
        widths = [min(column.width, _MAX_WIDTH) for column in self.columns]
        room = width - self._gutter - sum(each + _GAP for each in widths[self._first_column :])
        for number in range(self._first_column, len(widths)):
            more = min(max(room, 0), self.columns[number].width - widths[number])
            widths[number] += more
            room -= more
        self._layout = (key, widths)
        return widths

    def draw_header(self, width: int) -> Sequence[Segment]:
        segments = [Segment(" " * self._gutter)]
        left = width - self._gutter
        for number, each in self._visible(width):
            column = self.columns[number]
            text = fit(column.name, min(each, left - _GAP), is_right=column.is_right)
            style = _CURRENT_COLUMN if number == self.column else _HEADING
            segments += [Segment(" " * _GAP), Segment(text, style)]
            left -= each + _GAP
        return segments

    def _visible(self, width: int) -> list[tuple[int, int]]:
        """Return number and width of each column that is at least partly on the screen."""
        widths, room = self._measure(width), width - self._gutter
        visible = []
        for number in range(self._first_column, len(widths)):
            if room <= _GAP:
                break
            visible.append((number, min(widths[number], room - _GAP)))
            room -= widths[number] + _GAP
        return visible

    def draw_row(self, row: Row, position: int, width: int, is_cursor: bool) -> Sequence[Segment]:  # noqa: ARG002
        segments = [Segment(fit(f"{row.number:,}", self._gutter, is_right=True), _BOLD if is_cursor else DIM)]
        pattern = self.viewer.pattern
        cells = read_cells(row.data, self.columns)
        if len(cells) != len(self.columns):
            text = cut(cells[0], width - self._gutter - _GAP)
            return [*segments, Segment(" " * _GAP), *highlight(text, _CURSOR_CELL if is_cursor else PLAIN, pattern)]
        for number, each in self._visible(width):
            column, cell = self.columns[number], cells[number]
            style = _NUMBER if column.is_right else DIM if cell in ("null", "true", "false") else PLAIN
            if is_cursor and number == self.column:
                style = _CURSOR_CELL
            text = fit(cell, each, is_right=column.is_right)
            segments += [Segment(" " * _GAP), *highlight(text, style, pattern)]
        return segments

    def _show_title(self) -> None:
        about = self._about
        if self._conditions is not None:
            count, _, _ = about.partition("   ")
            about = f"{self.list.rows.count:,} of {count}   where {self._typed_filter}"
        self.title_line.set_about(about)

    # Columns.

    def action_sideways(self, step: int) -> None:
        self.say("")
        self.select_column(self.column + step)

    def action_edge_column(self, number: int) -> None:
        self.select_column(number % len(self.columns))

    def select_column(self, number: int) -> None:
        """Move the cursor to a column, and scroll it onto the screen."""
        self.column = max(min(number, len(self.columns) - 1), 0)
        self._first_column = min(self._first_column, self.column)
        width = self.list.size.width - 1
        while self._first_column < self.column:
            widths = self._measure(width)
            used = self._gutter + sum(each + _GAP for each in widths[self._first_column : self.column + 1])
            if used <= width:
                break
            self._first_column += 1
        self.list.redraw()
        self.status.refresh()

    def action_ask_columns(self) -> None:
        self.ask("columns", self._set_columns, name_columns(self.columns), "^U clears; empty: choose them again")

    def _set_columns(self, text: str) -> None:
        names = [name.strip() for name in text.split(",") if name.strip()] or None
        first = self.list.top

        def choose(job: Job) -> tuple[list[Column], list[Column]]:
            job.advance(0)
            rows = read_sample(self.list.rows, first)
            columns = choose_columns(rows, names, is_map=self.items.index.kind == "map")
            return columns, [] if names is None else find_empty(rows, columns)

        def show(result: tuple[list[Column], list[Column]]) -> None:
            self.columns, empty = result
            self._first_column = 0
            self.select_column(0)
            self.say(f"no item here has {name_columns(empty)}; o shows the outline" if empty else "")

        self.run_job("columns", choose, show)

    def choose(self, column: int) -> None:
        start = self._gutter
        for number, each in self._visible(self.list.size.width - 1):
            start += _GAP + each
            if column < start:
                self.select_column(number)
                return

    def go_to(self, number: int) -> None:
        rows = self.list.rows
        if rows is self.items:
            super().go_to(number)
            return

        def find(_: Job) -> int:
            # Of the items that a filter left, the next one.
            return bisect.bisect_left(range(rows.count), number, key=lambda position: rows.read(position, 1)[0].number)

        self.run_job("find", find, lambda position: self.list.move_to(position, is_centered=True))

    # The filter.

    def action_ask_filter(self) -> None:
        if self._sql is not None:
            self.say("rows of a query have no filter; put a WHERE into the statement")
            return
        self.ask(
            "filter",
            self.set_filter,
            self._typed_filter if self._conditions else "",
            'status = failed and total > 200, or {"status": "failed"}',
        )

    def set_filter(self, text: str) -> None:
        """Show only the items that fulfil conditions; all items if there are none."""
        if not text.strip():
            self._show_rows(self.items)
            return
        try:
            conditions = parse_conditions(text)
        except ForebayError as error:
            self.say(str(error))
            return

        def show(result: tuple[MatchRows, str]) -> None:
            rows, hint = result
            self._typed_filter = text.strip()
            self._show_rows(rows)
            self.say(hint)

        self.run_job("filter", lambda job: filter_items(self.items, conditions, job), show)

    def _show_rows(self, rows: ItemRows | MatchRows) -> None:
        row = self.list.row
        self._conditions = rows.conditions if isinstance(rows, MatchRows) else None
        # Without the filter, the cursor stays in its item.
        self.list.set_rows(rows, row.number if row is not None and self._conditions is None else 0)
        self._show_title()
        self.list.redraw()

    def escape(self) -> None:
        if self._conditions is not None:
            self._show_rows(self.items)
        else:
            super().escape()

    # What the cursor is at.

    def get_pointer(self, row: Row) -> str | None:
        """Return the JSON Pointer of an item, or `None` if none leads to it."""
        if self._base is None:
            return None
        if self.items.index.kind != "map":
            return f"{self._base}/{row.number}"
        start, end = locate(row.data, f"/{KEY}")
        if row.full is not None and end - start > _MAX_CERTAIN_KEY_BYTES and row.data[start:end].endswith(b'..."'):
            # The overview of a large entry cuts a very long key.
            return None
        key = decode_key(row.data[start:end])
        return f"{self._base}/{encode_token(key)}" if is_text(key) else None

    def get_place(self) -> Place:
        row = self.list.row
        if self._sql is not None or row is None:
            return Place(sql=self._sql)
        pointer = self.get_pointer(row)
        column = self.columns[self.column]
        if pointer is None or column.path == (KEY,) or self._find_cell(row) is None:
            return Place(pointer)
        if column.path[:1] == (VALUE,) and self.items.index.kind == "map":
            # The pointer of the entry is that of its value.
            return Place(pointer + column.pointer.removeprefix(f"/{VALUE}"))
        return Place(pointer + column.pointer)

    def _find_cell(self, row: Row) -> bytes | None:
        """Return the value of the cell at the cursor; `None` if the item does not have it."""
        path = self.columns[self.column].pointer
        try:
            start, end = locate(row.data, path)
        except ForebayError:
            return None
        return row.data[start:end]

    def get_value(self) -> bytes | None:
        row = self.list.row
        if row is None:
            return None
        return (self._find_cell(row) if row.full is None else None) or row.data

    def open_row(self, row: Row) -> None:
        self.viewer.open_item(self, row)

    # Search.

    def make_finder(self) -> Finder:
        if self.list.rows is self.items:
            return ByteFinder(self.items.view, self.items.index, "item", self._map)
        return RowFinder(self.list.rows, "item")

    def show_found(self, row: int) -> None:
        super().show_found(row)
        self._is_found = True

    def on_row_list_moved(self) -> None:
        super().on_row_list_moved()
        row, pattern = self.list.row, self.viewer.pattern
        if self._is_found and row is not None and pattern is not None:
            self._is_found = False
            cells = read_cells(row.data, self.columns)
            for number, cell in enumerate(cells if len(cells) == len(self.columns) else []):
                if highlight(cell, PLAIN, pattern)[1:]:
                    self.select_column(number)
                    break
