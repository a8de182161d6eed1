"""Searches of a stored payload, in pages within a byte budget."""

import bisect
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import orjson
from typing_extensions import Buffer

from forebay._core import Match, SearchResult, preview
from forebay._core import search as search_bytes
from forebay.arguments import check_budget, check_flag, check_integer, check_text
from forebay.errors import InvalidArgument
from forebay.store.pages import DEFAULT_MAX_BYTES, MAX_OFFSET
from forebay.store.payload import escaped_size, is_mostly_items
from forebay.store.reader import View

__all__ = ["SearchPage", "SearchRequest", "search_payload"]

_FIRST_SEARCH_BYTES = 4 << 20
"""Size of the first part of a payload. A literal is searched in this part before the whole payload is read."""

_MIN_MATCH_BYTES = 48
"""Minimum bytes that a match takes on a page, without its context."""

_LOOK_AHEAD_BYTES = 16
"""Bytes needed after a context so that it ends between two characters or escapes."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """The parameters of `Store.search`. They are checked when the search begins."""

    pattern: str
    regex: bool = False
    ignore_case: bool = False
    start: int = 0
    limit: int = 50
    context: int = 80
    max_bytes: int = DEFAULT_MAX_BYTES
    escape_levels: int = 0
    is_ascii: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class SearchPage:
    """Matches of a search. Following `next_start` returns every match exactly once."""

    output_handle: str
    pattern: str
    start: int
    matches: tuple[dict[str, Any], ...]
    """Each match has `byte_offset`, `size_bytes`, the number of its `item` or `line`, and `context`: the match with as
    much of the text around it as fits, or `None` if these bytes are not text."""
    next_start: int | None
    eof: bool
    decoded_from: str | None = None
    """What the text was decoded from, such as `gzip`. Offsets are then those of the text in UTF-8."""
    context_offsets: tuple[int, ...] = ()
    """The byte in its `context` at which each match begins. Not sent."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields in the order they are sent in."""
        page = {name: getattr(self, name) for name in self.__slots__ if name != "context_offsets"}
        if self.decoded_from is None:
            del page["decoded_from"]
        return page

    def to_json(self) -> bytes:
        """Return the page as JSON."""
        return orjson.dumps(self.to_dict())


