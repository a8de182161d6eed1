"""Pages of a stored payload: they tile, fit, are valid, and cost no more than they show."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forebay
import pytest
from documents import documents, forms, main_array, pointers, values
from forebay import HandleCorrupt, HandleNotFound, InvalidArgument, InvalidFormat, PathNotFound, Store
from forebay.store import catalog as catalog_module
from forebay.store import reader as reader_module
from forebay.store.frames import FRAME_BYTES, TAIL_BYTES
from forebay.store.reader import RecentReads
from hypothesis import assume, example, given
from hypothesis import strategies as st
from stores import (
    RecordedReads,
    asks,
    content,
    file_of,
    heavy_items,
    limits,
    long_texts,
    make_request,
    pages,
    read_by_offset,
    store_at,
)
from texts import NASTY, nasty_text

budgets = st.integers(512, 2500)
RECORDS = [{"id": number, "name": f"name {number}", "text": "lorem ipsum " * 12} for number in range(120_000)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def store(root: Path) -> Iterator[Store]:
    with store_at(root) as opened:
        yield opened


@pytest.fixture(scope="module")
def records(store: Store) -> str:
    """Return the handle of a payload of many frames."""
    return store.put({"meta": {"page": 1}, "rows": RECORDS}).output_handle


def read_items(store: Store, handle: str, **ask: Any) -> list[Any]:
    """Read all items by pages; read those that were cut by the path on the page."""
    found: list[Any] = []
    for page in pages(store, handle, format="items", **ask):
        shown = content(page)
        assert len(shown) == page.returned
        for cut in page.truncated:
            item = read_by_offset(store, handle, page.path, cut)
            shown = [json.loads(item)]
            assert (cut["index"], cut["size_bytes"]) == (page.offset, len(item))
            if cut["path"] is None:
                # Only a very small page leaves out the path.
                assert ask.get("max_bytes", 1 << 16) < 1024 * (1 + ask.get("escape_levels", 0))
            else:
                assert item == store.get(handle, cut["path"])
        found += shown
    return found


@pytest.mark.slow
@given(documents, forms, asks)
def test_items_tile(store: Store, document: Any, form: dict[str, Any], ask: dict[str, Any]) -> None:
    text = json.dumps(document, **form)
    main = main_array(text)
    assume(main is not None and text[:1] in "[{")
    assert main is not None
    handle = store.put(text).output_handle
    assert read_items(store, handle, **ask) == main.items


@pytest.mark.slow
@given(heavy_items, st.sampled_from(["", "/rows", "/a~1b/~0"]), asks)
def test_items_larger_than_a_page_tile(store: Store, items: list[Any], path: str, ask: dict[str, Any]) -> None:
    wrapped: dict[str, Any] = {"": items, "/rows": {"rows": items}, "/a~1b/~0": {"a/b": {"~": items}}}
    handle = store.put(json.dumps(wrapped[path], ensure_ascii=False)).output_handle
    assert read_items(store, handle, **ask) == items
    assert read_items(store, handle, path=path, **ask) == items


@pytest.mark.slow
@given(st.lists(values, min_size=2, max_size=20), limits, budgets)
def test_ndjson_tiles(store: Store, items: list[Any], limit: int, budget: int) -> None:
    text = "\n\n".join(json.dumps(item) for item in items)
    handle = store.put(text, mime_type="application/x-ndjson").output_handle
    assert read_items(store, handle, limit=limit, max_bytes=budget) == items
    assert read_items(store, handle, path="", limit=limit, max_bytes=budget) == items


@pytest.mark.slow
@given(documents, forms, st.data())
def test_the_value_at_any_path_tiles(store: Store, document: Any, form: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(document, **form)
    handle = store.put(text, mime_type="application/json").output_handle
    path, value = data.draw(st.sampled_from(pointers(document)))
    budget = data.draw(budgets)
    stands = store.get(handle, path)
    assert json.loads(stands) == value
    # Only the whole payload is paged by the items inside it; a path to an object means the object.
    main = main_array(stands.decode()) if path == "" or isinstance(value, list) else None
    page = store.fetch(handle, path=path)
    assert page.path == path
    rest = len(stands) if main is None else len(stands) - (main.end - main.start)
    assert page.format == ("items" if main and (rest <= 1024 or 2 * rest <= len(stands)) else "text")
    if main is not None:
        assert read_items(store, handle, path=path, max_bytes=budget) == main.items
    assert "".join(map(content, pages(store, handle, path=path, format="text", max_bytes=budget))) == stands.decode()
    assert b"".join(map(content, pages(store, handle, path=path, format="bytes", max_bytes=budget))) == stands
    assert read_lines(store, handle, path=path, max_bytes=budget) == stands.decode()


def test_white_space_between_items_is_ignored(store: Store) -> None:
    items = list(range(50))
    text = "[" + ("," + " \n" * 60_000).join(map(str, items)) + "]"
    assert read_items(store, store.put(text).output_handle, max_bytes=1024) == items


@pytest.mark.slow
@given(st.lists(nasty_text | long_texts, max_size=10).map("".join), asks)
@example(NASTY * 40, make_request(4, 2, 0))
def test_text_tiles(store: Store, text: str, ask: dict[str, Any]) -> None:
    text = text.replace("\x00", "")
    handle = store.put(text, mime_type="text/plain").output_handle
    assert "".join(map(content, pages(store, handle, format="text", **ask))) == text


@pytest.mark.slow
@pytest.mark.parametrize("text", [NASTY.replace("\x00", "") * 20, "漢" * 700, "😀" * 500, "\x01" * 900])
@pytest.mark.parametrize("limit", [None, 1, 2, 3, 4, 5, 6, 7, 300])
def test_text_is_never_cut_inside_of_a_character(text: str, limit: int | None, store: Store) -> None:
    data = text.encode()
    handle = store.put(text, mime_type="text/plain").output_handle
    for offset in range(len(data)):
        page = store.fetch(handle, format="text", offset=offset, limit=limit, max_bytes=700)
        # An offset inside a character moves back to its first byte, which becomes the page's offset.
        assert page.offset <= offset < page.offset + 4
        assert data[page.offset : page.offset + page.returned].decode() == content(page)
        assert limit is None or page.returned <= max(limit, len(content(page)[:1].encode()))
        assert page.eof or (page.returned > 0 and page.next_offset == page.offset + page.returned)


def read_lines(store: Store, handle: str, **ask: Any) -> str:
    """Read all lines by pages; read the rest of those that were cut as text, from the byte offset on the page."""
    found = ""
    for page in pages(store, handle, format="lines", **ask):
        shown = content(page)
        assert page.truncated or len(split_lines(shown)) == page.returned
        found += shown
        for cut in page.truncated:
            assert cut["index"] == page.offset
            rest = cut["size_bytes"] - len(shown.encode())
            found += read_by_offset(
                store, handle, page.path, {"byte_offset": cut["byte_offset"], "size_bytes": rest}
            ).decode()
    return found


def split_lines(text: str) -> list[str]:
    """Split text at newlines only."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


