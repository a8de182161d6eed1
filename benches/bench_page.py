"""Small answers out of large payloads: a page of items, a preview."""

from functools import cache

import corpus
import forebay
import orjson
import pytest
from conftest import Measure

LIMIT = 50


@cache
def indexed() -> tuple[bytes, forebay.ItemIndex]:
    data = corpus.load("records", "100 MB")
    return data, forebay.index_items(data, validate=False)


def page(offset: int) -> bytes:
    data, index = indexed()
    return forebay.read_items(data, index, offset, LIMIT).content


def orjson_page(offset: int) -> bytes:
    data, _ = indexed()
    return orjson.dumps(orjson.loads(data)[offset : offset + LIMIT])


@pytest.mark.parametrize("who", ["forebay", "orjson"])
def bench_page(measure: Measure, who: str) -> None:
    data, index = indexed()
    middle = len(index) // 2
    assert orjson.loads(page(middle)) == orjson.loads(orjson_page(middle))
    work = page if who == "forebay" else orjson_page
    measure("page of 50 items", "records 100 MB", who, len(data), work, middle)


@pytest.mark.parametrize("who", ["forebay", "at the start", "in the middle"])
def bench_page_by_offset(measure: Measure, who: str) -> None:
    """At the end it takes as long as elsewhere: twenty pages each, so that no place inside a block is favoured."""
    data, index = indexed()
    first = {"forebay": len(index) - 2000, "at the start": 0, "in the middle": len(index) // 2}[who]
    offsets = range(first, first + 1940, 97)
    assert len(offsets) == 20
    assert all(len(orjson.loads(page(offset))) == LIMIT for offset in offsets)
    measure("20 pages at the end", "records 100 MB", who, len(data), lambda: [page(offset) for offset in offsets])


@pytest.mark.parametrize(("size", "label"), [(2048, "log 2 KB"), (500 * corpus.MB, "log 500 MB")])
def bench_preview(measure: Measure, size: int, label: str) -> None:
    data = corpus.log(size)
    text = forebay.preview(data, 2048)
    assert text is not None
    assert data.startswith(text.encode())
    assert len(text.encode()) > 1900
    measure("preview of 2 KB", label, "forebay", len(data), forebay.preview, data)
