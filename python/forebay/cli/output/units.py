"""Sizes, durations and names as people read them."""

import datetime
import json
from typing import Any

from forebay.cli.output.terminal import is_ascii_only
from forebay.dashboard.texts import format_bytes, format_duration

__all__ = [
    "UNKNOWN_TOOL",
    "count_noun",
    "format_duration",
    "format_principal",
    "format_seconds",
    "format_signed_size",
    "format_size",
    "name_principal",
    "parse_timestamp",
    "shorten_principal",
]

UNKNOWN_TOOL = "unknown"
"""Stands for the tool of a payload that was stored without a name of one."""

_MIN_TOKEN_PARTS = 3
"""Parts of a principal with a subject: the word, the issuer, the subject."""


def format_size(size: object) -> str:
    """Format a number of bytes with one decimal; anything that is no number is empty."""
    return format_bytes(size) if isinstance(size, int) else ""


def format_signed_size(size: int) -> str:
    """Format a size, which is negative if more was read back than saved; 0 is empty."""
    return f"{'-' if size < 0 else ''}{format_size(abs(size))}" if size else ""


def format_seconds(seconds: float | None) -> str:
    """Format a short time with its fraction."""
    return "" if seconds is None else f"{seconds:.2g} s" if seconds < 1 else f"{seconds:,.0f} s"


def parse_timestamp(timestamp: object) -> datetime.datetime | None:
    """Return the time of a timestamp, in UTC; `None` if it is damaged."""
    try:
        parsed = datetime.datetime.fromisoformat(str(timestamp))
    except ValueError:
        return None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=datetime.UTC)


def count_noun(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 match`, `2,000 matches`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def format_principal(principal: str | None) -> str | None:
    """Return a principal as `--principal` takes it."""
    from forebay.store.handles import format_principal

    return format_principal(principal)


def shorten_principal(principal: str | None) -> str | None:
    """Return the end of a principal that has the issuer of its token before the subject."""
    try:
        parts = json.loads(principal or "")
    except ValueError:
        return principal
    if not isinstance(parts, list) or len(parts) < _MIN_TOKEN_PARTS:
        return format_principal(principal)
    return f"{'~' if is_ascii_only() else '…'}{parts[-1]}"


def name_principal(record: dict[str, Any]) -> dict[str, Any]:
    """Return metadata or an event with the principal as `--principal` takes it and as a table shows it."""
    return {**record, "principal": format_principal(record["principal"])} if "principal" in record else record
