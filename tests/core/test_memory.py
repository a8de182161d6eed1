"""Functions do not copy their payload, and reading a page touches only a small part of it.

Functions run on a mapped file. To measure allocations, each runs in its own process after all pages were touched; to
measure reads, the resident pages of the mapping are counted afterwards.
"""

import json
import mmap
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forebay
import pytest
from peak import measured

SIZE = 64 << 20
# A copy of the payload would add 64 MiB. Indexes and results here are far smaller.
MAX_GROWTH_BYTES = 8 << 20

MEASURE = """
import mmap, zlib
import forebay


def verb(data):
    return VERB


verb(SMALL)
with open(PATH, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
    zlib.crc32(data)
    before = peak()
    result = verb(data)
    print(peak() - before)
    del result
"""

ITEM = b'{"id":1,"name":"na\xc3\xafve","tags":["a","b"],"text":"' + b"lorem ipsum " * 12 + b'"}'


@pytest.fixture(scope="session")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("memory") / "records.json"
    with path.open("wb") as file:
        file.write(b'{"items":[' + ITEM)
        file.writelines([b",\n" + ITEM] * (SIZE // (len(ITEM) + 2)))
        file.write(b"]}")
    assert path.stat().st_size >= SIZE - len(ITEM)
    return path


def measure_growth(verb: str, path: Path) -> int:
    small = b'{"items":[' + ITEM + b"]}"
    script = MEASURE.replace("VERB", verb).replace("SMALL", repr(small)).replace("PATH", json.dumps(str(path)))
    (grown,) = measured(script)
    return grown


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="neither /proc nor resource there")
@pytest.mark.parametrize(
    "verb",
    [
        "forebay.index_items(data)",
        "forebay.index_items(data, validate=False)",
        "forebay.index_items(data, '/items')",
        "forebay.index_lines(data)",
        "forebay.truncate(data)",
        "forebay.truncate_lines(data)",
        "forebay.preview(data)",
        "forebay.outline(data)",
        "forebay.locate(data, '/items')",
        "forebay.read_text(data, len(data) // 2)",
        "forebay.read_lines(data, 100_000)",
        "forebay.read_lines(data, last=10)",
        "forebay.read_items(data, forebay.index_items(data), last=10)",
        "forebay.search(data, 'nowhere')",
        "forebay.search(data, r'\\bnowhere\\d+', regex=True)",
    ],
)
def test_memory_does_not_grow_with_the_payload(verb: str, records: Path) -> None:
    assert measure_growth(verb, records) < MAX_GROWTH_BYTES


@pytest.mark.slow
def test_a_copy_would_be_noticed(records: Path) -> None:
    assert measure_growth("bytes(data)", records) > SIZE // 2


# A page, a block of the index and the kernel's read-around are far smaller.
MAX_RESIDENT_BYTES = 2 << 20


def resident_bytes(path: Path) -> int:
    """Return how many bytes of a mapped file are resident in this process."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    sizes = [
        next(int(line.split()[1]) << 10 for line in lines if line.startswith("Rss:"))
        for header in lines
        if header.endswith(str(path))
    ]
    assert len(sizes) == 1
    return sizes[0]


def bytes_read(verb: Callable[[mmap.mmap], Any], path: Path) -> int:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        verb(data)
        return resident_bytes(path)


needs_smaps = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is mapped")


@pytest.fixture(scope="session")
def items(records: Path) -> forebay.ItemIndex:
    return forebay.index_items(records.read_bytes())


@pytest.fixture(scope="session")
def lines(records: Path) -> forebay.ItemIndex:
    return forebay.index_lines(records.read_bytes())


@needs_smaps
@pytest.mark.parametrize("place", [{"offset": 0}, {"offset": 150_000}, {"last": 10}], ids=str)
def test_a_page_of_items_touches_only_its_own_bytes(
    place: dict[str, int], records: Path, items: forebay.ItemIndex
) -> None:
    assert len(items) > 300_000
    assert 0 < bytes_read(lambda data: forebay.read_items(data, items, **place), records) < MAX_RESIDENT_BYTES


@needs_smaps
@pytest.mark.parametrize("place", [{"offset": 0}, {"offset": 150_000}, {"last": 10}], ids=str)
def test_a_page_of_lines_touches_only_its_own_bytes(
    place: dict[str, int], records: Path, lines: forebay.ItemIndex
) -> None:
    assert len(lines) > 300_000
    assert 0 < bytes_read(lambda data: forebay.read_lines(data, index=lines, **place), records) < MAX_RESIDENT_BYTES


@needs_smaps
@pytest.mark.parametrize("offset", [0, 1000])
def test_the_first_lines_need_no_index(offset: int, records: Path) -> None:
    assert 0 < bytes_read(lambda data: forebay.read_lines(data, offset), records) < MAX_RESIDENT_BYTES


@needs_smaps
@pytest.mark.parametrize("place", [{"offset": 0}, {"offset": SIZE // 2}, {"last": 10}], ids=str)
def test_a_page_of_text_touches_only_its_own_bytes(place: dict[str, int], records: Path) -> None:
    assert 0 < bytes_read(lambda data: forebay.read_text(data, **place), records) < MAX_RESIDENT_BYTES


@needs_smaps
def test_reading_the_whole_payload_would_be_noticed(records: Path) -> None:
    assert bytes_read(forebay.index_lines, records) > SIZE // 2
