import sys
from pathlib import Path

import pytest
from forebay import InvalidArgument, InvalidText, TextPage, read_text
from hypothesis import given
from hypothesis import strategies as st
from texts import NASTY, char_ends, every_payload, nasty_text, weigh, writable_payloads

MIN_BYTES = {0: 4, 1: 6, 2: 7}


def naive(text: str, start: int, max_bytes: int, levels: int) -> tuple[str, int, int, int | None]:
    """Take characters from byte `start` on as long as they fit."""
    data = text.encode()
    shown = ""
    for char in data[start:].decode():
        if weigh(shown + char, levels) > max_bytes:
            break
        shown += char
    end = start + len(shown.encode())
    return shown, start, end, end if end < len(data) else None


def as_tuple(page: TextPage) -> tuple[str, int, int, int | None]:
    return page.text, page.start, page.end, page.next_offset


@given(nasty_text, st.integers(7, 60), st.sampled_from([0, 1, 2]))
def test_starts_at_every_byte(text: str, max_bytes: int, levels: int) -> None:
    ends = char_ends(text)
    for offset in range(ends[-1] + 2):
        start = max(end for end in ends if end <= offset)
        page = read_text(text, offset, max_bytes, escape_levels=levels)
        assert as_tuple(page) == naive(text, start, max_bytes, levels)


@given(nasty_text, st.integers(7, 60), st.sampled_from([0, 1, 2]))
def test_the_end_of_a_text_by_every_number_of_bytes(text: str, max_bytes: int, levels: int) -> None:
    ends = char_ends(text)
    for last in range(ends[-1] + 2):
        start = min(end for end in ends if end >= ends[-1] - last)
        page = read_text(text, max_bytes=max_bytes, last=last, escape_levels=levels)
        assert as_tuple(page) == naive(text, start, max_bytes, levels)


@pytest.mark.parametrize("max_bytes", range(4, 41))
@pytest.mark.parametrize("levels", [0, 1, 2])
def test_pages_tile(max_bytes: int, levels: int) -> None:
    max_bytes = max(max_bytes, MIN_BYTES[levels])
    shown, offset = "", 0
    while True:
        page = read_text(NASTY, offset, max_bytes, escape_levels=levels)
        assert page.start == offset
        assert page.end > page.start
        assert weigh(page.text, levels) <= max_bytes
        shown += page.text
        if page.next_offset is None:
            break
        assert page.next_offset == page.end
        offset = page.next_offset
    assert shown == NASTY


def test_past_the_end_is_an_empty_page_at_the_end() -> None:
    for offset in 3, 4, sys.maxsize:
        assert as_tuple(read_text("abc", offset)) == ("", 3, 3, None)
    assert as_tuple(read_text("")) == ("", 0, 0, None)
    assert as_tuple(read_text("abc", last=0)) == ("", 3, 3, None)


def test_bytes_that_are_not_text_raise_with_their_index() -> None:
    data = b"abcd\xffefgh" + "é".encode()[:1]
    assert read_text(data, 0, 4).text == "abcd"
    assert read_text(data, 5, 4).text == "efgh"
    for offset, index in [(0, 4), (4, 4), (5, 9), (9, 9)]:
        with pytest.raises(InvalidText) as caught:
            read_text(data, offset)
        assert caught.value.index == index
    assert read_text(data, 10).text == ""


def test_takes_every_payload(tmp_path: Path) -> None:
    with every_payload(NASTY, tmp_path) as payloads:
        pages = [as_tuple(read_text(payload, 5, 20)) for payload in payloads]
        assert pages == [naive(NASTY, 4, 20, 0)] * len(payloads)
    for payload in writable_payloads():
        with pytest.raises(TypeError, match="read-only"):
            read_text(payload)


@pytest.mark.parametrize("levels", [0, 1, 2])
def test_a_budget_without_room_for_a_character_is_refused(levels: int) -> None:
    least = MIN_BYTES[levels]
    assert read_text("", max_bytes=least, escape_levels=levels).text == ""
    with pytest.raises(InvalidArgument, match=f"max_bytes must be at least {least}"):
        read_text("", max_bytes=least - 1, escape_levels=levels)


@pytest.mark.parametrize("name", ["offset", "max_bytes", "last", "escape_levels"])
def test_negative_arguments_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name} must not be negative"):
        read_text("abc", **{name: -1})


def test_a_page_has_its_start_and_end() -> None:
    assert repr(read_text("abcdé", 1, 4)) == "TextPage(start=1, end=4, next_offset=4)"
    assert repr(read_text("abc", 1)) == "TextPage(start=1, end=3, next_offset=None)"
