"""`index_items` and `ItemIndexer` against arrays found by plain Python, with input in pieces of every size."""

import functools
import json
import mmap
from pathlib import Path
from typing import Any

import pytest
from documents import documents, forms, main_array, pointers, values
from forebay import (
    CorruptIndex,
    ForebayError,
    InvalidArgument,
    InvalidJSON,
    ItemIndex,
    ItemIndexer,
    PathNotFound,
    index_items,
    index_lines,
    read_items,
)
from hypothesis import given, settings
from hypothesis import strategies as st

Outcome = tuple[str, bytes | int]


def index_or_error(*pieces: bytes, path: str | None = None, validate: bool = True) -> Outcome:
    """Return the index, or the error and its byte."""
    try:
        indexer = ItemIndexer(path, validate=validate)
        for piece in pieces:
            indexer.feed(piece)
        return "index", indexer.finish().to_bytes()
    except ForebayError as error:
        return type(error).__name__, error.index


@pytest.mark.slow
@given(documents, forms)
def test_finds_the_main_array(value: Any, form: dict[str, Any]) -> None:
    text = json.dumps(value, **form)
    index = index_items(text)
    expected = main_array(text)
    if expected is None:
        assert (len(index), index.kind, index.path) == (0, None, None)
    else:
        assert (index.kind, index.path, index.start, index.end) == ("array", expected.path, *expected[1:3])
        assert len(index) == len(expected.items)
    assert index_items(text.encode(), validate=False) == index


@pytest.mark.slow
@given(documents, forms)
def test_finds_the_array_or_object_at_a_path(value: Any, form: dict[str, Any]) -> None:
    data = json.dumps(value, **form).encode()
    for path, expected in pointers(value):
        for validate in (True, False):
            if isinstance(expected, list | dict):
                index = index_items(data, path, validate=validate)
                kind = "array" if isinstance(expected, list) else "map"
                assert (index.kind, index.path, len(index)) == (kind, path, len(expected))
                assert json.loads(data[index.start : index.end]) == expected
            else:
                with pytest.raises(PathNotFound, match="outline"):
                    index_items(data, path, validate=validate)


@pytest.mark.parametrize("path", ["/a/1", "/b", "/a/0/0", "/a/-", "/a/00", "/c/x"])
def test_a_path_must_lead_to_an_array(path: str) -> None:
    for validate in (True, False):
        with pytest.raises(PathNotFound):
            index_items('{"a": [[]], "c": "x"}', path, validate=validate)


@pytest.mark.parametrize("path", ["a", "/~2", "/a~", " "])
def test_a_path_is_a_pointer(path: str) -> None:
    with pytest.raises(InvalidArgument, match="JSON Pointer"):
        index_items("[]", path)
    with pytest.raises(InvalidArgument, match="JSON Pointer"):
        ItemIndexer(path)


def test_the_main_array_is_the_first_of_equals_and_at_most_four_keys_deep() -> None:
    assert index_items('{"a": {"b": [1]}, "c": [2], "d": [3]}').path == "/a/b"
    assert index_items('{"a": [1], "b": [ 2 ]}').path == "/b"
    assert index_items('{"a": {"b": {"c": {"d": [1]}}}, "e": []}').path == "/a/b/c/d"
    assert index_items('{"a": {"b": {"c": {"d": {"e": [1]}}}}, "e": []}').path == "/e"
    assert index_items('{"a": [[[1, 2, 3]]], "b": 1}').path == "/a"
    assert index_items('{"a/b": {"~": {"": [1]}}}').path == "/a~1b/~0/"
    assert index_items('{"\\u00e9\\ud83d\\ude00": [1]}').path == "/é😀"


ends = st.sampled_from(["\n", "\r\n", "\n\n", "\n \t\r\n", " \n "])


