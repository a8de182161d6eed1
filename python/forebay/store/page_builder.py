"""Building pages of a stored payload, each within its byte budget."""

import base64
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args

import orjson

from forebay._core import (
    Cut,
    ItemIndex,
    Span,
    has_fields,
    index_items,
    project,
    read_items,
    read_lines,
    read_text,
)
from forebay.arguments import check_budget, check_fields, check_integer, short_repr
from forebay.errors import InvalidArgument, InvalidFormat
from forebay.store.items import (
    INDEX_BLOCK_BYTES,
    MAX_SCAN_BYTES,
    Batch,
    check_fields_exist,
    explain_missing_fields,
    iter_whole_items,
    read_fitting_items,
    resolve_columns,
)
from forebay.store.pages import MAX_OFFSET, Format, LimitedBy, Page, PageFormat, PageRequest, Unit
from forebay.store.payload import escaped_size, is_mostly_items
from forebay.store.reader import View
from forebay.store.rest import encode_token, find_rest
from forebay.store.where import Matches, encode_conditions, explain_matches

__all__ = ["build_page"]

_UNITS: dict[PageFormat, Unit] = {"items": "items", "lines": "lines", "text": "bytes", "bytes": "bytes"}

_DEFAULT_LIMIT = 200
"""Default of `limit` for items and lines."""

_MAX_CHAR_BYTES = 4
"""Bytes of the longest UTF-8 character."""

_ENVELOPE_BYTES = 288
"""Estimated size of a page without its content and `next`."""

_MIN_CONTENT_BYTES = 16
"""Minimum bytes of content in a page."""

FindMatches: TypeAlias = "Callable[[View, ItemIndex, str], Matches]"
"""Returns the items of a view that fulfil conditions, which are given as JSON."""


def build_page(view: View, handle: str, request: PageRequest, find_matches: FindMatches) -> Page:
    """Build a page of a view. The view must be of the value at `request.path`.

    `find_matches` is called for the conditions in `request.where`, if there are any.

    Raises `InvalidArgument` for invalid parameters, `InvalidFormat` or `PathNotFound`.
    """
    if request.format not in get_args(Format):
        raise InvalidArgument(f"format is one of {', '.join(get_args(Format))}, not {short_repr(request.format)}")
    check_integer("offset", request.offset, 0)
    if request.limit is not None:
        check_integer("limit", request.limit, 1)
    fields = None if request.fields is None else check_fields(request.fields)
    # Some clients send an empty object in place of an argument that they leave out.
    conditions = None if request.where is None or request.where == {} else encode_conditions(request.where)
    check_budget(request.max_bytes, request.escape_levels)
    page_format = _choose_format(view, request.format, fields, conditions)
    offset, limit = min(request.offset, MAX_OFFSET), request.limit and min(request.limit, MAX_OFFSET)
    where = None if conditions is None else _make_repeatable(request.where, conditions)
    # Mostly nothing changes, and a copy takes a tenth of the time of a page.
    if (offset, limit, fields, where) != (request.offset, request.limit, request.fields, request.where):
        request = dataclasses.replace(request, offset=offset, limit=limit, fields=fields, where=where)
    matches = None
    if conditions is not None and view.items is not None:
        matches = find_matches(view, view.items, conditions)
    return _PageBuilder(view, handle, request, matches).build(page_format)


def _make_repeatable(where: Mapping[str, Any] | str | None, conditions: str) -> Mapping[str, Any] | str | None:
    """Return the conditions for `next`: `where` if orjson can encode it, else `conditions`, which is its JSON."""
    try:
        orjson.dumps(where)
    except TypeError:
        # Integers of more than 64 bits, or another type of mapping.
        return conditions
    return where


