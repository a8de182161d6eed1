"""Pages of a stored payload, each within its budget as it will be sent."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard, get_args

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

__all__ = ["MAX_OFFSET", "Format", "Page", "SearchPage", "escaped_size", "fetch_page", "is_mostly_items"]

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    # Stores import this module: whichever of the two comes first, it must not need the other one yet.
    from forebay.store.reader import View


Format: TypeAlias = Literal["auto", "items", "bytes", "text", "lines"]

_DEFAULT_LIMIT = 200
"""Items or lines a page, unless told otherwise."""

_MAX_CHAR_BYTES = 4
"""The bytes of the largest character."""

MAX_OFFSET = (1 << 63) - 1
"""What no payload is as large as, and a message can hold."""

_ENVELOPE_BYTES = 256
"""About what a page takes to say where it is from and where to go on."""

_MIN_CONTENT_BYTES = 16

_MAX_BYTES_AROUND_ITEMS = 1024
"""How much around the items a preview has shown already."""

_INDEX_BLOCK_BYTES = 64 * 1024
"""How far an index's entry may lie before what it is asked for."""

_READ_AHEAD_BYTES = 1 << 20
_MAX_SCAN_BYTES = 16 << 20
"""How much of a payload a page of fields goes through: what it keeps of the items may never fill it."""


@dataclasses.dataclass(frozen=True, slots=True)
class _PageBuilder:
    """What was asked for, and where it can be read."""

    view: View
    handle: str
    offset: int
    limit: int | None
    path: str | None
    items_path: str | None
    fields: Sequence[str] | None
    escape_levels: int

    def build(
        self,
        format: Literal["items", "bytes", "text", "lines"],  # noqa: A002
        encoding: Literal["json", "utf-8", "base64"],
        content: bytes | str,
        *,
        returned: int,
        end: int,
        total: int,
        start: int | None = None,
        truncated: tuple[dict[str, Any], ...] = (),
    ) -> Page:
        """A page from `start`, if that is not what was asked for, up to `end`, exclusively."""
        is_last = end >= total
        offset = self.offset if start is None else start
        limit = self.limit or (_DEFAULT_LIMIT if format in ("items", "lines") else returned)
        return Page(
            self.handle, offset, limit, returned, total, None if is_last else end,
            content, is_last, format, encoding, self.path, self.items_path if format == "items" else None, truncated,
        )  # fmt: skip


def fetch_page(
    view: View,
    handle: str,
    *,
    offset: int = 0,
    limit: int | None = None,
    format: Format = "auto",  # noqa: A002
    path: str | None = None,
    fields: Sequence[str] | None = None,
    max_bytes: int = 65536,
    escape_levels: int = 0,
    is_ascii: bool = False,
) -> Page:
    """A page of `view`, which is what is at `path` of the payload.

    It weighs at most `max_bytes` when it was written as JSON and that was escaped `escape_levels` times; `is_ascii`:
    with everything else than ASCII.
    """
    if format not in get_args(Format):
        raise InvalidArgument(f"format is one of {', '.join(get_args(Format))}, not {short_repr(format)}")
    check_integer("offset", offset, 0)
    if limit is not None:
        check_integer("limit", limit, 1)
    names = None if fields is None else check_fields(fields)
    check_budget(max_bytes, escape_levels)
    make = _choose_builder(view, format, names)
    offset, limit = min(offset, MAX_OFFSET), limit and min(limit, MAX_OFFSET)
    ask = _PageBuilder(
        view, handle, offset, limit, path, _items_path(view, max_bytes, escape_levels), names, escape_levels
    )
    budget = max_bytes - _ENVELOPE_BYTES
    while budget >= _MIN_CONTENT_BYTES:
        page = make(ask, budget)
        weight = escaped_size(page.to_json(), escape_levels, is_ascii=is_ascii)
        if weight <= max_bytes:
            return page
        # What the page says of itself, or escaping, weighs more than was allowed for. Less of what was shown has room.
        used = len(page.content) if page.encoding == "json" else budget
        budget = min(used, budget) * max_bytes // weight
    raise InvalidArgument(f"max_bytes={max_bytes} is too small for a page of this payload; ask for more")


def _items_path(view: View, max_bytes: int, escape_levels: int) -> str | None:
    """Where the items are, if that is inside of what was asked for, and leaves room for them."""
    is_short = escaped_size(orjson.dumps(view.items_path), escape_levels) <= max_bytes // 8
    return view.items_path if view.items_path and is_short else None


