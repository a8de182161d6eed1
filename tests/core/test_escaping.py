"""Escaped sizes of text, measured by functions that take a byte budget."""

import json

import orjson
import pytest
from forebay import InvalidArgument, preview, read_lines, read_text
from forebay.store.payload import escaped_size
from hypothesis import given
from hypothesis import strategies as st
from texts import escape, nasty_text, weigh

ASCII = [chr(code) for code in range(128)]


@pytest.mark.parametrize("char", [*ASCII, "\x80", "é", "\u2028", "漢", "\ue000", "😀"])
@pytest.mark.parametrize("levels", [1, 2])
def test_a_character_counts_with_its_escaped_size(char: str, levels: int) -> None:
    text = char * 100
    budget = weigh(text, levels)
    assert read_text(text, max_bytes=budget, escape_levels=levels).next_offset is None
    page = read_text(text, max_bytes=max(budget - 1, 7), escape_levels=levels)
    assert page.text == char * 99


@given(nasty_text)
def test_orjson_escapes_in_the_same_way(text: str) -> None:
    assert orjson.dumps(text)[1:-1].decode() == escape(text, 1)


@given(nasty_text, st.sampled_from([(0, False), (1, False), (2, False), (1, True), (2, True)]))
def test_the_size_is_that_of_the_escaped_text(text: str, escaping: tuple[int, bool]) -> None:
    levels, is_ascii = escaping
    escaped = escape(text, levels)
    if is_ascii:
        escaped = "".join(char if " " <= char < "\x7f" else json.dumps(char)[1:-1] for char in escaped)
    assert escaped_size(text.encode(), levels, is_ascii=is_ascii) == len(escaped.encode())


@given(nasty_text, st.integers(7, 300), st.sampled_from([1, 2]))
def test_no_page_or_preview_exceeds_its_budget_once_escaped(text: str, budget: int, levels: int) -> None:
    assert weigh(read_text(text, max_bytes=budget, escape_levels=levels).text, levels) <= budget
    assert weigh(read_lines(text, max_bytes=budget, escape_levels=levels).text, levels) <= budget
    shown = preview(text, max_escaped_bytes=budget, escape_levels=levels)
    assert shown is None or weigh(shown, levels) <= budget


@pytest.mark.parametrize("levels", [-1, 3, 2**63 - 1])
def test_other_levels_are_refused(levels: int) -> None:
    for verb in preview, read_text, read_lines:
        with pytest.raises(InvalidArgument, match="escape_levels"):
            verb("abc", escape_levels=levels)
