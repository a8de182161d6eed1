"""`forebay stats`: what was saved, by day and by tool, the sizes of responses, and what is stored."""

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from forebay.cli.output.charts import format_bar, format_share, format_sparkline, get_share
from forebay.cli.output.streams import print_json, print_note, print_rich
from forebay.cli.output.tables import Column, print_columns
from forebay.cli.output.terminal import get_console, is_ascii_only, wants_table
from forebay.cli.output.units import count_noun, format_signed_size, format_size

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["print_stats"]

_BAR_WIDTH = 20
_NARROW_BAR_WIDTH = 12
_WIDE_COLUMNS = 80
_SHARE_WIDTH = 10
_LABEL_WIDTH = 8
_DATE_WIDTH = 10


def print_stats(
    usage: dict[str, Any], tools: dict[str, dict[str, int]], storage: dict[str, int], *, is_json: bool = False
) -> None:
    """Print the counts of `summarize_calls`, the sizes of `summarize_responses`, and the size of the store."""
    if not wants_table(is_json):
        print_json({"usage": usage, "tools": tools, "storage": storage})
        return
    if usage["by_tool"]:
        _print_totals(usage)
        _print_days(usage["by_day"])
        print_rich("")
        _print_tools(usage["by_tool"])
        print_rich("")
    if tools:
        _print_response_sizes(tools)
        print_rich("")
    if not usage["by_tool"]:
        print_note("no call was counted yet; every call through forebay is counted", wraps=True)
    size, on_disk = format_size(storage["size_bytes"]), format_size(storage["stored_bytes"])
    print_note(f"{_pad('stored')}{count_noun(storage['payloads'], 'payload')}, {size}, {on_disk} on disk")


def _pad(label: str) -> str:
    return label.ljust(_LABEL_WIDTH)


def _print_totals(usage: Mapping[str, Any]) -> None:
    from rich.text import Text

    saved = format_signed_size(usage["saved_bytes"]) or "nothing"
    print_rich(
        Text.assemble(
            (_pad("saved"), "dim"),
            (saved, "bold green" if usage["saved_bytes"] >= 0 else "bold yellow"),
            "   about ",
            (f"{usage['saved_tokens']:,}", "bold"),
            " tokens",
        ),
        highlight=False,
    )
    share = get_share(usage["handles"], usage["calls"])
    stored, inline = format_share(share, _SHARE_WIDTH, is_ascii=is_ascii_only())
    print_rich(
        Text.assemble(
            (_pad("calls"), "dim"),
            (f"{usage['calls']:,}", "bold"),
            "   ",
            (stored, "green"),
            (inline, "dim"),
            f"  {usage['handles']:,} stored ({share:.0%}), {usage['calls'] - usage['handles']:,} inline",
        ),
        highlight=False,
    )


def _print_days(by_day: Mapping[str, Mapping[str, int]]) -> None:
    """Print what was saved by day as a sparkline from the first day to the last, which includes days without calls."""
    from rich.text import Text

    days = _list_days(min(by_day), max(by_day))
    values = [by_day[day]["saved_bytes"] if day in by_day else 0 for day in days]
    best = max(by_day, key=lambda day: by_day[day]["saved_bytes"])
    most = f"most on {best}: {format_signed_size(by_day[best]['saved_bytes']) or 'nothing'}"
    if len(days) == 1:
        print_note(f"{_pad('days')}all on {best} (UTC)")
        return
    width = get_console().width - _LABEL_WIDTH - 2 * (_DATE_WIDTH + 1)
    columns = format_sparkline(values, width, is_ascii=is_ascii_only())
    line = Text.assemble((_pad("by day"), "dim"), f"{days[0]} ", (columns, "green"), f" {days[-1]}")
    print_rich(line, highlight=False)
    print_note(f"{_pad('')}{most}; {count_noun(len(by_day), 'day')} with calls (UTC)")


def _list_days(first: str, last: str) -> list[str]:
    start, end = datetime.date.fromisoformat(first), datetime.date.fromisoformat(last)
    return [(start + datetime.timedelta(days=number)).isoformat() for number in range((end - start).days + 1)]


def _print_tools(by_tool: Mapping[str, Mapping[str, int]]) -> None:
    rows = [*by_tool.values()]
    largest = max(row["saved_bytes"] for row in rows)
    bar_width = _BAR_WIDTH if get_console().width >= _WIDE_COLUMNS else _NARROW_BAR_WIDTH
    print_columns(
        [
            Column("tool", [*by_tool], min_width=12),
            Column("calls", [f"{row['calls']:,}" for row in rows], is_numeric=True),
            Column("stored", [f"{row['handles']:,}" if row["handles"] else "" for row in rows], is_numeric=True),
            Column("", [_make_saved_bar(row["saved_bytes"], largest, bar_width) for row in rows], rank=1),
            Column("saved", [format_signed_size(row["saved_bytes"]) for row in rows], is_numeric=True),
            Column(
                "tokens",
                [f"{row['saved_tokens']:,}" if row["saved_tokens"] else "" for row in rows],
                is_numeric=True,
                rank=2,
            ),
        ]
    )


def _make_saved_bar(saved: int, largest: int, width: int) -> "Text":
    """Return a bar of what a tool saved; what was read back has no bar, and its number has a minus."""
    from rich.text import Text

    return Text(format_bar(get_share(saved, largest), width, is_ascii=is_ascii_only()), style="green")


def _print_response_sizes(tools: Mapping[str, Mapping[str, int]]) -> None:
    from rich.text import Text

    rows = [*tools.values()]
    print_columns(
        [
            Column("response sizes", [*tools], min_width=14),
            Column("recorded", [f"{row['count']:,}" for row in rows], is_numeric=True),
            Column("max", [format_size(row["max_bytes"]) for row in rows], is_numeric=True),
            Column("average", [format_size(row["average_bytes"]) for row in rows], is_numeric=True, rank=1),
            Column("p95", [format_size(row["p95_bytes"]) for row in rows], is_numeric=True),
            Column(
                "over budget",
                [Text(f"{row['oversize']:,}" if row["oversize"] else "", style="yellow") for row in rows],
                is_numeric=True,
            ),
        ]
    )
