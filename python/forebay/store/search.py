"""Searches of a stored payload, in pages within a byte budget."""

import bisect
import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import orjson
from typing_extensions import Buffer

from forebay._core import (
    ItemIndex,
    Match,
    SearchResult,
    has_fields,
    outline,
    preview,
    project,
    truncate,
)
from forebay._core import search as search_bytes
from forebay.arguments import check_budget, check_fields, check_flag, check_integer, check_text, short_repr
from forebay.errors import InvalidArgument, InvalidFormat, PathNotFound
from forebay.store.catalog import Catalog
from forebay.store.items import resolve_columns
from forebay.store.match_counts import MAX_STREAMED_BYTES, Total, count_payload
from forebay.store.pages import DEFAULT_MAX_BYTES, MAX_OFFSET
from forebay.store.payload import escaped_size, is_mostly_items
from forebay.store.reader import PayloadReader

__all__ = ["Mode", "SearchPage", "SearchRequest", "search_payload"]

Mode: TypeAlias = Literal["text", "values"]

_FIRST_SEARCH_BYTES = 4 << 20
"""Size of the first part of a payload. A literal is searched in this part before the whole payload is read."""

_MIN_MATCH_BYTES = 48
"""Minimum bytes that a match takes on a page, without its context."""

_LOOK_AHEAD_BYTES = 2048
"""Bytes needed after a context so that it ends between two characters or escapes, and that a path has its last key."""

_MIN_VALUE_BYTES = 16
"""Minimum bytes of an item that is cut to fit on a page."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """The parameters of `Store.search`. They are checked when the search begins."""

    pattern: str
    regex: bool = False
    ignore_case: bool = False
    mode: Mode = "text"
    offset: int = 0
    limit: int = 50
    context: int = 80
    fields: Sequence[str] | None = None
    count_only: bool = False
    max_bytes: int = DEFAULT_MAX_BYTES
    escape_levels: int = 0
    is_ascii: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class SearchPage:
    """Matches of a search. Following `next_offset` returns every match exactly once."""

    output_handle: str
    pattern: str
    offset: int
    unit: Literal["bytes"]
    """The unit of `offset` and `next_offset`."""
    returned: int
    total_matches: int
    """The number of matches in the whole payload, whatever the offset and limit."""
    matches: tuple[dict[str, Any], ...]
    """Each match has `byte_offset`, `size_bytes`, where it is, and the text or value that it is in.

    Where it is: `item` (the number of its item, or `None` outside of the items), `path` (the JSON Pointer of the value
    or key, unless it costs too much to find), and the number of its `line` in text of several lines. `context` is the
    match with as much of the text around it as fits, or `None` if these bytes are not text. Without context, an
    expression has `match` instead: the text that it matched. With `fields`, `value` has these fields of the item;
    further matches in the same item have no `value`, and one that was cut to fit has `truncated`.
    """
    next_offset: int | None
    eof: bool
    total_is_lower_bound: bool = False
    """Whether counting stopped because it took too long, so that there may be more matches."""
    items_with_matches: int | None = None
    """With `count_only`: the number of items in which a match begins, or `None` if there are no items."""
    limited_by: Literal["max_bytes"] | None = None
    """Set if `limit` allows more matches than fit on the page."""
    next: dict[str, Any] | None = None
    """Arguments of `output_search` for the next page, unless they would take too much of the page."""
    searched: str | None = None
    """If nothing was found: what was searched."""
    decoded_from: str | None = None
    """What the text was decoded from, such as `gzip`. Offsets are then those of the text in UTF-8."""
    context_offsets: tuple[int, ...] = ()
    """The byte in its `context` at which each match begins. Not sent."""
    is_count: bool = False
    """Whether the page has only counts. Not sent."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields in the order they are sent in."""
        hidden = {"context_offsets", "is_count"}
        if self.is_count:
            hidden |= {"offset", "unit", "returned", "matches", "next_offset", "eof"}
        optional = {"total_is_lower_bound", "items_with_matches", "limited_by", "next", "searched", "decoded_from"}
        page = {name: getattr(self, name) for name in _SENT_ORDER if name not in hidden}
        return {name: value for name, value in page.items() if name not in optional or value not in (None, False)}

    def to_json(self) -> bytes:
        """Return the page as JSON."""
        return orjson.dumps(self.to_dict())


_SENT_ORDER = (
    *("output_handle", "pattern", "offset", "unit", "returned", "total_matches", "total_is_lower_bound"),
    *("items_with_matches", "matches", "limited_by", "next_offset", "eof", "next", "searched", "decoded_from"),
)


