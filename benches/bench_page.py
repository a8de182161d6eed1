"""Read a page of items and a preview out of large payloads."""

from functools import cache

import corpus
import forebay
import orjson
import pytest
from conftest import Measure

LIMIT = 50


@cache
def load_indexed() -> tuple[bytes, forebay.ItemIndex]:
    data = corpus.load("records", "100 MB")
    return data, forebay.index_items(data, validate=False)


def read_page(offset: int) -> bytes:
    data, index = load_indexed()
    return forebay.read_items(data, index, offset, LIMIT).content


def read_page_with_orjson(offset: int) -> bytes:
    data, _ = load_indexed()
    return orjson.dumps(orjson.loads(data)[offset : offset + LIMIT])


@pytest.mark.parametrize("who", ["forebay", "orjson"])
def bench_page(measure: Measure, who: str) -> None:
    data, index = load_indexed()
    middle = len(index) // 2
    assert orjson.loads(read_page(middle)) == orjson.loads(read_page_with_orjson(middle))
    work = read_page if who == "forebay" else read_page_with_orjson
    measure("page of 50 items", "records 100 MB", who, len(data), work, middle)


@pytest.mark.parametrize("who", ["forebay", "at the start", "in the middle"])
def bench_page_by_offset(measure: Measure, who: str) -> None:
    """A page at the end is as fast as elsewhere. Twenty pages each, so that no position inside a block is favoured."""
    data, index = load_indexed()
    first = {"forebay": len(index) - 2000, "at the start": 0, "in the middle": len(index) // 2}[who]
    offsets = range(first, first + 1940, 97)
    assert len(offsets) == 20
    assert all(len(orjson.loads(read_page(offset))) == LIMIT for offset in offsets)
    measure("20 pages at the end", "records 100 MB", who, len(data), lambda: [read_page(offset) for offset in offsets])


@pytest.mark.parametrize(("size", "label"), [(2048, "log 2 KB"), (500 * corpus.MB, "log 500 MB")])
def bench_preview(measure: Measure, size: int, label: str) -> None:
    data = corpus.log(size)
    text = forebay.preview(data, 2048)
    assert text is not None
    assert data.startswith(text.encode())
    assert len(text.encode()) > 1900
    measure("preview of 2 KB", label, "forebay", len(data), forebay.preview, data)
