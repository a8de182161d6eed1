"""Items that match conditions: counted once for each payload, then read block by block."""

import bisect
import itertools
import json
from array import array
from collections.abc import Iterator, Mapping

from forebay._core import Filter, ItemIndex
from forebay.arguments import check_text, short_repr
from forebay.errors import InvalidArgument
from forebay.store.cache import LRUCache
from forebay.store.items import Batch, explain_missing_fields, scan_for_fields
from forebay.store.reader import PayloadReader, View
from forebay.store.scan import map_chunks, read_chunk
from forebay.store.threads import fork_safe_lock

__all__ = ["MatchCache", "Matches", "encode_conditions", "explain_matches"]

_MAX_CACHED_BYTES = 4 << 20
"""Maximum size of the counts that are cached. Those of 100 MB take 13 KB."""


class Matches:
    """The items of a view that match a filter."""

    def __init__(self, view: View, index: ItemIndex, conditions: Filter, totals: "array[int]") -> None:
        self._view = view
        self._index = index
        self._filter = conditions
        # The number of matches up to the end of each block.
        self._totals = totals
        self.total = totals[-1] if totals else 0

    @property
    def fields(self) -> list[tuple[str, bool]]:
        """The fields that conditions are on, and whether an item must have the field to match."""
        return self._filter.fields

    def iter_batches(self, offset: int, limit: int) -> Iterator[Batch]:
        """Read the matches from number `offset` on, at most `limit`. Blocks without matches are not read."""
        end = min(offset + limit, self.total)
        while offset < end:
            block = bisect.bisect_right(self._totals, offset)
            chunk = self._index.chunk(block, 0)
            if chunk is None:
                return
            skip = offset - (self._totals[block - 1] if block else 0)
            selected = self._filter.select(read_chunk(self._view, chunk), self._index, chunk, skip, end - offset)
            if not selected.numbers:
                return
            yield Batch(selected.content, selected.numbers, chunk.end - chunk.start)
            offset += len(selected.numbers)


class MatchCache:
    """Counts of matches for recent payloads and conditions, so that the next page needs no scan."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._entries: LRUCache[tuple[str, str | None, str], tuple[object, array[int]]] = LRUCache(
            _MAX_CACHED_BYTES, lambda entry: entry[1].itemsize * len(entry[1]) + 1024
        )

    def find(self, reader: PayloadReader, path: str | None, view: View, index: ItemIndex, conditions: str) -> Matches:
        """Return the matches in a view of the value at `path`. Unless they are cached, all items are scanned."""
        item_filter = Filter(conditions, index.columns or ())
        # Long conditions take more memory than their counts.
        key = (reader.footer.meta["handle"], path, conditions) if len(conditions) + len(path or "") < 1024 else None
        with self._lock:
            version, totals = (None, None) if key is None else self._entries.get(key, (None, None))
        if totals is None or version != reader.version:
            counts = map_chunks(view, index, lambda data, chunk: item_filter.count(data, index, chunk))
            totals = array("Q", itertools.accumulate(itertools.chain.from_iterable(counts)))
            if key is not None:
                with self._lock:
                    self._entries[key] = (reader.version, totals)
        return Matches(view, index, item_filter, totals)


def explain_matches(view: View, index: ItemIndex, matches: Matches) -> tuple[list[str], str]:
    """Return what may be wrong with the conditions, and the outline of an item.

    That is each field that no item has, or else that nothing matches. The first items are scanned for each field.
    """
    # An item that matches has the required fields.
    names = dict.fromkeys(name for name, is_required in matches.fields if not (is_required and matches.total))
    reasons, example = explain_missing_fields(view, index, names)
    if not reasons and not matches.total:
        reasons.append(
            "no item matches" + ("" if index.columns else "; numbers and text never compare with each other")
        )
        example = example or scan_for_fields(view, index, ["_"])[1]
    return reasons, example


def encode_conditions(where: object) -> str:
    """Return conditions as JSON. They are given as an object, or as its JSON."""
    if isinstance(where, str):
        check_text("where", where)
        return where
    if not isinstance(where, Mapping):
        raise InvalidArgument(
            'where must be an object of conditions, such as {"status": "failed", "total": {">": 200}}, '
            f"not {short_repr(where)}"
        )
    try:
        return json.dumps(dict(where), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise InvalidArgument(
            f"where must be JSON, with text, numbers, true, false and null, not {short_repr(where)}"
        ) from None
