"""What comes back of a stored payload: a page of it, or what was found in it."""

import dataclasses
from typing import Any, Literal

import orjson

__all__ = ["Page", "SearchPage"]


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
