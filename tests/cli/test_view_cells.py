"""Any text is drawn in exactly its cells, and no control character reaches the terminal."""

import json
import unicodedata

import pyte
import pytest
from forebay.cli.view.cells import cut, decode_value, fit, make_safe, skip_cells, wrap
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

# Characters whose width every terminal agrees on, and those that are replaced or left out.
CHARACTERS = "aé ~\t\n\r\x00\x1b\x7f\x9b漢字ｶ한😀👩\u200d\ufe0f\u0301\u202e\u2066\ud800…│"
TEXTS = st.text(st.one_of(st.sampled_from(CHARACTERS), st.characters(max_codepoint=0x2FFF)), max_size=40)
MARK = "#"


@given(TEXTS, st.integers(0, 30))
@example("\x1b[2J\x1b]0;title\x07", 20)
@example("漢字漢字", 4)
def test_a_cell_has_its_width(text: str, width: int) -> None:
    safe = make_safe(text)
    assert [character for character in safe if unicodedata.category(character) in ("Cc", "Cs")] == []
    assert cell_len(cut(safe, width)) <= width
    for is_right in (False, True):
        assert cell_len(fit(safe, width, is_right=is_right)) == width
    if cell_len(safe) > width > 0:
        assert cut(safe, width).endswith("…")
    else:
        assert cut(safe, width) == (safe if width else "")


@given(st.text(st.sampled_from(CHARACTERS), max_size=30), st.integers(1, 25))
def test_a_terminal_draws_a_cell_where_it_belongs(text: str, width: int) -> None:
    screen = pyte.Screen(40, 2)
    pyte.Stream(screen).feed(fit(make_safe(text), width) + MARK)
    assert screen.buffer[0][width].data == MARK
    assert screen.display[1].strip() == ""


@given(TEXTS, st.integers(0, 30))
@example("\u1100", 1)
def test_skipped_cells_are_as_wide_as_they_were(text: str, count: int) -> None:
    safe = make_safe(text)
    assert cell_len(skip_cells(safe, count)) == max(cell_len(safe) - count, 0)


@given(TEXTS, st.integers(2, 30))
@example("\u1082", 2)
def test_wrapped_text_loses_nothing(text: str, width: int) -> None:
    safe = make_safe(text)
    lines = wrap(safe, width)
    assert "".join(lines) == safe
    assert all(cell_len(line) <= width for line in lines)


@given(st.text(max_size=200), st.booleans(), st.integers(8, 100))
def test_a_string_is_decoded_even_if_it_is_cut(text: str, is_ascii: bool, max_bytes: int) -> None:
    raw = json.dumps(text, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    shown = decode_value(raw, max_bytes)
    if len(raw) <= max_bytes:
        assert shown == json.loads(raw.decode("utf-8", "replace"))
    else:
        assert shown.endswith("…")
        assert text.startswith(shown[:-1].rstrip("\ufffd"))


@pytest.mark.parametrize(
    ("raw", "expected"), [(b"1.10", "1.10"), (b"null", "null"), (b'"a\\u0041"', "aA"), (b'"\\ud800"', "\ud800")]
)
def test_scalars_are_shown_as_written(raw: bytes, expected: str) -> None:
    assert decode_value(raw) == expected
