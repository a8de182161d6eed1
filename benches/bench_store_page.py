"""Read pages of stored payloads: equally fast at any position of a payload of any size."""

import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import corpus
import forebay
import orjson
import pytest
from conftest import Measure

LIMIT = 50
SIZES = [1, 10, 100, 500]
PLACES = ["at the start", "in the middle", "at the end"]
LARGEST = "500 MB at the end"


class StoredPayloads(NamedTuple):
    """A store with payloads of all sizes, and one of them as a plain file."""

    store: forebay.Store
    handles: dict[int, str]
    path: Path

    def page(self, megabytes: int, offset: int) -> bytes:
        content = self.store.fetch(self.handles[megabytes], offset=offset, limit=LIMIT).content
        assert isinstance(content, bytes)
        return content

    def count(self, megabytes: int) -> int:
        return self.store.fetch(self.handles[megabytes], limit=1).total


@pytest.fixture(scope="module")
def stored_payloads(folder: Path) -> Iterator[StoredPayloads]:
    with forebay.open_store((folder / "pages").as_uri()) as store:
        handles = {size: store.put(corpus.records(size * corpus.MB)).output_handle for size in SIZES}
        path = folder / "records.json"
        path.write_bytes(corpus.records(100 * corpus.MB))
        yield StoredPayloads(store, handles, path)


def orjson_page(path: Path, offset: int) -> bytes:
    return orjson.dumps(orjson.loads(path.read_bytes())[offset : offset + LIMIT])


@pytest.mark.parametrize("who", ["forebay", "orjson"])
def bench_stored_page(measure: Measure, stored_payloads: StoredPayloads, who: str) -> None:
    middle = stored_payloads.count(100) // 2
    assert orjson.loads(stored_payloads.page(100, middle)) == orjson.loads(orjson_page(stored_payloads.path, middle))
    works = {
        "forebay": lambda: stored_payloads.page(100, middle),
        "orjson": lambda: orjson_page(stored_payloads.path, middle),
    }
    measure("page of 50 stored items", "records 100 MB", who, 100 * corpus.MB, works[who])


@pytest.mark.parametrize("who", ["forebay", "orjson"])
def bench_stored_page_elsewhere(measure: Measure, stored_payloads: StoredPayloads, who: str) -> None:
    """A page whose frame is not in memory from the page before. Each page is far from the last one."""
    offsets = range(1000, stored_payloads.count(100) - 1000, 9973)
    for offset in offsets[:3]:
        assert orjson.loads(stored_payloads.page(100, offset)) == orjson.loads(
            orjson_page(stored_payloads.path, offset)
        )
    next_offset = itertools.cycle(offsets).__next__
    works = {
        "forebay": lambda: stored_payloads.page(100, next_offset()),
        "orjson": lambda: orjson_page(stored_payloads.path, next_offset()),
    }
    measure("page of 50 stored items, elsewhere", "records 100 MB", who, 100 * corpus.MB, works[who])


@cache
def ids(megabytes: int) -> list[int]:
    return [item["id"] for item in orjson.loads(corpus.records(megabytes * corpus.MB))]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("megabytes", SIZES)
def bench_stored_pages(measure: Measure, stored_payloads: StoredPayloads, megabytes: int, place: str) -> None:
    """Twenty pages each, so that no position inside a frame is favoured; all beside the end of the largest payload."""
    total = stored_payloads.count(megabytes)
    first = {"at the start": 0, "in the middle": total // 2 - 1000, "at the end": total - 2000}[place]
    offsets = range(first, first + 1940, 97)
    for offset in offsets if megabytes <= 100 else ():
        assert [item["id"] for item in orjson.loads(stored_payloads.page(megabytes, offset))] == ids(megabytes)[
            offset : offset + LIMIT
        ]
    who = f"{megabytes} MB {place}"
    measure(
        "20 stored pages",
        f"records {LARGEST}",
        "forebay" if who == LARGEST else who,
        megabytes * corpus.MB,
        lambda: [stored_payloads.page(megabytes, offset) for offset in offsets],
    )
