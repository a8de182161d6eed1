"""`ItemIndex` can be stored, pickled and copied."""

import copy
import mmap
import pickle
from pathlib import Path

import pytest
from forebay import CorruptIndex, ItemIndex, index_items, index_lines

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