@pytest.mark.slow
@given(st.lists(nasty_text | long_texts, max_size=10).map("".join), asks)
def test_lines_tile(store: Store, text: str, ask: dict[str, Any]) -> None:
    text = text.replace("\x00", "")
    handle = store.put(text, mime_type="text/plain").output_handle
    assert store.fetch(handle, format="lines").total == len(split_lines(text))
    assert read_lines(store, handle, **ask) == text


def test_lines_over_many_frames(store: Store) -> None:
    text = "".join(f"line {number} {'é' * (number % 97)}\n" for number in range(30_000))
    handle = store.put(text).output_handle
    assert read_lines(store, handle, limit=10_000) == text
    assert content(store.fetch(handle, format="lines", offset=29_999)) == split_lines(text)[-1]


def test_a_line_over_many_frames_is_cut_and_listed(store: Store) -> None:
    text = "short\n" + "é" * (2 * FRAME_BYTES) + "\nlast\n"
    handle = store.put(text).output_handle
    assert read_lines(store, handle) == text
    assert [page.returned for page in pages(store, handle, format="lines")] == [1, 1, 1]


@given(st.binary(max_size=3000), asks, st.none() | st.integers(1, 600))
def test_bytes_tile(store: Store, data: bytes, ask: dict[str, Any], limit: int | None) -> None:
    handle = store.put(data).output_handle
    ask = {**ask, "limit": limit}
    assert b"".join(map(content, pages(store, handle, format="bytes", **ask))) == data