def search_payload(reader: PayloadReader, catalog: Catalog, handle: str, request: SearchRequest) -> SearchPage:
    """Search a payload and return as many matches as fit on a page, or only their number."""
    check_budget(request.max_bytes, request.escape_levels)
    check_text("pattern", request.pattern)
    if request.mode not in get_args(Mode):
        raise InvalidArgument(f"mode is one of {', '.join(get_args(Mode))}, not {short_repr(request.mode)}")
    for name, minimum in (("offset", 0), ("limit", 1), ("context", 0)):
        check_integer(name, getattr(request, name), minimum)
        request = dataclasses.replace(request, **{name: min(getattr(request, name), MAX_OFFSET)})
    for name in ("regex", "ignore_case", "count_only"):
        check_flag(name, getattr(request, name))
    fields = None if request.fields is None else check_fields(request.fields)
    if request.mode == "values" and reader.nature not in ("json", "ndjson"):
        raise InvalidFormat("mode='values' reads JSON, and this payload is not; leave the mode out")
    # Matches have item numbers only if pages show items. An item number is then an offset for `fetch`.
    index = reader.items if is_mostly_items(reader.items, reader.size) else None
    if fields is not None and index is None:
        raise InvalidFormat("fields works only on items, and this payload has none; omit fields")
    request = dataclasses.replace(request, fields=fields)
    builder = _PageBuilder(reader, catalog, handle, request, index)
    return builder.count() if request.count_only else builder.find()