@pytest.mark.slow
@given(
    st.lists(values, min_size=2, max_size=8), st.lists(ends, min_size=8, max_size=8), st.sampled_from(["", "\n", " "])
)
def test_values_on_separate_lines_are_items(rows: list[Any], ends: list[str], start: str) -> None:
    text = start + "".join(json.dumps(row, ensure_ascii=False) + end for row, end in zip(rows, ends, strict=False))
    for data in (text, text.rstrip()):
        index = index_items(data)
        assert (index.kind, index.path, len(index)) == ("ndjson", "", len(rows))
        assert index_items(data, validate=False) == index
        assert index.start == len(start)
        assert index.end == len(data.encode())


def test_one_value_is_not_ndjson_and_an_ndjson_value_is_on_one_line() -> None:
    assert index_items("[1, 2]\n\n").kind == "array"
    assert index_items("\r\n7\r\n").kind is None
    for data, byte in (("1 2", 2), ("[1,\n2]\n3", 7), ("1\n[2,\n3]", 5), ("1\n2 3", 4), ("1\n,2", 2)):
        with pytest.raises(InvalidJSON) as caught:
            index_items(data)
        assert caught.value.index == byte, data


SMALL = [
    '{"é": {"a/b~": [1, "x\\\\\\"]", {"k": [null, -1.5e+3]}], "s": "\\ud83d\\ude00"}, "t": [true, false]}',
    '[[], {}, "", [[["漢"]]], 0]',
    '{"a": 1}\r\n\n [2, 3] \n"x\\\\"\n\n',
    '  {"items" : [ ] , "n" : "[,]" }  ',
    "12.5e3",
    "[1, 2",
    '{"a": [1, 2}}',
    '["\\u12g4"]',
    "[tru]",
    '["\t"]',
    "[01]",
    "1 2",
    '{"a" 1}',
    "",
]


@pytest.mark.parametrize("validate", [True, False])
@pytest.mark.parametrize("path", [None, "/é/a~1b~0", ""])
@pytest.mark.parametrize("text", SMALL)
def test_every_cut_gives_the_same_index(text: str, path: str | None, validate: bool) -> None:
    data = text.encode()
    whole = index_or_error(data, path=path, validate=validate)
    for cut in range(len(data) + 1):
        assert index_or_error(data[:cut], data[cut:], path=path, validate=validate) == whole
    assert index_or_error(*(data[i : i + 1] for i in range(len(data))), path=path, validate=validate) == whole


@pytest.mark.slow
@given(documents, forms, st.data())
def test_pieces_of_any_document_give_the_same_index(value: Any, form: dict[str, Any], draw: st.DataObject) -> None:
    data = json.dumps(value, **form).encode()
    at = draw.draw(st.integers(0, len(data)))
    noise = draw.draw(st.binary(max_size=2))
    for payload in (data, data[:at] + noise + data[at + 1 :]):
        cuts = sorted(draw.draw(st.lists(st.integers(0, len(payload)), max_size=5)))
        pieces = [payload[start:end] for start, end in zip([0, *cuts], [*cuts, len(payload)], strict=True)]
        for validate in (True, False):
            assert index_or_error(*pieces, validate=validate) == index_or_error(payload, validate=validate)


def test_an_error_comes_with_the_piece_it_is_in() -> None:
    indexer = ItemIndexer()
    indexer.feed("[1, 2, ")
    with pytest.raises(InvalidJSON) as caught:
        indexer.feed("]" + " " * 100)
    assert caught.value.index == 7
    for use in (lambda: indexer.feed("1"), indexer.finish):
        with pytest.raises(InvalidArgument, match="make a new one"):
            use()


def test_nothing_can_be_fed_after_the_end() -> None:
    indexer = ItemIndexer()
    indexer.feed("[1]")
    assert len(indexer.finish()) == 1
    for use in (lambda: indexer.feed("1"), indexer.finish):
        with pytest.raises(InvalidArgument, match="make a new one"):
            use()


