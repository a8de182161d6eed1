"""A page from the middle of a payload, with and without the time to index it."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import orjson

import forebay
from forebay._core import ItemIndex
from forebay.bench.contest import FOREBAY, Benchmark, Contender
from forebay.bench.readers import Reader
from forebay.bench.workspace import NotApplicable, Workspace

__all__ = ["list_pagings"]

_LIMIT = 50
_MAX_PAGE_BYTES = 1 << 30
"""Budget of a page that no page reaches, because peers have none."""


def list_pagings(work: Workspace) -> Iterator[Benchmark]:
    """Yield the benchmarks of pages that apply to a payload."""
    payload = work.payload
    if payload.items is not None:
        yield from _list_item_pages(work, payload.items)
    elif payload.nature == "text":
        yield _make_line_page(work)
    else:
        raise NotApplicable("the payload has neither items nor lines")


def _list_item_pages(work: Workspace, index: ItemIndex) -> Iterator[Benchmark]:
    data = work.payload.data
    offset = max(0, len(index) // 2 - _LIMIT // 2)

    def read(index: ItemIndex) -> bytes:
        return forebay.read_items(data, index, offset, _LIMIT, _MAX_PAGE_BYTES).content

    peers = [_make_peer(reader, reader.page, offset) for reader in work.readers if reader.page is not None]
    yield Benchmark(
        "page",
        f"{_LIMIT} items from the middle, index at hand",
        len(data),
        Contender(FOREBAY, lambda: read(index), orjson.loads),
        peers,
        reads_all=False,
        note="forebay indexes a payload once; peers parse it for every page",
    )
    if work.payload.nature in ("json", "ndjson"):
        yield Benchmark(
            "page",
            f"{_LIMIT} items from the middle, index first",
            len(data),
            Contender(FOREBAY, lambda: read(forebay.index_items(data)), orjson.loads),
            peers,
            note="the first page of a payload: every byte checked, then read",
        )


def _make_peer(reader: Reader, page: Callable[[int, int], Any], offset: int) -> Contender:
    return Contender(
        reader.who, functools.partial(page, offset, _LIMIT), orjson.loads, memory_bytes=reader.memory_bytes
    )


def _make_line_page(work: Workspace) -> Benchmark:
    data = work.payload.data
    index = forebay.index_lines(data)
    offset = max(0, len(index) // 2 - _LIMIT // 2)

    def read() -> str:
        return forebay.read_lines(data, offset, _LIMIT, _MAX_PAGE_BYTES, index=index).text

    def split_and_read() -> str:
        return b"".join(data.splitlines(keepends=True)[offset : offset + _LIMIT]).decode()

    return Benchmark(
        "page",
        f"{_LIMIT} lines from the middle, index at hand",
        len(data),
        Contender(FOREBAY, read),
        [Contender("splitlines", split_and_read, memory_bytes=4 * len(data))],
        reads_all=False,
        note="forebay indexes a payload once; peers split it for every page",
    )
