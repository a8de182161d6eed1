"""Ranges of a reference, compared with plain slicing."""

import pytest
from forebay import FileRefTooLarge
from forebay.outputs.references.reference import ByteRange, LineRange, ReferenceRange
from forebay.outputs.references.resolver import read_range
from hypothesis import given
from hypothesis import strategies as st
from texts import NASTY


class MemorySource:
    def __init__(self, data: bytes) -> None:
        self._data, self.size = data, len(data)
        self.max_end = 0

    def read(self, start: int, end: int) -> bytes:
        assert 0 <= start <= end <= self.size
        self.max_end = max(self.max_end, end)
        return self._data[start:end]


def naive_read_range(data: bytes, part: ReferenceRange) -> bytes:
    if isinstance(part, LineRange):
        lines = data.split(b"\n")
        whole = [line + b"\n" for line in lines[:-1]] + lines[-1:]
        return b"".join(whole[part.first : part.end])
    return data[part.offset :] if part.length is None else data[part.offset : part.offset + part.length]


sizes = st.integers(0, 12) | st.just(10**30)
parts: st.SearchStrategy[ReferenceRange] = st.builds(ByteRange, sizes, st.none() | sizes) | st.builds(
    lambda a, b: LineRange(min(a, b), max(a, b)), sizes, sizes
)


@given(st.text("a\nb").map(str.encode), parts, st.integers(1, 9))
def test_ranges_equal_slicing(data: bytes, part: ReferenceRange, chunk_bytes: int) -> None:
    assert read_range(MemorySource(data), part, len(data) + 1, chunk_bytes) == naive_read_range(data, part)


def test_every_range_of_bytes() -> None:
    data = NASTY.encode()
    for start in range(len(data) + 2):
        for length in (0, 1, 7, len(data)):
            assert read_range(MemorySource(data), ByteRange(start, length), 10**6) == data[start : start + length]


def test_every_range_of_lines_cut_at_every_byte() -> None:
    data = b"one\n\ntwo\r\nthree"
    for chunk_bytes in range(1, len(data) + 1):
        for first in range(6):
            for end in range(first, 7):
                assert read_range(MemorySource(data), LineRange(first, end), 100, chunk_bytes) == naive_read_range(
                    data, LineRange(first, end)
                )


@given(st.text("a\nb", min_size=1).map(str.encode), parts, st.integers(0, 20), st.integers(1, 9))
def test_no_range_exceeds_the_budget(data: bytes, part: ReferenceRange, max_bytes: int, chunk_bytes: int) -> None:
    source = MemorySource(data)
    try:
        data_read = read_range(source, part, max_bytes, chunk_bytes)
    except FileRefTooLarge:
        # Finding lines means reading everything before them; a range of bytes has a known size.
        assert len(data) > max_bytes if isinstance(part, LineRange) else len(naive_read_range(data, part)) > max_bytes
    else:
        assert data_read == naive_read_range(data, part)
        assert len(data_read) <= max_bytes
    assert not isinstance(part, LineRange) or source.max_end <= max_bytes


def test_a_shrinking_source_ends() -> None:
    class Shrinking(MemorySource):
        def read(self, start: int, end: int) -> bytes:
            return super().read(start, end)[: max(0, 5 - start)]

    data = b"ab\ncd\nef\n"
    assert read_range(Shrinking(data), LineRange(0, 9), 100, 2) == b"ab\ncd"
    with pytest.raises(FileRefTooLarge, match="with offset and length"):
        read_range(Shrinking(data), ByteRange(), 3)
