import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from forebay import InvalidArgument, InvalidText, LinePage, read_lines, read_text
from hypothesis import given
from hypothesis import strategies as st
from texts import NASTY, every_payload, nasty_text, weigh, writable_payloads


class Page(NamedTuple):
    text: str
    offset: int
    returned: int
    next_offset: int | None
    start: int
    end: int
    truncated: list[tuple[int, int, int]]


def as_page(page: LinePage) -> Page:
    cuts = [(cut.index, cut.size_bytes, cut.byte_offset) for cut in page.truncated]
    return Page(page.text, page.offset, page.returned, page.next_offset, page.start, page.end, cuts)


def split(text: str) -> list[str]:
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def naive(text: str, offset: int, limit: int, max_bytes: int, levels: int) -> Page:
    """Split the whole text and take lines as long as they fit."""
    lines = split(text)
    offset = min(offset, len(lines))
    start = len("".join(lines[:offset]).encode())
    shown, returned = "", 0
    cuts = []
    for line in lines[offset : offset + limit]:
        if weigh(shown + line, levels) > max_bytes:
            break
        shown += line
        returned += 1
    if returned == 0 and offset < len(lines):
        for char in lines[offset]:
            if weigh(shown + char, levels) > max_bytes:
                break
            shown += char
        returned = 1
        cuts = [(offset, len(lines[offset].encode()), start + len(shown.encode()))]
    following = offset + returned
    next_offset = following if following < len(lines) else None
    return Page(shown, offset, returned, next_offset, start, start + len(shown.encode()), cuts)


@given(nasty_text, st.integers(1, 6), st.integers(7, 100), st.sampled_from([0, 1, 2]))
def test_pages_are_the_same_as_with_splitting(text: str, limit: int, max_bytes: int, levels: int) -> None:
    count = len(split(text))
    for number in range(count + 2):
        page = read_lines(text, number, limit, max_bytes, escape_levels=levels)
        assert as_page(page) == naive(text, number, limit, max_bytes, levels)
        assert page.total == (count if page.next_offset is None else None)
        page = read_lines(text, max_bytes=max_bytes, last=number, escape_levels=levels)
        assert as_page(page) == naive(text, max(count - number, 0), max(number, 1), max_bytes, levels)


@pytest.mark.parametrize("max_bytes", range(4, 41))
@pytest.mark.parametrize("limit", [1, 3, 200])
def test_pages_tile_and_cut_lines_can_be_read_on(max_bytes: int, limit: int) -> None:
    shown, offset = "", 0
    while True:
        page = read_lines(NASTY, offset, limit, max_bytes)
        assert page.offset == offset
        assert len(page.text.encode()) <= max_bytes
        shown += page.text
        for cut in page.truncated:
            rest = cut.size_bytes - (cut.byte_offset - page.start)
            shown += read_text(NASTY, cut.byte_offset).text.encode()[:rest].decode()
        if page.next_offset is None:
            break
        assert page.next_offset == offset + page.returned
        offset = page.next_offset
    assert shown == NASTY


def test_far_lines() -> None:
    text = "".join(f"line {number}\n" for number in range(30_000))
    for number in 0, 1, 9_999, 29_999:
        assert read_lines(text, number, 1).text == f"line {number}\n"
    page = read_lines(text, last=2)
    assert (page.text, page.offset, page.total) == ("line 29998\nline 29999\n", 29_998, 30_000)


def test_past_the_end_is_an_empty_page_at_the_end() -> None:
    for text in "a\nb", "a\nb\n":
        for offset in 2, 3, sys.maxsize:
            assert as_page(read_lines(text, offset)) == Page("", 2, 0, None, len(text), len(text), [])
        assert as_page(read_lines(text, last=0)) == Page("", 2, 0, None, len(text), len(text), [])
    assert as_page(read_lines("")) == Page("", 0, 0, None, 0, 0, [])


def test_a_very_long_line_is_cut_and_returned_alone() -> None:
    text = "first\n" + "é" * 1000 + "\nlast"
    page = read_lines(text, max_bytes=101)
    assert (page.text, page.next_offset) == ("first\n", 1)
    assert as_page(read_lines(text, 1, max_bytes=101)) == Page("é" * 50, 1, 1, 2, 6, 106, [(1, 2001, 106)])
    assert repr(read_lines(text, 1, max_bytes=101).truncated) == "[Cut(index=1, size_bytes=2001, byte_offset=106)]"


def test_only_the_shown_part_must_be_text() -> None:
    data = b"ok\n\xff\nok"
    assert read_lines(data, 0, 1).text == "ok\n"
    assert read_lines(data, last=1).text == "ok"
    with pytest.raises(InvalidText) as caught:
        read_lines(data)
    assert caught.value.index == 3


def test_takes_every_payload(tmp_path: Path) -> None:
    with every_payload(NASTY, tmp_path) as payloads:
        pages = [as_page(read_lines(payload, 1, 2)) for payload in payloads]
        assert pages == [naive(NASTY, 1, 2, 65536, 0)] * len(payloads)
    for payload in writable_payloads():
        with pytest.raises(TypeError, match="read-only"):
            read_lines(payload)


def test_a_page_without_room_for_anything_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="limit must be at least 1"):
        read_lines("abc", limit=0)
    with pytest.raises(InvalidArgument, match="max_bytes must be at least 4"):
        read_lines("abc", max_bytes=3)


@pytest.mark.parametrize("name", ["offset", "limit", "max_bytes", "last", "escape_levels"])
def test_negative_arguments_are_refused(name: str) -> None:
    arguments: dict[str, Any] = {name: -1}
    with pytest.raises(InvalidArgument, match=f"{name} must not be negative"):
        read_lines("abc", **arguments)
