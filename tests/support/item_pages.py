"""Pages of `read_items`, checked while they are read."""

from forebay import ItemIndex, ItemPage, read_items

MIN_BYTES = 15


def as_list(page: ItemPage) -> list[object]:
    names = ("content", "offset", "returned", "total", "next_offset", "start", "end", "truncated_key")
    return [*(getattr(page, name) for name in names), repr(page.truncated)]


def read_pages(data: bytes, index: ItemIndex, limit: int, max_bytes: int) -> list[ItemPage]:
    """Return all pages by following `next_offset`; check that each can be read from its span alone."""
    found = []
    offset: int | None = 0
    while offset is not None:
        page = read_items(data, index, offset, limit, max_bytes)
        assert page.offset == offset
        assert page.total == len(index)
        assert page.returned <= limit
        assert len(page.content) <= max_bytes
        span = index.span(offset, limit)
        window = data[span.start : span.end]
        assert as_list(read_items(window, index, offset, limit, max_bytes, base=span.start)) == as_list(page)
        found.append(page)
        offset = page.next_offset
        assert offset is None or offset == page.offset + page.returned > page.offset
    return found
