"""Tables that fit into the terminal: columns that get narrower, and columns that are left out."""

import dataclasses
import itertools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from forebay.cli.output.nested import NestedCell
from forebay.cli.output.streams import handle_output_errors, print_rich
from forebay.cli.output.terminal import get_console, is_ascii_only, to_plain_text

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["Column", "fit_columns", "print_columns", "print_table"]

_PADDING = 2
_MAX_KEPT_WIDTH = 28
_MIN_CUT_WIDTH = 6
_MIN_REASON_WIDTH = 10
_NUMBER_PATTERN = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?: ?[kMGTP]?B| s| %)?")
_LINE_CONTROLS = {ord("\n"): "\N{SYMBOL FOR LINE FEED}", ord("\t"): "\N{SYMBOL FOR HORIZONTAL TABULATION}"}
_HANDLE_PATTERN = re.compile(r"oh_[A-Z2-7]+")


@dataclasses.dataclass(slots=True)
class Column:
    """A column of a table. Its cells are texts, or values that are shown as text."""

    heading: str
    cells: Sequence[Any]
    is_numeric: bool = False
    """Whether its cells are aligned at the right."""
    min_width: int | None = None
    """Width to which long cells may be cut; by default no cell is cut."""
    short_cells: Sequence[Any] | None = None
    """Shorter texts for cells that do not fit. They are cut only if no column of a higher rank is left.

    If no cell is longer than `_MAX_KEPT_WIDTH`, this is true of the cells themselves.
    """
    is_folded: bool = False
    """Whether long cells continue on the next line instead of being cut."""
    rank: int = 0
    """Columns that do not fit are left out, the highest rank first. A column of rank 0 always stays."""


def print_table(
    columns: dict[str, list[Any]], optional_columns: Sequence[str] = (), *, keeps_empty: bool = False
) -> None:
    """Print a table of any values. Numbers and handles are never cut, other cells if the table is too wide.

    If it would be too wide even so, `optional_columns` are left out, one after the other.
    """
    ranks = {name: len(optional_columns) - place for place, name in enumerate(optional_columns)}
    made = []
    for name, cells in columns.items():
        is_numeric = _are_all(_NUMBER_PATTERN, cells)
        is_cut = not is_numeric and not _are_all(_HANDLE_PATTERN, cells)
        min_width = _MIN_REASON_WIDTH if name == "reason" else _MIN_CUT_WIDTH
        # The names of a query's columns may come from the payload.
        heading = _make_text(name).plain
        made.append(Column(heading, cells, is_numeric, min_width if is_cut else None, rank=ranks.get(name, 0)))
    print_columns(made, keeps_empty=keeps_empty)


def _are_all(pattern: re.Pattern[str], cells: Sequence[Any]) -> bool:
    """Return whether all cells that are not empty match a pattern, and there are any."""
    texts = [str(cell) for cell in cells if not _is_empty(cell)]
    return bool(texts) and all(pattern.fullmatch(text) for text in texts)


def _is_empty(cell: object) -> bool:
    return cell is None or str(cell) == ""


def print_columns(
    columns: Sequence[Column], *, keeps_empty: bool = False, row_heads: Sequence[str | None] | None = None
) -> None:
    """Print columns as a table without those that are empty. A line with the head of a row stands above the row."""
    filled = [column for column in columns if keeps_empty or not all(map(_is_empty, column.cells))]
    if not filled:
        print_rich("nothing", style="dim")
        return
    from rich.text import Text

    texts = {id(column): [_make_text(cell) for cell in column.cells] for column in filled}

    def measure(column: Column) -> int:
        return max([cell.cell_len for cell in texts[id(column)]] + [len(column.heading)])

    shown, fitted = fit_columns(filled, [*map(measure, filled)], get_console().width)
    for column, width in zip(shown, fitted, strict=True):
        if column.short_cells is not None:
            texts[id(column)] = [
                cell if cell.cell_len <= width else _make_text(short)
                for cell, short in zip(texts[id(column)], column.short_cells, strict=True)
            ]
        texts[id(column)] = _summarize_nested(column.cells, texts[id(column)], width)
    # What the short forms leave is for the other columns, and what these leave is for summaries.
    shown, fitted = fit_columns(shown, [*map(measure, shown)], get_console().width)
    spare = max(0, get_console().width - sum(fitted) - _PADDING * (len(shown) - 1))
    for place, column in enumerate(shown):
        texts[id(column)] = _summarize_nested(column.cells, texts[id(column)], fitted[place] + spare)
        widest = max(fitted[place], min(measure(column), fitted[place] + spare))
        spare, fitted[place] = spare - (widest - fitted[place]), widest
    headings = [Text(column.heading, style="dim") for column in shown]
    lines = _render_row(headings, shown, fitted)
    for place, cells in enumerate(zip(*(texts[id(column)] for column in shown), strict=True)):
        if row_heads is not None and row_heads[place] is not None:
            head = to_plain_text(row_heads[place])
            head.stylize("bold")
            lines.append(_cut(head, get_console().width))
        lines += _render_row(cells, shown, fitted)
    with handle_output_errors():
        get_console().print(Text("\n").join(lines), soft_wrap=True, highlight=False)


