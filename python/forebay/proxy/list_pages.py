"""Pages of a server's lists, whose items stay unparsed until they are needed."""

import dataclasses
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from forebay.errors import InvalidArgument, InvalidJSON, UpstreamFailed
from forebay.outputs.known_tools import MAX_DEFINITION_BYTES, parse_definition
from forebay.wire.framing import Message, Spool
from forebay.wire.lazy_json import LazyJSON, as_lazy, dump
from forebay.wire.protocol import MAX_LIST_BYTES, MAX_LIST_ITEMS, MAX_LIST_PAGES, PageCursors

__all__ = ["ListPage", "ToolPages", "index_tools", "open_page", "parse_tools"]

_log = logging.getLogger("forebay")

_NEXT_STEP = "have it list less, or in smaller pages"

_PAGE_KEYS = ("tools", "nextCursor", "_meta", "resultType", "ttlMs", "cacheScope")
"""Members of one page of tools; all others belong to the whole list."""


@dataclasses.dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a list."""

    message: dict[str, Any]
    """The response with the page, of which the list itself need not be parsed."""
    raw: bytes | bytearray
    key: str
    """The name of the list in the result."""
    array: LazyJSON
    items: list[LazyJSON]

    @property
    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = self.message["result"]
        return result

    def add_items(self, added_items: Sequence[dict[str, Any]]) -> bytes:
        """Return the message with further items at the end of the list, and all other bytes unchanged."""
        end = self.array.end - 1
        comma = b"," if self.items and added_items else b""
        return b"".join((memoryview(self.raw)[:end], comma, dump(added_items)[1:-1], memoryview(self.raw)[end:]))

    def replace_items(
        self, replacements: Iterable[LazyJSON | bytes | None], added_items: Sequence[dict[str, Any]]
    ) -> bytes:
        """Return the message with a replacement for each item, and with further items at the end of the list.

        A replacement is the item itself, other JSON, or `None` to leave the item out. If all items stay the same, all
        other bytes of the message are unchanged, too.
        """
        # One buffer for all items: ten thousand small objects would take several times as much memory.
        array, is_unchanged = bytearray(b"["), True
        for item, replacement in zip(self.items, replacements, strict=True):
            is_unchanged = is_unchanged and replacement is item
            if replacement is not None:
                array += replacement if isinstance(replacement, bytes) else replacement.json()
                array += b","
        if is_unchanged:
            del array
            return self.add_items(added_items)
        array += dump(added_items)[1:]
        # Without the comma before the closing bracket, if there are no added items.
        array[-2:] = array[-2:].replace(b",]", b"]")
        return dump({**self.message, "result": {**self.result, self.key: as_lazy(array)}})


def open_page(message: dict[str, Any], raw: Message, key: str) -> ListPage | None:
    """Return the page of a list in a response; `None` if the response has no such list.

    Raises `UpstreamFailed` if the page cannot be read, because it is too large or no JSON.
    """
    if message.get("result") is None:
        return None
    _check_list_size(len(raw))
    data = b"".join(raw.chunks()) if isinstance(raw, Spool) else raw
    try:
        members = as_lazy(data).members(("result",))
        array = members["result"].members((key,)).get(key) if "result" in members else None
        if array is None or not array.is_array:
            return None
        items = array.items(MAX_LIST_ITEMS)
    except InvalidArgument:
        text = f"the server answered with a list of more than {MAX_LIST_ITEMS:,} items, which is not read; {_NEXT_STEP}"
        raise UpstreamFailed(text) from None
    except InvalidJSON:
        raise _make_unreadable_error() from None
    if not isinstance(message["result"], dict):
        # Too much stands beside the list, or a name beside it cannot be decoded.
        raise _make_unreadable_error()
    return ListPage(message, data, key, array, items)


def _check_list_size(size: int) -> None:
    """Raise `UpstreamFailed` if a list of this many bytes is too large to be read."""
    if size > MAX_LIST_BYTES:
        text = f"the server answered with a list of {size} bytes, and at most {MAX_LIST_BYTES} are read; {_NEXT_STEP}"
        raise UpstreamFailed(text)


class ToolPages:
    """The tools on all pages of a server's list, and an iterator over the params that request each page.

    Call `add` with each response. Both raise `UpstreamFailed` if the list is too long.
    """

    def __init__(self) -> None:
        self.tools: list[LazyJSON] = []
        self.extras: dict[str, Any] = {}
        """What the list has besides tools and paging, from all pages."""
        self._cursors = PageCursors()
        self._bytes = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        yield from self._cursors
        if self._cursors.is_truncated:
            raise UpstreamFailed(f"the server lists its tools in more than {MAX_LIST_PAGES} pages; {_NEXT_STEP}")

    def add(self, message: dict[str, Any], raw: Message) -> None:
        """Add the page of a response."""
        self._bytes += len(raw)
        _check_list_size(self._bytes)
        page = open_page(message, raw, "tools")
        self.tools += [] if page is None else page.items
        if len(self.tools) > MAX_LIST_ITEMS:
            raise UpstreamFailed(f"the server lists more than {MAX_LIST_ITEMS:,} tools, which are not read")
        result = message["result"]
        if isinstance(result, dict):
            self.extras |= {key: value for key, value in result.items() if key not in _PAGE_KEYS}
            self._cursors.follow(result)


def index_tools(items: Iterable[LazyJSON], server_name: str) -> dict[str, LazyJSON]:
    """Return the items of a tool list by name, without those that have no name or the name of an earlier one."""
    tools: dict[str, LazyJSON] = {}
    for item in items:
        name = item.members(("name",)).get("name") if item.is_object else None
        text = None if name is None else name.parse()
        if not isinstance(text, str) or not text:
            _log.warning("forebay: a tool of %s is left out: it has no name", server_name)
        elif text in tools:
            _log.warning("forebay: %s lists two tools %.64r; the first is taken", server_name, text)
        else:
            tools[text] = item
    return tools


def parse_tools(items: Sequence[LazyJSON]) -> Iterator[Any]:
    """Yield the items of a tool list, each parsed when its turn comes. Raises `UpstreamFailed`."""
    for item in items:
        if len(item) > MAX_DEFINITION_BYTES:
            raise UpstreamFailed(
                f"the server lists a tool with a definition of {len(item)} bytes, and at most {MAX_DEFINITION_BYTES} "
                "are read; have it describe the tool in less"
            )
        try:
            yield parse_definition(item)
        except InvalidJSON:
            raise _make_unreadable_error() from None


def _make_unreadable_error() -> UpstreamFailed:
    return UpstreamFailed("the list that the server answered with cannot be read; have it send plain JSON")