def escaped_size(text: bytes, escape_levels: int, *, is_ascii: bool = False) -> int:
    """The size of a text once it was written into a JSON string, and that into another, so many times.

    `is_ascii`: by someone who escapes all that is not ASCII, the last time, and DEL.
    """
    for _ in range(escape_levels):
        text = orjson.dumps(text.decode())[1:-1]
    if not is_ascii or (text.isascii() and b"\x7f" not in text):
        return len(text)
    # Quotes and backslashes were escaped before.
    return len(json.dumps(text.decode())) - 2 - text.count(b'"') - text.count(b"\\")


def _choose_builder(view: View, format: Format, fields: Sequence[str] | None) -> Callable[[_PageBuilder, int], Page]:  # noqa: A002
    chosen = format
    if format == "auto":
        is_items = is_mostly_items(view.items, view.size) if fields is None else view.items is not None
        chosen = "items" if is_items else "bytes" if view.nature == "binary" else "text"
    if fields is not None and chosen != "items":
        other = "" if view.items is None else ", or use format='items'"
        raise InvalidFormat(f"fields are of items, and this page would be {chosen}; leave the fields out{other}")
    if chosen == "items" and view.items is None:
        raise InvalidFormat(f"this payload has no items; {_suggest_format(view)}")
    if chosen in ("text", "lines") and view.nature == "binary":
        raise InvalidFormat(f"this payload is not text; {_suggest_format(view)}")
    return _BUILDERS[chosen]


def is_mostly_items(index: ItemIndex | None, size: int) -> TypeGuard[ItemIndex]:
    """Whether reading the items is reading the payload: of some small list in it, the last page is no end."""
    if index is None or index.kind is None:
        return False
    items = index.end - index.start
    return size - items <= max(items, _MAX_BYTES_AROUND_ITEMS)


def _suggest_format(view: View) -> str:
    if view.nature == "binary":
        return "use format='bytes'"
    if view.items is not None:
        return "use format='items', or 'text', 'lines' or 'bytes' for it as it stands"
    if view.nature == "json":
        return "use format='text' or 'lines', or name an array inside of it by path"
    return "use format='lines' or 'text'"


def _build_bytes_page(ask: _PageBuilder, budget: int) -> Page:
    start = min(ask.offset, ask.view.size)
    # Three bytes are four characters.
    most = budget // 4 * 3
    data = ask.view.read(start, min(start + min(ask.limit or most, most), ask.view.size))
    content = base64.b64encode(data).decode()
    return ask.build("bytes", "base64", content, returned=len(data), end=start + len(data), total=ask.view.size)


def _build_text_page(ask: _PageBuilder, budget: int) -> Page:
    total = ask.view.size
    start = min(ask.offset, total)
    most = min(ask.limit or budget, budget)
    # A character more on either side, so that what is cut is seen to be cut.
    base = max(0, start - 4)
    data = ask.view.read(base, min(start + max(most, _MAX_CHAR_BYTES) + 4, total))
    page = read_text(data, start - base, max(most, _MAX_CHAR_BYTES))
    end = page.end if most >= _MAX_CHAR_BYTES else page.start + len(_truncate_text(page.text, most).encode())
    page = read_text(data[:end], start - base, budget, escape_levels=_text_escape_levels(ask))
    return ask.build(
        "text",
        "utf-8",
        page.text,
        returned=page.end - page.start,
        # Past the end nothing moves; inside of a character the page starts with it.
        start=None if start == total else base + page.start,
        end=base + page.end,
        total=total,
    )


def _truncate_text(text: str, most: int) -> str:
    """As much of it as takes at most so many bytes, but one character at least: a page of none would lead nowhere."""
    while len(text) > 1 and len(text.encode()) > most:
        text = text[:-1]
    return text


def _text_escape_levels(ask: _PageBuilder) -> int:
    """How often a text of the page is escaped: once in the page, and then with it. The core counts to two."""
    return min(1 + ask.escape_levels, 2)


