"""Bars and sparklines: as long as their values, and never wrong at the ends."""

import pytest
from forebay.cli.output.charts import format_bar, format_share, format_sparkline, get_share
from hypothesis import given
from hypothesis import strategies as st

widths = st.integers(1, 200)
shares = st.floats(0, 1)
values = st.lists(st.integers(-(10**30), 10**30) | st.floats(-1e300, 1e300), max_size=300)


def measure_bar(bar: str) -> int:
    """Return the length of a bar in eighths."""
    return sum("▏▎▍▌▋▊▉█#".index(character) + 1 if character != "#" else 8 for character in bar)


@given(shares, shares, widths, st.booleans())
def test_a_larger_share_has_no_shorter_bar(one: float, other: float, width: int, is_ascii: bool) -> None:
    short, long = (format_bar(share, width, is_ascii=is_ascii) for share in sorted((one, other)))
    assert measure_bar(short) <= measure_bar(long) <= 8 * width
    assert len(long) <= width
    assert not is_ascii or long.isascii()


@given(st.floats(allow_infinity=True, allow_nan=False), widths, st.booleans())
def test_a_bar_is_empty_only_for_nothing(share: float, width: int, is_ascii: bool) -> None:
    bar = format_bar(share, width, is_ascii=is_ascii)
    assert (bar == "") == (share <= 0)
    if share >= 1:
        assert bar == "█#"[is_ascii] * width
    elif width > 1:
        assert measure_bar(bar) < 8 * width


@given(shares, widths, st.booleans())
def test_a_bar_is_as_long_as_its_share(share: float, width: int, is_ascii: bool) -> None:
    unit = 8 if is_ascii else 1
    assert abs(measure_bar(format_bar(share, width, is_ascii=is_ascii)) - share * width * 8) <= unit


@given(shares, widths, st.booleans())
def test_the_parts_of_a_share_fill_the_width(share: float, width: int, is_ascii: bool) -> None:
    filled, rest = format_share(share, width, is_ascii=is_ascii)
    assert len(filled + rest) == width
    if width > 1:
        assert (filled == "") == (share == 0)
        assert (rest == "") == (share == 1)


@pytest.mark.parametrize(
    ("value", "largest", "share"), [(0, 0, 0), (5, 0, 0), (-5, 10, 0), (5, 10, 0.5), (20, 10, 1), (10**400, 10**400, 1)]
)
def test_a_share_is_between_nothing_and_all(value: int, largest: int, share: float) -> None:
    assert get_share(value, largest) == share


@given(values, widths, st.booleans())
def test_a_sparkline_fits(numbers: list[float], width: int, is_ascii: bool) -> None:
    line = format_sparkline(numbers, width, is_ascii=is_ascii)
    assert len(line) <= width
    assert len(line) == len(numbers) or len(numbers) > width
    assert (line == "") == (not numbers)
    assert set(line) <= set("_.:-=+*#" if is_ascii else "▁▂▃▄▅▆▇█")
    if any(number > 0 for number in numbers):
        assert "█#"[is_ascii] in line


@given(st.lists(st.integers(0, 10**18), min_size=2, max_size=50))
def test_columns_of_a_sparkline_are_in_the_order_of_the_values(numbers: list[int]) -> None:
    line = format_sparkline(numbers, len(numbers))
    for (one, left), (other, right) in zip(
        zip(numbers, line, strict=True), zip(numbers[1:], line[1:], strict=True), strict=False
    ):
        assert left <= right if one <= other else left >= right
    assert [column == "▁" for column in line] == [number == 0 for number in numbers]


@pytest.mark.parametrize(
    ("numbers", "line"),
    [([], ""), ([0], "▁"), ([7], "█"), ([0, 0, 0], "▁▁▁"), ([-3, 0, 1], "▁▁█"), ([1, 10**40], "▂█")],
)
def test_sparklines_of_few_values(numbers: list[int], line: str) -> None:
    assert format_sparkline(numbers, 10) == line


def test_neighbours_share_a_column_if_there_are_many() -> None:
    # [9], [0, 0], [1, 2], [0, 3]: the newest values are in whole groups.
    assert format_sparkline([9, 0, 0, 1, 2, 0, 3], 4) == "█▁▃▄"
    assert format_sparkline([9, 0, 0, 1, 2, 0, 3], 4, is_ascii=True) == "#_:-"
