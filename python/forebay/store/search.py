"""What is found in a stored payload, in pages within a budget."""

from __future__ import annotations

import bisect
import functools
from typing import TYPE_CHECKING, Any

import orjson

from forebay._core import Match, SearchResult, preview
from forebay._core import search as search_bytes
from forebay.arguments import check_budget, check_flag, check_integer, check_text
from forebay.errors import InvalidArgument
from forebay.store.pages import MAX_OFFSET, SearchPage, escaped_size, is_mostly_items

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

    # Stores import this module: whichever of the two comes first, it must not need the other one yet.
    from forebay.store.reader import View

__all__ = ["search_payload"]

_FIRST_SEARCH_BYTES = 4 << 20
"""What is searched before all of a payload is."""

_MIN_MATCH_BYTES = 48
"""What a match weighs at least, whatever is around it."""

_LOOK_AHEAD_BYTES = 16
"""How far behind its end a context is looked at, so that it ends inside of no character and no escape."""


def search_payload(
    view: View,
    read_payload: Callable[[], Buffer],
    handle: str,
    pattern: str,
    *,
    is_cached: bool = False,
    regex: bool = False,
    ignore_case: bool = False,
    start: int = 0,
    limit: int = 50,
    context: int = 80,
    max_bytes: int = 65536,
    escape_levels: int = 0,
    is_ascii: bool = False,
) -> SearchPage:
    """As many matches as fit into `max_bytes`. `whole` gives all of the view, at once if `is_whole_kept`."""
    check_budget(max_bytes, escape_levels)
    check_text("pattern", pattern)
    for name, number, least in (("start", start, 0), ("limit", limit, 1), ("context", context, 0)):
        check_integer(name, number, least)
    for name, flag in {"regex": regex, "ignore_case": ignore_case}.items():
        check_flag(name, flag)
    start = min(start, MAX_OFFSET)
    weigh_page = functools.partial(escaped_size, escape_levels=escape_levels, is_ascii=is_ascii)
    room = max_bytes - weigh_page(SearchPage(handle, pattern, start, (), view.size, False).to_json())
    if room < 0:
        raise InvalidArgument(f"this pattern alone is more than max_bytes={max_bytes}; ask for more, or for less")
    # The number of an item leads to it only where pages are of items.
    index = view.items if is_mostly_items(view.items, view.size) else None
    find = functools.partial(search_bytes, pattern=pattern, regex=regex, ignore_case=ignore_case, index=index)
    look = functools.partial(_find_matches, view, read_payload, find, try_first_part=not (regex or is_cached))
    limit, context = min(limit, room // _MIN_MATCH_BYTES + 1), min(context, room)
    matches: list[dict[str, Any]] = []
    next_start: int | None = start
    while next_start is not None and len(matches) < limit:
        # No more at a time than the page may have room for: each comes with its context.
        most = min(limit - len(matches), room // (_MIN_MATCH_BYTES + context) + 1)
        data, found = look(start=next_start, limit=most, context=context)
        for match in found.matches:
            told = _describe_match(match, match.context)
            if not matches and _match_size(told, weigh_page) > room:
                around = functools.partial(_read_context, find, data, match)
                told = _shorten_match(match, around, context, room, weigh_page)
            weight = _match_size(told, weigh_page)
            if weight > room:
                return _build_page(handle, pattern, start, matches, next_start, max_bytes)
            room -= weight
            matches.append(told)
            next_start = match.end
        next_start = found.next_start
    return _build_page(handle, pattern, start, matches, next_start, max_bytes)


def _build_page(
    handle: str, pattern: str, start: int, matches: list[dict[str, Any]], next_start: int | None, max_bytes: int
) -> SearchPage:
    if next_start is not None and not matches:
        raise InvalidArgument(f"max_bytes={max_bytes} is too small for a match of this pattern; ask for more")
    return SearchPage(handle, pattern, start, tuple(matches), next_start, next_start is None)


def _find_matches(
    view: View,
    read_payload: Callable[[], Buffer],
    find: Callable[..., SearchResult],
    *,
    try_first_part: bool,
    start: int,
    limit: int,
    context: int,
) -> tuple[Buffer, SearchResult]:
    """What was searched, and what was found there: exactly what all of the payload has.

    `try_part`: whether the first part may do. A literal in it is one in the whole; what an expression matches may go on
    behind the part, or be something else.
    """
    if try_first_part and start < _FIRST_SEARCH_BYTES < view.size:
        part = view.read(0, _FIRST_SEARCH_BYTES)
        found = find(part, start=start, limit=limit, context=context)
        if len(found.matches) == limit and found.matches[-1].end + context + _LOOK_AHEAD_BYTES <= len(part):
            return part, found
    data = read_payload()
    return data, find(data, start=start, limit=limit, context=context)


def _describe_match(match: Match, context: str | None) -> dict[str, Any]:
    place = {"line": match.line} if match.item is None and match.line is not None else {"item": match.item}
    return {"byte_offset": match.start, "size_bytes": match.end - match.start, **place, "context": context}


def _match_size(told: dict[str, Any], weigh: Callable[[bytes], int]) -> int:
    """With the comma behind it."""
    return weigh(orjson.dumps(told)) + 1


def _read_context(find: Callable[..., SearchResult], data: Buffer, match: Match, size: int) -> str:
    """Another context of a match. Searching from where it starts finds it at once."""
    return find(data, start=match.start, limit=1, context=size).matches[0].context or ""


def _shorten_match(
    match: Match, around: Callable[[int], str], most: int, room: int, weigh: Callable[[bytes], int]
) -> dict[str, Any]:
    """A match with what fits of its context, or else of itself; whole characters and escapes."""
    own = around(0)
    own_size = len(own.encode())

    def cut_to(size: int) -> dict[str, Any]:
        return _describe_match(match, (preview(own, size) if size <= own_size else around(size - own_size)) or None)

    fitting = bisect.bisect_right(range(own_size + most + 1), room, key=lambda size: _match_size(cut_to(size), weigh))
    return cut_to(max(fitting - 1, 0))
