"""Draw the headline figures: `python benches/headline.py target/speed.json`, after the benches of `make speed`.

It writes `benches/headline.json`, with the date and the machine, and from that `docs/images/speed.svg`, and
the text and date beside the chart in the documents.
"""

import datetime
import json
import math
import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from html import escape
from pathlib import Path
from typing import Any

import report

__all__ = ["DOCUMENTS", "PICTURE", "RESULTS", "draw", "replace_figures"]

RESULTS = Path(__file__).with_name("headline.json")
ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "speed.svg"
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "speed.md")

LOOP = "orjson and a loop, gc off"
"""The faster one of two peers: a script that also turns off Python's garbage collector."""

ROWS = {
    ("page of 50 stored items, elsewhere", "records 100 MB", "orjson"): ("a page far from the last one", "a page"),
    ("query with a sidecar", "records 100 MB", LOOP): ("SQL, from the second query on", "SQL"),
    ("truncate to 10 KB", "records 100 MB", "orjson"): ("an overview of 10 KB", "an overview"),
    ("where, three conditions", "records 100 MB", "orjson and a loop"): (
        "select items by three conditions",
        "conditions",
    ),
    ("first query", "records 100 MB", LOOP): ("SQL, the first query", "the first SQL"),
    ("index, validated", "records 100 MB", "pysimdjson"): ("find all items, and check every byte", "an index"),
    ("search, ten literals", "log 100 MB", "bytes.find"): ("search for ten words", "words"),
    ("search, expression", "log 100 MB: *", "re"): ("search by expression, median of ten", "expressions"),
}
"""What the chart calls lines of the report (row, corpus and peer), and a short name."""

WIDTH, LINE, TOP, LABELS, BARS = 880, 27, 56, 470, 330

_STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de }
  .title { font: 600 14px system-ui, sans-serif; fill: #1f2328 }
  .label { font: 13px system-ui, sans-serif; fill: #1f2328; text-anchor: end }
  .peer { fill: #57606a }
  .ratio { font: 600 13px system-ui, sans-serif; fill: #1f2328 }
  .axis { stroke: #57606a; stroke-dasharray: 2 3 }
  .bar { fill: #2a6f97 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #30363d }
    .title, .label, .ratio { fill: #e6edf3 }
    .peer { fill: #8d96a0 }
    .axis { stroke: #8d96a0 }
    .bar { fill: #4ba3d3 }
  }
"""


def draw(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the chart as the text of an SVG: how many times faster than the peer, on a logarithmic scale."""
    height = TOP + LINE * len(rows) + 12
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'role="img"><title>{escape(_describe(rows))}</title><style>{_STYLE}</style>',
            f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
            '<text class="title" x="22" y="32">Times as fast as the usual way in Python, on 100 MB</text>',
            f'<line class="axis" x1="{LABELS}" x2="{LABELS}" y1="{TOP - 8}" y2="{height - 14}"/>',
            *_iter_bars(rows),
            "</svg>\n",
        ]
    )


def _iter_bars(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    # A bar begins at 1 ×, where both are as fast.
    scale = BARS / max(math.log10(row["ratio"]) for row in rows)
    for number, row in enumerate(rows):
        middle = TOP + LINE * number + LINE / 2
        width = max(2.0, scale * math.log10(row["ratio"]))
        label, peer = escape(row["label"]), escape(row["peer"])
        yield (
            f'<text class="label" x="{LABELS - 10}" y="{middle + 4:g}">{label} '
            f'<tspan class="peer">against {peer}</tspan></text>'
            f'<rect class="bar" x="{LABELS}" y="{middle - 8:g}" width="{width:.1f}" height="16" rx="2"/>'
            f'<text class="ratio" x="{LABELS + width + 6:.1f}" y="{middle + 4:g}">{format_ratio(row["ratio"])}</text>'
        )


def _describe(rows: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(f"{row['label']}: {format_ratio(row['ratio'])} as fast as {row['peer']}" for row in rows)


def replace_figures(text: str, results: Mapping[str, Any]) -> str:
    """Return a document with the text of the chart and the date of these results."""
    figures = ", ".join(f"{format_ratio(row['ratio'])} for {row['short']}" for row in results["rows"])
    text = re.sub(
        r"!\[[^\]]*\](\([\w/]*speed\.svg\))", rf"![Times as fast as the usual way in Python: {figures}]\1", text
    )
    return re.sub(r"(`make speed` on )[\d-]+", rf"\g<1>{results['date']}", text)


def format_ratio(ratio: float) -> str:
    """Return a ratio with two digits that count: 1,800 ×, 12 ×, 2.3 ×."""
    digits = 1 - math.floor(math.log10(ratio))
    return f"{round(ratio, digits):,.{max(digits, 0)}f} ×"


def main(benchmark: Path) -> None:
    lines = list(report.compare(report.read_pytest(benchmark)))
    rows: list[dict[str, Any]] = []
    for (row, corpus, peer), (label, short) in ROWS.items():
        ratios = [
            line.ratio
            for line in lines
            if line.ratio and (line.row, line.peer) == (row, peer) and fnmatch(line.corpus, corpus)
        ]
        if not ratios:
            sys.exit(f"the benches did not measure {row!r} against {peer!r}")
        rows.append({"label": label, "short": short, "peer": peer, "ratio": round(statistics.median(ratios), 2)})
    rows.sort(key=lambda row: -row["ratio"])
    results = {
        "date": datetime.date.today().isoformat(),
        "machine": report.describe_machine(benchmark),
        "rows": rows,
    }
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PICTURE.write_text(draw(rows), encoding="utf-8")
    for document in DOCUMENTS:
        document.write_text(replace_figures(document.read_text(encoding="utf-8"), results), encoding="utf-8")
    for shown in rows:
        print(f"{format_ratio(shown['ratio']):>9}  {shown['label']}, against {shown['peer']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
