"""The words of a response: one line each, never longer than they may be."""

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
    "replace_unwritable",
    "shorten",
    "shorten_to_bytes",
    "to_single_line",
]

MAX_SUMMARY_LENGTH = 100
MAX_LABEL_LENGTH = 50
SEVERITIES = ("critical", "high", "medium", "low")

_UNWRITABLE = re.compile("[\ud800-\udfff\x00]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def to_single_line(text: str, max_length: int) -> str:
    """A text as one line of at most `most` characters, which can be written: half of a surrogate pair cannot."""
    return shorten(" ".join(replace_unwritable(_CONTROL.sub(" ", text)).split()), max_length)


def replace_unwritable(text: str) -> str:
    """A text that can be written, and that nobody takes for a binary."""
    return _UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def shorten(text: str, max_length: int) -> str:
    """At most `most` characters, of which the last three say that there were more."""
    return text if len(text) <= max_length else text[: max(0, max_length - 3)] + "..."[:max_length]


def shorten_to_bytes(text: str, max_bytes: int) -> str:
    """As much of a text as weighs no more than `weight` inside of JSON inside of a message."""
    fitting = _core.preview(text, max_bytes, max_escaped_bytes=max_bytes, escape_levels=2) or ""
    return (
        text
        if fitting == text
        else f"{_core.preview(text, max_bytes - 3, max_escaped_bytes=max_bytes - 3, escape_levels=2)}..."
    )


def create_summary(action: str, count: int, by_severity: Mapping[str, int] | None = None) -> str:
    """`Found bugs: 15 total (3 critical, 5 high, 7 medium)`, in at most 100 characters.

    Where it would be longer, what was done is cut, and the numbers stay.
    """
    if not isinstance(action, str):
        check_text("action", action)
    check_integer("count", count, 0)
    if by_severity is not None and not isinstance(by_severity, Mapping):
        raise InvalidArgument('by_severity is how many there are of each, such as {"high": 3}')
    told = f": {count} items" if by_severity is None else f": {count} total{_format_severities(by_severity)}"
    return to_single_line(to_single_line(action, max(10, MAX_SUMMARY_LENGTH - len(told))) + told, MAX_SUMMARY_LENGTH)


def _format_severities(by_severity: Mapping[str, int]) -> str:
    """The worst first; of those that are unknown, the first."""
    known = [name for name in SEVERITIES if name in by_severity]
    others = [name for name in by_severity if name not in SEVERITIES]
    parts = [f"{by_severity[name]} {name}" for name in [*known, *others] if by_severity[name]]
    return f" ({', '.join(parts)})" if parts else ""
