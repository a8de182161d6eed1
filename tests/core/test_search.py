import mmap
import re
from pathlib import Path
from typing import Any

import forebay
import pytest
from forebay import InvalidArgument, InvalidPattern, search
from forebay._core import LiteralCounter, count_matches
from hypothesis import given
from hypothesis import strategies as st

Spans = list[tuple[int, int]]


def find_spans(data: bytes | str, pattern: str, **options: Any) -> Spans:
    found = search(data, pattern, **{"limit": 10**9, **options})
    assert found.next_offset is None
    return [(match.start, match.end) for match in found.matches]


def find_with_re(data: bytes, pattern: str) -> Spans:
    return [match.span() for match in re.finditer(pattern.encode(), data, re.MULTILINE) if match.group()]


# Patterns with the same meaning in Python's `re` over bytes: these sets never match part of a character.
atoms = st.sampled_from(
    [
        *("ab", "fail", "time", "é", "a", "b", "'", " ", "\n"),
        *(r"\w", r"\d", r"\s", "[ab]", "[a-z ]", r"[\w-]", r"\w{2,3}", "[a-z]+", "fail[a-z ]{0,9}time"),
        *(r"\b", "^", "$", r"\A"),
    ]
)
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda branches: f"(?:{'|'.join(branches)})"),
    ),
    max_leaves=8,
)
# Only sets and literals are repeated: the engines differ in loops that can match the empty string.
repeated = st.tuples(
    st.sampled_from(["a", r"\w", "[ab]", "(?:ab|a)", "(?:fail|ab) "]),
    st.sampled_from(["*", "+", "?", "{2}", "*?", "+?"]),
).map("".join)
patterns = st.one_of(
    expressions,
    repeated,
    st.tuples(expressions, repeated, expressions).map("".join),
    st.tuples(st.sampled_from([r"\b", "^", ""]), repeated, st.sampled_from([r"\b", "$", ""])).map("".join),
    st.lists(repeated, min_size=2, max_size=3).map("|".join),
)
payloads = st.lists(
    st.sampled_from([b"ab", b"AB", b"fail", b"time", b"sing", b"'", b" ", b"\n", b"7", "é".encode(), "漢".encode()])
).map(b"".join)


@pytest.mark.slow
@given(payloads, patterns)
def test_matches_are_the_same_as_with_re(data: bytes, pattern: str) -> None:
    assert find_spans(data, pattern, regex=True) == find_with_re(data, pattern)


@pytest.mark.slow
@given(payloads, st.sampled_from(["ab", "a", "é", "fail", "ab\n", "abab", "漢", " ", "time"]))
def test_literals_are_found_as_with_bytes_find(data: bytes, needle: str) -> None:
    expected = [match.span() for match in re.finditer(re.escape(needle.encode()), data)]
    assert find_spans(data, needle) == expected
    assert find_spans(data, re.escape(needle), regex=True) == expected


@pytest.mark.slow
@given(payloads, patterns, st.integers(1, 4))
def test_pages_tile(data: bytes, pattern: str, limit: int) -> None:
    paged: Spans = []
    start: int | None = 0
    while start is not None:
        page = search(data, pattern, regex=True, offset=start, limit=limit)
        assert len(page.matches) == limit or page.next_offset is None
        paged += [(match.start, match.end) for match in page.matches]
        start = page.next_offset
    assert paged == find_spans(data, pattern, regex=True)


@pytest.mark.slow
@given(payloads, patterns, st.integers(0, 20))
def test_context_is_text_around_the_match(data: bytes, pattern: str, context: int) -> None:
    for match in search(data, pattern, regex=True, context=context).matches:
        assert match.context is not None
        shown = match.context.encode()
        end = match.context_start + len(shown)
        assert data[match.context_start : end] == shown
        assert match.start - context <= match.context_start <= match.start
        assert match.end <= end <= match.end + context
        assert match.line == data.count(b"\n", 0, match.start)
        assert match.item is None


@pytest.mark.parametrize("cut", range(len(b'{"s": "caf\\u00e9 \\ud83d\\ude00 \\n"} ')))
def test_context_is_not_cut_inside_an_escape(cut: int) -> None:
    escaped = b'{"s": "caf\\u00e9 \\ud83d\\ude00 \\n"} '
    whole = re.compile(rb"(?:\\ud83d\\ude00|\\u00e9|\\n|[^\\])*")
    for data in (b"HIT" + escaped, escaped + b"HIT"):
        [match] = search(data, "HIT", context=cut).matches
        assert match.context is not None
        assert whole.fullmatch(match.context.encode())
        assert cut - 11 <= len(match.context) - 3 <= cut


def test_no_context_where_the_match_is_not_text() -> None:
    [match] = search(b"ab\xffcd", r"b(?-u:\xff)c", regex=True).matches
    assert (match.start, match.end, match.context, match.context_start) == (1, 4, None, 1)
    [match] = search(b"a\xffb\xff", "b").matches
    assert (match.context, match.context_start) == ("b", 2)


def test_the_context_of_a_long_match_is_bounded() -> None:
    [match] = search("é" * 10_000, "é+", regex=True, context=9).matches
    assert match.end == 20_000
    assert match.context == "é" * 132


def test_a_dot_is_a_character() -> None:
    assert find_spans("é漢😀", ".", regex=True) == [(0, 2), (2, 5), (5, 9)]
    assert find_spans("aé", r"\W", regex=True) == [(1, 3)]
    assert find_spans("aé", r"\w+", regex=True) == [(0, 1)]


