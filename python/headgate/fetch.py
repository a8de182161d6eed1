"""Pages of a stored payload, each within its budget as it will be sent."""

from __future__ import annotations

import base64
import dataclasses
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import orjson

from headgate._core import ItemIndex, ItemPage, Match, index_items, locate, project, read_items, read_lines, read_text
from headgate._core import search as search_bytes
from headgate.errors import CorruptIndex, InvalidArgument, InvalidFormat, InvalidJSON
from headgate.page import Page, SearchPage
from headgate.payload import is_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Buffer

    # Stores import this module: whichever of the two comes first, it must not need the other one yet.
    from headgate.store.reader import View

__all__ = ["Format", "check_text", "fetch", "search", "weigh"]

Format: TypeAlias = Literal["auto", "items", "bytes", "text", "lines"]

_DEFAULT_LIMIT = 200
"""Items or lines a page, unless told otherwise."""

_LEAST_BYTES = 512
"""A page also says where it is from and where to go on; as much again for every time that is escaped."""

_ENVELOPE = 256
"""About what that takes."""

_BLOCK = 64 * 1024
"""How far an index's entry may lie before what it is asked for."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Ask:
    """What was asked for, and where it can be read."""

    view: View
    handle: str
    offset: int
    limit: int | None
    path: str | None
    fields: Sequence[str] | None
    escape_levels: int

    def page(
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
            content, is_last, format, encoding, self.path, truncated,
        )  # fmt: skip


def fetch(
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
) -> Page:
    """A page of `view`, which is what is at `path` of the payload.

    It weighs at most `max_bytes` when it was written as JSON and that was escaped `escape_levels` times.
    """
    if format not in get_args(Format):
        raise InvalidArgument(f"format is one of {', '.join(get_args(Format))}, not {str(format)[:32]!r}")
    if offset < 0:
        raise InvalidArgument("offset must be at least 0")
    if limit is not None and limit < 1:
        raise InvalidArgument("limit must be at least 1")
    if fields is not None and not isinstance(fields, str):
        fields = list(fields)
    for field in fields or ():
        check_text(field)
    _check(max_bytes, escape_levels)
    make = _maker(view, format, fields)
    # What no payload is as large as is as good as the largest, which a message can hold.
    offset, limit = min(offset, _LARGEST), limit and min(limit, _LARGEST)
    ask = _Ask(view, handle, offset, limit, path, fields, escape_levels)
    budget = max_bytes - _ENVELOPE
    while budget >= _LEAST_CONTENT:
        page = make(ask, budget)
        weight = weigh(page.to_json(), escape_levels)
        if weight <= max_bytes:
            return page
        # What the page says of itself, or escaping, weighs more than was allowed for. Less of what was shown has room.
        shown = len(page.content) if page.encoding == "json" else budget
        budget = min(shown, budget) * max_bytes // weight
    raise InvalidArgument(f"max_bytes={max_bytes} is too small for a page of this payload; ask for more")


_LEAST_CONTENT = 16
_LARGEST = (1 << 63) - 1


def _check(max_bytes: int, escape_levels: int) -> None:
    if escape_levels not in (0, 1, 2):
        raise InvalidArgument(f"escape_levels is 0, 1 or 2, not {escape_levels}")
    least = _LEAST_BYTES * (1 + escape_levels)
    if max_bytes < least:
        raise InvalidArgument(f"max_bytes must be at least {least}, not {max_bytes}")


def check_text(text: str) -> None:
    """Refuses what cannot be written, and so cannot be in any payload."""
    if isinstance(text, str) and not is_text(text):
        raise InvalidArgument("half of a surrogate pair is no text, and leads nowhere")


def weigh(message: bytes, escape_levels: int) -> int:
    """The size of a text once it was written into a JSON string, and that into another, so many times."""
    for _ in range(escape_levels):
        message = orjson.dumps(message.decode())[1:-1]
    return len(message)


def _maker(view: View, format: Format, fields: Sequence[str] | None) -> Callable[[_Ask, int], Page]:  # noqa: A002
    chosen = format
    if format == "auto":
        chosen = "items" if view.items is not None else "bytes" if view.nature == "binary" else "text"
    if fields is not None and chosen != "items":
        other = "" if view.items is None else ", or use format='items'"
        raise InvalidFormat(f"fields are of items, and this page would be {chosen}; leave the fields out{other}")
    if chosen == "items" and view.items is None:
        raise InvalidFormat(f"this payload has no items; {_has(view)}")
    if chosen in ("text", "lines") and view.nature == "binary":
        raise InvalidFormat(f"this payload is not text; {_has(view)}")
    return _MAKERS[chosen]


def _has(view: View) -> str:
    if view.nature == "binary":
        return "use format='bytes'"
    if view.items is not None:
        return "use format='items', or 'text', 'lines' or 'bytes' for it as it stands"
    if view.nature == "json":
        return "use format='text' or 'lines', or name an array inside of it by path"
    return "use format='lines' or 'text'"


def _bytes(ask: _Ask, budget: int) -> Page:
    start = min(ask.offset, ask.view.size)
    # Three bytes are four characters.
    most = budget // 4 * 3
    data = ask.view.read(start, min(start + min(ask.limit or most, most), ask.view.size))
    content = base64.b64encode(data).decode()
    return ask.page("bytes", "base64", content, returned=len(data), end=start + len(data), total=ask.view.size)


def _text(ask: _Ask, budget: int) -> Page:
    total = ask.view.size
    start = min(ask.offset, total)
    most = min(ask.limit or budget, budget)
    if ask.limit is not None and ask.limit < 4:
        raise InvalidArgument("a character may take 4 bytes: the limit of a text is at least 4")
    # A character more on either side, so that what is cut is seen to be cut.
    base = max(0, start - 4)
    data = ask.view.read(base, min(start + most + 4, total))
    page = read_text(data, start - base, most)
    page = read_text(data[: page.end], start - base, budget, escape_levels=_levels(ask))
    return ask.page(
        "text",
        "utf-8",
        page.text,
        returned=page.end - page.start,
        # Past the end nothing moves; inside of a character the page starts with it.
        start=None if start == total else base + page.start,
        end=base + page.end,
        total=total,
    )


def _levels(ask: _Ask) -> int:
    """How often a text of the page is escaped: once in the page, and then with it. The core counts to two."""
    return min(1 + ask.escape_levels, 2)


def _lines(ask: _Ask, budget: int) -> Page:
    index = ask.view.lines
    if index is None:
        raise InvalidFormat(f"this payload has no lines; {_has(ask.view)}")
    limit = ask.limit or _DEFAULT_LIMIT
    span = index.span(ask.offset, limit)
    if span.count == 0:
        return ask.page("lines", "utf-8", "", returned=0, end=len(index), total=len(index))
    end = min(span.end, span.start + _BLOCK + budget + 4)
    data = ask.view.read(span.start, end)
    page = read_lines(data, ask.offset - span.first, limit, budget, escape_levels=_levels(ask))
    if page.truncated and end < span.end:
        # How long a line is that does not fit, only all of it tells.
        span = index.span(ask.offset, 1)
        data = ask.view.read(span.start, span.end)
        page = read_lines(data, ask.offset - span.first, 1, budget, escape_levels=_levels(ask))
    return ask.page(
        "lines",
        "utf-8",
        page.text,
        returned=page.returned,
        end=ask.offset + page.returned,
        total=len(index),
        truncated=tuple(
            _named(ask.path, cut.index + span.first, cut.size_bytes, cut.byte_offset + span.start)
            for cut in page.truncated
        ),
    )


def _items(ask: _Ask, budget: int) -> Page:
    index = ask.view.items
    if index is None:
        raise InvalidFormat(f"this payload has no items; {_has(ask.view)}")
    limit = ask.limit or _DEFAULT_LIMIT
    if ask.fields is not None:
        return _projected(ask, index, limit, budget, ask.fields)
    page = _read_items(ask.view, index, ask.offset, limit, budget)
    return ask.page(
        "items",
        "json",
        page.content,
        returned=page.returned,
        end=page.offset + page.returned,
        total=len(index),
        truncated=tuple(_cut_item(ask, cut.index, cut.size_bytes, cut.byte_offset) for cut in page.truncated),
    )


def _read_items(view: View, index: ItemIndex, offset: int, limit: int, budget: int) -> ItemPage:
    """Items from as little of the payload as may hold them."""
    span = index.span(offset, limit)
    end = min(span.end, span.start + _BLOCK + budget + 1)
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


def _projected(ask: _Ask, index: ItemIndex, limit: int, budget: int, fields: Sequence[str]) -> Page:
    """Items with some of their fields only: many more of them may have to be read than fit."""
    parts: list[bytes] = []
    cuts: tuple[dict[str, Any], ...] = ()
    room, taken = budget - len("[]"), 0
    while taken < limit and ask.offset + taken < len(index):
        page = _whole_items(ask.view, index, ask.offset + taken, limit - taken)
        content = project(page.content, fields)
        if len(content) - 1 <= room:
            parts.append(content[1:-1])
            room -= len(content) - 1
            taken += page.returned
            continue
        # Not all of them fit, or not even one.
        fitting = read_items(content, index_items(content, validate=False), 0, limit, max(room + 1, _LEAST_CONTENT))
        if not fitting.truncated or not taken:
            parts.append(fitting.content[1:-1])
            taken += fitting.returned
            if fitting.truncated:
                # What its path leads to is all of it.
                start, end = locate(page.content, "/0")
                cuts = (_cut_item(ask, ask.offset, end - start, page.start),)
        break
    return ask.page(
        "items",
        "json",
        b"[" + b",".join(parts) + b"]",
        returned=taken,
        end=ask.offset + taken,
        total=len(index),
        truncated=cuts,
    )


def _whole_items(view: View, index: ItemIndex, offset: int, limit: int) -> ItemPage:
    page = _read_items(view, index, offset, limit, _READ_AHEAD)
    if not page.truncated:
        return page
    return _read_items(view, index, offset, 1, page.truncated[0].size_bytes + _LEAST_CONTENT)


_READ_AHEAD = 1 << 20


def _cut_item(ask: _Ask, number: int, size: int, at: int) -> dict[str, Any]:
    """Where to read an item that was cut: by its path, or from its first byte of what the page is of."""
    return _named(f"{ask.path or ''}{ask.view.items_path}/{number}", number, size, at - ask.view.origin)


def _named(path: str | None, number: int, size: int, byte_offset: int) -> dict[str, Any]:
    return {"index": number, "path": path, "size_bytes": size, "byte_offset": byte_offset}


_MAKERS: dict[str, Callable[[_Ask, int], Page]] = {"items": _items, "lines": _lines, "text": _text, "bytes": _bytes}


def search(
    view: View,
    data: Buffer,
    handle: str,
    pattern: str,
    *,
    regex: bool = False,
    ignore_case: bool = False,
    start: int = 0,
    limit: int = 50,
    context: int = 80,
    max_bytes: int = 65536,
    escape_levels: int = 0,
) -> SearchPage:
    """Matches in `data`, which is all of the view: as many as fit into `max_bytes`."""
    _check(max_bytes, escape_levels)
    check_text(pattern)
    start = min(start, _LARGEST)
    room = max_bytes - weigh(SearchPage(handle, pattern, start, (), view.size, False).to_json(), escape_levels)
    if room < 0:
        raise InvalidArgument(f"this pattern alone is more than max_bytes={max_bytes}; ask for more, or for less")
    found = search_bytes(
        data, pattern, regex=regex, ignore_case=ignore_case, start=start, limit=limit, context=context, index=view.items
    )
    matches: list[dict[str, Any]] = []
    for match in found.matches:
        told = _told(match)
        weight = weigh(orjson.dumps(told), escape_levels) + 1
        if weight > room and not matches:
            told = {**told, "context": None}
            weight = weigh(orjson.dumps(told), escape_levels) + 1
        if weight > room:
            break
        room -= weight
        matches.append(told)
    if found.matches and not matches:
        raise InvalidArgument(f"max_bytes={max_bytes} is too small for a match of this pattern; ask for more")
    next_start = found.next_start
    if len(matches) < len(found.matches):
        next_start = found.matches[len(matches) - 1].end
    return SearchPage(handle, pattern, start, tuple(matches), next_start, next_start is None)


def _told(match: Match) -> dict[str, Any]:
    place = {"line": match.line} if match.item is None and match.line is not None else {"item": match.item}
    return {"byte_offset": match.start, "size_bytes": match.end - match.start, **place, "context": match.context}
