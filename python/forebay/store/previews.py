"""Previews of a payload: whole first items with the values beside them, or whole first lines."""

import dataclasses
from collections.abc import Callable
from typing import Literal

from typing_extensions import Buffer

from forebay._core import ItemIndex, outline, preview, preview_items, read_items
from forebay.errors import ForebayError
from forebay.store.payload import CHUNK_BYTES, UTF8_BOM, skip_bom

__all__ = ["MAX_PREVIEW_BYTES", "PreviewSource", "make_preview_source"]

MAX_PREVIEW_BYTES = 2048
"""Maximum bytes of the preview in a descriptor."""

_MAX_TEXT_BYTES = 2 * MAX_PREVIEW_BYTES
"""Bytes at the start of a text that its preview is cut from."""

_SAMPLE_ITEMS = 100
"""Number of first items that an outline is made of."""

_MAX_AROUND_BYTES = 64 * 1024
"""Maximum bytes before or after the items that a preview is made from."""


@dataclasses.dataclass(slots=True)
class PreviewSource:
    """The part of a payload that a preview of any size is cut from."""

    data: bytes
    has_items: bool = False
    items_start: int | None = None
    """Where the array or map of items starts in the data; `None` for NDJSON."""
    whole: Literal["lines", "csv", "tsv"] | None = None
    """What stays whole in the preview of a text."""
    is_whole: bool = False
    """Whether the data is the whole payload."""
    has_tail: bool = True
    """Whether the data has all that follows the items."""

    def cut(
        self, max_bytes: int = MAX_PREVIEW_BYTES, *, max_escaped_bytes: int | None = None, escape_levels: int = 1
    ) -> tuple[str | None, int | None]:
        """Return a preview within the budgets, and the number of whole items in it; see `forebay.preview`.

        There is no number if the payload has no items, or the preview is all of it.
        """
        if self.has_items:
            return preview_items(
                self.data,
                self.items_start,
                max_bytes,
                max_escaped_bytes=max_escaped_bytes,
                escape_levels=escape_levels,
                or_all=self.is_whole,
            )
        text = preview(
            self.data, max_bytes, max_escaped_bytes=max_escaped_bytes, escape_levels=escape_levels, whole=self.whole
        )
        return text, None

    def outline(self, items: ItemIndex | None, max_bytes: int) -> str | None:
        """Return the shape of the payload, which has these items; `None` if the source does not show all of it."""
        if items is None or self.items_start is None or not self.has_tail:
            return None
        shape = outline(self.data, max_bytes, items=(self.items_start, len(items)))
        # A few large entries may not look like those of a map.
        return shape if items.kind == "array" or f"}} ×{len(items)}" in shape else None


def make_preview_source(
    read: Callable[[int, int], Buffer], size: int, nature: str, items: ItemIndex | None, *, sample_bytes: int
) -> PreviewSource | None:
    """Return the source of the preview of a payload; `None` if it is binary.

    `read` returns the bytes of a range of the payload. `items` is the index of the items, if they are most of it.
    `sample_bytes` is how many bytes of items the source has; only a single larger item makes it larger.
    """
    if nature == "binary":
        return None
    if items is not None and items.kind in ("array", "map", "ndjson") and len(items) > 0:
        source = _sample_items(read, size, items, sample_bytes)
        if source is not None:
            return source
    # A copy, so that the descriptor does not keep the payload.
    head = bytes(skip_bom(read(0, min(size, _MAX_TEXT_BYTES))))
    whole: Literal["lines", "csv", "tsv"] | None = None if nature == "json" else "lines"
    if items is not None and (items.kind == "csv" or items.kind == "tsv"):
        whole = items.kind
    return PreviewSource(head, whole=whole, is_whole=size <= _MAX_TEXT_BYTES)


def _sample_items(
    read: Callable[[int, int], Buffer], size: int, items: ItemIndex, sample_bytes: int
) -> PreviewSource | None:
    """Return the first items and what surrounds them; `None` if that is too large."""
    is_json = items.kind != "ndjson"
    if is_json and items.start > _MAX_AROUND_BYTES:
        return None
    if size <= MAX_PREVIEW_BYTES:
        data = bytes(skip_bom(read(0, size)))
        return PreviewSource(data, True, items.start - (size - len(data)) if is_json else None, is_whole=True)
    end = _find_sample_end(read, items, sample_bytes)
    if end is None:
        return None
    start = 0 if is_json else items.span(0, 1).start
    head = bytes(read(start, end))
    if not is_json:
        return PreviewSource(head, True)
    mark = len(UTF8_BOM) if head.startswith(UTF8_BOM) else 0
    has_tail = size - items.end <= _MAX_AROUND_BYTES
    tail = bytes(read(items.end, size)) if has_tail else b"}" * (items.path or "").count("/")
    return PreviewSource(
        head[mark:] + (b"}" if items.kind == "map" else b"]") + tail, True, items.start - mark, has_tail=has_tail
    )


def _find_sample_end(read: Callable[[int, int], Buffer], items: ItemIndex, sample_bytes: int) -> int | None:
    """Return the end of the last of the first items that fit into `sample_bytes`, or of the first item."""
    start = items.span(0, 1).start
    for limit in (sample_bytes, CHUNK_BYTES):
        end = min(items.end, start + limit)
        try:
            page = read_items(read(start, end), items, 0, _SAMPLE_ITEMS, limit, base=start)
        except ForebayError:
            # The first item does not end within the bytes that were read.
            continue
        if not page.truncated:
            return page.end
    return None
