"""Suggest calls for a text whose first lines look like a log, a document with headings, or prose."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from forebay.store.handles import Descriptor

__all__ = ["suggest_text_calls"]

_FETCH, _SEARCH = "output_fetch", "output_search"

_LINE_LIMIT = 50
_MATCH_LIMIT = 20
_TAIL_BYTES = 4000
_MAX_MEAN_LINE_BYTES = 2000
"""A text whose lines are longer on average is read by bytes instead of lines."""

_MIN_LOG_LINES = 3
_MIN_LOG_SHARE = 0.2
"""Minimum share of lines with a time or a level. It is low because stack traces have many lines without them."""

_LOG_LINE = re.compile(
    r"[\[<(]?(?:\d{4}[-/]\d\d[-/]\d\d|\d\d:\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:|\d{10,13}\b)"
    r"|.{0,80}?\b(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b|.{0,80}?\blevel=\w"
)
"""Matches the start of a line that has a time or a level."""

_HEADING = re.compile(r"(#{1,4}) \S")
_CODE_FENCE = re.compile(r" {0,3}(?:```|~~~)")

_WORD = re.compile(r"[^\W\d_]{6,24}")
_COMMON_WORDS = frozenset(
    re.findall(
        r"\w+",
        "although always another around because become before behind better between cannot could during "
        "either enough every having however including itself little neither nothing number others perhaps "
        "people rather really second should something still themselves therefore these things though through "
        "together toward under until usually various whether which while within without would yourself",
    )
)

_TextCall = tuple[str, dict[str, Any]]

_ERROR_SEARCH: Mapping[str, Any] = {
    "pattern": r"\b(error|warn(ing)?|fatal|critical|exception)\b",
    "regex": True,
    "ignore_case": True,
    "limit": _MATCH_LIMIT,
}


def suggest_text_calls(descriptor: Descriptor) -> list[_TextCall]:
    """Return three tool calls with their arguments, the most useful one first."""
    lines = (descriptor.preview or "").splitlines()
    start, end = _make_start_call(descriptor), _make_end_call(descriptor)
    if _is_log(lines):
        return [(_SEARCH, dict(_ERROR_SEARCH)), end, start]
    headings = _choose_heading_pattern(lines)
    if headings is not None:
        return [(_SEARCH, {"pattern": headings, "regex": True, "context": 0, "limit": _LINE_LIMIT}), start, end]
    word = _choose_word(descriptor.preview or "")
    if word is None:
        return [(_SEARCH, {"pattern": "error", "ignore_case": True, "count_only": True}), end, start]
    return [start, (_SEARCH, {"pattern": word, "ignore_case": True, "limit": _MATCH_LIMIT}), end]


def _make_start_call(descriptor: Descriptor) -> _TextCall:
    if _has_long_lines(descriptor):
        return _FETCH, {"format": "text", "offset": 0}
    return _FETCH, {"format": "lines", "offset": 0, "limit": _LINE_LIMIT}


def _make_end_call(descriptor: Descriptor) -> _TextCall:
    if _has_long_lines(descriptor) and descriptor.decoded_from is None:
        return _FETCH, {"format": "text", "offset": max(descriptor.size_bytes - _TAIL_BYTES, 0)}
    return _FETCH, {"format": "lines", "offset": max((descriptor.line_count or 0) - _LINE_LIMIT, 0)}


def _has_long_lines(descriptor: Descriptor) -> bool:
    return descriptor.size_bytes > _MAX_MEAN_LINE_BYTES * (descriptor.line_count or 1)


def _is_log(lines: Sequence[str]) -> bool:
    """Return whether enough of these lines have a time or a level. The others may be stack traces."""
    text_lines = [line for line in lines if line.strip()]
    count = sum(1 for line in text_lines if _LOG_LINE.match(line))
    return count >= _MIN_LOG_LINES and count >= _MIN_LOG_SHARE * len(text_lines)


def _choose_heading_pattern(lines: Sequence[str]) -> str | None:
    """Return an expression for the headings of a text; `None` if these lines have none outside of fenced code."""
    is_code = False
    # Levels of `#` lines outside of fenced code and inside it.
    levels: dict[bool, set[int]] = {False: set(), True: set()}
    for line in lines:
        if _CODE_FENCE.match(line):
            is_code = not is_code
        elif heading := _HEADING.match(line):
            levels[is_code].add(len(heading[1]))
    if not levels[False]:
        return None
    # The expression would also find comments in code (`# …`), so it leaves out level 1 if there are deeper headings.
    has_comments = 1 in levels[True] and max(levels[False]) > 1
    return f"(?m)^#{{{2 if has_comments else 1},4}} .*"


def _choose_word(text: str) -> str | None:
    """Return the most frequent word that is characteristic of the text; `None` if no such word is repeated."""
    counts = Counter(word for word in _WORD.findall(text) if word.lower() not in _COMMON_WORDS)
    repeated = [word for word, count in counts.items() if count > 1]
    return max(repeated, key=lambda word: (counts[word], len(word)), default=None)
