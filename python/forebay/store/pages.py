"""A page of a stored payload, and the request for it."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import orjson

__all__ = ["DEFAULT_MAX_BYTES", "MAX_OFFSET", "Format", "LimitedBy", "Page", "PageFormat", "PageRequest", "Unit"]

Format: TypeAlias = Literal["auto", "items", "lines", "text", "bytes"]
PageFormat: TypeAlias = Literal["items", "lines", "text", "bytes"]
Unit: TypeAlias = Literal["items", "lines", "bytes", "matches"]
LimitedBy: TypeAlias = Literal["max_bytes", "scan"]

MAX_OFFSET = (1 << 63) - 1
"""Maximum offset and limit; larger values are replaced by this one."""

DEFAULT_MAX_BYTES = 65536
"""Default of `max_bytes`, the budget of a page."""


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
    """Items: a JSON array as bytes. Text and lines: the text. Bytes: base64.

    With format "auto", another JSON value at a path is text with the encoding "json" if it fits: its bytes.
    """
    eof: bool
    format: PageFormat
    encoding: Literal["json", "utf-8", "base64"]
    unit: Unit
    """What `offset`, `limit`, `returned`, `total` and `next_offset` count. Bytes are those of the text in UTF-8."""
    path: str | None = None
    """The requested path. Byte offsets count from the start of the value at this path, or of the payload."""
    items_path: str | None = None
    """JSON Pointer from the requested value to the items; `None` if the value itself is the list of items."""
    limited_by: LimitedBy | None = None
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
    """What may be wrong with `where` or `fields`, on the first page: nothing matches, or no item has a field."""
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