def _choose_format(
    view: View, requested_format: Format, fields: Sequence[str] | None, conditions: str | None
) -> PageFormat:
    chosen = requested_format
    argument = "fields" if fields is not None else "where" if conditions is not None else None
    if chosen == "auto":
        has_items = is_mostly_items(view.items, view.size) if argument is None else view.items is not None
        chosen = "items" if has_items else "bytes" if view.nature == "binary" else "text"
    if argument is not None and chosen != "items":
        alternative = "" if view.items is None else ", or use format='items'"
        raise InvalidFormat(
            f"{argument} works only with format='items', and this page would have format={chosen!r}; "
            f"omit {argument}{alternative}"
        )
    if chosen == "items" and view.items is None:
        raise InvalidFormat(f"this payload has no items; {_suggest_format(view)}")
    if chosen in ("text", "lines") and view.nature == "binary":
        raise InvalidFormat(f"this payload is not text; {_suggest_format(view)}")
    if chosen == "lines" and view.lines is None:
        # Only damaged metadata says that a payload is text and has no lines.
        raise InvalidFormat("this payload has no lines; use format='bytes'")
    return chosen


def _suggest_format(view: View) -> str:
    if view.nature == "binary":
        return "use format='bytes'"
    if view.nature == "json":
        return "use format='text' or 'lines', or name an array or object inside of it by path"
    return "use format='lines' or 'text'"


class _Selected(NamedTuple):
    """The items on a page, selected by conditions or with some of their fields."""

    content: bytes
    """A JSON array of the items."""
    numbers: list[int]
    cuts: tuple[dict[str, Any], ...]
    """Description of the first item, if it is cut."""
    limited_by: LimitedBy


