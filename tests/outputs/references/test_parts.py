"""The part that a reference asks for, against what plain slicing gives."""

import pytest
from forebay import FileRefTooLarge
from forebay.outputs.references.reference import ByteRange, LineRange, ReferenceRange
from forebay.outputs.references.resolver import read_range
from hypothesis import given
from hypothesis import strategies as st
from texts import NASTY


class Memory:
    def __init__(self, data: bytes) -> None:
        self._data, self.size = data, len(data)
        self.most = 0

    def read(self, start: int, end: int) -> bytes:
        assert 0 <= start <= end <= self.size
        self.most = max(self.most, end)
        return self._data[start:end]


def naive_read_range(data: bytes, part: ReferenceRange) -> bytes:
    if isinstance(part, LineRange):
        lines = data.split(b"\n")
        whole = [line + b"\n" for line in lines[:-1]] + lines[-1:]
        return b"".join(whole[part.first : part.end])
    return data[part.offset :] if part.length is None else data[part.offset : part.offset + part.length]


numbers = st.integers(0, 12) | st.just(10**30)
parts: st.SearchStrategy[ReferenceRange] = st.builds(ByteRange, numbers, st.none() | numbers) | st.builds(
    lambda a, b: LineRange(min(a, b), max(a, b)), numbers, numbers
)


@given(st.text("a\nb").map(str.encode), parts, st.integers(1, 9))
def test_a_part_is_what_slicing_gives_however_it_is_read(data: bytes, part: ReferenceRange, piece: int) -> None:
    assert read_range(Memory(data), part, len(data) + 1, piece) == naive_read_range(data, part)


def test_every_range_of_bytes() -> None:
    data = NASTY.encode()
    for start in range(len(data) + 2):
        for length in (0, 1, 7, len(data)):
            assert read_range(Memory(data), ByteRange(start, length), 10**6) == data[start : start + length]


def test_every_range_of_lines_cut_at_every_byte() -> None:
    data = b"one\n\ntwo\r\nthree"
    for piece in range(1, len(data) + 1):
        for first in range(6):
            for end in range(first, 7):
                assert read_range(Memory(data), LineRange(first, end), 100, piece) == naive_read_range(
                    data, LineRange(first, end)
                )


@given(st.text("a\nb", min_size=1).map(str.encode), parts, st.integers(0, 20), st.integers(1, 9))
def test_never_more_than_may_be(data: bytes, part: ReferenceRange, most: int, piece: int) -> None:
    source = Memory(data)
    try:
        found = read_range(source, part, most, piece)
    except FileRefTooLarge:
        # Lines have to be looked for; of bytes it is known how many they are.
        assert len(data) > most if isinstance(part, LineRange) else len(naive_read_range(data, part)) > most
    else:
        assert found == naive_read_range(data, part)
        assert len(found) <= most
    assert not isinstance(part, LineRange) or source.most <= most


def test_what_shrinks_while_it_is_read_has_an_end() -> None:
    class Shrinking(Memory):
        def read(self, start: int, end: int) -> bytes:
            return super().read(start, end)[: max(0, 5 - start)]

    data = b"ab\ncd\nef\n"
    assert read_range(Shrinking(data), LineRange(0, 9), 100, 2) == b"ab\ncd"
    with pytest.raises(FileRefTooLarge, match="with offset and length"):
        read_range(Shrinking(data), ByteRange(), 3)
