"""Charts: bars in proportion, each with its text."""

import re

from forebay.dashboard.charts import Bar, draw_bars, draw_share


def get_heights(svg: str) -> list[float]:
    return [float(height) for height in re.findall(r'height="([\d.]+)" class="chart-bar"', svg)]


def test_bars_are_in_proportion_and_negative_ones_are_empty() -> None:
    svg = draw_bars([Bar(50, "half"), Bar(100, "whole"), Bar(-20, "below"), Bar(0, "none")], "four bars")
    assert get_heights(svg) == [50, 100, 0, 0]
    assert re.findall(r"<title>(\w+)</title>", svg) == ["half", "whole", "below", "none"]
    assert 'role="img" aria-label="four bars"' in svg


def test_a_small_value_can_be_seen() -> None:
    assert get_heights(draw_bars([Bar(1, "a"), Bar(10**9, "b")], ""))[0] > 1


def test_texts_are_escaped() -> None:
    assert "<title>&lt;script&gt;</title>" in draw_bars([Bar(1, "<script>")], "")


def test_a_share_is_hidden_from_those_who_hear_the_number() -> None:
    assert 'width="25.0"' in draw_share(1, 4)
    assert 'width="0.0"' in draw_share(-1, 0)
    assert 'aria-hidden="true"' in draw_share(1, 1)
