"""Finding the items and lines of a payload, beside parsing it."""

import functools
from collections.abc import Iterator
from typing import Any

import forebay
from forebay._core import Survey
from forebay.bench.contest import FOREBAY, Benchmark, Contender
from forebay.bench.payloads import Payload
from forebay.bench.readers import Reader, sample_items
from forebay.bench.workspace import NotApplicable, Workspace

__all__ = ["list_indexings"]


def list_indexings(work: Workspace) -> Iterator[Benchmark]:
    """Yield the benchmarks of indexes that apply to a payload."""
    payload = work.payload
    if payload.nature == "binary":
        raise NotApplicable("the payload is binary")
    if payload.nature in ("text", "csv", "tsv"):
        yield _make_line_benchmark(work)
    if payload.items is None:
        if payload.nature not in ("text", "csv", "tsv"):
            raise NotApplicable("the document has no collection of items")
        return
    readers = work.readers
    if payload.nature in ("csv", "tsv"):
        yield _make_item_benchmark(work, "rows found, fields checked", _survey_rows, readers)
        return
    yield _make_item_benchmark(
        work,
        "items found, every byte checked",
        lambda payload: forebay.index_items(payload.data),
        [reader for reader in readers if reader.validates],
    )
    yield _make_item_benchmark(
        work,
        "items found, structure only",
        lambda payload: forebay.index_items(payload.data, validate=False),
        [reader for reader in readers if not reader.validates],
    )


def _survey_rows(payload: Payload) -> Any:
    survey = Survey(None, "tsv" if payload.nature == "tsv" else "csv")
    survey.feed(payload.data)
    return survey.finish().items


def _make_item_benchmark(work: Workspace, name: str, index: Any, readers: list[Reader]) -> Benchmark:
    payload, data = work.payload, work.payload.data

    def make_peer(reader: Reader) -> Contender:
        return Contender(reader.who, reader.load, reader.sample, memory_bytes=reader.memory_bytes)

    return Benchmark(
        "index",
        name,
        len(data),
        Contender(FOREBAY, lambda: index(payload), functools.partial(sample_items, data)),
        [work.memcpy, *map(make_peer, readers)],
        find_flaw=_find_flaw,
        note="the same number of items, the same first and last one",
    )


def _find_flaw(ours: Any, theirs: Any) -> str | None:
    if theirs[0] != ours[0]:
        return f"finds {theirs[0]:,} items instead of {ours[0]:,}"
    return None if tuple(theirs) == tuple(ours) else "changes the value of the first or the last item"


def _make_line_benchmark(work: Workspace) -> Benchmark:
    data = work.payload.data
    return Benchmark(
        "index",
        "lines found",
        len(data),
        Contender(FOREBAY, lambda: forebay.index_lines(data), len),
        [
            work.memcpy,
            Contender("splitlines", lambda: data.split(b"\n"), _count_lines, memory_bytes=4 * len(data)),
        ],
        note="the same number of lines",
    )


def _count_lines(lines: list[bytes]) -> int:
    return len(lines) - (not lines[-1])
