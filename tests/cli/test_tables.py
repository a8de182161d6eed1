"""Tables fit into the terminal: columns get narrower, and the least important are left out."""

from forebay.cli.output.tables import Column, fit_columns
from hypothesis import given
from hypothesis import strategies as st

PADDING = 2


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Column], list[int]]:
    columns = []
    widths = []
    for _ in range(draw(st.integers(1, 9))):
        width = draw(st.integers(1, 60))
        columns.append(
            Column(
                "x" * draw(st.integers(0, width)),
                [],
                min_width=draw(st.none() | st.integers(1, 30)),
                rank=draw(st.integers(0, 5)),
            )
        )
        widths.append(width)
    return columns, widths


@given(tables(), st.integers(20, 200))
def test_a_table_fits_unless_all_that_is_left_must_stay(table: tuple[list[Column], list[int]], available: int) -> None:
    columns, widths = table
    shown, fitted = fit_columns(columns, widths, available)
    total = sum(fitted) + PADDING * (len(fitted) - 1)
    natural = dict(zip(map(id, columns), widths, strict=True))
    for column, width in zip(shown, fitted, strict=True):
        least = natural[id(column)] if column.min_width is None else max(column.min_width, len(column.heading))
        assert min(least, natural[id(column)]) <= width <= natural[id(column)]
    assert total <= available or all(column.rank == 0 for column in shown) or len(shown) == 1
    left_out = [column for column in columns if not any(column is other for other in shown)]
    assert all(column.rank > 0 for column in left_out)
    if left_out and shown:
        # The highest ranks went first.
        assert max(column.rank for column in shown) <= min(column.rank for column in left_out)


@given(tables())
def test_a_wide_terminal_shows_everything(table: tuple[list[Column], list[int]]) -> None:
    columns, widths = table
    assert fit_columns(columns, widths, 1000) == (columns, widths)


def test_the_widest_column_is_cut_first() -> None:
    columns = [Column("a", []), Column("b", [], min_width=5), Column("c", [], min_width=5)]
    assert fit_columns(columns, [10, 30, 12], 40)[1] == [10, 14, 12]
    assert fit_columns(columns, [10, 30, 12], 30)[1] == [10, 8, 8]


def test_columns_are_left_out_by_rank() -> None:
    columns = [Column("a", []), Column("b", [], rank=2), Column("c", [], rank=1)]
    for available, headings in ((36, "abc"), (35, "ac"), (23, "a"), (3, "a")):
        assert "".join(column.heading for column in fit_columns(columns, [10, 10, 12], available)[0]) == headings


def test_a_short_form_is_cut_only_if_nothing_else_can_be_left_out() -> None:
    name, tool = Column("a", [], min_width=4, short_cells=["x" * 12], rank=1), Column("b", [], min_width=8, rank=2)
    for available, expected in ((60, [40, 15]), (40, [23, 15]), (22, [12, 8]), (21, [21]), (8, [8]), (3, [])):
        columns = [Column("0", []), name, tool] if expected == [] else [name, tool]
        widths = [3, 40, 15] if expected == [] else [40, 15]
        shown = fit_columns(columns, widths, available)[1]
        assert shown == (expected or [3])