class _PageBuilder:
    """Builder of a page for a request that is already checked."""

    def __init__(self, view: View, handle: str, request: PageRequest, matches: Matches | None) -> None:
        self._view = view
        self._handle = handle
        self._request = request
        self._offset = request.offset
        self._matches = matches
        # Batches of matches that were read already: a page that turned out too large is built again.
        self._batches: list[Batch] = []
        # The fields that no item on the page has.
        self._absent_fields: list[str] = []
        # Whether `next`, paths and `not_in_items` are left out because the page has no room for them.
        self._is_bare = False

    def build(self, page_format: PageFormat) -> Page:
        """Build a page with as much content as fits into the budget."""
        request = self._request
        if page_format == "text" and request.format == "auto" and request.path:
            page = self._build_value()
            if page is not None and self._measure(page.to_json()) <= request.max_bytes:
                return page
        methods = {
            "items": self._build_items,
            "lines": self._build_lines,
            "text": self._build_text,
            "bytes": self._build_bytes,
        }
        for is_bare in (False, True):
            self._is_bare = is_bare
            budget = request.max_bytes - _ENVELOPE_BYTES - self._measure(orjson.dumps(self._make_next(self._offset)))
            while budget >= _MIN_CONTENT_BYTES:
                page = methods[page_format](budget)
                size = self._measure(page.to_json())
                if size <= request.max_bytes:
                    return page
                # The envelope, or escaping, takes more than was estimated: try again with less content.
                content_size = len(page.content) if page.encoding == "json" else budget
                budget = min(content_size, budget) * request.max_bytes // size
        raise InvalidArgument(f"max_bytes={request.max_bytes} is too small for a page of this payload; ask for more")

    def _measure(self, text: bytes) -> int:
        """Return the size of a part of the page as it will be sent."""
        return escaped_size(text, self._request.escape_levels, is_ascii=self._request.is_ascii)

    def _make_next(self, offset: int) -> dict[str, Any] | None:
        """Return all arguments to continue at an offset, or `None` if they would take too much of the page."""
        request = self._request
        arguments: dict[str, Any] = {"output_handle": self._handle, "offset": offset}
        for name in ("limit", "path", "fields", "where"):
            value = getattr(request, name)
            if value is not None:
                arguments[name] = value
        if request.format != "auto":
            arguments["format"] = request.format
        is_short = self._measure(orjson.dumps(arguments)) <= request.max_bytes // 4
        return arguments if is_short and not self._is_bare else None

    def _make_page(
        self,
        page_format: PageFormat,
        encoding: Literal["json", "utf-8", "base64"],
        content: bytes | str,
        *,
        returned_count: int,
        end: int,
        total: int,
        start: int | None = None,
        limited_by: LimitedBy = "max_bytes",
        truncated: tuple[dict[str, Any], ...] = (),
        item_numbers: tuple[int, ...] = (),
    ) -> Page:
        """Return a page from `start` to `end`. Without `start`, the page starts at the requested offset."""
        is_last = end >= total
        default_limit = _DEFAULT_LIMIT if page_format in ("items", "lines") else returned_count
        limit = self._request.limit or default_limit
        # Text may end a few bytes before the limit, where the next character would pass it.
        is_full = returned_count > limit - _MAX_CHAR_BYTES if page_format == "text" else returned_count >= limit
        return Page(
            output_handle=self._handle,
            offset=self._offset if start is None else start,
            limit=limit,
            returned=returned_count,
            total=total,
            next_offset=None if is_last else end,
            content=content,
            eof=is_last,
            format=page_format,
            encoding=encoding,
            unit=_UNITS[page_format] if self._matches is None else "matches",
            path=self._request.path,
            items_path=self._get_nested_items_path() if page_format == "items" else None,
            limited_by=None if is_full or is_last else limited_by,
            next=None if is_last else self._make_next(end),
            truncated=truncated,
            item_numbers=item_numbers,
            hint=self._hint,
            not_in_items=self._describe_rest()
            if is_last and page_format == "items" and self._matches is None
            else None,
            decoded_from=None if page_format == "bytes" else self._view.decoded_from,
        )

    def _describe_rest(self) -> dict[str, Any] | None:
        """Describe the values outside the items, the largest ones first, in a small part of the page."""
        rest = None if self._is_bare else find_rest(self._view)
        if rest is None:
            return None
        size, paths = rest
        budget = self._request.max_bytes // 8
        shown: dict[str, int] = {}
        for path, value_size in sorted(paths.items(), key=lambda item: -item[1]):
            entry = orjson.dumps({path: value_size})
            budget -= self._measure(entry)
            if budget < 0:
                break
            shown[path] = value_size
        return {"size_bytes": size, "paths": shown} if shown else {"size_bytes": size}

    def _get_nested_items_path(self) -> str | None:
        """Return the JSON Pointer to the items inside the view, or `None` if it takes too much of the page."""
        path = self._view.items_path
        return path if path and self._is_short(path) else None

    def _is_short(self, path: str, *, times: int = 1) -> bool:
        """Return whether a path, written so many times, takes only a small part of the page."""
        return not self._is_bare and times * self._measure(orjson.dumps(path)) <= self._request.max_bytes // 8

    @property
    def _text_escape_levels(self) -> int:
        """How often text is escaped: as a string in the page, and then with the page. The core supports at most 2."""
        return min(1 + self._request.escape_levels, 2)

    def _build_bytes(self, budget: int) -> Page:
        view = self._view.original
        total = view.size
        start = min(self._offset, total)
        # Base64 encodes three bytes as four characters.
        max_length = budget // 4 * 3
        data = view.read(start, min(start + min(self._request.limit or max_length, max_length), total))
        content = base64.b64encode(data).decode()
        return self._make_page("bytes", "base64", content, returned_count=len(data), end=start + len(data), total=total)

    def _build_value(self) -> Page | None:
        """Return a page with the whole value at the path, as JSON.

        Return `None` if it does not fit or only a part is requested.
        """
        size = self._view.size
        if self._offset > 0 or size > min(self._request.limit or MAX_OFFSET, self._request.max_bytes):
            return None
        value = bytes(self._view.read(0, size))
        return self._make_page("text", "json", value, returned_count=size, end=size, total=size)

    def _build_text(self, budget: int) -> Page:
        total = self._view.size
        start = min(self._offset, total)
        max_length = min(self._request.limit or budget, budget)
        # Read a character more on either side, to tell a character that is cut from one that is invalid.
        base = max(0, start - _MAX_CHAR_BYTES)
        read_length = max(max_length, _MAX_CHAR_BYTES)
        data = self._view.read(base, min(start + read_length + _MAX_CHAR_BYTES, total))
        page = read_text(data, start - base, read_length)
        end = page.end
        if max_length < _MAX_CHAR_BYTES:
            end = page.start + len(_truncate_text(page.text, max_length).encode())
        page = read_text(data[:end], start - base, budget, escape_levels=self._text_escape_levels)
        return self._make_page(
            "text",
            "utf-8",
            page.text,
            returned_count=page.end - page.start,
            # An offset inside a character moves to the start of the character; an offset past the end stays.
            start=None if start == total else base + page.start,
            end=base + page.end,
            total=total,
        )

    def _build_lines(self, budget: int) -> Page:
        # `_choose_format` has checked that there are lines.
        index = cast("ItemIndex", self._view.lines)
        limit = self._request.limit or _DEFAULT_LIMIT
        span = index.span(self._offset, limit)
        if span.count == 0:
            return self._make_page("lines", "utf-8", "", returned_count=0, end=len(index), total=len(index))
        end = min(span.end, span.start + INDEX_BLOCK_BYTES + budget + _MAX_CHAR_BYTES)
        data = self._view.read(span.start, end)
        page = read_lines(data, self._offset - span.first, limit, budget, escape_levels=self._text_escape_levels)
        content_size = len(page.text.encode())
        return self._make_page(
            "lines",
            "utf-8",
            page.text,
            returned_count=page.returned,
            end=self._offset + page.returned,
            total=len(index),
            truncated=tuple(self._describe_cut_line(cut, index, span, content_size, end) for cut in page.truncated),
        )

    def _describe_cut_line(
        self, cut: Cut, index: ItemIndex, span: Span, content_size: int, read_end: int
    ) -> dict[str, Any]:
        byte_offset = span.start + cut.byte_offset
        start = byte_offset - content_size
        end = start + cut.size_bytes
        if end == read_end:
            # The line may continue after the bytes read; the index has the start of the next line.
            end = index.span(self._offset, 1).end
        arguments = self._make_text_arguments(byte_offset, end - byte_offset)
        return self._describe_cut(self._offset, self._request.path, end - start, byte_offset, arguments)

    def _build_items(self, budget: int) -> Page:
        # `_choose_format` has checked that there are items.
        index = cast("ItemIndex", self._view.items)
        limit = self._request.limit or _DEFAULT_LIMIT
        if self._matches is not None:
            return self._build_selected_items(index, self._iter_matches(self._matches, limit), limit, budget)
        if self._request.fields is not None:
            return self._build_selected_items(
                index, iter_whole_items(self._view, index, self._offset, limit), limit, budget
            )
        page = read_fitting_items(self._view, index, self._offset, limit, budget)
        return self._make_page(
            "items",
            "json",
            page.content,
            returned_count=page.returned,
            end=page.offset + page.returned,
            total=len(index),
            truncated=tuple(self._describe_cut_item(cut, index, page.truncated_key) for cut in page.truncated),
        )

    def _iter_matches(self, matches: Matches, limit: int) -> Iterator[Batch]:
        yield from self._batches
        returned = sum(len(batch.numbers) for batch in self._batches)
        for batch in matches.iter_batches(self._offset + returned, limit - returned):
            self._batches.append(batch)
            yield batch

    def _build_selected_items(self, index: ItemIndex, batches: Iterable[Batch], limit: int, budget: int) -> Page:
        """Build a page of some items, or of some fields of items.

        Much more than a page may be read, up to about `MAX_SCAN_BYTES`.
        """
        fields = None if self._request.fields is None else resolve_columns(index, self._request.fields)
        # An entry of a map keeps its key, by which it is read.
        shown_fields = ["_key", *fields] if fields is not None and index.kind == "map" else fields
        selected = self._fill(index, shown_fields, batches, limit, budget)
        if fields is not None and selected.numbers and not selected.cuts:
            self._check_absent_fields(index, fields, selected)
        return self._make_page(
            "items",
            "json",
            selected.content,
            returned_count=len(selected.numbers),
            end=self._offset + len(selected.numbers),
            total=len(index) if self._matches is None else self._matches.total,
            limited_by=selected.limited_by,
            truncated=selected.cuts,
            item_numbers=() if self._matches is None else tuple(selected.numbers),
        )

    def _fill(
        self, index: ItemIndex, fields: Sequence[str] | None, batches: Iterable[Batch], limit: int, budget: int
    ) -> _Selected:
        """Return as many items, with these fields, as fit into the budget. Stop after `MAX_SCAN_BYTES`."""
        parts: list[bytes] = []
        numbers: list[int] = []
        cuts: tuple[dict[str, Any], ...] = ()
        limited_by: LimitedBy = "scan"
        remaining, scanned = budget - len("[]"), 0
        for batch in batches:
            content = batch.content if fields is None else project(batch.content, fields)
            # The items without their brackets, but with a comma.
            size = len(content) - 1
            if self._matches is not None:
                size += len(orjson.dumps([*batch.numbers])) - 1
            if size <= remaining:
                parts.append(content[1:-1])
                numbers += batch.numbers
                remaining -= size
                scanned += batch.scanned_bytes
                if scanned >= MAX_SCAN_BYTES:
                    break
                continue
            # An array has two brackets in place of the comma.
            item_budget = max(remaining + 1, _MIN_CONTENT_BYTES)
            fitting = read_items(content, index_items(content, validate=False), 0, limit, item_budget)
            # An item that does not fit goes to the next page, or is cut if it is the first on this page.
            if not fitting.truncated or not numbers:
                parts.append(fitting.content[1:-1])
                if fitting.truncated:
                    # Report the size of the whole item, because reading it by its path returns all fields.
                    whole = read_fitting_items(self._view, index, batch.numbers[0], 1, _MIN_CONTENT_BYTES)
                    cuts = tuple(self._describe_cut_item(cut, index, whole.truncated_key) for cut in whole.truncated)
                numbers += batch.numbers[: fitting.returned]
            limited_by = "max_bytes"
            break
        return _Selected(b"[" + b",".join(parts) + b"]", numbers, cuts, limited_by)

    def _check_absent_fields(self, index: ItemIndex, fields: Sequence[str], selected: _Selected) -> None:
        """Note the fields that no item on the page has. Raise `PathNotFound` if no item at all has any of them."""
        names = zip(self._request.fields or (), fields, strict=True)
        self._absent_fields = [name for name, field in names if not has_fields(selected.content, [field])]
        if len(self._absent_fields) == len(fields):
            check_fields_exist(self._view, index, fields, selected.numbers[0])

    @functools.cached_property
    def _hint(self) -> str | None:
        """What may be wrong with the conditions or fields, on the first page."""
        index, matches = self._view.items, self._matches
        if index is None or self._offset or not len(index):
            return None
        reasons, example = ([], "") if matches is None else explain_matches(self._view, index, matches)
        if not reasons:
            reasons, example = explain_missing_fields(self._view, index, self._absent_fields)
        if not reasons:
            return None
        hint = f"{'; '.join(reasons)}; the items are {example}"
        return hint if self._measure(orjson.dumps(hint)) <= self._request.max_bytes // 4 else f"{reasons[0]:.100}"

    def _describe_cut_item(self, cut: Cut, index: ItemIndex, key: str | None) -> dict[str, Any]:
        byte_offset = cut.byte_offset - self._view.origin
        prefix = f"{self._request.path or ''}{self._view.items_path}/"
        path: str | None = f"{prefix}{cut.index}"
        if index.kind == "map":
            path = None if key is None else f"{prefix}{encode_token(key)}"
        if path is None or not self._is_short(path, times=2):
            # A key that is not text, or a long path, is not repeated: the value is read by its bytes.
            path, arguments = None, self._make_text_arguments(byte_offset, cut.size_bytes)
        else:
            arguments = {"path": path}
        return self._describe_cut(cut.index, path, cut.size_bytes, byte_offset, arguments)

    def _make_text_arguments(self, offset: int, size: int) -> dict[str, Any]:
        """Return the arguments that read a part of the view as text."""
        path: dict[str, Any] = {} if self._request.path is None else {"path": self._request.path}
        return {**path, "format": "text", "offset": offset, "limit": size}

    def _describe_cut(
        self, number: int, path: str | None, size: int, byte_offset: int, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        read_with = {"output_handle": self._handle, **arguments}
        return {"index": number, "path": path, "size_bytes": size, "byte_offset": byte_offset, "read_with": read_with}


def _truncate_text(text: str, max_bytes: int) -> str:
    """Return the beginning of a text, but at least one character, so that the next page starts after this one."""
    while len(text) > 1 and len(text.encode()) > max_bytes:
        text = text[:-1]
    return text