def test_ignore_case() -> None:
    assert find_spans("Error ERROR error", "eRRor", ignore_case=True) == [(0, 5), (6, 11), (12, 17)]
    assert find_spans("ÉTÉ", "été", ignore_case=True) == [(0, 5)]
    assert find_spans("a+b A+B aab", "a+b", ignore_case=True) == [(0, 3), (4, 7)]
    assert find_spans("sSkK", r"\W", regex=True, ignore_case=True) == []


def test_every_kind_of_payload(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one two")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert [match.start for match in search(mapped, "two").matches] == [4]
    assert find_spans("one two", "two") == find_spans(b"one two", "two") == [(4, 7)]
    assert find_spans(b"", "two") == []


def test_the_end() -> None:
    data = b"x a x a"
    assert search(data, "a", limit=1).next_offset == 3
    assert search(data, "a", limit=2).next_offset is None
    for start in (len(data), 10**12):
        found = search(data, "a", offset=start)
        assert (found.matches, found.next_offset) == ([], None)


@pytest.mark.parametrize("options", [{"offset": -1}, {"limit": 0}, {"limit": -5}, {"context": -1}])
def test_arguments_that_are_invalid_for_any_payload_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=r"must (be at least 1|not be negative)"):
        search(b"a", "a", **options)


@pytest.mark.parametrize("regex", [False, True])
def test_an_empty_pattern(regex: bool) -> None:
    with pytest.raises(InvalidArgument, match="empty"):
        search(b"a", "", regex=regex)


@pytest.mark.parametrize("pattern", ["(", "[z-a]", r"(a)\1", "(?=a)", r"(?:\pL{99}){99}", "(" * 999 + ")" * 999])
def test_patterns_that_do_not_compile_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern, match="pattern not usable: ") as refusal:
        search(b"a", pattern, regex=True)
    assert isinstance(refusal.value, ValueError)
    assert "\n" not in str(refusal.value)


# The regex engine would allow most of these; the limit is forebay's.
@pytest.mark.parametrize("pattern", [r"\w{4000}", r"\w{1000}{100}", "((a{1000}){1000}){1000}", r"\pL{200}"])
def test_patterns_that_compile_to_too_much_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern, match="too large; use fewer or smaller repetition counts"):
        search(b"a", pattern, regex=True)


def test_large_patterns_are_fine() -> None:
    assert find_spans(b"a" * 3000, r"\w{1500}", regex=True) == [(0, 1500), (1500, 3000)]
    words = "|".join(f"error {n:03}" for n in range(400))
    assert find_spans(b"error 007, error 399, error 400", words, regex=True) == [(0, 9), (11, 20)]


def test_patterns_with_exponential_backtracking_are_fast() -> None:
    assert find_spans(b"a" * 100_000, "(a+)+b", regex=True) == []
    assert find_spans(b"a" * 100_000, "(a|aa)+$", regex=True) == [(0, 100_000)]


def test_repr() -> None:
    found = search(b"aa", "a", limit=1)
    assert repr(found) == "SearchResult(1 matches, next_offset=1)"
    assert repr(found.matches) == "[Match(start=0, end=1, line=0, item=None)]"
    assert forebay.Match.__module__ == forebay.SearchResult.__module__ == "forebay._core"


@pytest.mark.slow
@given(payloads, patterns)
def test_a_count_is_the_number_of_matches(data: bytes, pattern: str) -> None:
    counted = count_matches(data, pattern, regex=True)
    assert (counted.matches, counted.items, counted.is_complete) == (len(find_with_re(data, pattern)), None, True)


@pytest.mark.parametrize("needle", ["a", "ab", "aba", "aaa", "é"])
def test_pieces_are_counted_at_every_cut(needle: str) -> None:
    data = "abaaababaaaé".encode() * 2
    for first in range(len(data) + 1):
        for second in range(first, len(data) + 1):
            counter = LiteralCounter(needle)
            for piece in (data[:first], data[first:second], data[second:]):
                counter.feed(piece)
            assert counter.matches == data.count(needle.encode()), (first, second)


def test_items_with_matches_are_counted() -> None:
    data = b'{"a":[["x","x"],"y","x",["x"]],"b":"x"}'
    counted = count_matches(data, "x", index=forebay.index_items(data))
    assert (counted.matches, counted.items) == (5, 3)


def test_a_count_by_expression_stops_in_time() -> None:
    counted = count_matches(b"a" * 1000, "a", regex=True, max_seconds=0)
    assert 1 <= counted.matches <= 1000
    assert not counted.is_complete
    assert count_matches(b"a" * 1000, "a", regex=True, max_seconds=float("inf")).is_complete


def test_modes() -> None:
    data = rb'{"caf\u00e9": "caf\u00e9"}'
    assert find_spans(data, "fé", mode="values") == [(4, 11), (17, 24)]
    assert find_spans(data, "^café$", regex=True, mode="values") == [(2, 11), (15, 24)]
    assert find_spans(data, "fé") == []
    with pytest.raises(InvalidArgument, match='mode must be "text" or "values"'):
        search(data, "a", mode="value")  # type: ignore[arg-type]


def test_paths() -> None:
    data = b'{"a": {"b~c": [1, "x"]}, "x": 2}'
    assert [match.path for match in search(data, "x", paths=True).matches] == ["/a/b~0c/1", "/x"]
    assert [match.path for match in search(data, "x").matches] == [None, None]
