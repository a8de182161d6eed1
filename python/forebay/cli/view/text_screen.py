"""Lines of text: of a log, of a hex dump, or of a text that was wrapped."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual.binding import BindingType
from typing_extensions import Buffer

from forebay.cli.view.cells import cut, decode_text, fit, make_safe, skip_cells
from forebay.cli.view.copies import Place
from forebay.cli.view.find import ByteFinder, Finder, RowFinder
from forebay.cli.view.jobs import Job
from forebay.cli.view.row_list import DIM, PLAIN, REVERSE
from forebay.cli.view.rows import HexRows, LineRows, Row, Rows
from forebay.cli.view.screen import PagerScreen, highlight

__all__ = ["TextScreen"]

_SIDE_STEP = 20
_TAB = "    "
_BYTES_PER_HEX_ROW = 16


class TextScreen(PagerScreen):
    """Lines, with their numbers if they are those of the payload."""

    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(
        self,
        rows: Rows,
        *,
        title: str,
        about: str,
        map_payload: Callable[[Job], Buffer] | None = None,
        pointer: str | None = None,
    ) -> None:
        super().__init__(rows, title, about)
        self._map = map_payload
        self._left = 0
        self._pointer = pointer
        self._width = 0

    @property
    def _gutter(self) -> int:
        return len(f"{self.list.rows.count:,}") + 1 if isinstance(self.list.rows, LineRows) else 0

    def draw_row(self, row: Row, position: int, width: int, is_cursor: bool) -> Sequence[Segment]:  # noqa: ARG002
        gutter = self._gutter
        segments = [Segment(fit(f"{row.number:,}", gutter, is_right=True), DIM)] if gutter else []
        room = width - gutter - 1
        # A line that is scrolled far to the side needs more of its bytes.
        data = row.data[: (self._left + room) * 4 + 64]
        text = make_safe(decode_text(data), tab=_TAB)
        text = skip_cells(text, self._left)
        if len(data) < len(row.data) or row.full is not None:
            text += "…"
        text = cut(text, room)
        style = REVERSE if is_cursor else PLAIN
        drawn = [*segments, Segment(" "), *highlight(text, style, self.viewer.pattern)]
        if is_cursor:
            drawn.append(Segment(" " * (room - cell_len(text)), style))
        return drawn

    def action_sideways(self, step: int) -> None:
        self._left = max(self._left + step * _SIDE_STEP, 0)
        self.list.redraw()

    def open_row(self, row: Row) -> None:
        if isinstance(self.list.rows, LineRows):
            self.viewer.open_line(self, row)

    def get_place(self) -> Place:
        row = self.list.row
        if row is None or self._pointer is not None:
            return Place(self._pointer)
        if isinstance(self.list.rows, HexRows):
            return Place(byte=(row.number * _BYTES_PER_HEX_ROW, _BYTES_PER_HEX_ROW))
        return Place(line=row.number) if isinstance(self.list.rows, LineRows) else Place()

    def make_finder(self) -> Finder:
        rows = self.list.rows
        if isinstance(rows, LineRows) and self._map is not None:
            return ByteFinder(rows.view, rows.index, "line", self._map)
        return RowFinder(rows, "line")
