"""`read_items` against slices of parsed items: pages tile, keep to their budget and need only their span."""

import json
import sys
from typing import Any

import pytest
from documents import documents, forms, main_array, values
from forebay import CorruptIndex, InvalidArgument, ItemIndex, get, index_items, read_items
from hypothesis import given
from hypothesis import strategies as st
from item_pages import MIN_BYTES, read_pages


def check_pages(data: bytes, index: ItemIndex, items: list[Any], limit: int, max_bytes: int) -> None:
    count = 0
    for page in read_pages(data, index, limit, max_bytes):
        content = json.loads(page.content)
        assert isinstance(content, list)
        expected = items[count : count + page.returned]
        count += page.returned
        if page.truncated:
            (cut,) = page.truncated
            whole = data[cut.byte_offset : cut.byte_offset + cut.size_bytes]
            assert (cut.index, len(content), [json.loads(whole)]) == (page.offset, 1, expected)
            assert cut.size_bytes + 2 > max_bytes
            assert (page.start, page.end) == (cut.byte_offset, cut.byte_offset + cut.size_bytes)
            assert whole == whole.strip()
        else:
            assert content == expected
            assert page.content[1:-1] == data[page.start : page.end] or index.kind == "ndjson"
    assert count == len(items)


@pytest.mark.slow
@given(documents, forms, st.integers(1, 9), st.integers(MIN_BYTES, 120))
def test_pages_tile(value: Any, form: dict[str, Any], limit: int, max_bytes: int) -> None:
    text = json.dumps(value, **form)
    array = main_array(text)
    check_pages(text.encode(), index_items(text), array.items if array else [], limit, max_bytes)


@pytest.mark.slow
@given(
    st.lists(values, min_size=2, max_size=12),
    st.sampled_from(["\n", "\r\n", " \n\n\t"]),
    st.integers(1, 9),
    st.integers(MIN_BYTES, 120),
)
def test_pages_of_rows_tile(rows: list[Any], end: str, limit: int, max_bytes: int) -> None:
    for ending in ("", end):
        data = (end.join(json.dumps(row, ensure_ascii=False) for row in rows) + ending).encode()
        check_pages(data, index_items(data), rows, limit, max_bytes)


ITEMS = [{"id": n, "text": "é" * (n % 7) * 10, "tags": ["a,b", "]"] * (n % 4)} for n in range(40)]


@pytest.mark.slow
@pytest.mark.parametrize("separators", [(",", ":"), (" , ", " : ")])
def test_every_budget_is_used(separators: tuple[str, str]) -> None:
    """A page that could have held one more item held it."""
    data = json.dumps(ITEMS, separators=separators, ensure_ascii=False).encode()
    index = index_items(data)
    for max_bytes in range(MIN_BYTES, 700):
        check_pages(data, index, ITEMS, 10, max_bytes)
        page = read_items(data, index, 3, 10, max_bytes)
        if page.returned < 10 and not page.truncated:
            following = read_items(data, index, 3, page.returned + 1)
            # White space in front of a comma may count.
            assert len(following.content) + len(separators[0]) - 1 > max_bytes


@pytest.mark.parametrize("data", [json.dumps(ITEMS), "\n".join(map(json.dumps, ITEMS)), json.dumps({"a": ITEMS})])
def test_the_last_items(data: str) -> None:
    index = index_items(data)
    for last in (0, 1, 5, 39, 40, 41, sys.maxsize, 1 << 70):
        page = read_items(data, index, last=last)
        expected = ITEMS[max(40 - last, 0) :]
        assert json.loads(page.content) == expected
        assert (page.offset, page.returned, page.next_offset) == (40 - len(expected), len(expected), None)
    page = read_items(data, index, last=10, max_bytes=200)
    assert (page.offset, page.next_offset) == (30, 30 + page.returned)