def _build_lines_page(ask: _PageBuilder, budget: int) -> Page:
    index = ask.view.lines
    if index is None:
        raise InvalidFormat(f"this payload has no lines; {_suggest_format(ask.view)}")
    limit = ask.limit or _DEFAULT_LIMIT
    span = index.span(ask.offset, limit)
    if span.count == 0:
        return ask.build("lines", "utf-8", "", returned=0, end=len(index), total=len(index))
    end = min(span.end, span.start + _INDEX_BLOCK_BYTES + budget + 4)
    data = ask.view.read(span.start, end)
    page = read_lines(data, ask.offset - span.first, limit, budget, escape_levels=_text_escape_levels(ask))
    return ask.build(
        "lines",
        "utf-8",
        page.text,
        returned=page.returned,
        end=ask.offset + page.returned,
        total=len(index),
        truncated=tuple(
            _describe_cut_line(ask, cut, index, span, len(page.text.encode()), end) for cut in page.truncated
        ),
    )


def _describe_cut_line(
    ask: _PageBuilder, cut: Cut, index: ItemIndex, span: Span, shown_bytes: int, read_to: int
) -> dict[str, Any]:
    """Where to read on in a line that was cut, and how long it is in all."""
    byte_offset = span.start + cut.byte_offset
    start = byte_offset - shown_bytes
    end = start + cut.size_bytes
    if end == read_to:
        # It may go on. Then it leaves its block, and where the next line starts the index knows.
        end = index.span(ask.offset, 1).end
    where = {} if ask.path is None else {"path": ask.path}
    read_with = {**where, "format": "text", "offset": byte_offset, "limit": end - byte_offset}
    return _describe_cut(ask.offset, ask.path, end - start, byte_offset, read_with)


def _build_items_page(ask: _PageBuilder, budget: int) -> Page:
    index = ask.view.items
    if index is None:
        raise InvalidFormat(f"this payload has no items; {_suggest_format(ask.view)}")
    limit = ask.limit or _DEFAULT_LIMIT
    if ask.fields is not None:
        return _build_projected_page(ask, index, limit, budget, ask.fields)
    page = _read_items(ask.view, index, ask.offset, limit, budget)
    return ask.build(
        "items",
        "json",
        page.content,
        returned=page.returned,
        end=page.offset + page.returned,
        total=len(index),
        truncated=tuple(_describe_cut_item(ask, cut.index, cut.size_bytes, cut.byte_offset) for cut in page.truncated),
    )


def _read_items(view: View, index: ItemIndex, offset: int, limit: int, budget: int) -> ItemPage:
    """Items from as little of the payload as may hold them."""
    span = index.span(offset, limit)
    end = min(span.end, span.start + _INDEX_BLOCK_BYTES + budget + 1)
    data = view.read(span.start - view.origin, end - view.origin)
    try:
        page = read_items(data, index, offset, limit, budget, base=span.start)
        if not page.truncated or end == span.end:
            return page
    except (CorruptIndex, InvalidJSON, InvalidArgument):
        # It may only be that the part was too short.
        if end == span.end:
            raise
    # One item is larger than the budget: an overview of it takes all of it.
    span = index.span(offset, 1)
    data = view.read(span.start - view.origin, span.end - view.origin)
    return read_items(data, index, offset, 1, budget, base=span.start)


def _build_projected_page(ask: _PageBuilder, index: ItemIndex, limit: int, budget: int, fields: Sequence[str]) -> Page:
    """Items with some of their fields only: many more of them may have to be read than fit."""
    parts: list[bytes] = []
    cuts: tuple[dict[str, Any], ...] = ()
    room, taken, read = budget - len("[]"), 0, 0
    while taken < limit and ask.offset + taken < len(index) and read < _MAX_SCAN_BYTES:
        page = _read_whole_items(ask.view, index, ask.offset + taken, limit - taken)
        read += page.end - page.start
        content = project(page.content, fields)
        if len(content) - 1 <= room:
            parts.append(content[1:-1])
            room -= len(content) - 1
            taken += page.returned
            continue
        # Not all of them fit, or not even one.
        fitting = read_items(content, index_items(content, validate=False), 0, limit, max(room + 1, _MIN_CONTENT_BYTES))
        if not fitting.truncated or not taken:
            parts.append(fitting.content[1:-1])
            taken += fitting.returned
            if fitting.truncated:
                # What its path leads to is all of it.
                start, end = locate(page.content, "/0")
                cuts = (_describe_cut_item(ask, ask.offset, end - start, page.start),)
        break
    content = b"[" + b",".join(parts) + b"]"
    if taken and not cuts and not has_fields(content, fields):
        _check_fields_exist(ask, index, fields)
    return ask.build(
        "items",
        "json",
        content,
        returned=taken,
        end=ask.offset + taken,
        total=len(index),
        truncated=cuts,
    )


