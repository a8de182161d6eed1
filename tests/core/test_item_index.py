"""`ItemIndex` can be stored, pickled and copied."""

import copy
import mmap
import pickle
from pathlib import Path

import pytest
from forebay import CorruptIndex, InvalidArgument, ItemIndex, index_items, index_lines

INDEXES = [
    index_items('{"a": {"b": [1, 2, 3]}}'),
    index_items('{"a": 1}'),
    index_items("1\n2\n"),
    index_items("[" + "[1, 2], " * 50_000 + "0]"),
    index_lines("a\n" * 100_000),
]


@pytest.mark.parametrize("index", INDEXES, ids=repr)
def test_loads_from_any_buffer(index: ItemIndex, tmp_path: Path) -> None:
    stored = index.to_bytes()
    every_other = bytes(byte for byte in stored for _ in range(2))
    for data in (stored, bytearray(stored), memoryview(stored), memoryview(every_other)[::2]):
        assert ItemIndex.from_bytes(data) == index
    file = tmp_path / "index"
    file.write_bytes(stored)
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert ItemIndex.from_bytes(mapped) == index
    with pytest.raises(CorruptIndex):
        ItemIndex.from_bytes(bytearray(stored[:-1]))
    with pytest.raises(TypeError):
        ItemIndex.from_bytes(stored.decode("latin-1"))  # type: ignore[arg-type]


@pytest.mark.parametrize("index", INDEXES, ids=repr)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(index: ItemIndex, protocol: int) -> None:
    pickled = pickle.dumps(index, protocol)
    loaded = pickle.loads(pickled)  # noqa: S301 - our own
    assert type(loaded) is ItemIndex
    assert loaded == index
    assert loaded.to_bytes() == index.to_bytes()
    assert b"forebay" in pickled


def test_copies() -> None:
    assert [copy.copy(index) for index in INDEXES] == INDEXES
    assert copy.deepcopy(INDEXES) == INDEXES


@pytest.mark.parametrize("index", INDEXES, ids=repr)
@pytest.mark.parametrize("max_bytes", [0, 100_000, 1 << 70])
def test_chunks_hold_every_item_once(index: ItemIndex, max_bytes: int) -> None:
    block = first = start = 0
    while (chunk := index.chunk(block, max_bytes)) is not None:
        assert (chunk.block, chunk.first) == (block, first)
        assert start == 0 or chunk.start == start
        assert chunk.block_count == 1 or chunk.end - chunk.start <= max_bytes
        assert chunk.start == index.span(first, 1).start
        assert repr(chunk).startswith(f"Chunk(start={chunk.start}, end={chunk.end}, first={first}, ")
        block, first, start = block + chunk.block_count, first + chunk.count, chunk.end
    assert first == len(index)
    assert start in (0, index.end)
    with pytest.raises(InvalidArgument, match="block must not be negative"):
        index.chunk(-1, 1)
