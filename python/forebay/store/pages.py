"""Pages of a stored payload, and the requests for them."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import orjson

__all__ = [
    "DEFAULT_MAX_BYTES",
    "MAX_OFFSET",
    "Format",
    "Page",
    "PageRequest",
    "SearchPage",
    "SearchRequest",
]

Format: TypeAlias = Literal["auto", "items", "bytes", "text", "lines"]

MAX_OFFSET = (1 << 63) - 1
"""Maximum offset and limit; larger values are lowered to it."""

DEFAULT_MAX_BYTES = 65536
"""Budget of a page unless the request has its own."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """The parameters of a page, as `Store.fetch` takes them. They are checked when the page is built."""

    offset: int = 0
    limit: int | None = None
    format: Format = "auto"
    path: str | None = None
    fields: Sequence[str] | None = None
    max_bytes: int = DEFAULT_MAX_BYTES
    escape_levels: int = 0
    is_ascii: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """The parameters of a search, as `Store.search` takes them. They are checked when the search begins."""

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
    """The requested path. Byte offsets count from the start of the value there, or else of the payload."""
    items_path: str | None = None
    """Where the items are inside the requested value; requesting that `path` returns the same items."""
    truncated: tuple[dict[str, Any], ...] = ()
    """The item or line that was cut because it alone is larger than the page.

    Each has `index` (its number), `path` (of the item; for a line that of the page), `size_bytes`, `byte_offset` (of an
    item its first byte, of a line the first byte not shown) and `read_with`: the arguments of the `fetch` that reads
    the whole item, or the rest of the line.
    """

    def to_dict(self) -> dict[str, Any]:
        """Return the fields in the order they are sent in, with JSON content as an orjson fragment."""
        page = {name: getattr(self, name) for name in self.__slots__}
        if isinstance(self.content, bytes):
            page["content"] = orjson.Fragment(self.content)
        for name in ("items_path", "truncated"):
            if not page[name]:
                del page[name]
        return page

    def to_json(self) -> bytes:
        """Return the page as JSON."""
        return orjson.dumps(self.to_dict())


@dataclasses.dataclass(frozen=True, slots=True)
class SearchPage:
    """Matches of a search. Following `next_start` returns every match exactly once."""

    output_handle: str
    pattern: str
    start: int
    matches: tuple[dict[str, Any], ...]
    """Each has `byte_offset`, `size_bytes`, the number of its `item` or `line`, and `context`: as much of the text
    around it as fits, or `None` if that is not text."""
    next_start: int | None
    eof: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the fields in the order they are sent in."""
        return {name: getattr(self, name) for name in self.__slots__}

    def to_json(self) -> bytes:
        """Return the page as JSON."""
        return orjson.dumps(self.to_dict())
