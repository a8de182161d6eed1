"""The items of a view that fulfil conditions."""

import itertools
from array import array

from forebay._core import Chunk, Filter
from forebay.cli.view.jobs import Job
from forebay.cli.view.rows import ItemRows, MatchRows
from forebay.store.scan import map_chunks
from forebay.store.where import Matches, explain_matches

__all__ = ["filter_items"]


def filter_items(items: ItemRows, conditions: str, job: Job) -> tuple[MatchRows, str]:
    """Scan all items. Return those that match, and what may be wrong with the conditions if none does."""
    view, index = items.view, items.index
    item_filter = Filter(conditions, index.columns or ())

    def count(data: memoryview, chunk: Chunk) -> tuple[list[int], int]:
        return item_filter.count(data, index, chunk), chunk.end

    job.start("filter", max(index.end - index.start, 1))
    counts: list[list[int]] = []
    for found, end in map_chunks(view, index, count):
        counts.append(found)
        job.advance(end - index.start)
    totals = array("Q", itertools.accumulate(itertools.chain.from_iterable(counts)))
    matches = Matches(view, index, item_filter, totals)
    reasons, example = ([], "") if matches.total else explain_matches(view, index, matches)
    hint = "; ".join(reasons)
    return MatchRows(matches, items, conditions), f"{hint}; an item is {example}" if hint and example else hint
