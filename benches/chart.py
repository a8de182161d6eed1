"""Draw the report as a chart: forebay's speed relative to memcpy and to its peers."""

from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

REACHED, SHORT, UNJUDGED, INK = "#2a6f97", "#e07a5f", "#b8c2cc", "#222222"


class Mark(NamedTuple):
    row: str
    corpus: str
    peer: str
    ratio: float
    bar: float | None

    @property
    def colour(self) -> str:
        if self.bar is None:
            return UNJUDGED
        return REACHED if self.ratio >= self.bar else SHORT


def draw(marks: list[Mark], path: Path) -> None:
    """Draw two panels: against memcpy, which is the limit, and against the peers."""
    mpl.rcParams.update({"font.size": 9, "svg.hashsalt": "forebay"})
    memcpy = [mark for mark in marks if mark.peer == "memcpy"]
    peers = [mark for mark in marks if mark.peer != "memcpy"]
    heights = [len(memcpy) + 1, len(peers) + 1]
    figure = Figure(figsize=(10, 1.5 + 0.23 * sum(heights)), layout="constrained")
    upper, lower = figure.subplots(2, 1, height_ratios=heights)
    panel(upper, memcpy, "Speed beside memcpy (1 × = as fast as a copy)", left=0.02)
    panel(lower, peers, "Speed beside the peer (1 × = as fast)", left=0.5)
    keys = [Patch(color=REACHED, label="reaches its goal"), Patch(color=SHORT, label="does not")]
    keys += [Patch(color=UNJUDGED, label="no goal set")]
    goal = Line2D([], [], color=INK, marker="|", markersize=10, markeredgewidth=1.6, linestyle="", label="goal")
    figure.legend(handles=[*keys, goal], loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def panel(axes: Axes, marks: list[Mark], title: str, left: float) -> None:
    axes.set_title(title, loc="left", fontweight="bold", color=INK)
    axes.set_xscale("log")
    axes.set_xlim(left, 2.2 * max([mark.ratio for mark in marks] + [1.0]))
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", color="#e6e6e6", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.axvline(1, color=INK, linewidth=0.8, linestyle=":")
    for place, mark in enumerate(marks):
        axes.barh(place, mark.ratio - left, left=left, height=0.64, color=mark.colour)
        ratio = f"{mark.ratio:,.0f} ×" if mark.ratio >= 100 else f"{mark.ratio:.2g} ×"
        at = (max(mark.ratio, left), place)
        axes.annotate(ratio, at, xytext=(4, 0), textcoords="offset points", va="center", color=INK)
        if mark.bar:
            axes.plot([mark.bar, mark.bar], [place - 0.42, place + 0.42], color=INK, linewidth=1.6)
    axes.set_yticks(range(len(marks)), [label(mark) for mark in marks])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(marks) - 0.4, -0.6)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g} ×")


def label(mark: Mark) -> str:
    versus = "" if mark.peer == "memcpy" else f"  vs {mark.peer}"
    return f"{mark.row} · {mark.corpus}{versus}"
