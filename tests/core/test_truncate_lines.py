import re
import sys
from pathlib import Path

import pytest
from forebay import InvalidArgument, InvalidText, truncate_lines
from hypothesis import example, given
from hypothesis import strategies as st
from texts import NASTY, every_payload, nasty_text, writable_payloads

LINES_NOTE = re.compile(r"\[\.\.\. ([\d,]+) lines? left out \.\.\.\]\n?")
BYTES_NOTE = re.compile(r"\[\.\.\. ([\d,]+) bytes? left out \.\.\.\]")

logs = st.lists(nasty_text | st.sampled_from(["\n", "漢" * 300, "short\n"]), max_size=30).map("".join)


def split(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def parse_count(match: re.Match[str]) -> int:
    return int(match[1].replace(",", ""))


def is_line_or_cut(shown: str, line: str) -> bool:
    """Return whether `shown` is the line, or its beginning with an exact note of the bytes left out."""
    cut = BYTES_NOTE.search(shown)
    if shown == line or cut is None:
        return shown == line
    rest = line.removesuffix("\n").removeprefix(shown[: cut.start()])
    ending = "\n" if line.endswith("\n") else ""
    return (
        line.startswith(shown[: cut.start()])
        and parse_count(cut) == len(rest.encode())
        and shown[cut.end() :] == ending
    )


@pytest.mark.slow
@given(logs, st.integers(0, 5), st.integers(0, 5))
def test_enough_budget_shows_whole_lines(text: str, head: int, tail: int) -> None:
    lines = split(text)
    shown = truncate_lines(text, head, tail, max_bytes=10**6)
    missing = len(lines) - head - tail
    if missing <= 0:
        assert shown == text
    else:
        note = f"[... {missing:,} line{'s' * (missing > 1)} left out ...]" + "\n" * (tail > 0)
        assert shown == "".join([*lines[:head], note, *lines[len(lines) - tail :]])


@pytest.mark.slow
@given(logs, st.integers(0, 5), st.integers(0, 5), st.integers(64, 600))
@example("x" * 1000, 1, 1, 64)
@example("x" * 1000 + "\n" + "y" * 1000, 1, 1, 250)
@example("\n" * 500, 100, 100, 64)
def test_any_budget_is_kept_and_every_count_is_exact(text: str, head: int, tail: int, max_bytes: int) -> None:
    shown = truncate_lines(text, head, tail, max_bytes=max_bytes)
    assert len(shown.encode()) <= max_bytes
    lines = split(text)
    note = LINES_NOTE.search(shown)
    before, after = (shown, "") if note is None else (shown[: note.start()], shown[note.end() :])
    first = split(before)
    last = split(after)
    assert len(first) + len(last) + (parse_count(note) if note else 0) == len(lines)
    assert all(map(is_line_or_cut, first, lines))
    assert all(map(is_line_or_cut, reversed(last), reversed(lines)))


def test_lines_over_an_equal_share_are_cut_and_the_others_are_not() -> None:
    text = "short\n" + "x" * 10_000 + "\n" + "y" * 5_000 + "\nend\n"
    shown = truncate_lines(text, max_bytes=1024).splitlines()
    assert [shown[0], shown[3]] == ["short", "end"]
    assert abs(len(shown[1]) - len(shown[2])) <= 1
    assert sum(map(len, shown)) > 950


def test_the_last_lines_are_shown_even_if_the_first_are_very_long() -> None:
    text = "x" * 100_000 + "\n" + "line\n" * 1000 + "the end\n"
    for max_bytes in range(128, 400, 7):
        assert truncate_lines(text, 3, 2, max_bytes=max_bytes).endswith("the end\n")


def test_text_that_fits_is_unchanged() -> None:
    text = NASTY * 3
    for max_bytes in len(text.encode()), sys.maxsize:
        assert truncate_lines(text, sys.maxsize, sys.maxsize, max_bytes=max_bytes) == text
    assert truncate_lines("") == ""
    assert truncate_lines("", 0, 0) == ""


def test_only_the_shown_part_must_be_text() -> None:
    data = b"a\n\xff\nb\n"
    assert truncate_lines(data, 1, 1) == "a\n[... 1 line left out ...]\nb\n"
    with pytest.raises(InvalidText) as caught:
        truncate_lines(data, 2, 1)
    assert caught.value.index == 2


def test_takes_every_payload(tmp_path: Path) -> None:
    with every_payload("a\nb\nc\n", tmp_path) as payloads:
        shown = [truncate_lines(payload, 1, 0) for payload in payloads]
        assert shown == ["a\n[... 2 lines left out ...]"] * len(payloads)
    for payload in writable_payloads():
        with pytest.raises(TypeError, match="read-only"):
            truncate_lines(payload)


def test_a_budget_without_room_for_the_note_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="max_bytes must be at least 64"):
        truncate_lines("abc", max_bytes=63)
    for name in "head", "tail", "max_bytes":
        with pytest.raises(InvalidArgument, match=f"{name} must not be negative"):
            truncate_lines("abc", **{name: -1})
