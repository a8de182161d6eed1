"""`forebay journal`: events by day, and a summary of all."""

import datetime
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from forebay.cli.output.charts import format_bar, get_share
from forebay.cli.output.streams import print_json, print_note, print_rich
from forebay.cli.output.tables import Column, print_columns
from forebay.cli.output.terminal import is_ascii_only, replace_controls, wants_table
from forebay.cli.output.units import (
    count_noun,
    format_duration,
    format_principal,
    format_size,
    name_principal,
    parse_timestamp,
    shorten_principal,
)

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["print_events", "print_summary"]

_SIZE_KEYS = ("size_bytes", "returned_bytes", "response_bytes")
_AGE_SECONDS = 3600
"""Up to this age an event is shown by its age, and later by the time of day."""

_BAR_WIDTH = 24

# Symbol, symbol in ASCII, and style. Symbols tell the kinds apart where there are no colours.
_STORED = ("+", "+", "green")
_READ = ("→", ">", "cyan")
_REMOVED = ("−", "-", "dim")
_CALLED = ("·", ".", "dim")
_WARNED = ("▲", "!", "yellow")
_REFUSED = ("✗", "x", "bold red")
_LOOKS = {
    "output_handle_created": _STORED,
    "output_handle_fetched": _READ,
    "output_handle_opened": _READ,
    "output_exported": _READ,
    "file_ref_resolved": _READ,
    "output_handle_deleted": _REMOVED,
    "output_handle_expired": _REMOVED,
    "output_handle_evicted": _WARNED,
    "store_warning": _WARNED,
    "response_oversize": _WARNED,
    "output_handle_refused": _REFUSED,
    "file_ref_denied": _REFUSED,
    "capability_denied": _REFUSED,
    "store_failed": _REFUSED,
}


def print_events(events: Sequence[dict[str, Any]], *, is_json: bool = False) -> None:
    """Print events, newest first, as JSON or as a table with a heading for each day."""
    if not wants_table(is_json):
        print_json([name_principal(event) for event in events])
        return
    if not events:
        print_note("nothing")
        return
    now = datetime.datetime.now(datetime.UTC)
    principals = [format_principal(event.get("principal")) for event in events]
    short_principals = [shorten_principal(event.get("principal")) for event in events]
    subjects = [_find_subject(event) for event in events]
    tools = [_get_first(event, ("tool", "source_tool")) for event in events]
    reasons = [*map(_format_reason, events)]
    paths = [event.get("path") for event in events]
    times = [parse_timestamp(event.get("ts")) for event in events]
    heads: list[str | None] = []
    for previous, current in itertools.pairwise([None, *times]):
        is_same_day = previous is not None and current is not None and previous.date() == current.date()
        heads.append(None if is_same_day and heads else _format_day(current, now))
    print_columns(
        [
            Column("time (UTC)", [_format_time(moment, now) for moment in times], is_numeric=True),
            Column("", [_style_event(event, "") for event in events]),
            Column("event", [_style_event(event, _name_event(event)) for event in events]),
            Column("handle or tool", subjects, min_width=max(len(str(event.get("handle") or "")) for event in events)),
            Column("size", [format_size(_get_first(event, _SIZE_KEYS)) for event in events], is_numeric=True, rank=3),
            Column("reason", reasons, min_width=8, short_cells=reasons, rank=1),
            Column("principal", principals, min_width=9, short_cells=short_principals, rank=2),
            Column("tool", _leave_out(tools, subjects), min_width=8, rank=4),
            Column("path", _leave_out(_leave_out(paths, subjects), reasons), min_width=8, rank=5),
        ],
        row_heads=heads,
    )


def _format_day(moment: datetime.datetime | None, now: datetime.datetime) -> str:
    if moment is None:
        return "unknown day"
    days = (now.date() - moment.date()).days
    name = {0: "today", 1: "yesterday"}.get(days, f"{moment:%A}")
    return f"{name}, {moment:%Y-%m-%d}"