class _PageBuilder:
    """Builder of a page of matches for a request that is already checked."""

    def __init__(
        self, reader: PayloadReader, catalog: Catalog, handle: str, request: SearchRequest, index: ItemIndex | None
    ) -> None:
        self._reader = reader
        self._catalog = catalog
        self._request = request
        self._index = index
        self._size_of = functools.partial(escaped_size, escape_levels=request.escape_levels, is_ascii=request.is_ascii)
        self._find = functools.partial(
            search_bytes,
            pattern=request.pattern,
            regex=request.regex,
            ignore_case=request.ignore_case,
            mode=request.mode,
            index=index,
            paths=reader.has_paths,
        )
        lines = reader.lines
        self._has_lines = index is None and not (reader.has_paths and lines is not None and len(lines) <= 1)
        self._last_value: tuple[int, bytes] | None = None
        page = SearchPage(
            handle, request.pattern, request.offset, "bytes", 0, 0, (), None, eof=True, decoded_from=reader.decoded_from
        )
        self._empty_page = page
        # The largest values that a page can have, and the keys that only some pages have.
        largest = dataclasses.replace(
            page,
            returned=min(request.limit, reader.size),
            total_matches=reader.size,
            next_offset=reader.size,
            next=self._make_next(reader.size),
            total_is_lower_bound=request.regex or request.ignore_case or reader.size > MAX_STREAMED_BYTES,
            limited_by="max_bytes",
        )
        self._remaining = request.max_bytes - self._size_of(largest.to_json())
        if self._remaining < 0:
            raise InvalidArgument(
                f"max_bytes={request.max_bytes} is too small for this pattern; raise it, or shorten the pattern"
            )

    def count(self) -> SearchPage:
        """Return a page that has only the counts."""
        total = self._count(self._index)
        return self._finish(total, is_count=True, items_with_matches=total.items)

    def find(self) -> SearchPage:
        """Return a page with as many matches as fit."""
        request = self._request
        limit = min(request.limit, self._remaining // _MIN_MATCH_BYTES + 1)
        # With fields, the text around a match is not shown.
        context = min(request.context if request.fields is None else 0, self._remaining)
        matches: list[dict[str, Any]] = []
        offsets: list[int] = []
        next_offset: int | None = request.offset
        is_full = False
        while next_offset is not None and len(matches) < limit and not is_full:
            # Find only as many as may fit, because every match is returned with its context.
            count = min(limit - len(matches), self._remaining // (_MIN_MATCH_BYTES + context) + 1)
            data, result = self._find_matches(offset=next_offset, limit=count, context=context)
            for match in result.matches:
                described, offset = self._describe(match, match.context), match.start - match.context_start
                if not matches and self._measure(described) > self._remaining:
                    described, offset = self._shorten(match, data, context)
                size = self._measure(described)
                is_full = size > self._remaining
                if is_full:
                    break
                self._remaining -= size
                matches.append(described)
                offsets.append(offset)
                next_offset = match.end
            else:
                next_offset = result.next_offset
        if next_offset is not None and not matches:
            raise InvalidArgument(
                f"max_bytes={request.max_bytes} is too small for a match of this pattern; ask for more"
            )
        self._check_fields_exist(matches)
        is_whole = request.offset == 0 and next_offset is None
        total = Total(len(matches), None, is_complete=True) if is_whole else self._count(None)
        return self._finish(
            total,
            returned=len(matches),
            matches=tuple(matches),
            context_offsets=tuple(offsets),
            next_offset=next_offset,
            eof=next_offset is None,
            next=None if next_offset is None else self._make_next(next_offset),
            limited_by="max_bytes" if next_offset is not None and len(matches) < request.limit else None,
        )

    def _finish(self, total: Total, **values: Any) -> SearchPage:
        page = dataclasses.replace(
            self._empty_page, total_matches=total.matches, total_is_lower_bound=not total.is_complete, **values
        )
        if total.matches == 0:
            searched = dataclasses.replace(page, searched=self._describe_searched())
            if self._size_of(searched.to_json()) <= self._request.max_bytes:
                return searched
        return page

    def _count(self, index: ItemIndex | None) -> Total:
        request = self._request
        return count_payload(
            self._reader,
            self._catalog,
            request.pattern,
            regex=request.regex,
            ignore_case=request.ignore_case,
            mode=request.mode,
            index=index,
        )

    def _make_next(self, offset: int) -> dict[str, Any] | None:
        """Return the arguments for the next page, or `None` if they take too much of the page."""
        chosen = {
            field.name: getattr(self._request, field.name)
            for field in dataclasses.fields(SearchRequest)
            if field.name in _PASSED_ON and getattr(self._request, field.name) != field.default
        }
        arguments = {"output_handle": self._empty_page.output_handle, **chosen, "offset": offset}
        # Measured with the largest offset, so that all pages have these arguments or none.
        size = self._size_of(orjson.dumps({**arguments, "offset": self._reader.size}))
        return arguments if size <= self._request.max_bytes // 8 else None

    def _find_matches(self, *, offset: int, limit: int, context: int) -> tuple[Buffer, SearchResult]:
        """Find matches, and return them with the data they were found in.

        The first part of the payload is searched first, unless the whole one is in memory. That is only for literals
        and values: a regular expression may match a longer or another text in the whole payload.
        """
        is_local = not self._request.regex or self._request.mode == "values"
        is_in_memory = self._catalog.get_cached_payload(self._reader) is not None
        if is_local and not is_in_memory and offset < _FIRST_SEARCH_BYTES < self._reader.size:
            part = self._reader.read(0, _FIRST_SEARCH_BYTES)
            result = self._find(part, offset=offset, limit=limit, context=context)
            if len(result.matches) == limit and result.matches[-1].end + context + _LOOK_AHEAD_BYTES <= len(part):
                return part, result
        data = self._catalog.read_payload(self._reader)
        return data, self._find(data, offset=offset, limit=limit, context=context)

    def _describe(self, match: Match, text: str | None, value: bytes | None = None) -> dict[str, Any]:
        """Return a match as it is sent: where it is, and the given text of it or a value."""
        description: dict[str, Any] = {} if self._index is None else {"item": match.item}
        if match.path is not None:
            description["path"] = match.path
        if match.line is not None and self._has_lines:
            description["line"] = match.line
        description |= {"byte_offset": match.start, "size_bytes": match.end - match.start}
        request = self._request
        if request.fields is not None and match.item is not None:
            if value is not None:
                return description | {"value": orjson.Fragment(value), "truncated": True}
            if self._last_value is None or self._last_value[0] != match.item:
                self._last_value = match.item, self._project(match.item)
                description["value"] = orjson.Fragment(self._last_value[1])
            return description
        if request.context and request.fields is None:
            description["context"] = text
        elif request.regex or request.ignore_case:
            # Any other match is the pattern.
            description["match"] = text
        return description

    def _measure(self, description: dict[str, Any]) -> int:
        """Return the size of a match on a page, with the comma after it."""
        return self._size_of(orjson.dumps(description)) + 1

    def _shorten(self, match: Match, data: Buffer, max_context_bytes: int) -> tuple[dict[str, Any], int]:
        """Describe a match with as much of its context or value as fits, or with a part of the matched text.

        Also return where in the context the match begins.
        """
        if self._last_value is not None and self._last_value[0] == match.item:
            return self._shorten_value(match, self._last_value[1]), 0
        text = self._find_again(data, match, 0).context or ""
        text_size = len(text.encode())

        def describe_shortened(size: int) -> tuple[dict[str, Any], int]:
            if size <= text_size:
                return self._describe(match, preview(text, size) or None), 0
            found = self._find_again(data, match, size - text_size)
            return self._describe(match, found.context or None), found.start - found.context_start

        sizes = range(text_size + max_context_bytes + 1)
        fitting = bisect.bisect_right(
            sizes, self._remaining, key=lambda size: self._measure(describe_shortened(size)[0])
        )
        return describe_shortened(max(fitting - 1, 0))

    def _find_again(self, data: Buffer, match: Match, context: int) -> Match:
        """Return a match with another context, by repeating the search at its start."""
        return self._find(data, offset=match.start, limit=1, context=context).matches[0]

    def _shorten_value(self, match: Match, value: bytes) -> dict[str, Any]:
        """Describe a match with its value cut to what fits."""
        limits = dict.fromkeys(("max_array_items", "max_string_chars", "max_object_keys"), MAX_OFFSET)
        budget = self._remaining
        while True:
            cut = truncate(value, max_bytes=max(budget, _MIN_VALUE_BYTES), max_depth=64, **limits)
            description = self._describe(match, None, cut)
            size = self._measure(description)
            if size <= self._remaining or budget <= _MIN_VALUE_BYTES:
                return description
            budget = min(len(cut), budget) * self._remaining // size

    def _project(self, number: int) -> bytes:
        """Return the requested fields of an item."""
        assert self._index is not None  # noqa: S101 - checked before
        assert self._request.fields is not None  # noqa: S101 - checked before
        item = self._reader.read_item(self._index, number)
        fields = resolve_columns(self._index, self._request.fields)
        # An entry of a map keeps its key, as on a page.
        return project(item, ["_key", *fields] if self._index.kind == "map" else fields)

    def _check_fields_exist(self, matches: list[dict[str, Any]]) -> None:
        """Raise `PathNotFound` if the page shows items, and none of them has any of the fields."""
        fields, index = self._request.fields, self._index
        items = [match["item"] for match in matches if "value" in match]
        if fields is None or index is None or not items:
            return
        names = resolve_columns(index, fields)
        if not any(has_fields(self._reader.read_item(index, number), names) for number in items):
            example = outline(self._reader.read_item(index, items[0]), 256)
            raise PathNotFound(
                f"none of these items has the fields {short_repr(fields)}; name keys of an item, as in {example}"
            )

    def _describe_searched(self) -> str:
        """Say what was searched, so that a search without matches is not misread."""
        request, size = self._request, f"{self._reader.size:,} bytes"
        case = "" if request.ignore_case else ", case-sensitive"
        if request.mode == "values":
            return f"the decoded keys and values in {size} of JSON{case}; mode='text' searches the JSON as written"
        if self._reader.nature not in ("json", "ndjson"):
            return f"{size} of {self._reader.nature}{case}"
        head = self._reader.read(0, min(self._reader.size, _STYLE_BYTES))
        member = next((match for match in _STRING_PATTERN.finditer(head) if match["colon"]), None)
        example = "" if member is None else f", with members written as {_format_example(member)}"
        return f"{size} of JSON as written{example}{case}; mode='values' searches decoded keys and values"


_PASSED_ON = {"pattern", "regex", "ignore_case", "mode", "limit", "context", "fields"}
"""The parameters that the next page has in common with this one."""

_STYLE_BYTES = 4096
"""Bytes at the start of JSON that show whether spaces are around its colons."""

_STRING_PATTERN = re.compile(rb'"(?P<text>(?:[^"\\]|\\.)*+)"(?P<colon>[ \t\r\n]*+:[ \t\r\n]*+(?P<value>[-\w"{\[])?)?')
"""Matches a string of JSON, with the colon after it if it is a key. From the first byte on, none is missed."""

_MAX_EXAMPLE_KEY_BYTES = 32


def _format_example(member: re.Match[bytes]) -> str:
    """Return a key and the spacing around its colon, as in `"id": …`."""
    key = member["text"]
    shown = key.decode(errors="replace") if len(key) <= _MAX_EXAMPLE_KEY_BYTES else "key"
    colon = member["colon"].removesuffix(member["value"] or b"").decode()
    return f'"{shown}"{colon}…'