def test_an_item_over_many_frames_is_cut_and_listed(store: Store) -> None:
    items = [1, {"big": "x" * (3 * FRAME_BYTES), "small": 2}, [3]]
    handle = store.put({"rows": items}).output_handle
    assert read_items(store, handle) == items
    assert [page.returned for page in pages(store, handle)] == [1, 1, 1]
    page = store.fetch(handle, offset=1)
    assert content(page)[0]["small"] == 2
    assert page.truncated[0]["path"] == "/rows/1"


@pytest.mark.parametrize("path", [None, "/rows"])
@pytest.mark.parametrize("offset", [0, 1, 59_999, 119_990, 119_999])
def test_a_page_can_start_at_any_offset(path: str | None, offset: int, store: Store, records: str) -> None:
    page = store.fetch(records, offset=offset, limit=20, path=path)
    assert content(page) == RECORDS[offset : offset + 20]
    assert page.total == len(RECORDS)


def test_the_array_of_the_items_can_be_read_as_text_by_its_path(store: Store) -> None:
    handle = store.put(b'{"a": 1, "rows": [1,\n 2]}').output_handle
    assert store.fetch(handle, path="/rows", format="text").content == "[1,\n 2]"
    assert store.fetch(handle, path="/rows", format="text").total == 7
    assert store.fetch(handle, path="/rows", format="lines", offset=1).content == " 2]"
    assert content(store.fetch(handle, path="/rows", format="bytes")) == b"[1,\n 2]"


@pytest.mark.parametrize(
    ("path", "format_", "shown"),
    [
        ("/list", "items", [1, {"x": 2}]),
        ("/list/1", "text", {"x": 2}),
        ("/list/1/x", "text", 2),
        ("/text", "text", "é"),
        ("/none", "text", None),
        ("/map", "text", {"deep": {"er": [5, 6, 7, 8, 9]}}),
        ("/a~1b", "text", 1),
        ("/m~0n", "text", 2),
        ("/", "text", 3),
        ("/empty", "items", []),
    ],
)
def test_paths(path: str, format_: str, shown: Any, store: Store) -> None:
    document = {
        "list": [1, {"x": 2}], "text": "é", "none": None, "map": {"deep": {"er": [5, 6, 7, 8, 9]}}, "a/b": 1, "m~n": 2,
        "": 3, "empty": [],
    }  # fmt: skip
    page = store.fetch(store.put(document).output_handle, path=path)
    assert (page.format, page.encoding, content(page), page.eof) == (format_, "json", shown, True)


@pytest.mark.parametrize("path", ["/rows/1", "/text", "/rows/1/deep"])
def test_a_value_at_a_path_is_json_if_it_fits_and_text_otherwise(path: str, store: Store) -> None:
    row = {"id": 1, "text": '"é\\\n' * 200, "deep": {"list": [1, {}] * 200, "map": {"a": 1}}}
    handle = store.put(json.dumps({"text": row["text"], "rows": [row] * 2}, indent=2)).output_handle
    value = store.get(handle, path)
    whole = store.fetch(handle, path=path)
    assert (whole.content, whole.unit, whole.returned, whole.total) == (value, "bytes", len(value), len(value))
    assert content(whole) == json.loads(value)
    escaped = json.dumps(whole.to_json().decode(), ensure_ascii=False).encode()[1:-1]
    for levels, size in ((0, len(whole.to_json())), (1, len(escaped))):
        assert store.fetch(handle, path=path, max_bytes=size, escape_levels=levels).encoding == "json"
        assert store.fetch(handle, path=path, max_bytes=size - 1, escape_levels=levels).encoding == "utf-8"
    assert store.fetch(handle, path=path, limit=len(value)).encoding == "json"
    parts = [page.content for page in pages(store, handle, path=path, limit=len(value) - 1)]
    assert "".join(map(str, parts)).encode() == value
    assert store.fetch(handle, path=path, format="text").content == value.decode()