def _render_row(cells: Sequence["Text"], columns: Sequence[Column], widths: Sequence[int]) -> list["Text"]:
    """Return the lines of a row: more than one if a cell is folded."""
    from rich.text import Text

    parts = [
        _fold(cell, width) if column.is_folded else [_cut(cell, width)]
        for cell, column, width in zip(cells, columns, widths, strict=True)
    ]
    lines = []
    for line in itertools.zip_longest(*parts, fillvalue=Text()):
        padded = []
        for part, column, width in zip(line, columns, widths, strict=True):
            space = Text(" " * (width - part.cell_len))
            padded.append(Text.assemble(space, part) if column.is_numeric else Text.assemble(part, space))
        joined = Text(" " * _PADDING).join(padded)
        joined.rstrip()
        lines.append(joined)
    return lines


def _fold(text: "Text", width: int) -> list["Text"]:
    return [*text.wrap(get_console(), width, overflow="fold")] or [text]


def fit_columns(columns: Sequence[Column], widths: Sequence[int], available: int) -> tuple[list[Column], list[int]]:
    """Return the columns that fit into a width, and the width of each; `widths` are those of their longest cells."""
    places = [*range(len(columns))]
    while True:
        highest = max(columns[place].rank for place in places)
        least = {place: _get_least_width(columns[place], widths[place], highest) for place in places}
        is_fitting = sum(least.values()) + _PADDING * (len(places) - 1) <= available
        if is_fitting or highest == 0 or len(places) == 1:
            break
        places.remove(max(places, key=lambda place: columns[place].rank))
    room = available - _PADDING * (len(places) - 1)
    fitted = {place: widths[place] for place in places}
    while sum(fitted.values()) > room and (wider := [place for place in places if fitted[place] > least[place]]):
        # The widest columns lose most.
        fitted[max(wider, key=lambda place: fitted[place])] -= 1
    return [columns[place] for place in places], [fitted[place] for place in places]


def _get_least_width(column: Column, width: int, highest_rank: int) -> int:
    """Return the width that a column must have, if the highest rank of all columns is this one."""
    if column.min_width is None:
        return width
    least = column.min_width
    if column.short_cells is not None and column.rank < highest_rank:
        short_width = max([_make_text(cell).cell_len for cell in column.short_cells], default=0)
        least = max(least, width if width <= _MAX_KEPT_WIDTH else short_width)
    return min(width, max(least, len(column.heading)))


def _make_text(cell: object) -> "Text":
    from rich.text import Text

    if isinstance(cell, Text):
        return cell
    text = to_plain_text(cell)
    # A row is one line.
    text.plain = text.plain.translate(_LINE_CONTROLS)
    return text


def _summarize_nested(cells: Sequence[Any], texts: Sequence["Text"], width: int) -> list["Text"]:
    """Return the texts of cells, with summaries in place of objects and lists that are wider than `width`."""
    return [
        _make_text(cell.summarize(width, _get_ellipsis())) if isinstance(cell, NestedCell) else text
        for cell, text in zip(cells, texts, strict=True)
    ]


def _get_ellipsis() -> str:
    return "~" if is_ascii_only() else "…"


def _cut(text: "Text", width: int) -> "Text":
    """Return a text of at most `width` characters; a mark stands for what was cut."""
    if text.cell_len <= width:
        return text
    from rich.text import Text

    cut = text.copy()
    cut.truncate(width - 1, overflow="crop")
    return Text.assemble(cut, _get_ellipsis())