def _check_fields_exist(ask: _PageBuilder, index: ItemIndex, fields: Sequence[str]) -> None:
    """Refuses fields that no item has, as far as it looks: what only later items have is found from there on."""
    if index.span(ask.offset, 1).start - index.start > 2 * _MAX_SCAN_BYTES:
        # Far behind all that would be looked at.
        return
    seen, read, like = 0, 0, ""
    while seen < len(index) and read < _MAX_SCAN_BYTES:
        page = _read_whole_items(ask.view, index, seen, len(index) - seen)
        if has_fields(page.content, fields):
            return
        like = like or outline(page.content, 256).removesuffix(f" ×{page.returned}")
        seen += page.returned
        read += page.end - page.start
    if ask.offset >= seen:
        return
    further = "" if seen == len(index) else f"; or look further from offset={seen}"
    raise PathNotFound(
        f"the first {seen} items have none of the fields {short_repr(fields)}; name keys of an item, as in {like}{further}"
    )


def _read_whole_items(view: View, index: ItemIndex, offset: int, limit: int) -> ItemPage:
    page = _read_items(view, index, offset, limit, _READ_AHEAD_BYTES)
    if not page.truncated:
        return page
    return _read_items(view, index, offset, 1, page.truncated[0].size_bytes + _MIN_CONTENT_BYTES)


def _describe_cut_item(ask: _PageBuilder, number: int, size: int, at: int) -> dict[str, Any]:
    """Where to read an item that was cut: by its path, or from its first byte of what the page is of."""
    path = f"{ask.path or ''}{ask.view.items_path}/{number}"
    return _describe_cut(number, path, size, at - ask.view.origin, {"path": path})


def _describe_cut(
    number: int, path: str | None, size: int, byte_offset: int, read_with: dict[str, Any]
) -> dict[str, Any]:
    return {"index": number, "path": path, "size_bytes": size, "byte_offset": byte_offset, "read_with": read_with}


_BUILDERS: dict[str, Callable[[_PageBuilder, int], Page]] = {
    "items": _build_items_page,
    "lines": _build_lines_page,
    "text": _build_text_page,
    "bytes": _build_bytes_page,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """A part of a payload. Following `next_offset` from 0 gives all of it, once."""

    output_handle: str
    offset: int
    limit: int
    returned: int
    """How many items or lines, or bytes of the payload, are in `content`."""
    total: int
    next_offset: int | None
    content: bytes | str
    """Items: a JSON array, as bytes. Text and lines: the text. Bytes: base64."""
    eof: bool
    format: Literal["items", "bytes", "text", "lines"]
    encoding: Literal["json", "utf-8", "base64"]
    path: str | None = None
    """What was asked for: offsets of bytes count from where it starts, or else from where the payload does."""
    items_path: str | None = None
    """Where the items are, if they are inside of what was asked for: asking for that `path` gives the same items."""
    truncated: tuple[dict[str, Any], ...] = ()
    """What was larger than the page alone, and so was cut.

    Each with `index` (its number), `path` (an item's own; a line's is the page's), `size_bytes`, `byte_offset` (of an
    item the first byte, of a line the first that is not shown) and `read_with`, which are the arguments of the `fetch`
    that reads it: an item whole, a line from where it was cut to its end.
    """

    def to_dict(self) -> dict[str, Any]:
        """The keys in the order they are sent in; JSON content as it is, to be put in by orjson."""
        page = {name: getattr(self, name) for name in self.__slots__}
        if isinstance(self.content, bytes):
            page["content"] = orjson.Fragment(self.content)
        for name in ("items_path", "truncated"):
            if not page[name]:
                del page[name]
        return page

    def to_json(self) -> bytes:
        """The page as it is sent."""
        return orjson.dumps(self.to_dict())


@dataclasses.dataclass(frozen=True, slots=True)
class SearchPage:
    """Where a pattern was found. Following `next_start` gives every match, once."""

    output_handle: str
    pattern: str
    start: int
    matches: tuple[dict[str, Any], ...]
    """Each with `byte_offset`, `size_bytes`, the number of its `item` or `line`, and `context`: the text around it, as
    much as fits; `None` where it is not text."""
    next_start: int | None
    eof: bool

    def to_dict(self) -> dict[str, Any]:
        """The keys in the order they are sent in."""
        return {name: getattr(self, name) for name in self.__slots__}

    def to_json(self) -> bytes:
        """The page as it is sent."""
        return orjson.dumps(self.to_dict())
