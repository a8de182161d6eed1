"""Draw what reaches a model with and without forebay, from the results of the comparison.

The picture is an SVG with colours for light and dark mode. Its two squares are to scale.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from alternatives.orders import QUESTION_SQL

__all__ = ["draw", "format_bytes"]

WIDTH, HEIGHT, MARGIN = 880, 322, 22
TOP = 112
SQUARE = 130
"""The side of the larger square."""

BYTES_PER_TOKEN = 4
MAX_LINE_CHARS = 38

CLIENTS = ("Claude Code", "Codex", "Gemini CLI", "opencode", "Copilot CLI", "Cline")
"""The clients that the picture shows. `docs/alternatives.md` has all."""

_STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de }
  .title { font: 600 15px system-ui, sans-serif; fill: #57606a }
  .number { font: 700 34px system-ui, sans-serif; fill: #1f2328 }
  .text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .faint { font: 12px system-ui, sans-serif; fill: #57606a }
  .code { font: 11.5px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2328 }
  .large { fill: #cf222e }
  .small { fill: #1a7f37 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #30363d }
    .title, .faint { fill: #8d96a0 }
    .number, .text, .code { fill: #e6edf3 }
    .large { fill: #f85149 }
    .small { fill: #3fb950 }
  }
"""


def draw(results: Mapping[str, Any], clients: Mapping[str, Any]) -> str:
    """Return the picture as the text of an SVG."""
    before, after = results["ways"][0], results["ways"][-1]
    half = WIDTH // 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img"><title>{escape(_describe(before, after))}</title><style>{_STYLE}</style>',
        *_draw_card(0.5, half - 10),
        *_draw_before(before, clients, 0),
        *_draw_card(half + 9.5, half - 10),
        *_draw_after(before, after, half + 9),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def format_bytes(size: int) -> str:
    """Return a size as people write it: 3.1 KB, 19.4 MB."""
    for unit, scale in (("MB", 1e6), ("KB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} bytes"


def _draw_before(row: Mapping[str, Any], clients: Mapping[str, Any], left: float) -> Iterator[str]:
    yield from _draw_heading(left, "Without forebay", row["first"]["bytes"])
    yield f'<rect class="large" x="{left + MARGIN}" y="{TOP}" width="{SQUARE}" height="{SQUARE}" rx="3"/>'
    column = left + MARGIN + SQUARE + 20
    yield _text("faint", column, TOP + 10, "what the model gets of it through")
    for number, line in enumerate(_iter_outcomes(clients)):
        yield _text("text", column, TOP + 36 + 22 * number, line)


def _iter_outcomes(clients: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each client of `CLIENTS` that was run."""
    for row in clients["clients"]:
        if row["name"] not in CLIENTS or "characters" not in row:
            continue
        share = f"{row['characters']:,} characters, {row['characters'] / clients['bytes']:.2%}"
        line = f"{row['name']}: {share if row['characters'] > 1000 else row['beginning'] or row['problem']}"
        yield line if len(line) <= MAX_LINE_CHARS else f"{line[: MAX_LINE_CHARS - 1].rstrip()}…"


def _draw_after(before: Mapping[str, Any], row: Mapping[str, Any], left: float) -> Iterator[str]:
    size = row["first"]["bytes"]
    yield from _draw_heading(left, "With forebay wrap", size)
    side = SQUARE * math.sqrt(size / before["first"]["bytes"])
    left += MARGIN
    yield f'<rect class="small" x="{left}" y="{TOP + 5}" width="{side:.2f}" height="{side:.2f}"/>'
    yield _text("faint", left + 10, TOP + 10, "to scale. The model gets a handle")
    lines = list(_iter_descriptor(row["first"]["beginning"]))
    for number, line in enumerate(lines):
        yield _text("code", left, TOP + 32 + 17 * number, line)
    top = TOP + 32 + 17 * len(lines) + 10
    yield _text("faint", left, top, "and asks:")
    words = re.split(r" (?=FROM|WHERE|AND)", QUESTION_SQL)
    sql = [" ".join(words[:2]), " ".join(words[2:4]), " ".join(words[4:])]
    for number, line in enumerate(sql):
        yield _text("code", left, top + 22 + 17 * number, line)
    answer, order = row["answer"], row["order"]
    top += 22 + 17 * len(sql) + 10
    yield _text("text", left, top, f"→ {answer['value']}, exactly, in {format_bytes(answer['bytes'] - size)}")
    text = f"and any order byte for byte, in {format_bytes(order['bytes'] - size)}"
    yield _text("faint", left, top + 22, text)


def _iter_descriptor(beginning: str) -> Iterator[str]:
    """Yield lines with the members of the descriptor that matter most."""
    values = dict(re.findall(r'"(output_handle|size_bytes|item_count)": ?("[^"]*"|\d+)', beginning))
    yield f'{{"output_handle": {values["output_handle"]},'
    yield f' "size_bytes": {values["size_bytes"]}, "item_count": {values["item_count"]},'
    yield ' "outline": …, "preview": …, "next_calls": …}'


def _draw_heading(left: float, title: str, size: int) -> Iterator[str]:
    tokens = size / BYTES_PER_TOKEN
    count = f"{tokens / 1e6:.1f} million" if tokens >= 1e6 else f"{round(tokens, -2):,.0f}"
    yield _text("title", left + MARGIN, 32, title)
    yield _text("number", left + MARGIN, 74, format_bytes(size))
    yield _text("faint", left + MARGIN, 96, f"for the model: about {count} tokens")


def _draw_card(left: float, width: float) -> Sequence[str]:
    return [f'<rect class="card" x="{left}" y="0.5" width="{width}" height="{HEIGHT - 1}" rx="8"/>']


def _text(style: str, left: float, top: float, content: str) -> str:
    return f'<text class="{style}" x="{left:g}" y="{top:g}" xml:space="preserve">{escape(content)}</text>'


def _describe(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    sizes = format_bytes(before["first"]["bytes"]), format_bytes(after["first"]["bytes"])
    return f"Without forebay, a tool result of {sizes[0]} goes to the client. With it, {sizes[1]}, and exact answers."