@pytest.mark.parametrize("offset", [40, 41, sys.maxsize, 1 << 70])
def test_past_the_end_is_an_empty_page(offset: int) -> None:
    data = json.dumps(ITEMS)
    page = read_items(data, index_items(data), offset)
    assert (page.content, page.offset, page.returned, page.next_offset) == (b"[]", 40, 0, None)


@pytest.mark.parametrize("data", ["{}", "[]", "7", '{"a": []}'])
def test_a_payload_without_items_gives_an_empty_page(data: str) -> None:
    page = read_items(data, index_items(data))
    assert (page.content, page.returned, page.total, page.next_offset) == (b"[]", 0, 0, None)


def test_an_item_over_the_budget_is_truncated_and_listed() -> None:
    large = {"id": 1, "text": "x" * 100_000, "list": list(range(1000))}
    data = json.dumps([0, large, 2])
    index = index_items(data)
    page = read_items(data, index, 0, 10, 500)
    assert (page.content, page.next_offset) == (b"[0]", 1)
    page = read_items(data, index, 1, 10, 500)
    (item,) = json.loads(page.content)
    assert (item["id"], page.returned, page.next_offset) == (1, 1, 2)
    assert 400 < len(page.content) <= 500
    (cut,) = page.truncated
    assert (cut.index, cut.byte_offset) == (1, 4)
    assert data[cut.byte_offset :][: cut.size_bytes].encode() == get(data, "/1")
    assert repr(page) == "ItemPage(offset=1, returned=1, total=3, next_offset=2)"


@pytest.mark.slow
def test_large_payloads_can_be_read_by_spans() -> None:
    items = [{"id": number, "text": "z" * (number * 37 % 900)} for number in range(2000)]
    wrapped = json.dumps({"meta": [1], "items": items}).encode()
    rows = b"\n".join(json.dumps(item).encode() for item in items)
    for data in (wrapped, rows):
        index = index_items(data)
        for limit, max_bytes in ((7, 1 << 20), (400, 3000), (2000, 200_000)):
            check_pages(data, index, items, limit, max_bytes)
        span = index.span(1000, 1)
        assert span.end - span.start < 2 * 65_536 + 1000
        assert (span.first <= 1000, span.count) == (True, 1)


def test_data_without_the_requested_items_is_refused() -> None:
    data = json.dumps([{"text": "x" * 1000}] * 1000).encode()
    index = index_items(data)
    span = index.span(900, 10)
    window = data[span.start : span.end]
    assert json.loads(read_items(window, index, 900, 10, base=span.start).content) == [{"text": "x" * 1000}] * 10
    for offset, base in ((900, 0), (0, span.start), (900, span.start + 1), (900, len(data)), (0, 1 << 70)):
        with pytest.raises(InvalidArgument, match=r"span\(\) says which bytes"):
            read_items(window, index, offset, 10, base=base)


def test_an_index_of_another_payload_is_noticed_or_does_no_harm() -> None:
    index = index_items(json.dumps([{"text": "x" * 1000}] * 1000))
    for data in (b"", b"[]", b"[1]", b"[" * 1_000_000):
        with pytest.raises((CorruptIndex, InvalidArgument)):
            read_items(data, index, 900)


@pytest.mark.parametrize("arguments", [{"limit": 0}, {"max_bytes": MIN_BYTES - 1}, {"max_bytes": 0}])
def test_a_page_without_room_for_anything_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="must be at least"):
        read_items("[1]", index_items("[1]"), **arguments)


def test_an_ndjson_value_that_the_data_cuts_is_not_shown() -> None:
    data = b'{"a":1}\n{"a":2}\n{"a":3}\n'
    index = index_items(data)
    for end in range(8, len(data)):
        page = read_items(data[:end], index)
        assert json.loads(page.content) == [{"a": n + 1} for n in range(data[:end].count(b"\n"))]
    with pytest.raises(InvalidArgument, match="span"):
        read_items(data[:5], index)