@pytest.mark.parametrize("path", ["/nope", "/rows/99", "/rows/-", "/rows/01", "/rows/x", "/rows/0/a/b"])
def test_a_path_to_no_value_is_not_found(path: str, store: Store) -> None:
    handle = store.put({"rows": [{"a": 1}]}).output_handle
    with pytest.raises(PathNotFound):
        store.fetch(handle, path=path)
    with pytest.raises(PathNotFound):
        store.get(handle, path)


def test_an_invalid_path_is_refused(store: Store) -> None:
    with pytest.raises(forebay.ForebayError):
        store.fetch(store.put({"rows": [1]}).output_handle, path="rows")


def test_a_path_into_ndjson_starts_with_a_number(store: Store) -> None:
    handle = store.put(b'{"a":[1,2]}\n{"a":[3]}\n').output_handle
    assert content(store.fetch(handle, path="/1/a")) == [3]
    assert content(store.fetch(handle, path="/0")) == {"a": [1, 2]}
    with pytest.raises(PathNotFound):
        store.fetch(handle, path="/2")


def test_the_default_is_200_items_of_65536_bytes(store: Store, records: str) -> None:
    many = store.put(list(range(1000))).output_handle
    assert store.fetch(many).returned == 200
    assert store.fetch(many).limit == 200
    page = store.fetch(records, limit=1000)
    assert 60_000 < len(page.to_json()) <= 65_536


@pytest.mark.parametrize("format_", ["items", "lines", "text", "bytes"])
@pytest.mark.parametrize("past", [0, 1, 10**6, 1 << 70])
def test_an_offset_at_or_past_the_end_is_an_empty_page(format_: Any, past: int, store: Store) -> None:
    handle = store.put(b"[1,\n2,\n3]").output_handle
    total = store.fetch(handle, format=format_).total
    page = store.fetch(handle, format=format_, offset=total + past)
    assert (page.returned, page.total, page.next_offset, page.eof) == (0, total, None, True)
    assert content(page) in ([], "", b"")


@pytest.mark.parametrize("payload", [b"", b"[]", b'{"rows":[]}', b" "])
@pytest.mark.parametrize("format_", ["auto", "lines", "text", "bytes"])
def test_an_empty_payload_has_pages_too(payload: bytes, format_: Any, store: Store) -> None:
    page = store.fetch(store.put(payload).output_handle, format=format_)
    assert page.eof
    assert page.returned == page.total


@pytest.mark.parametrize(
    "ask",
    [
        {"offset": -1},
        {"limit": 0},
        {"limit": -5},
        {"format": "nope"},
        {"max_bytes": 511},
        {"max_bytes": 0},
        {"escape_levels": 3},
        {"escape_levels": -1},
        {"escape_levels": 2, "max_bytes": 1535},
        {"path": "/rows/0", "fields": ["a..b"]},
    ],
    ids=str,
)
def test_arguments_that_are_invalid_for_any_payload_are_refused(ask: dict[str, Any], store: Store) -> None:
    handle = store.put({"rows": [[1, 2, 3]]}).output_handle
    with pytest.raises(InvalidArgument):
        store.fetch(handle, **ask)


@pytest.mark.parametrize(
    ("payload", "ask", "says"),
    [
        (b"text", {"format": "items"}, "no items; use format='lines' or 'text'"),
        (b'{"a":1}', {"format": "items"}, "no items; use format='text' or 'lines', or name an array or object inside"),
        (b"\xff\x00", {"format": "items"}, "no items; use format='bytes'"),
        (b"\xff\x00", {"format": "text"}, "not text; use format='bytes'"),
        (b"\xff\x00", {"format": "lines"}, "not text; use format='bytes'"),
        (
            b"text",
            {"fields": ["a"]},
            "fields works only with format='items', and this page would have format='text'; omit fields",
        ),
        (
            b"[1]",
            {"fields": ["a"], "format": "text"},
            "omit fields, or use format='items'",
        ),
        (b"text", {"path": "/a"}, "a path leads into JSON, and this payload is not; leave the path out"),
    ],
)
def test_a_format_that_a_payload_does_not_have_is_refused(
    payload: bytes, ask: dict[str, Any], says: str, store: Store
) -> None:
    with pytest.raises(InvalidFormat, match=says) as raised:
        store.fetch(store.put(payload).output_handle, **ask)
    assert raised.value.code == "invalid_format_for_payload"


