"""SVG charts, drawn on the server. The pages also show the data of each chart as text."""

from collections.abc import Sequence
from typing import NamedTuple

from forebay.dashboard.html import Html, element

__all__ = ["Bar", "draw_bars", "draw_share"]

_BAR_WIDTH, _GAP, _HEIGHT = 10, 3, 100
_MIN_BAR_HEIGHT = 1.5
_SHARE_WIDTH = 100


class Bar(NamedTuple):
    """One bar of a chart, and the text of its tooltip."""

    value: int
    text: str


def draw_bars(bars: Sequence[Bar], label: str) -> Html:
    """Return a chart with one column for each value. A value of 0 or less has no visible bar, only a tooltip."""
    largest = max((bar.value for bar in bars), default=0)
    step = _BAR_WIDTH + _GAP
    drawn = []
    for index, bar in enumerate(bars):
        height = 0.0 if bar.value <= 0 else max(_MIN_BAR_HEIGHT, bar.value / largest * _HEIGHT)
        # An invisible rectangle as high as the chart shows the tooltip wherever the pointer is in this column.
        column = element("rect", x=index * step, y=0, width=step, height=_HEIGHT, class_="chart-column")
        visible = element(
            "rect",
            x=index * step + _GAP / 2,
            y=round(_HEIGHT - height, 2),
            width=_BAR_WIDTH,
            height=round(height, 2),
            class_="chart-bar",
        )
        drawn.append(element("g", element("title", bar.text), column, visible))
    return element(
        "svg",
        drawn,
        viewBox=f"0 0 {max(1, len(bars)) * step} {_HEIGHT}",
        preserveAspectRatio="none",
        class_="chart",
        role="img",
        aria_label=label,
    )


def draw_share(value: int, largest: int) -> Html:
    """Return a bar for a table cell; its length is the value relative to the largest value of the table."""
    width = 0.0 if value <= 0 or largest <= 0 else max(1.0, value / largest * _SHARE_WIDTH)
    bar = element("rect", x=0, y=0, width=round(width, 1), height=8, rx=2, class_="chart-bar")
    return element(
        "svg", bar, viewBox=f"0 0 {_SHARE_WIDTH} 8", preserveAspectRatio="none", class_="share", aria_hidden="true"
    )
