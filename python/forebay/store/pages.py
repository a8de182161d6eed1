"""Pages of a stored payload, each within its byte budget."""

import base64
import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import orjson

from forebay._core import (
    Cut,
    ItemIndex,
    ItemPage,
    Span,
    has_fields,
    index_items,
    locate,
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

__all__ = ["DEFAULT_MAX_BYTES", "MAX_OFFSET", "Format", "Page", "PageRequest", "build_page"]

Format: TypeAlias = Literal["auto", "items", "bytes", "text", "lines"]
_PageFormat = Literal["items", "bytes", "text", "lines"]

MAX_OFFSET = (1 << 63) - 1
"""Maximum offset and limit; larger values are replaced by this one."""

DEFAULT_MAX_BYTES = 65536
"""Default of `max_bytes`, the budget of a page."""

_DEFAULT_LIMIT = 200
"""Default of `limit` for items and lines."""

_MAX_CHAR_BYTES = 4
"""Bytes of the longest UTF-8 character."""

_ENVELOPE_BYTES = 256
"""Estimated size of a page without its content."""

_MIN_CONTENT_BYTES = 16
"""Minimum bytes of content in a page."""

_INDEX_BLOCK_BYTES = 64 * 1024
"""Maximum bytes from an index entry to an item or line that is found by scanning from that entry."""

_READ_AHEAD_BYTES = 1 << 20
"""Bytes of items to read at a time when only some of their fields are returned."""

_MAX_SCAN_BYTES = 16 << 20
"""Maximum payload bytes to read for one page of selected fields, even if the page could hold more items."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """The parameters of `Store.fetch`. They are checked when the page is built."""

    offset: int = 0
    limit: int | None = None
    format: Format = "auto"
    path: str | None = None
    fields: Sequence[str] | None = None
    max_bytes: int = DEFAULT_MAX_BYTES
    escape_levels: int = 0
    is_ascii: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """A part of a payload. Following `next_offset` from 0 returns all of it exactly once."""

    output_handle: str
    offset: int
    limit: int
    returned: int
    """Number of items or lines, or of payload bytes, in `content`."""
    total: int
    next_offset: int | None
    content: bytes | str
    """Items: a JSON array as bytes. Text and lines: the text. Bytes: base64."""
    eof: bool
    format: Literal["items", "bytes", "text", "lines"]
    encoding: Literal["json", "utf-8", "base64"]
    path: str | None = None
    """The requested path. Byte offsets count from the start of the value at this path, or of the payload."""
    items_path: str | None = None
    """JSON Pointer from the requested value to the items; `None` if the value itself is the list of items."""
    truncated: tuple[dict[str, Any], ...] = ()
    """The item or line that was cut because it alone is larger than the page; empty if nothing was cut.

    The entry has the keys `index` (number of the item or line), `path` (of the item, or of the value that the line is
    in), `size_bytes`, `byte_offset` (of an item the first byte, of a line the first byte not shown) and `read_with`:
    arguments for `fetch` to read the whole item, or the rest of the line.
    """
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
        for name in ("items_path", "truncated", "not_in_items", "decoded_from"):
            if not page[name]:
                del page[name]
        return page

    def to_json(self) -> bytes:
        """Return the page as JSON."""
        return orjson.dumps(self.to_dict())


def build_page(view: View, handle: str, request: PageRequest) -> Page:
    """Build a page of a view. The view must be of the value at `request.path`.

    Raises `InvalidArgument` for invalid parameters, `InvalidFormat` or `PathNotFound`.
    """
    if request.format not in get_args(Format):
        raise InvalidArgument(f"format is one of {', '.join(get_args(Format))}, not {short_repr(request.format)}")
    check_integer("offset", request.offset, 0)
    if request.limit is not None:
        check_integer("limit", request.limit, 1)
    fields = None if request.fields is None else check_fields(request.fields)
    check_budget(request.max_bytes, request.escape_levels)
    page_format = _choose_format(view, request.format, fields)
    offset, limit = min(request.offset, MAX_OFFSET), request.limit and min(request.limit, MAX_OFFSET)
    builder = _PageBuilder(view, handle, dataclasses.replace(request, offset=offset, limit=limit, fields=fields))
    return builder.build(page_format)


def _choose_format(view: View, requested_format: Format, fields: Sequence[str] | None) -> _PageFormat:
    chosen = requested_format
    if chosen == "auto":
        has_items = is_mostly_items(view.items, view.size) if fields is None else view.items is not None
        chosen = "items" if has_items else "bytes" if view.nature == "binary" else "text"
    if fields is not None and chosen != "items":
        alternative = "" if view.items is None else ", or use format='items'"
        raise InvalidFormat(f"fields are of items, and this page would be {chosen}; leave the fields out{alternative}")
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
        return "use format='text' or 'lines', or name an array inside of it by path"
    return "use format='lines' or 'text'"


class _PageBuilder:
    """Builder of a page for a request that is already checked."""

    def __init__(self, view: View, handle: str, request: PageRequest) -> None:
        self._view = view
        self._handle = handle
        self._request = request
        self._offset = request.offset

    def build(self, page_format: _PageFormat) -> Page:
        """Build a page with as much content as fits into the budget."""
        request = self._request
        methods = {
            "items": self._build_items,
            "lines": self._build_lines,
            "text": self._build_text,
            "bytes": self._build_bytes,
        }
        budget = request.max_bytes - _ENVELOPE_BYTES
        while budget >= _MIN_CONTENT_BYTES:
            page = methods[page_format](budget)
            size = escaped_size(page.to_json(), request.escape_levels, is_ascii=request.is_ascii)
            if size <= request.max_bytes:
                return page
            # The envelope, or escaping, takes more than was estimated: try again with less content.
            content_size = len(page.content) if page.encoding == "json" else budget
            budget = min(content_size, budget) * request.max_bytes // size
        raise InvalidArgument(f"max_bytes={request.max_bytes} is too small for a page of this payload; ask for more")

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
        truncated: tuple[dict[str, Any], ...] = (),
    ) -> Page:
        """Return a page from `start` to `end`. Without `start`, the page starts at the requested offset."""
        is_last = end >= total
        default_limit = _DEFAULT_LIMIT if page_format in ("items", "lines") else returned_count
        return Page(
            output_handle=self._handle,
            offset=self._offset if start is None else start,
            limit=self._request.limit or default_limit,
            returned=returned_count,
            total=total,
            next_offset=None if is_last else end,
            content=content,
            eof=is_last,
            format=page_format,
            encoding=encoding,
            path=self._request.path,
            items_path=self._get_nested_items_path() if page_format == "items" else None,
            truncated=truncated,
            not_in_items=self._describe_rest() if is_last and page_format == "items" else None,
            decoded_from=None if page_format == "bytes" else self._view.decoded_from,
        )

    def _describe_rest(self) -> dict[str, Any] | None:
        """Describe the values around the items, the largest ones first, in a small part of the page."""
        rest = find_rest(self._view)
        if rest is None:
            return None
        size, paths = rest
        budget = self._request.max_bytes // 8
        shown: dict[str, int] = {}
        for path, value_size in sorted(paths.items(), key=lambda item: -item[1]):
            entry = orjson.dumps({path: value_size})
            budget -= escaped_size(entry, self._request.escape_levels, is_ascii=self._request.is_ascii)
            if budget < 0:
                break
            shown[path] = value_size
        return {"size_bytes": size, "paths": shown} if shown else {"size_bytes": size}

    def _get_nested_items_path(self) -> str | None:
        """Return the JSON Pointer to the items inside the view, or `None` if it takes too much of the page."""
        path = self._view.items_path
        size = escaped_size(orjson.dumps(path), self._request.escape_levels)
        return path if path and size <= self._request.max_bytes // 8 else None

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
        read_with: dict[str, Any] = {"format": "text", "offset": byte_offset, "limit": end - byte_offset}
        if path is not None:
            read_with = {"path": path, **read_with}
        return _describe_cut(self._offset, path, end - start, byte_offset, read_with)

    def _build_items(self, budget: int) -> Page:
        index = self._view.items
        if index is None:
            raise InvalidFormat(f"this payload has no items; {_suggest_format(self._view)}")
        limit = self._request.limit or _DEFAULT_LIMIT
        if self._request.fields is not None:
            return self._build_projected_items(index, limit, budget, _resolve_columns(index, self._request.fields))
        page = _read_items(self._view, index, self._offset, limit, budget)
        return self._make_page(
            "items",
            "json",
            page.content,
            returned_count=page.returned,
            end=page.offset + page.returned,
            total=len(index),
            truncated=tuple(
                self._describe_cut_item(cut.index, cut.size_bytes, cut.byte_offset) for cut in page.truncated
            ),
        )

    def _build_projected_items(self, index: ItemIndex, limit: int, budget: int, fields: Sequence[str]) -> Page:
        """Build a page of items with only the given fields. It may hold many more items than a page of whole items."""
        parts: list[bytes] = []
        cuts: tuple[dict[str, Any], ...] = ()
        remaining, returned, scanned = budget - len("[]"), 0, 0
        while returned < limit and self._offset + returned < len(index) and scanned < _MAX_SCAN_BYTES:
            page = _read_whole_items(self._view, index, self._offset + returned, limit - returned)
            scanned += page.end - page.start
            content = project(page.content, fields)
            if len(content) - 1 <= remaining:
                parts.append(content[1:-1])
                remaining -= len(content) - 1
                returned += page.returned
                continue
            item_budget = max(remaining + 1, _MIN_CONTENT_BYTES)
            fitting = read_items(content, index_items(content, validate=False), 0, limit, item_budget)
            # An item that does not fit goes to the next page, or is cut if it is the first on this page.
            if not fitting.truncated or not returned:
                parts.append(fitting.content[1:-1])
                returned += fitting.returned
                if fitting.truncated:
                    # Report the size of the whole item, because reading it by its path returns all fields.
                    start, end = locate(page.content, "/0")
                    cuts = (self._describe_cut_item(self._offset, end - start, page.start),)
            break
        content = b"[" + b",".join(parts) + b"]"
        if returned and not cuts and not has_fields(content, fields):
            self._check_fields_exist(index, fields)
        return self._make_page(
            "items",
            "json",
            content,
            returned_count=returned,
            end=self._offset + returned,
            total=len(index),
            truncated=cuts,
        )

    def _check_fields_exist(self, index: ItemIndex, fields: Sequence[str]) -> None:
        """Raise `PathNotFound` if no item has any of the fields.

        Only the first items are scanned, up to `_MAX_SCAN_BYTES`. Nothing is raised for a page that starts after them.
        """
        if index.span(self._offset, 1).start - index.start > 2 * _MAX_SCAN_BYTES:
            # The page starts after the last item that a scan could reach, so there is no need to scan.
            return
        count, scanned, example = 0, 0, ""
        while count < len(index) and scanned < _MAX_SCAN_BYTES:
            page = _read_whole_items(self._view, index, count, len(index) - count)
            if has_fields(page.content, fields):
                return
            example = example or outline(page.content, 256).removesuffix(f" ×{page.returned}")
            count += page.returned
            scanned += page.end - page.start
        if self._offset >= count:
            return
        hint = "" if count == len(index) else f"; or look further from offset={count}"
        raise PathNotFound(
            f"the first {count} items have none of the fields {short_repr(fields)}; "
            f"name keys of an item, as in {example}{hint}"
        )

    def _describe_cut_item(self, number: int, size: int, byte_offset: int) -> dict[str, Any]:
        path = f"{self._request.path or ''}{self._view.items_path}/{number}"
        return _describe_cut(number, path, size, byte_offset - self._view.origin, {"path": path})


def _resolve_columns(index: ItemIndex, fields: Sequence[str]) -> Sequence[str]:
    """Return fields with JSON Pointers for the names of columns, because a dot in such a name is not a path."""
    columns = frozenset(index.columns or ())
    return [f"/{encode_token(name)}" if name in columns else name for name in fields]


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
    return _read_items(view, index, offset, 1, page.truncated[0].size_bytes + _MIN_CONTENT_BYTES)


def _describe_cut(
    number: int, path: str | None, size: int, byte_offset: int, read_with: dict[str, Any]
) -> dict[str, Any]:
    return {"index": number, "path": path, "size_bytes": size, "byte_offset": byte_offset, "read_with": read_with}
