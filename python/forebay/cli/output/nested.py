"""Show objects and lists in table cells: JSON where it fits, else the first members and the number of the others."""

import dataclasses
import json
import re
from typing import Any

__all__ = ["NestedCell"]

_MAX_PARSED_BYTES = 64 * 1024
_MAX_MEMBERS = 64
"""Maximum number of members to format. No terminal shows more of them in a cell."""

_MAX_TEXT_CHARS = 200
_SHORT_TEXT_CHARS = 40
_MIN_CUT_CHARS = 4
_PLAIN_TEXT = re.compile(r"[^\W\d][\w .:@/+-]*")
"""Matches texts that need no quotation marks."""

_LITERALS = ("null", "true", "false")


class _Number(str):
    """A number, spelled as in the source."""

    __slots__ = ()


@dataclasses.dataclass(frozen=True, slots=True)
class NestedCell:
    """A JSON object or list."""

    source: str

    def __str__(self) -> str:
        """Return the JSON."""
        return self.source

    def summarize(self, width: int, ellipsis: str = "…") -> str:
        """Return a text of at most `width` characters, such as `{id: 7, name: Ann, 4 more}` or `[120 items]`.

        Inner objects and lists are shown as their numbers of members: `{3}` or `[120]`. The text is longer than `width`
        if not even such a number fits, or if the JSON is nested too deeply.
        """
        if len(self.source) <= width:
            return self.source
        if len(self.source) > _MAX_PARSED_BYTES:
            from forebay import _core

            return _core.outline(self.source, max(width, 16))
        try:
            value = json.loads(self.source, parse_int=_Number, parse_float=_Number)
        except (ValueError, RecursionError):
            # Nested too deeply.
            return self.source
        return _summarize(value, width, ellipsis)


def _summarize(value: Any, width: int, ellipsis: str) -> str:
    is_object = isinstance(value, dict)
    opening, closing = "{}" if is_object else "[]"
    count = len(value)
    members = _order_members(value) if is_object else [(None, item) for item in value[:_MAX_MEMBERS]]
    texts = [_format_member(name, member, ellipsis) for name, member in members]
    if not is_object and texts and isinstance(value[0], dict):
        # The first object shows what the others are like.
        rest = f"{_format_rest(count - 1)}{closing}"
        first = _summarize(value[0], width - len(opening) - len(rest), ellipsis)
        if ": " in first and len(text := opening + first + rest) <= width:
            return text
    for shown in range(len(texts), 0, -1):
        text = opening + ", ".join(texts[:shown]) + _format_rest(count - shown) + closing
        if len(text) <= width:
            return text
    if texts and not isinstance(members[0][1], dict | list):
        # The first member alone is too long, but its beginning says more than a number.
        rest = f"{ellipsis}{_format_rest(count - 1)}{closing}"
        room = width - len(opening) - len(rest)
        if room >= len(texts[0].partition(": ")[0]) + _MIN_CUT_CHARS:
            return f"{opening}{texts[0][:room]}{rest}"
    noun = ("field" if is_object else "item") + ("" if count == 1 else "s")
    counted = f"{opening}{count:,} {noun}{closing}"
    return counted if len(counted) <= width else _format_size(value)


def _order_members(value: dict[str, Any]) -> list[tuple[str | None, Any]]:
    """Return the first members to show, in order: short scalars, long texts, objects and lists, nulls."""
    return [*sorted(value.items(), key=lambda member: _get_rank(member[1]))[:_MAX_MEMBERS]]


def _get_rank(value: Any) -> int:
    if value is None:
        return 3
    if isinstance(value, dict | list):
        return 2
    return int(isinstance(value, str) and len(value) > _SHORT_TEXT_CHARS)


def _format_rest(count: int) -> str:
    return f", {count:,} more" if count > 0 else ""


def _format_member(name: str | None, value: Any, ellipsis: str) -> str:
    text = _format_size(value) if isinstance(value, dict | list) else _format_scalar(value, ellipsis)
    return text if name is None else f"{_format_text(name, ellipsis)}: {text}"


def _format_scalar(value: Any, ellipsis: str) -> str:
    if isinstance(value, _Number):
        return str(value)
    return _format_text(value, ellipsis) if isinstance(value, str) else json.dumps(value)


def _format_text(text: str, ellipsis: str) -> str:
    if _PLAIN_TEXT.fullmatch(text) and text not in _LITERALS and text.strip() == text:
        return text
    quoted = json.dumps(text[:_MAX_TEXT_CHARS], ensure_ascii=False)
    return quoted if len(text) <= _MAX_TEXT_CHARS else quoted[:-1] + ellipsis


def _format_size(value: Any) -> str:
    return f"{{{len(value):,}}}" if isinstance(value, dict) else f"[{len(value):,}]"
