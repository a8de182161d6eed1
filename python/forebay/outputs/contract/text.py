"""Summaries and labels: one line of bounded length."""

import re
from collections.abc import Mapping

from forebay import _core
from forebay.arguments import check_integer, check_text
from forebay.errors import InvalidArgument

__all__ = [
    "MAX_LABEL_LENGTH",
    "MAX_SUMMARY_LENGTH",
    "SEVERITIES",
    "create_summary",
    "replace_invalid_characters",
    "shorten",
    "shorten_to_bytes",
    "to_single_line",
]

MAX_SUMMARY_LENGTH = 100
MAX_LABEL_LENGTH = 50
SEVERITIES = ("critical", "high", "medium", "low")

_INVALID_CHARACTERS_PATTERN = re.compile("[\ud800-\udfff\x00]")
_CONTROL_CHARACTERS_PATTERN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def to_single_line(text: str, max_length: int) -> str:
    """Return the text on one line of at most `max_length` characters, without control characters or lone surrogates."""
    return shorten(" ".join(replace_invalid_characters(_CONTROL_CHARACTERS_PATTERN.sub(" ", text)).split()), max_length)


def replace_invalid_characters(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, and NUL, which would make a text count as binary."""
    return _INVALID_CHARACTERS_PATTERN.sub("\N{REPLACEMENT CHARACTER}", text)


def shorten(text: str, max_length: int) -> str:
    """Cut the text to `max_length` characters, the last three of them `...` if anything was cut."""
    return text if len(text) <= max_length else text[: max(0, max_length - 3)] + "..."[:max_length]


def shorten_to_bytes(text: str, max_bytes: int) -> str:
    """Cut the text to `max_bytes`, measured as a JSON string inside a JSON-escaped response."""
    if (_core.preview(text, max_bytes, max_escaped_bytes=max_bytes, escape_levels=2) or "") == text:
        return text
    return f"{_core.preview(text, max_bytes - 3, max_escaped_bytes=max_bytes - 3, escape_levels=2)}..."


def create_summary(action: str, count: int, by_severity: Mapping[str, int] | None = None) -> str:
    """Return a line such as `Found bugs: 15 total (3 critical, 5 high, 7 medium)`, of at most 100 characters.

    If the line would be longer, `action` is cut and the numbers stay.
    """
    if not isinstance(action, str):
        check_text("action", action)
    check_integer("count", count, 0)
    if by_severity is not None and not isinstance(by_severity, Mapping):
        raise InvalidArgument('by_severity is how many there are of each, such as {"high": 3}')
    numbers = f": {count} items" if by_severity is None else f": {count} total{_format_severities(by_severity)}"
    action = to_single_line(action, max(10, MAX_SUMMARY_LENGTH - len(numbers)))
    return to_single_line(action + numbers, MAX_SUMMARY_LENGTH)


def _format_severities(by_severity: Mapping[str, int]) -> str:
    """List the known severities from worst to mildest, then any others in their own order."""
    known = [name for name in SEVERITIES if name in by_severity]
    others = [name for name in by_severity if name not in SEVERITIES]
    parts = [f"{by_severity[name]} {name}" for name in [*known, *others] if by_severity[name]]
    return f" ({', '.join(parts)})" if parts else ""