def test_a_budget_smaller_than_the_envelope_is_refused(store: Store) -> None:
    key = "k" * 600
    handle = store.put({key: [1, 2]}).output_handle
    with pytest.raises(InvalidArgument, match="max_bytes=512 is too small for a page of this payload; ask for more"):
        store.fetch(handle, path="/" + key, max_bytes=512)


def test_auto_is_items_then_text_then_bytes(store: Store) -> None:
    formats = {
        payload: store.fetch(store.put(payload).output_handle).format
        for payload in (b"[1]", b"[]", b'{"a":{"b":[]}}', b"1\n2", b'{"a":1}', b"text", b"", b"\xff")
    }
    assert list(formats.values()) == ["items", "items", "items", "text", "text", "text", "text", "bytes"]


@pytest.mark.parametrize(
    "document",
    [
        {"summary": "x" * 40_000 + " THE ANSWER", "errors": []},
        {f"u{number}": {"name": "n" * 90, "tags": ["a", "b"]} if number else "u" for number in range(500)},
        {"orders": ["o" * 50] * 90, "customers": ["c" * 50] * 89, "more": {"text": "m" * 1000}},
    ],
    ids=["an empty list", "a list in each of many", "two lists alike"],
)
def test_reading_to_the_end_returns_the_whole_payload_not_only_a_list_in_it(document: Any, store: Store) -> None:
    descriptor = store.put(document)
    assert (descriptor.item_count, descriptor.items_path) == (None, None)
    for ask in ({}, {"path": ""}):
        read = "".join(content(page) for page in pages(store, descriptor.output_handle, **ask))
        assert json.loads(read) == document
    page = store.fetch(descriptor.output_handle, format="items")
    assert page.items_path is not None
    assert json.loads(page.content) == json.loads(store.get(descriptor.output_handle, page.items_path))