def large_payloads() -> list[bytes]:
    """Return payloads of several blocks: small items, large items, rows, and much white space."""
    small = json.dumps([{"id": number, "name": "x" * (number % 50)} for number in range(20_000)]).encode()
    big = json.dumps([{"text": "y" * 150_000, "n": number} for number in range(12)]).encode()
    rows = b"\n".join(b'{"id": %d}' % number for number in range(60_000))
    spaced = b"[" + b",".join(b" " * (number % 3000) + b"%d" % number for number in range(500)) + b"\n" * 70_000 + b"]"
    return [small, b'{"a": ' + big + b"}", rows, spaced]


@pytest.mark.parametrize("data", large_payloads(), ids=["small", "big", "rows", "spaced"])
@pytest.mark.parametrize("size", [1000, 4096, 65_535, 65_536, 65_537])
def test_pieces_of_large_payloads_give_the_same_index(data: bytes, size: int) -> None:
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert index_or_error(*pieces) == index_or_error(data)
    assert index_or_error(*pieces, validate=False) == index_or_error(data)


@pytest.mark.slow
@given(documents, forms)
def test_an_index_can_be_stored_and_loaded(value: Any, form: dict[str, Any]) -> None:
    index = index_items(json.dumps(value, **form))
    loaded = ItemIndex.from_bytes(index.to_bytes())
    assert loaded == index
    assert (len(loaded), loaded.kind, loaded.path) == (len(index), index.kind, index.path)
    assert (loaded.start, loaded.end) == (index.start, index.end)
    assert index != index_lines(b"never the same")


def test_bytes_that_are_not_an_index_are_refused() -> None:
    data = large_payloads()[0]
    written = index_items(data).to_bytes()
    for cut in range(len(written)):
        with pytest.raises(CorruptIndex, match="index the payload again"):
            ItemIndex.from_bytes(written[:cut])
    for other in (written + b"\0", b"", b"hgi2" + written[4:], data[:1000]):
        with pytest.raises(CorruptIndex):
            ItemIndex.from_bytes(other)


@functools.cache
def write_large_index() -> tuple[bytes, bytes]:
    data = large_payloads()[0]
    return data, index_items(data).to_bytes()


@pytest.mark.slow
@settings(max_examples=300)
@given(st.integers(0, 10**9), st.integers(0, 7), st.integers(0, 25_000))
def test_a_damaged_index_does_no_harm(place: int, bit: int, offset: int) -> None:
    data, index_bytes = write_large_index()
    written = bytearray(index_bytes)
    written[place % len(written)] ^= 1 << bit
    try:
        index = ItemIndex.from_bytes(bytes(written))
        page = read_items(data, index, offset, 5, 1000)
    except (CorruptIndex, InvalidArgument, InvalidJSON):
        return
    assert len(page.content) <= 1000


def test_every_read_only_payload(tmp_path: Path) -> None:
    data = large_payloads()[0]
    path = tmp_path / "payload.json"
    path.write_bytes(data)
    expected = index_items(data)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for payload in (mapped, memoryview(data), memoryview(bytearray(data)).toreadonly(), data.decode()):
            assert index_items(payload) == expected
            indexer = ItemIndexer()
            indexer.feed(payload)
            assert indexer.finish() == expected
    with pytest.raises(TypeError, match="read-only"):
        index_items(bytearray(data))


def test_more_items_than_24_bits_count() -> None:
    count = 17_000_000
    data = b"[" + b"0," * (count - 1) + b"0]"
    for validate in (True, False):
        assert len(index_items(data, validate=validate)) == count


@pytest.mark.parametrize("data", [*large_payloads(), b"[" + b"0," * 2_000_000 + b"0]", b"[]", b"{}"])
def test_an_index_is_small(data: bytes) -> None:
    for index in (index_items(data), index_lines(data)):
        assert len(index.to_bytes()) <= 0.0005 * len(data) + 64


def test_repr() -> None:
    assert repr(index_items('{"a": [1, 2]}')) == 'ItemIndex(len=2, kind="array", path="/a")'
    assert repr(index_items("{}")) == "ItemIndex(len=0, kind=None, path=None)"
    assert repr(index_items("[1]").span(0, 1)) == "Span(start=1, end=3, first=0, count=1)"
