"""Pages of a stored payload, each within its byte budget."""

import base64
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import orjson

from forebay._core import (
    Cut,
    ItemIndex,
    ItemPage,
    Span,
    has_fields,
    index_items,
    outline,
    project,
    read_items,
    read_lines,
    read_text,
)
from forebay.arguments import check_budget, check_fields, check_integer, short_repr
from forebay.errors import CorruptIndex, InvalidArgument, InvalidFormat, InvalidJSON, PathNotFound
from forebay.store.payload import escaped_size, is_mostly_items
from forebay.store.reader import View
from forebay.store.rest import encode_token, find_rest
from forebay.store.where import Batch, Matches, encode_conditions

__all__ = ["DEFAULT_MAX_BYTES", "MAX_OFFSET", "Format", "Page", "PageRequest", "build_page", "resolve_columns"]

Format: TypeAlias = Literal["auto", "items", "bytes", "text", "lines"]
_PageFormat = Literal["items", "bytes", "text", "lines"]
_Unit = Literal["items", "lines", "bytes", "matches"]
_LimitedBy = Literal["max_bytes", "scan"]

_UNITS: dict[_PageFormat, _Unit] = {"items": "items", "lines": "lines", "text": "bytes", "bytes": "bytes"}

MAX_OFFSET = (1 << 63) - 1
"""Maximum offset and limit; larger values are replaced by this one."""

DEFAULT_MAX_BYTES = 65536
"""Default of `max_bytes`, the budget of a page."""

_DEFAULT_LIMIT = 200
"""Default of `limit` for items and lines."""

_MAX_CHAR_BYTES = 4
"""Bytes of the longest UTF-8 character."""

_ENVELOPE_BYTES = 288
"""Estimated size of a page without its content and `next`."""

_MIN_CONTENT_BYTES = 16
"""Minimum bytes of content in a page."""

_INDEX_BLOCK_BYTES = 64 * 1024
"""Maximum bytes from an index entry to an item or line that is found by scanning from that entry."""

_READ_AHEAD_BYTES = 1 << 20
"""Bytes of items to read at a time when only some of their fields are returned."""

_MAX_SCAN_BYTES = 16 << 20
"""Maximum payload bytes to read for a page with `fields` or `where`, even if the page could hold more items."""


_MAX_HINT_FIELDS = 8
"""Maximum number of fields in conditions that are looked up in the items, to report those that no item has."""