@pytest.mark.slow
@pytest.mark.parametrize("offset", [0, 60_000, 119_950])
@pytest.mark.parametrize("ask", [{}, {"path": "/rows"}, {"format": "lines"}], ids=str)
def test_a_page_reads_the_tail_and_the_frames_it_touches(
    offset: int, ask: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = json.dumps({"rows": RECORDS}, indent=0).encode()
    assert len(data) > 20 << 20
    with store_at(tmp_path / "store", compression="none") as store:
        handle = store.put(data).output_handle
    with store_at(tmp_path / "store") as store:
        reads = RecordedReads(monkeypatch)
        cold = reads.measure(lambda: store.fetch(handle, offset=offset, limit=50, **ask))
        elsewhere = reads.measure(lambda: store.fetch(handle, offset=(offset + 40_000) % 120_000, limit=50, **ask))
        same_frames = reads.measure(lambda: store.fetch(handle, offset=(offset + 40_000) % 120_000, limit=49, **ask))
    overhead = 64
    assert cold[0] == 2
    assert cold[1] <= TAIL_BYTES + 2 * (FRAME_BYTES + overhead)
    assert elsewhere[0] == 1
    assert elsewhere[1] <= 2 * (FRAME_BYTES + overhead)
    assert same_frames == (0, 0)


@pytest.mark.parametrize("format_", ["text", "bytes"])
@pytest.mark.parametrize("part", [0, 0.5, 0.999])
def test_a_page_of_text_or_bytes_reads_only_the_frames_it_touches(
    format_: Any, part: float, root: Path, records: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store_at(root) as store:
        size = store.stat(records).size_bytes
        reads = RecordedReads(monkeypatch)
        ranges, read = reads.measure(lambda: store.fetch(records, offset=int(size * part), format=format_))
    assert ranges == 1
    assert read <= 2 * FRAME_BYTES


@pytest.mark.parametrize(
    "ask",
    [{"format": "items", "limit": 77}, {"format": "lines", "max_bytes": 5000}, {"format": "text"}, {"path": "/rows"}],
    ids=str,
)
def test_pages_in_order_read_each_frame_once(
    ask: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = json.dumps({"rows": RECORDS[:6000]}, indent=0).encode()
    assert len(data) > 6 * FRAME_BYTES
    with store_at(tmp_path / "store", compression="none") as store:
        handle = store.put(data).output_handle
        store.stat(handle)
        reads = RecordedReads(monkeypatch)
        shown = [page.content for page in pages(store, handle, **ask)]
    if "path" in ask or ask["format"] == "items":
        assert [item for items in shown for item in json.loads(items)] == RECORDS[:6000]
    else:
        assert "".join(map(str, shown)).encode() == data
    # What is around the items is read at the end: the first frame a second time.
    assert sum(length for _, length in reads.ranges) < len(data) + 2 * FRAME_BYTES


def test_a_page_from_frames_in_memory_is_that_of_its_file(tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store:
        descriptor = store.put(RECORDS[:100], principal="ann", ttl=1000)
        other = store.put([{**record, "name": "other"} for record in RECORDS[:100]]).output_handle
        handle = descriptor.output_handle
        assert json.loads(store.fetch(handle, limit=1, principal="ann").content) == RECORDS[:1]
        assert json.loads(store.fetch(other, limit=1).content)[0]["name"] == "other"
        with pytest.raises(HandleNotFound):
            store.fetch(handle, limit=1, principal="bob")
        file_of(tmp_path / "store", handle).unlink()
        with pytest.raises(HandleNotFound):
            store.fetch(handle, limit=1, principal="ann")


def test_the_frames_in_memory_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "_MAX_RECENT_BYTES", 1500)
    with store_at(tmp_path / "store") as store:
        handles = [store.put([number] * 250).output_handle for number in range(4)]
        reads = RecordedReads(monkeypatch)
        for handle in handles:
            assert reads.measure(lambda handle=handle: store.fetch(handle))[0] == 2
        assert [reads.measure(lambda handle=handle: store.fetch(handle))[0] for handle in handles[2:]] == [0, 0]
        assert reads.measure(lambda: store.fetch(handles[0]))[0] == 1


@pytest.mark.parametrize("format_", ["items", "lines"])
def test_a_page_that_is_too_large_once_escaped_is_not_read_twice(
    format_: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = store.put([{"quotes": '"' * 20, "number": number} for number in range(5000)]).output_handle
    store.stat(handle)
    ranges, _ = RecordedReads(monkeypatch).measure(
        lambda: store.fetch(handle, format=format_, max_bytes=8192, escape_levels=1)
    )
    assert ranges == 1


def test_the_cache_of_footers_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_module, "_MAX_CACHED_FOOTERS", 4)
    with store_at(tmp_path / "store") as store:
        handles = [store.put([number]).output_handle for number in range(10)]
        reads = RecordedReads(monkeypatch)
        for handle in handles:
            assert reads.measure(lambda handle=handle: store.stat(handle))[0] == 1
        assert [reads.measure(lambda handle=handle: store.stat(handle))[0] for handle in handles[-4:]] == [0] * 4
        assert reads.measure(lambda: store.stat(handles[0]))[0] == 1


def test_a_file_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store:
        mine, other = (store.put([number] * 100).output_handle for number in (1, 2))
        store.fetch(mine)
        store.search(mine, "1")
        path = file_of(tmp_path / "store", mine)
        path.write_bytes(file_of(tmp_path / "store", other).read_bytes())
        for method in (store.fetch, store.stat, store.open, store.outline):
            with pytest.raises(HandleCorrupt):
                method(mine)
        with pytest.raises(HandleCorrupt):
            store.search(mine, "1")


def test_a_handle_that_was_deleted_is_gone_at_once(store: Store) -> None:
    handle = store.put([1]).output_handle
    store.fetch(handle)
    store.delete(handle)
    with pytest.raises(HandleNotFound, match="call the tool again for a new handle"):
        store.fetch(handle)
    with pytest.raises(HandleNotFound):
        store.delete(handle)


def test_kept_frames_belong_to_one_version_of_a_payload() -> None:
    recent = RecentReads()

    def kept(version: str) -> tuple[int, bytes]:
        start, payload = recent.get("oh_a", version)
        return start, bytes(payload)

    recent.put("oh_a", "first", 10, memoryview(b"old"))
    assert kept("first") == (10, b"old")
    assert kept("second") == (0, b"")
    recent.remove("oh_a")
    assert kept("first") == (0, b"")
