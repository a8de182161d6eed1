"""`index_lines` counts every line, and pages are the same with and without an index."""

import pytest
from forebay import InvalidArgument, ItemIndex, index_items, index_lines, read_items, read_lines
from hypothesis import given
from hypothesis import strategies as st
from texts import nasty_text


def split(data: bytes) -> list[bytes]:
    return [line + b"\n" for line in data.split(b"\n")[:-1]] + (
        [data.split(b"\n")[-1]] if data[-1:] not in b"\n" else []
    )


@pytest.mark.slow
@given(st.lists(st.sampled_from([b"\n", b"\r\n", b"a", b" ", b"\xff"]), max_size=40).map(b"".join))
def test_every_line_counts(data: bytes) -> None:
    index = index_lines(data)
    assert (len(index), index.kind, index.path) == (len(split(data)), "lines", None)
    assert (index.start, index.end) == (0, len(data))
    assert ItemIndex.from_bytes(index.to_bytes()) == index


def as_list(page: object) -> list[object]:
    names = ("text", "offset", "returned", "next_offset", "start", "end")
    return [getattr(page, name) for name in names] + [repr(getattr(page, "truncated"))]  # noqa: B009


@pytest.mark.slow
@given(nasty_text, st.integers(0, 12), st.integers(1, 5), st.integers(7, 100))
def test_pages_are_the_same_without_an_index(text: str, offset: int, limit: int, max_bytes: int) -> None:
    index = index_lines(text)
    plain = read_lines(text, offset, limit, max_bytes)
    indexed = read_lines(text, offset, limit, max_bytes, index=index)
    assert as_list(indexed) == as_list(plain)
    assert indexed.total == len(index)
    plain = read_lines(text, max_bytes=max_bytes, last=offset)
    assert as_list(read_lines(text, max_bytes=max_bytes, last=offset, index=index)) == as_list(plain)


def test_far_lines() -> None:
    text = "".join(f"line {number}{'x' * (number % 700)}\n" for number in range(3000))
    index = index_lines(text)
    for number in range(0, 3000, 7):
        assert as_list(read_lines(text, number, 3, index=index)) == as_list(read_lines(text, number, 3))


def test_items_are_not_lines() -> None:
    with pytest.raises(InvalidArgument, match="read_lines"):
        read_items("a\nb", index_lines("a\nb"))
    with pytest.raises(InvalidArgument, match="index_lines"):
        read_lines("[1,\n2]", index=index_items("[1,\n2]"))
