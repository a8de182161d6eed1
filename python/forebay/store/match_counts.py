"""Totals of searches: how many matches a stored payload has."""

from typing import Literal, NamedTuple

from forebay._core import ItemIndex, LiteralCounter, count_matches
from forebay.store.catalog import Catalog
from forebay.store.reader import PayloadReader

__all__ = ["MAX_STREAMED_BYTES", "Total", "count_payload"]

MAX_STREAMED_BYTES = 1 << 30
"""Maximum bytes that are decompressed only to count the matches of a literal."""

_MAX_SECONDS = 2.0
"""Time after which the count of a regular expression stops: each match may take a pass over the payload."""


class Total(NamedTuple):
    """The number of matches in a payload."""

    matches: int
    items: int | None
    """The number of items in which a match begins; `None` if they were not counted."""
    is_complete: bool
    """Whether all of the payload was searched. If not, there may be more matches."""


def count_payload(
    reader: PayloadReader,
    catalog: Catalog,
    pattern: str,
    *,
    regex: bool,
    ignore_case: bool,
    mode: Literal["text", "values"],
    index: ItemIndex | None,
) -> Total:
    """Count the matches in a whole payload, and with an index the items that have any. Totals are remembered."""

    def count() -> Total:
        is_literal = not (regex or ignore_case or mode == "values")
        if is_literal and index is None and catalog.get_cached_payload(reader) is None:
            return _count_literal(reader, pattern)
        counted = count_matches(
            catalog.read_payload(reader),
            pattern,
            regex=regex,
            ignore_case=ignore_case,
            mode=mode,
            index=index,
            max_seconds=_MAX_SECONDS,
        )
        return Total(counted.matches, counted.items, counted.is_complete)

    # Imported here, because it loads OpenSSL.
    import hashlib

    # A pattern may be long, and its digest is not.
    digest = hashlib.blake2b(pattern.encode()).digest()
    return catalog.remember(reader, (digest, regex, ignore_case, mode, index is not None), count)


def _count_literal(reader: PayloadReader, literal: str) -> Total:
    """Count a literal frame by frame, so that the payload is never in memory as a whole."""
    counter, scanned = LiteralCounter(literal), 0
    for chunk in reader.iter_chunks():
        if scanned >= MAX_STREAMED_BYTES:
            return Total(counter.matches, None, is_complete=False)
        counter.feed(chunk)
        scanned += len(chunk)
    return Total(counter.matches, None, is_complete=True)