def _format_time(moment: datetime.datetime | None, now: datetime.datetime) -> str:
    """Return the age of a recent event, else its time of day."""
    if moment is None:
        return ""
    age = (now - moment).total_seconds()
    is_recent = 0 <= age < _AGE_SECONDS
    return f"{format_duration(age)} ago" if is_recent else f"{moment:%H:%M:%S}"


def _name_event(event: dict[str, Any]) -> str:
    return str(event.get("event")).removeprefix("output_handle_")


def _style_event(event: dict[str, Any], text: str) -> "Text":
    """Return a text in the style of an event's kind, or its symbol if there is no text."""
    from rich.text import Text

    symbol, ascii_symbol, style = _LOOKS.get(str(event.get("event")), _CALLED)
    return Text(replace_controls(text) or (ascii_symbol if is_ascii_only() else symbol), style=style)


def _get_first(event: dict[str, Any], keys: Sequence[str]) -> Any:
    return next((event[key] for key in keys if event.get(key) is not None), None)


def _find_subject(event: dict[str, Any]) -> Any:
    """Return what an event is about: a handle, else a tool, else a path."""
    return _get_first(event, ("handle", "tool", "source_tool", "path"))


def _leave_out(values: Sequence[Any], shown: Sequence[Any]) -> list[Any]:
    """Return the values without those that stand in another column already."""
    return [None if value == other else value for value, other in zip(values, shown, strict=True)]


def _format_reason(event: dict[str, Any]) -> str | None:
    """Return why an operation failed or an event was recorded, if the event says so."""
    match event:
        case {"code": code} if code and code != event.get("event"):
            return str(code).removeprefix("output_handle_")
        case {"capability": capability} if capability:
            return f"capability {capability}"
        case {"budget_bytes": budget}:
            return f"over {format_size(budget)}"
        case {"event": "file_ref_denied", "path": path}:
            return str(path)
    return None


def print_summary(summary: dict[str, Any], *, is_json: bool = False) -> None:
    """Print totals of the journal as JSON, or with bars of what each tool stored and of how often each event was."""
    if not wants_table(is_json):
        print_json(summary)
        return
    from rich.text import Text

    kept_out, tokens = format_size(summary["bytes_kept_out"]), f"{summary['tokens_kept_out']:,}"
    text = Text.assemble("kept out of context  ", (kept_out, "bold green"), "  about ", (tokens, "bold"), " tokens")
    print_rich(text, highlight=False)
    handles, pages = count_noun(summary["handles"], "handle"), count_noun(summary["pages_read"], "page")
    print_note(f"{handles} for {format_size(summary['bytes_stored'])}, and {pages} read")
    tools = sorted(summary["by_tool"].items(), key=lambda tool: (-tool[1]["bytes"], tool[0]))
    if tools:
        print_rich("")
        largest = tools[0][1]["bytes"]
        print_columns(
            [
                Column("tool", [name for name, _ in tools], min_width=12),
                Column("stored", [_make_bar(row["bytes"], largest) for _, row in tools], rank=1),
                Column("size", [format_size(row["bytes"]) for _, row in tools], is_numeric=True),
                Column("handles", [f"{row['handles']:,}" for _, row in tools], is_numeric=True),
            ]
        )
    events = sorted(summary["events"].items(), key=lambda event: (-event[1], event[0]))
    if events:
        print_rich("")
        most = events[0][1]
        print_columns(
            [
                Column("", [_style_event({"event": name}, "") for name, _ in events]),
                Column("event", [_style_event({"event": name}, _name_event({"event": name})) for name, _ in events]),
                Column("", [_make_bar(count, most) for _, count in events], rank=1),
                Column("count", [f"{count:,}" for _, count in events], is_numeric=True),
            ]
        )


def _make_bar(value: int, largest: int) -> "Text":
    from rich.text import Text

    return Text(format_bar(get_share(value, largest), _BAR_WIDTH, is_ascii=is_ascii_only()), style="cyan")
