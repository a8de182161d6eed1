"""Read items of a view, by page or in batches, and check which fields they have."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from forebay._core import ItemIndex, ItemPage, has_fields, outline, read_items
from forebay.arguments import short_repr
from forebay.errors import CorruptIndex, InvalidArgument, InvalidJSON, PathNotFound
from forebay.store.reader import UNLIMITED, View
from forebay.store.rest import encode_token

__all__ = [
    "INDEX_BLOCK_BYTES",
    "MAX_SCAN_BYTES",
    "Batch",
    "check_fields_exist",
    "explain_missing_fields",
    "iter_whole_items",
    "read_fitting_items",
    "resolve_columns",
    "scan_for_fields",
]

INDEX_BLOCK_BYTES = 64 * 1024
"""Maximum bytes from an index entry to an item or line that is found by scanning from that entry."""

MAX_SCAN_BYTES = 16 << 20
"""Maximum payload bytes to read for a page with `fields` or `where`, even if the page could hold more items."""

_BATCH_BYTES = 1 << 20
"""Maximum size of a batch of whole items; a larger item is a batch of its own."""

_MAX_EXPLAINED_FIELDS = 8
"""Maximum number of fields that are looked up in the items, to report those that no item has."""


class Batch(NamedTuple):
    """Some items of a payload."""

    content: bytes
    """A JSON array of the items."""
    numbers: list[int] | range
    scanned_bytes: int
    """Size of the part of the payload that was read."""


def read_fitting_items(view: View, index: ItemIndex, offset: int, limit: int, budget: int) -> ItemPage:
    """Read items that fit into a budget, without reading more of the payload than they may take."""
    span = index.span(offset, limit)
    end = min(span.end, span.start + INDEX_BLOCK_BYTES + budget + 1)
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


def iter_whole_items(view: View, index: ItemIndex, offset: int, limit: int) -> Iterator[Batch]:
    """Read whole items from an offset on, about 1 MiB at a time."""
    number, end = offset, min(offset + limit, len(index))
    while number < end:
        page = read_fitting_items(view, index, number, end - number, _BATCH_BYTES)
        if page.truncated:
            page = read_fitting_items(view, index, number, 1, UNLIMITED)
        yield Batch(page.content, range(number, number + page.returned), page.end - page.start)
        number += page.returned


def resolve_columns(index: ItemIndex, fields: Sequence[str]) -> Sequence[str]:
    """Return fields with the names of columns escaped, because a dot in such a name is not a path."""
    columns = frozenset(index.columns or ())
    return [_escape_name(name) if name in columns else name for name in fields]


def _escape_name(name: str) -> str:
    if not name.startswith("/"):
        return name.replace("\\", "\\\\").replace(".", "\\.")
    # A field that starts with `/` is also read as a single key. A column whose name is this pointer is improbable.
    return f"/{encode_token(name)}"


def scan_for_fields(view: View, index: ItemIndex, fields: Sequence[str]) -> tuple[int, str]:
    """Scan the first items for any of the fields.

    Return the number of items scanned, or 0 if a field was found; and the outline of an item.
    """
    count, scanned, example = 0, 0, ""
    for batch in iter_whole_items(view, index, 0, len(index)):
        returned = len(batch.numbers)
        example = example or outline(batch.content, 256).removesuffix(f" ×{returned}")
        if has_fields(batch.content, fields):
            return 0, example
        count += returned
        scanned += batch.scanned_bytes
        if scanned >= MAX_SCAN_BYTES:
            break
    return count, example


def explain_missing_fields(view: View, index: ItemIndex, names: Iterable[str]) -> tuple[list[str], str]:
    """Return a sentence about each field that no item has, and the outline of an item. See `scan_for_fields`."""
    example, reasons = "", []
    for name in [*names][:_MAX_EXPLAINED_FIELDS]:
        try:
            count, example = scan_for_fields(view, index, resolve_columns(index, [name]))
        except InvalidJSON:
            # Arrays in the items are nested too deeply to look for fields.
            continue
        if count:
            scope = "no item has" if count == len(index) else f"none of the first {count} items has"
            reasons.append(f"{scope} the field {short_repr(name)}")
    return reasons, example


def check_fields_exist(
    view: View, index: ItemIndex, fields: Sequence[str], first_number: int, *, has_offset: bool = True
) -> None:
    """Raise `PathNotFound` if no item has any of the fields.

    Only the first items are scanned, up to `MAX_SCAN_BYTES`. Nothing is raised for a page that starts after them.
    `has_offset` says whether the caller can look further.
    """
    if index.span(first_number, 1).start - index.start > 2 * MAX_SCAN_BYTES:
        # A scan may overshoot its limit by one batch. This page starts after that, so there is no need to scan.
        return
    count, example = scan_for_fields(view, index, fields)
    if first_number >= count:
        return
    hint = f"; or look further from offset={count}" if has_offset and count < len(index) else ""
    raise PathNotFound(
        f"the first {count} items have none of the fields {short_repr(fields)}; "
        f"name keys of an item, as in {example}{hint}"
    )
