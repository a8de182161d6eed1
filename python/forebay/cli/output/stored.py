"""`forebay ls` and `forebay stat`: stored payloads."""

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING

from forebay.cli.output.charts import format_bar, get_share
from forebay.cli.output.streams import handle_output_errors, print_json
from forebay.cli.output.tables import Column, print_columns
from forebay.cli.output.terminal import get_console, is_ascii_only, wants_table
from forebay.cli.output.units import (
    UNKNOWN_TOOL,
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

    from forebay.store import StoredOutput

__all__ = ["print_metadata", "print_stored"]

_BAR_WIDTH = 6
_SOON_SECONDS = 3600


def print_metadata(entry: "StoredOutput") -> None:
    """Print the metadata of a payload as JSON."""
    print_json(name_principal(entry.to_dict()))


def print_stored(entries: Sequence["StoredOutput"], *, is_json: bool = False) -> None:
    """Print metadata of payloads as JSON, or as a table with their sizes as bars and times as durations."""
    if not wants_table(is_json):
        print_json([name_principal(entry.to_dict()) for entry in entries])
        return
    now = datetime.datetime.now(datetime.UTC)
    seconds_left = [_count_seconds_left(entry, now) for entry in entries]
    largest = max((entry.size_bytes for entry in entries), default=0)
    is_ascii = is_ascii_only()
    principals = [format_principal(entry.principal) for entry in entries]
    short_principals = [shorten_principal(entry.principal) for entry in entries]
    bars = [format_bar(get_share(entry.size_bytes, largest), _BAR_WIDTH, is_ascii=is_ascii) for entry in entries]
    print_columns(
        [
            Column("handle", [entry.output_handle for entry in entries]),
            Column("size", [format_size(entry.size_bytes) for entry in entries], is_numeric=True),
            Column("", [_style(bar, "cyan") for bar in bars] if len(entries) > 1 else [""] * len(entries), rank=5),
            Column(
                "items",
                ["" if entry.item_count is None else f"{entry.item_count:,}" for entry in entries],
                is_numeric=True,
            ),
            Column("expires", [*map(_format_expiry, seconds_left)], is_numeric=True),
            Column("age", [_format_age(entry, now) for entry in entries], is_numeric=True, rank=4),
            Column("principal", principals, min_width=9, short_cells=short_principals, rank=1),
            Column("tool", [entry.source_tool or UNKNOWN_TOOL for entry in entries], min_width=12, rank=2),
            Column("type", [entry.mime_type.removeprefix("application/") for entry in entries], min_width=10, rank=6),
            Column("outline", [*map(_format_outline, entries)], min_width=16, rank=3),
        ]
    )
    if entries:
        _print_total(entries, sum(seconds < _SOON_SECONDS for seconds in seconds_left))


def _print_total(entries: Sequence["StoredOutput"], expiring: int) -> None:
    from rich.text import Text

    size, on_disk = (sum(getattr(entry, name) for entry in entries) for name in ("size_bytes", "stored_bytes"))
    text = f"{count_noun(len(entries), 'payload')}, {format_size(size)}, {format_size(on_disk)} on disk"
    soon = f"; {expiring:,} {'expires' if expiring == 1 else 'expire'} within an hour" if expiring else ""
    with handle_output_errors():
        get_console().print(Text.assemble((text, "dim"), (soon, "yellow")), highlight=False)


def _style(text: str, style: str) -> "Text":
    from rich.text import Text

    return Text(text, style=style)


def _count_seconds_left(entry: "StoredOutput", now: datetime.datetime) -> float:
    expires_at = parse_timestamp(entry.expires_at)
    return 0.0 if expires_at is None else (expires_at - now).total_seconds()


def _format_expiry(seconds: float) -> "Text":
    """Return when a payload expires; what expires within the hour stands out."""
    if seconds <= 0:
        return _style("now", "bold red")
    return _style(f"in {format_duration(seconds)}", "yellow" if seconds < _SOON_SECONDS else "")


def _format_age(entry: "StoredOutput", now: datetime.datetime) -> str:
    created_at = parse_timestamp(entry.created_at)
    # As wide as the longest one, so that the table does not change from second to second.
    return "" if created_at is None else format_duration((now - created_at).total_seconds()).rjust(len("59 min"))


def _format_outline(entry: "StoredOutput") -> str:
    """Return the outline of JSON, or the number of lines of a text."""
    if entry.outline is not None:
        return entry.outline
    return count_noun(entry.line_count, "line") if entry.nature == "text" and entry.line_count is not None else ""
