"""The chart of a report: a bar for the time of each side, as SVG for light and dark pages."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from forebay.bench.contest import FOREBAY, MEMCPY
from forebay.bench.units import format_duration, format_ratio

__all__ = ["draw_chart"]

_WIDTH = 960
_MARGIN = 32
_NAME_WIDTH = 190
_RATIO_WIDTH = 210
_BAR_HEIGHT = 14
_ROW_HEIGHT = 22
_HEADING_HEIGHT = 40
_HEAD_HEIGHT = 124
_NOTE_HEIGHT = 18
_FOOT_HEIGHT = 56

_GROUPS_WITH_RESULTS = ("limit",)
"""Groups whose sides do not return the same, so that times alone would say too little."""

_NOTE = "Fastest call of each side. From line to line the time is tenfold. × is the time relative to that of forebay."

_STYLE = """
:root { color-scheme: light dark }
text { font: 13px ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #24292f }
.page { fill: #ffffff }
.title { font-size: 22px; font-weight: 650 }
.heading { font-weight: 600 }
.dim, .axis { fill: #656d76 }
.axis { font-size: 11px }
.grid { stroke: #d8dee4; stroke-width: 1 }
.ours { fill: #0b7285 }
.peer { fill: #adb5bd }
.base { fill: none; stroke: #adb5bd; stroke-dasharray: 3 2 }
.number { font-variant-numeric: tabular-nums }
.win { fill: #0b7285; font-weight: 600 }
.lose { fill: #b54708; font-weight: 600 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .page { fill: #0d1117 }
  .dim, .axis { fill: #8b949e }
  .grid { stroke: #262c36 }
  .ours { fill: #3bc9db }
  .peer { fill: #4d5663 }
  .base { stroke: #6e7681 }
  .win { fill: #3bc9db }
  .lose { fill: #f0883e }
}
"""


def draw_chart(report: Mapping[str, Any]) -> str:
    """Return a report as an SVG document."""
    rows = [row for row in report["benchmarks"] if row["forebay"]["best_seconds"]]
    times = [side["best_seconds"] for row in rows for _, side in _list_sides(row)]
    first, last = _get_decades(times)
    height = _HEAD_HEIGHT + _FOOT_HEIGHT + sum(map(_get_height, rows))
    bottom = height - _FOOT_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img" aria-label="{_quote(_describe(report))}">',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{_WIDTH}" height="{height}" rx="12"/>',
        f'<text class="title" x="{_MARGIN}" y="46">forebay bench</text>',
        f'<text class="dim" x="{_MARGIN}" y="70">{escape(_describe(report))}</text>',
        f'<text class="dim" x="{_MARGIN}" y="89">{escape(_describe_machine(report))}</text>',
        *_draw_grid(first, last, bottom),
    ]
    top = _HEAD_HEIGHT
    for row in rows:
        parts += _draw_row(row, top, first, last)
        top += _get_height(row)
    parts.append(f'<text class="dim" x="{_MARGIN}" y="{height - 20}">{_NOTE}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _describe(report: Mapping[str, Any]) -> str:
    payload = report["payload"]
    items = "" if payload["items"] is None else f", {payload['items']:,} items"
    return f"{payload['name']}: {payload['size_bytes'] / 1e6:,.1f} MB of {payload['nature']}{items}"


def _describe_machine(report: Mapping[str, Any]) -> str:
    machine = report["machine"]
    busy = ", busy with other work" if machine["is_busy"] else ""
    return f"forebay {report['forebay']}, Python {machine['python']}, {machine['cpu']}, {machine['cores']} cores{busy}"


def _list_sides(row: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the sides that were measured, forebay first and then the fastest peer."""
    peers = [(peer["name"], peer) for peer in row["peers"] if peer["best_seconds"]]
    return [(FOREBAY, row["forebay"]), *sorted(peers, key=lambda side: side[1]["best_seconds"])]


def _list_notes(row: Mapping[str, Any]) -> list[str]:
    """Return what each side returns, where that differs."""
    if row["group"] not in _GROUPS_WITH_RESULTS:
        return []
    return [f"{who}: {side['result']}" for who, side in _list_sides(row) if side["result"]]


def _get_height(row: Mapping[str, Any]) -> int:
    return _HEADING_HEIGHT + _NOTE_HEIGHT * len(_list_notes(row)) + _ROW_HEIGHT * len(_list_sides(row))


def _get_decades(times: Sequence[float]) -> tuple[int, int]:
    """Return the powers of ten between which all times are."""
    if not times:
        return -3, 0
    first = math.floor(math.log10(min(times)))
    # The shortest bar must be visible.
    first -= math.log10(min(times)) - first < 0.1
    return first, max(math.ceil(math.log10(max(times))), first + 1)


def _get_x(seconds: float, first: int, last: int) -> float:
    share = (math.log10(seconds) - first) / (last - first)
    return _MARGIN + _NAME_WIDTH + share * (_WIDTH - 2 * _MARGIN - _NAME_WIDTH - _RATIO_WIDTH)


def _draw_grid(first: int, last: int, bottom: int) -> Iterator[str]:
    for power in range(first, last + 1):
        x = _get_x(10.0**power, first, last)
        yield f'<line class="grid" x1="{x:.1f}" y1="{_HEAD_HEIGHT}" x2="{x:.1f}" y2="{bottom}"/>'
        label = format_duration(10.0**power)
        for y in (_HEAD_HEIGHT - 7, bottom + 15):
            yield f'<text class="axis" x="{x:.1f}" y="{y}" text-anchor="middle">{label}</text>'


def _draw_row(row: Mapping[str, Any], top: int, first: int, last: int) -> Iterator[str]:
    yield (
        f'<text x="{_MARGIN}" y="{top + 28}"><tspan class="heading">{escape(row["group"])}</tspan>'
        f'<tspan class="dim" dx="8">{escape(row["name"])}</tspan></text>'
    )
    for note in _list_notes(row):
        top += _NOTE_HEIGHT
        yield f'<text class="dim" x="{_MARGIN}" y="{top + 28}">{escape(note)}</text>'
    left = _MARGIN + _NAME_WIDTH
    for place, (who, side) in enumerate(_list_sides(row)):
        y = top + _HEADING_HEIGHT + place * _ROW_HEIGHT
        right = _get_x(side["best_seconds"], first, last)
        kind = {FOREBAY: "ours", MEMCPY: "base"}.get(who, "peer")
        weight = "heading" if who == FOREBAY else "dim"
        yield f'<text class="{weight}" x="{left - 12}" y="{y + 11}" text-anchor="end">{escape(who)}</text>'
        yield (
            f'<rect class="{kind}" x="{left}" y="{y}" width="{right - left:.1f}" height="{_BAR_HEIGHT}" rx="3">'
            f"<title>{escape(_describe_side(who, side))}</title></rect>"
        )
        label = f'<tspan class="number">{format_duration(side["best_seconds"])}</tspan>'
        if who != FOREBAY:
            look = "dim" if who == MEMCPY else "win" if side["ratio"] >= 1 else "lose"
            label += f'<tspan class="{look} number" dx="10">{format_ratio(side["ratio"])}</tspan>'
        yield f'<text x="{right + 8:.1f}" y="{y + 11}">{label}</text>'


def _describe_side(who: str, side: Mapping[str, Any]) -> str:
    note = f"; {side['result']}" if side["result"] else ""
    return (
        f"{who}: best {format_duration(side['best_seconds'])}, median {format_duration(side['median_seconds'])} "
        f"of {side['rounds']}{note}"
    )


def _quote(text: str) -> str:
    return escape(text, {'"': "&quot;"})
