import re
import sys
from pathlib import Path

import pytest
from forebay import InvalidArgument, preview
from hypothesis import example, given
from hypothesis import strategies as st
from texts import NASTY, every_payload, weigh, writable_payloads

TOKEN = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\?.|\\",
    re.DOTALL,
)

# No element forms a grapheme cluster with its neighbours, so the naive version only has to know tokens.
plain_text = st.lists(
    st.sampled_from(
        [
            "abc ",
            '"',
            "\\",
            "\\\\",
            '\\"',
            "\\n",
            "\\u",
            "\\u00e9",
            "\\u12",
            "\\ud83d",
            "\\ude00",
            "\x01",
            "é",
            "漢",
            "😀",
        ]
    ),
    max_size=20,
).map("".join)


def naive(text: str, max_bytes: int, max_escaped: int = sys.maxsize, levels: int = 1) -> str:
    """Take tokens from the start as long as they fit."""
    shown = ""
    for token in TOKEN.findall(text):
        longer = shown + token
        if len(longer.encode()) > max_bytes or weigh(longer, levels) > max_escaped:
            break
        shown = longer
    return shown


@given(plain_text)
@example("\\" * 41)
@example("\\ud83d\\ude00" * 5)
@example("😀" * 9)
@example('"' * 30)
@example("\x01" * 30)
def test_cut_at_every_byte(text: str) -> None:
    for max_bytes in range(len(text.encode()) + 2):
        assert preview(text.encode(), max_bytes) == naive(text, max_bytes)


@given(plain_text, st.integers(0, 200), st.integers(0, 200), st.sampled_from([1, 2]))
def test_both_budgets_hold(text: str, max_bytes: int, max_escaped: int, levels: int) -> None:
    shown = preview(text, max_bytes, max_escaped_bytes=max_escaped, escape_levels=levels)
    assert shown == naive(text, max_bytes, max_escaped, levels)


@pytest.mark.parametrize("cluster", ["e\u0301\u0302", "👩‍👩‍👧‍👦", "🇩🇪", "👍🏽", "\r\n", "क्षि", "각", '\\"\u0301', "❤️"])
def test_clusters_stay_whole_at_every_byte(cluster: str) -> None:
    text = f"ab{cluster}{cluster}cd"
    ends = [0, 1, 2, 2 + len(cluster), 2 + 2 * len(cluster), 3 + 2 * len(cluster), len(text)]
    allowed = [text[:end] for end in ends]
    for max_bytes in range(len(text.encode()) + 2):
        assert preview(text, max_bytes) == max((t for t in allowed if len(t.encode()) <= max_bytes), key=len)


def test_a_cluster_without_end_is_cut_at_a_character() -> None:
    text = "e" + "\u0301" * 500
    assert preview(text, 64) == ""
    assert preview(text, 65) == "e" + "\u0301" * 32
    assert preview(text, 600) == "e" + "\u0301" * 299


@given(
    st.binary(max_size=40)
    | st.lists(st.sampled_from([b"a", b"\xe2\x82\xac", b"\xe2\x82", b"\x00", b"\xff"])).map(b"".join)
)
def test_binary_is_what_a_decoder_refuses(data: bytes) -> None:
    for max_bytes in range(len(data) + 2):
        start = data[:max_bytes]
        try:
            is_text = "\0" not in start.decode()
        except UnicodeDecodeError as error:
            is_cut = error.reason == "unexpected end of data" and max_bytes < len(data)
            is_text = is_cut and b"\0" not in start[: error.start]
        shown = preview(data, max_bytes)
        assert (shown is not None) == is_text
        assert shown is None or data.startswith(shown.encode())


def test_a_payload_that_fits_is_shown_whole() -> None:
    text = NASTY.replace("\0", "") + "\\"
    for max_bytes in len(text.encode()), 2048, sys.maxsize:
        assert preview(text, max_bytes) == text
    assert preview(text, sys.maxsize, max_escaped_bytes=sys.maxsize, escape_levels=2) == text
    assert preview(b"") == ""
    assert preview(b"\xff", 0) == ""


@given(st.lists(st.text(alphabet='ab\r\n"é,', max_size=30), max_size=6).map("\n".join), st.integers(0, 100))
def test_whole_lines_unless_they_fill_less_than_half(text: str, max_bytes: int) -> None:
    plain = preview(text, max_bytes)
    shown = preview(text, max_bytes, whole="lines")
    assert plain is not None
    if plain == text:
        assert shown == text
        return
    lines = text[: len(plain) + 1].rpartition("\n")[0]
    lines = lines.removesuffix("\r")
    assert shown == (lines if 2 * len(lines.encode()) >= len(plain.encode()) > 0 else plain)


def test_whole_rows() -> None:
    text = 'id,text\r\n1,"a\nb"\r\n2,"c\nd"\r\n'
    assert preview(text, len(text) - 3, whole="csv") == 'id,text\r\n1,"a\nb"'
    assert preview(text.replace(",", "\t"), len(text) - 3, whole="tsv") == 'id\ttext\r\n1\t"a\nb"'
    with pytest.raises(InvalidArgument, match="whole must be"):
        preview(text, whole="rows")  # type: ignore[arg-type]


def test_takes_every_payload(tmp_path: Path) -> None:
    with every_payload("héllo\n" * 9, tmp_path) as payloads:
        assert [preview(payload, 8) for payload in payloads] == ["héllo\nh"] * len(payloads)
    for payload in writable_payloads():
        with pytest.raises(TypeError, match="read-only"):
            preview(payload)


def test_arguments_that_are_invalid_for_any_payload_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="max_bytes"):
        preview(b"", -1)
    with pytest.raises(InvalidArgument, match="max_escaped_bytes"):
        preview(b"", max_escaped_bytes=-1)
    with pytest.raises(InvalidArgument, match="escape_levels must be 1 or 2"):
        preview(b"", escape_levels=0)