FindMatches: TypeAlias = "Callable[[View, ItemIndex, str], Matches]"
"""Returns the items of a view that fulfil conditions, which are given as JSON."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """The parameters of `Store.fetch`. They are checked when the page is built."""

    offset: int = 0
    limit: int | None = None
    format: Format = "auto"
    path: str | None = None
    fields: Sequence[str] | None = None
    where: Mapping[str, Any] | str | None = None
    max_bytes: int = DEFAULT_MAX_BYTES
    escape_levels: int = 0
    is_ascii: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """A part of a payload. Following `next` from the first page returns all of it exactly once."""

    output_handle: str
    offset: int
    limit: int
    returned: int
    """How many of `unit` are in `content`."""
    total: int
    next_offset: int | None
    content: bytes | str
    """Items: a JSON array as bytes. Text and lines: the text. Bytes: base64."""
    eof: bool
    format: Literal["items", "bytes", "text", "lines"]
    encoding: Literal["json", "utf-8", "base64"]
    unit: _Unit
    """What `offset`, `limit`, `returned`, `total` and `next_offset` count. Bytes are those of the text in UTF-8."""
    path: str | None = None
    """The requested path. Byte offsets count from the start of the value at this path, or of the payload."""
    items_path: str | None = None
    """JSON Pointer from the requested value to the items; `None` if the value itself is the list of items."""
    limited_by: _LimitedBy | None = None
    """Why the page holds fewer than `limit`, if that is not the end of the payload.

    `max_bytes`: the next one would not fit. `scan`: a page with `fields` or `where` has read 16 MiB of the payload.
    """
    next: dict[str, Any] | None = None
    """All arguments of `output_fetch` for the next page; `None` on the last page.

    Also `None` if a long path, or many fields, would take more than a quarter of the page; then use `next_offset`.
    """
    truncated: tuple[dict[str, Any], ...] = ()
    """The item or line that was cut because it alone is larger than the page; empty if nothing was cut.

    The entry has the keys `index` (number of the item or line), `path` (of the item, or of the value that the line is
    in), `size_bytes`, `byte_offset` (of an item the first byte, of a line the first byte not shown) and `read_with`:
    all arguments of `output_fetch` to read the whole item, or the rest of the line. For an entry of a map, they
    describe its value, and `path` is `None` if the key is not text or is very long.
    """
    item_numbers: tuple[int, ...] = ()
    """With `where`, the number of each item on the page. In an array, the path of item 17 ends in `/17`."""
    hint: str | None = None
    """With `where`, what may be wrong with the conditions: nothing matches, or no item has one of the fields."""
    not_in_items: dict[str, Any] | None = None
    """On the last page of items: what the payload has besides them, or `None` if that is nothing or a few bytes.

    It has the keys `size_bytes` and, as far as there is room, `paths`: the size of each other value by its path.
    """
    decoded_from: str | None = None
    """What the content was decoded from, such as `gzip` or `utf-16-le`. Offsets are then those of the text in UTF-8.

    Pages of format `bytes` are of the payload as it was put.
    """

    def to_dict(self) -> dict[str, Any]:
        """Return the fields in the order they are sent in, with JSON content as an orjson fragment."""
        page = {name: getattr(self, name) for name in self.__slots__}
        if isinstance(self.content, bytes):
            page["content"] = orjson.Fragment(self.content)
        for name in (
            "items_path",
            "limited_by",
            "next",
            "truncated",
            "item_numbers",
            "hint",
            "not_in_items",
            "decoded_from",
        ):
            if not page[name]:
                del page[name]
        return page

    def to_json(self) -> bytes:
        """Return the page as JSON."""
        return orjson.dumps(self.to_dict())


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
    request = dataclasses.replace(request, offset=offset, limit=limit, fields=fields, where=where)
    matches = None
    if conditions is not None and view.items is not None:
        matches = find_matches(view, view.items, conditions)
    return _PageBuilder(view, handle, request, matches).build(page_format)


def _make_repeatable(where: Mapping[str, Any] | str | None, conditions: str) -> Mapping[str, Any] | str | None:
    """Return conditions as they are given in the call for the next page: as they came, if orjson can encode them."""
    try:
        orjson.dumps(where)
    except TypeError:
        # Integers of more than 64 bits, or another type of mapping.
        return conditions
    return where


def _choose_format(
    view: View, requested_format: Format, fields: Sequence[str] | None, conditions: str | None
) -> _PageFormat:
    chosen = requested_format
    argument = "fields" if fields is not None else "where" if conditions is not None else None
    if chosen == "auto":
        has_items = is_mostly_items(view.items, view.size) if argument is None else view.items is not None
        chosen = "items" if has_items else "bytes" if view.nature == "binary" else "text"
    if argument is not None and chosen != "items":
        alternative = "" if view.items is None else ", or use format='items'"
        verb, object_ = ("are", "the fields") if argument == "fields" else ("is", "where")
        raise InvalidFormat(
            f"{argument} {verb} of items, and this page would be {chosen}; leave {object_} out{alternative}"
        )
    if chosen == "items" and view.items is None:
        raise InvalidFormat(f"this payload has no items; {_suggest_format(view)}")
    if chosen in ("text", "lines") and view.nature == "binary":
        raise InvalidFormat(f"this payload is not text; {_suggest_format(view)}")
    return chosen


def _suggest_format(view: View) -> str:
    if view.nature == "binary":
        return "use format='bytes'"
    if view.items is not None:
        return "use format='items', or 'text', 'lines' or 'bytes' for it as it stands"
    if view.nature == "json":
        return "use format='text' or 'lines', or name an array or object inside of it by path"
    return "use format='lines' or 'text'"


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
        # Whether `next`, paths and `not_in_items` are left out because the page has no room for them.
        self._is_bare = False

    def build(self, page_format: _PageFormat) -> Page:
        """Build a page with as much content as fits into the budget."""
        request = self._request
        methods = {
            "items": self._build_items,
            "lines": self._build_lines,
            "text": self._build_text,
            "bytes": self._build_bytes,
        }
        for self._is_bare in (False, True):
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
        page_format: _PageFormat,
        encoding: Literal["json", "utf-8", "base64"],
        content: bytes | str,
        *,
        returned_count: int,
        end: int,
        total: int,
        start: int | None = None,
        limited_by: _LimitedBy = "max_bytes",
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
        """Describe the values around the items, the largest ones first, in a small part of the page."""
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
        index = self._view.lines
        if index is None:
            raise InvalidFormat(f"this payload has no lines; {_suggest_format(self._view)}")
        limit = self._request.limit or _DEFAULT_LIMIT
        span = index.span(self._offset, limit)
        if span.count == 0:
            return self._make_page("lines", "utf-8", "", returned_count=0, end=len(index), total=len(index))
        end = min(span.end, span.start + _INDEX_BLOCK_BYTES + budget + _MAX_CHAR_BYTES)
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
        path = self._request.path
        read_with: dict[str, Any] = {} if path is None else {"path": path}
        read_with |= {"format": "text", "offset": byte_offset, "limit": end - byte_offset}
        return self._describe_cut(self._offset, path, end - start, byte_offset, read_with)

    def _build_items(self, budget: int) -> Page:
        index = self._view.items
        if index is None:
            raise InvalidFormat(f"this payload has no items; {_suggest_format(self._view)}")
        limit = self._request.limit or _DEFAULT_LIMIT
        if self._matches is not None:
            return self._build_selected_items(index, self._iter_matches(self._matches, limit), limit, budget)
        if self._request.fields is not None:
            return self._build_selected_items(index, self._iter_items(index, limit), limit, budget)
        page = _read_items(self._view, index, self._offset, limit, budget)
        return self._make_page(
            "items",
            "json",
            page.content,
            returned_count=page.returned,
            end=page.offset + page.returned,
            total=len(index),
            truncated=tuple(self._describe_cut_item(cut, index, page.truncated_key) for cut in page.truncated),
        )

    def _iter_items(self, index: ItemIndex, limit: int) -> Iterator[Batch]:
        """Read whole items from the requested offset on, about 1 MiB at a time."""
        number, end = self._offset, min(self._offset + limit, len(index))
        while number < end:
            page = _read_whole_items(self._view, index, number, end - number)
            numbers = range(number, number + page.returned)
            yield Batch(page.content, numbers, page.end - page.start)
            number += page.returned

    def _iter_matches(self, matches: Matches, limit: int) -> Iterator[Batch]:
        yield from self._batches
        returned = sum(len(batch.numbers) for batch in self._batches)
        for batch in matches.iter_batches(self._offset + returned, limit - returned):
            self._batches.append(batch)
            yield batch

    def _build_selected_items(self, index: ItemIndex, batches: Iterable[Batch], limit: int, budget: int) -> Page:
        """Build a page of some items, or of some fields of items. It may take much more to read than a page."""
        fields = None if self._request.fields is None else resolve_columns(index, self._request.fields)
        parts: list[bytes] = []
        numbers: list[int] = []
        cuts: tuple[dict[str, Any], ...] = ()
        # An entry of a map keeps its key, by which it is read.
        shown_fields = ["_key", *fields] if fields is not None and index.kind == "map" else fields
        limited_by: _LimitedBy = "scan"
        remaining, scanned = budget - len("[]"), 0
        for batch in batches:
            content = batch.content if shown_fields is None else project(batch.content, shown_fields)
            size = len(content) - 1
            if self._matches is not None:
                size += len(orjson.dumps([*batch.numbers])) - 1
            if size <= remaining:
                parts.append(content[1:-1])
                numbers += batch.numbers
                remaining -= size
                scanned += batch.scanned_bytes
                if scanned >= _MAX_SCAN_BYTES:
                    break
                continue
            item_budget = max(remaining + 1, _MIN_CONTENT_BYTES)
            fitting = read_items(content, index_items(content, validate=False), 0, limit, item_budget)
            # An item that does not fit goes to the next page, or is cut if it is the first on this page.
            if not fitting.truncated or not numbers:
                parts.append(fitting.content[1:-1])
                if fitting.truncated:
                    # Report the size of the whole item, because reading it by its path returns all fields.
                    whole = _read_items(self._view, index, batch.numbers[0], 1, _MIN_CONTENT_BYTES)
                    cuts = tuple(self._describe_cut_item(cut, index, whole.truncated_key) for cut in whole.truncated)
                numbers += batch.numbers[: fitting.returned]
            limited_by = "max_bytes"
            break
        content = b"[" + b",".join(parts) + b"]"
        if fields is not None and numbers and not cuts and not has_fields(content, fields):
            self._check_fields_exist(index, fields, numbers[0])
        return self._make_page(
            "items",
            "json",
            content,
            returned_count=len(numbers),
            end=self._offset + len(numbers),
            total=len(index) if self._matches is None else self._matches.total,
            limited_by=limited_by,
            truncated=cuts,
            item_numbers=() if self._matches is None else tuple(numbers),
        )

    def _check_fields_exist(self, index: ItemIndex, fields: Sequence[str], first_number: int) -> None:
        """Raise `PathNotFound` if no item has any of the fields.

        Only the first items are scanned, up to `_MAX_SCAN_BYTES`. Nothing is raised for a page that starts after them.
        """
        if index.span(first_number, 1).start - index.start > 2 * _MAX_SCAN_BYTES:
            # The page starts after the last item that a scan could reach, so there is no need to scan.
            return
        count, example = self._find_fields(index, fields)
        if first_number >= count:
            return
        hint = "" if count == len(index) else f"; or look further from offset={count}"
        raise PathNotFound(
            f"the first {count} items have none of the fields {short_repr(fields)}; "
            f"name keys of an item, as in {example}{hint}"
        )

    def _find_fields(self, index: ItemIndex, fields: Sequence[str]) -> tuple[int, str]:
        """Return how many of the first items have none of the fields, and the shape of an item.

        The number is 0 if any of the items that are scanned has one of the fields.
        """
        count, scanned, example = 0, 0, ""
        while count < len(index) and scanned < _MAX_SCAN_BYTES:
            page = _read_whole_items(self._view, index, count, len(index) - count)
            example = example or outline(page.content, 256).removesuffix(f" ×{page.returned}")
            if has_fields(page.content, fields):
                return 0, example
            count += page.returned
            scanned += page.end - page.start
        return count, example

    @functools.cached_property
    def _hint(self) -> str | None:
        """What may be wrong with the conditions, on the first page."""
        index, matches = self._view.items, self._matches
        if matches is None or index is None or self._offset or not len(index):
            return None
        # An item that matches has the required fields.
        names = dict.fromkeys(name for name, is_required in matches.fields if not (is_required and matches.total))
        example, reasons = "", []
        for name in [*names][:_MAX_HINT_FIELDS]:
            try:
                count, example = self._find_fields(index, resolve_columns(index, [name]))
            except InvalidJSON:
                # Arrays in the items are nested too deeply to look for fields.
                continue
            if count:
                scope = "no item has" if count == len(index) else f"none of the first {count} items has"
                reasons.append(f"{scope} the field {short_repr(name)}")
        if not reasons and not matches.total:
            reasons.append(
                "no item matches" + ("" if index.columns else "; numbers and text never compare with each other")
            )
            example = example or self._find_fields(index, ["_"])[1]
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
            read_with: dict[str, Any] = {} if self._request.path is None else {"path": self._request.path}
            read_with |= {"format": "text", "offset": byte_offset, "limit": cut.size_bytes}
            path = None
        else:
            read_with = {"path": path}
        return self._describe_cut(cut.index, path, cut.size_bytes, byte_offset, read_with)

    def _describe_cut(
        self, number: int, path: str | None, size: int, byte_offset: int, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        read_with = {"output_handle": self._handle, **arguments}
        return {"index": number, "path": path, "size_bytes": size, "byte_offset": byte_offset, "read_with": read_with}


def resolve_columns(index: ItemIndex, fields: Sequence[str]) -> Sequence[str]:
    """Return fields with the names of columns escaped, because a dot in such a name is not a path."""
    columns = frozenset(index.columns or ())
    return [_escape_name(name) if name in columns else name for name in fields]


def _escape_name(name: str) -> str:
    if not name.startswith("/"):
        return name.replace("\\", "\\\\").replace(".", "\\.")
    # A pointer is also a name of this spelling, but hardly ever that of another column.
    return f"/{encode_token(name)}"


def _truncate_text(text: str, max_bytes: int) -> str:
    """Return the beginning of a text, but at least one character, so that the next page starts after this one."""
    while len(text) > 1 and len(text.encode()) > max_bytes:
        text = text[:-1]
    return text


def _read_items(view: View, index: ItemIndex, offset: int, limit: int, budget: int) -> ItemPage:
    """Read items that fit into a budget, without reading more of the payload than they may take."""
    span = index.span(offset, limit)
    end = min(span.end, span.start + _INDEX_BLOCK_BYTES + budget + 1)
    data = view.read(span.start - view.origin, end - view.origin)
    try:
        page = read_items(data, index, offset, limit, budget, base=span.start)
        if not page.truncated or end == span.end:
            return page
    except (CorruptIndex, InvalidJSON, InvalidArgument):
        # The error may only mean that the last item was not read to its end. It is real if all bytes were read.
        if end == span.end:
            raise
    # The first item is larger than the budget. It will be cut to an overview, which needs the whole item.
    span = index.span(offset, 1)
    data = view.read(span.start - view.origin, span.end - view.origin)
    return read_items(data, index, offset, 1, budget, base=span.start)


def _read_whole_items(view: View, index: ItemIndex, offset: int, limit: int) -> ItemPage:
    page = _read_items(view, index, offset, limit, _READ_AHEAD_BYTES)
    if not page.truncated:
        return page
    return _read_items(view, index, offset, 1, MAX_OFFSET // 2)