def search_payload(
    view: View, read_payload: Callable[[], Buffer], handle: str, request: SearchRequest, *, is_cached: bool = False
) -> SearchPage:
    """Search a view and return as many matches as fit on a page.

    `read_payload` returns the whole payload. `is_cached` tells whether the payload is in memory already.
    """
    check_budget(request.max_bytes, request.escape_levels)
    check_text("pattern", request.pattern)
    for name, minimum in (("start", 0), ("limit", 1), ("context", 0)):
        check_integer(name, getattr(request, name), minimum)
    for name in ("regex", "ignore_case"):
        check_flag(name, getattr(request, name))
    request = dataclasses.replace(request, start=min(request.start, MAX_OFFSET))
    size_of = functools.partial(escaped_size, escape_levels=request.escape_levels, is_ascii=request.is_ascii)
    empty_page = SearchPage(handle, request.pattern, request.start, (), view.size, False, view.decoded_from)
    remaining = request.max_bytes - size_of(empty_page.to_json())
    if remaining < 0:
        raise InvalidArgument(
            f"this pattern alone is more than max_bytes={request.max_bytes}; ask for more, or for less"
        )
    find = functools.partial(
        search_bytes,
        pattern=request.pattern,
        regex=request.regex,
        ignore_case=request.ignore_case,
        # Matches have item numbers only if pages show items. An item number is then an offset for `fetch`.
        index=view.items if is_mostly_items(view.items, view.size) else None,
    )
    find_matches = functools.partial(
        _find_matches, view, read_payload, find, try_first_part=not (request.regex or is_cached)
    )
    limit, context = min(request.limit, remaining // _MIN_MATCH_BYTES + 1), min(request.context, remaining)
    matches: list[dict[str, Any]] = []
    offsets: list[int] = []
    next_start: int | None = request.start
    while next_start is not None and len(matches) < limit:
        # Find only as many as may fit, because every match is returned with its context.
        count = min(limit - len(matches), remaining // (_MIN_MATCH_BYTES + context) + 1)
        data, result = find_matches(start=next_start, limit=count, context=context)
        for match in result.matches:
            described, offset = _describe_match(match, match.context), match.start - match.context_start
            if not matches and _measure_match(described, size_of) > remaining:
                find_again = functools.partial(_find_again, find, data, match)
                described, offset = _shorten_match(match, find_again, context, remaining, size_of)
            size = _measure_match(described, size_of)
            if size > remaining:
                return _build_page(empty_page, request, matches, offsets, next_start)
            remaining -= size
            matches.append(described)
            offsets.append(offset)
            next_start = match.end
        next_start = result.next_start
    return _build_page(empty_page, request, matches, offsets, next_start)


def _build_page(
    empty_page: SearchPage,
    request: SearchRequest,
    matches: list[dict[str, Any]],
    offsets: list[int],
    next_start: int | None,
) -> SearchPage:
    if next_start is not None and not matches:
        raise InvalidArgument(f"max_bytes={request.max_bytes} is too small for a match of this pattern; ask for more")
    return dataclasses.replace(
        empty_page,
        matches=tuple(matches),
        context_offsets=tuple(offsets),
        next_start=next_start,
        eof=next_start is None,
    )


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
    """Find matches, and return them with the data they were found in.

    With `try_first_part`, the first part of the payload is searched first. That is only for literals: a regular
    expression may match a longer or another text in the whole payload.
    """
    if try_first_part and start < _FIRST_SEARCH_BYTES < view.size:
        part = view.read(0, _FIRST_SEARCH_BYTES)
        result = find(part, start=start, limit=limit, context=context)
        if len(result.matches) == limit and result.matches[-1].end + context + _LOOK_AHEAD_BYTES <= len(part):
            return part, result
    data = read_payload()
    return data, find(data, start=start, limit=limit, context=context)


def _describe_match(match: Match, context: str | None) -> dict[str, Any]:
    number = {"line": match.line} if match.item is None and match.line is not None else {"item": match.item}
    return {"byte_offset": match.start, "size_bytes": match.end - match.start, **number, "context": context}


def _measure_match(description: dict[str, Any], size_of: Callable[[bytes], int]) -> int:
    """Return the size of a match on a page, with the comma after it."""
    return size_of(orjson.dumps(description)) + 1


def _find_again(find: Callable[..., SearchResult], data: Buffer, match: Match, context_bytes: int) -> Match:
    """Return the match with `context_bytes` bytes of context, by repeating the search at the start of the match."""
    return find(data, start=match.start, limit=1, context=context_bytes).matches[0]


def _shorten_match(
    match: Match,
    find_again: Callable[[int], Match],
    max_context_bytes: int,
    max_bytes: int,
    size_of: Callable[[bytes], int],
) -> tuple[dict[str, Any], int]:
    """Describe a match with as much of its context as fits, or with a part of the matched text if no context fits.

    Also return where in the context the match begins.
    """
    text = find_again(0).context or ""
    text_size = len(text.encode())

    def describe_shortened(size: int) -> tuple[dict[str, Any], int]:
        if size <= text_size:
            return _describe_match(match, preview(text, size) or None), 0
        found = find_again(size - text_size)
        return _describe_match(match, found.context or None), found.start - found.context_start

    sizes = range(text_size + max_context_bytes + 1)
    fitting = bisect.bisect_right(
        sizes, max_bytes, key=lambda size: _measure_match(describe_shortened(size)[0], size_of)
    )
    return describe_shortened(max(fitting - 1, 0))
