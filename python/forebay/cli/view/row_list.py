"""A list of any number of rows, of which only those on the screen are read and drawn."""

from collections.abc import Callable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from forebay.cli.view.cells import cut, make_safe
from forebay.cli.view.rows import Row, Rows
from forebay.errors import ForebayError
from forebay.store.cache import LRUCache
from forebay.store.threads import run_in_thread

__all__ = ["DIM", "PLAIN", "REVERSE", "RowList"]

PLAIN = Style()
DIM = Style(dim=True)
REVERSE = Style(reverse=True)

_BLOCK_ROWS = 64
"""Rows that are read at a time."""

_MAX_CACHED_BYTES = 8 << 20
_PLACEHOLDER_SECONDS = 0.15
"""Time after which rows that are not read yet are drawn as such. Most are read sooner, and then nothing flickers."""

_WHEEL_ROWS = 3


class RowList(Widget, can_focus=True):
    """Rows with a cursor. The owner draws them, with `draw_row` and `draw_header`."""

    DEFAULT_CSS = "RowList { height: 1fr; width: 1fr; }"

    class Moved(Message):
        """The cursor is in another row, which has been read."""

    class Chosen(Message):
        """A row was clicked."""

        def __init__(self, column: int) -> None:
            super().__init__()
            self.column = column
            """Where in the row, in cells."""

    def __init__(
        self,
        rows: Rows,
        draw_row: Callable[[Row, int, int, bool], Sequence[Segment]],
        draw_header: Callable[[int], Sequence[Segment]] | None = None,
    ) -> None:
        super().__init__()
        self.rows = rows
        self.top = 0
        self.cursor = 0
        self._draw_row = draw_row
        self._draw_header = draw_header
        self._shown = (0, 0)
        self._blocks: LRUCache[int, list[Row]] = LRUCache(_MAX_CACHED_BYTES, _measure_block)
        self._errors: dict[int, str] = {}
        """Why blocks could not be read."""
        self._generation = 0
        self._is_reading = False

    @property
    def page_rows(self) -> int:
        """How many rows the screen has room for."""
        return max(self.size.height - (self._draw_header is not None), 1)

    @property
    def row(self) -> Row | None:
        """The row at the cursor, if it has been read."""
        return self._get(self.cursor)

    def set_rows(self, rows: Rows, cursor: int = 0) -> None:
        """Show other rows, or the same ones read again."""
        self.rows = rows
        self._generation += 1
        self._blocks = LRUCache(_MAX_CACHED_BYTES, _measure_block)
        self._errors = {}
        self.move_to(cursor)

    def redraw(self) -> None:
        """Draw the rows again, because the owner would draw them differently."""
        self.refresh()

    def move_to(self, row: int, *, is_centered: bool = False) -> None:
        """Put the cursor into a row, and scroll as far as needed."""
        self.cursor = max(min(row, self.rows.count - 1), 0)
        page = self.page_rows
        if is_centered and not self.top <= self.cursor < self.top + page:
            self.top = self.cursor - page // 2
        self.top = max(min(self.top, self.cursor), self.cursor - page + 1)
        self._clamp()

    def move_by(self, count: int) -> None:
        self.move_to(self.cursor + count)

    def page_by(self, pages: float) -> None:
        """Scroll by pages. The cursor keeps its place on the screen."""
        count = int(pages * self.page_rows) or (1 if pages > 0 else -1)
        self.top += count
        self.cursor = max(min(self.cursor + count, self.rows.count - 1), 0)
        self._clamp()

    def scroll_rows(self, count: int) -> None:
        """Scroll without moving the cursor, unless it would leave the screen."""
        self.top = max(min(self.top + count, self.rows.count - self.page_rows), 0)
        self.cursor = max(min(self.cursor, self.top + self.page_rows - 1, self.rows.count - 1), self.top, 0)
        self._clamp()

    def _clamp(self) -> None:
        self.top = max(min(self.top, self.rows.count - self.page_rows), 0)
        self._show()

    def _show(self) -> None:
        """Draw the rows as soon as they have been read."""
        if not self._find_missing():
            self._present()
            return
        if not self._is_reading:
            self._is_reading = True
            self.run_worker(self._read_missing(), group="rows", exit_on_error=True)
        generation = self._generation, self.top, self.cursor
        self.set_timer(_PLACEHOLDER_SECONDS, lambda: self._present_late(generation))

    def _present_late(self, wanted: tuple[int, int, int]) -> None:
        if wanted == (self._generation, self.top, self.cursor) and self._shown != (self.top, self.cursor):
            self._shown = (self.top, self.cursor)
            self.refresh()

    def _present(self) -> None:
        self._shown = (self.top, self.cursor)
        self.refresh()
        self.post_message(self.Moved())

    def _find_missing(self) -> list[int]:
        if self.rows.count == 0:
            return []
        last = min(self.top + self.page_rows, self.rows.count) - 1
        numbers = {*range(self.top // _BLOCK_ROWS, last // _BLOCK_ROWS + 1), self.cursor // _BLOCK_ROWS}
        return [
            number
            for number in sorted(numbers)
            if number not in self._errors and self._blocks.get(number, None) is None
        ]

    async def _read_missing(self) -> None:
        try:
            while missing := self._find_missing():
                rows, generation, number = self.rows, self._generation, missing[0]
                try:
                    block = await run_in_thread(
                        lambda rows=rows, number=number: rows.read(number * _BLOCK_ROWS, _BLOCK_ROWS),  # type: ignore[misc]
                        daemon=True,
                    )
                except (ForebayError, OSError) as error:
                    if generation == self._generation:
                        self._errors[number] = str(error)
                    continue
                if generation == self._generation:
                    self._blocks[number] = block
        finally:
            self._is_reading = False
        self._present()

    def _get(self, position: int) -> Row | None:
        block = self._blocks.get(position // _BLOCK_ROWS, None)
        at = position % _BLOCK_ROWS
        return block[at] if block is not None and at < len(block) else None

    def on_resize(self) -> None:
        """Keep the cursor on the screen."""
        self.move_to(self.cursor)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_rows(_WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_rows(-_WHEEL_ROWS)

    def on_click(self, event: events.Click) -> None:
        row = self._shown[0] + event.y - (self._draw_header is not None)
        if self._shown[0] <= row < self.rows.count:
            self.move_to(row)
            self.post_message(self.Chosen(event.x))

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if self._draw_header is not None:
            if y == 0:
                return _make_strip(self._draw_header(width), width)
            y -= 1
        top, cursor = self._shown
        position = top + y
        if position >= self.rows.count:
            text = "nothing here" if self.rows.count == 0 and y == 0 else ""
            return _make_strip([Segment(f" {text}", DIM)], width)
        row = self._get(position)
        bar = self._draw_scroll_bar(y)
        if row is None:
            text = self._errors.get(position // _BLOCK_ROWS, "…")
            return _make_strip([Segment(cut(f" {make_safe(text)}", width - 1), DIM)], width - 1, bar)
        return _make_strip(self._draw_row(row, position, width - 1, position == cursor), width - 1, bar)

    def _draw_scroll_bar(self, y: int) -> Segment:
        count, page = self.rows.count, self.page_rows
        if count <= page:
            return Segment(" ")
        size = max(page * page // count, 1)
        start = round(self._shown[0] * (page - size) / (count - page))
        return Segment("█" if start <= y < start + size else "│", DIM)


def _make_strip(segments: Sequence[Segment], width: int, *last: Segment) -> Strip:
    """Return segments as a line of exactly this width, then the last ones."""
    strip = Strip([segment for segment in segments if segment.text]).adjust_cell_length(max(width, 0), PLAIN)
    return Strip([*strip, *last]) if last else strip


def _measure_block(block: list[Row]) -> int:
    return sum(len(row.data) + 200 for row in block)
