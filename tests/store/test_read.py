"""Searching a stored payload, reading it as a file, its metadata, and the cache of payloads."""

import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forebay
import pytest
from forebay import OPERATOR, HandleCorrupt, HandleNotFound, InvalidArgument, InvalidFormat, Store
from forebay.store import catalog as catalog_module
from hypothesis import given
from hypothesis import strategies as st
from peak import measured
from stores import asks, store_at, whole


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store_at(tmp_path_factory.mktemp("store")) as opened:
        yield opened


def search_all(store: Store, handle: str, pattern: str, **ask: Any) -> list[dict[str, Any]]:
    start: int | None = 0
    found: list[dict[str, Any]] = []
    totals: set[int] = set()
    while start is not None:
        page = store.search(handle, pattern, offset=start, **ask)
        sent = page.to_json().decode()
        for _ in range(ask.get("escape_levels", 0)):
            sent = json.dumps(sent, ensure_ascii=False)[1:-1]
        assert len(sent.encode()) <= ask.get("max_bytes", 65536)
        assert page.eof == (page.next_offset is None)
        assert len(page.matches) <= ask.get("limit", 50)
        assert page.next_offset is None or page.next_offset > start
        assert not page.total_is_lower_bound
        totals.add(page.total_matches)
        found += json.loads(page.to_json())["matches"]
        start = page.next_offset
    assert totals == {len(found)}
    return found


@given(
    st.lists(st.text('abé"\\\n漢', max_size=30), max_size=30),
    st.sampled_from(["a", "ab", "é", "\\n", "a+", "[ab]b?", '^"', "漢|\\\\"]),
    st.booleans(),
    asks,
    st.integers(0, 200),
)
def test_matches_tile(
    store: Store, items: list[str], pattern: str, regex: bool, ask: dict[str, Any], context: int
) -> None:
    written = [json.dumps(item, ensure_ascii=False).encode() for item in items]
    data = b"[" + b",\n".join(written) + b"]"
    starts = [1 + sum(len(item) + 2 for item in written[:number]) for number in range(len(written))]
    handle = store.put(data).output_handle
    expression = pattern if regex else re.escape(pattern)
    expected = [
        (
            match.start(),
            match.end() - match.start(),
            # White space before an item counts as part of it.
            next((i for i, start in enumerate(starts) if match.start() < start + len(written[i])), None),
        )
        for match in re.finditer(expression.encode(), data, re.MULTILINE)
    ]
    found = search_all(store, handle, pattern, regex=regex, context=context, **{**ask, "limit": ask["limit"] or 50})
    assert [(match["byte_offset"], match["size_bytes"], match["item"]) for match in found] == expected


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_full_page_of_matches_leads_to_the_next_match(level: int, store: Store) -> None:
    handle = store.put("aaa " * 200).output_handle
    found = search_all(store, handle, "a+", regex=True, max_bytes=512 * (1 + level), escape_levels=level)
    assert [(match["byte_offset"], match["size_bytes"]) for match in found] == [(4 * i, 3) for i in range(200)]


def test_matches_in_text_tell_their_line(store: Store) -> None:
    handle = store.put("one\ntwo two\nthree\n").output_handle
    found = search_all(store, handle, "two", limit=1)
    assert [(match["line"], match["byte_offset"]) for match in found] == [(1, 4), (1, 8)]


def test_matches_in_binary(store: Store) -> None:
    found = search_all(store, store.put(b"\xff\x00needle\xff").output_handle, "needle")
    assert [match["byte_offset"] for match in found] == [2]


def test_a_budget_too_small_for_a_match_is_refused(store: Store) -> None:
    handle = store.put("x" * 5000).output_handle
    with pytest.raises(InvalidArgument, match="max_bytes"):
        store.search(handle, "x" * 600, max_bytes=512)


@pytest.mark.parametrize(
    "ask",
    [{"offset": -1}, {"limit": 0}, {"context": -1}, {"max_bytes": 1}, {"escape_levels": 3}, {"escape_levels": -1}],
    ids=str,
)
def test_arguments_that_are_invalid_for_any_search_are_refused(ask: dict[str, Any], store: Store) -> None:
    with pytest.raises(InvalidArgument):
        store.search(store.put("text").output_handle, "t", **ask)
    with pytest.raises(forebay.InvalidPattern):
        store.search(store.put("text").output_handle, "(", regex=True)


def test_outline_and_get(store: Store) -> None:
    rows = [{"id": number, "name": f"name {number}"} for number in range(80_000)]
    records = store.put({"rows": rows}).output_handle
    assert store.outline(records).endswith(f"×{len(rows)}}}")
    assert len(store.outline(records, 40).encode()) <= 40
    assert json.loads(store.get(records, "/rows/77777")) == rows[77777]
    text = store.put("text").output_handle
    with pytest.raises(InvalidFormat, match="only JSON, CSV and TSV have an outline"):
        store.outline(text)
    with pytest.raises(InvalidFormat, match="a path leads into JSON"):
        store.get(text, "/a")


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from([0, 1, 2]), st.integers(-800_000, 800_000), st.integers(0, 300_000))))
def test_an_open_payload_is_a_file(store: Store, moves: list[tuple[int, int, int]]) -> None:
    data = bytes(range(256)) * 2500
    handles.setdefault("file", store.put(data).output_handle)
    plain = io.BytesIO(data)
    with store.open(handles["file"]) as file:
        for whence, offset, size in moves:
            try:
                place = plain.seek(offset, whence)
            except (ValueError, OSError):
                place = None
            # BytesIO stops at 0 where files raise an error.
            start = {0: 0, 1: file.tell(), 2: len(data)}[whence]
            if place is None or start + offset < 0:
                with pytest.raises((ValueError, OSError)):
                    file.seek(offset, whence)
                plain.seek(file.tell())
                continue
            assert file.seek(offset, whence) == place == file.tell()
            assert file.read(size) == plain.read(size)
            assert file.tell() == plain.tell()


handles: dict[str, str] = {}


def test_an_open_payload_behaves_like_a_file(store: Store) -> None:
    handle = store.put(b"first\nsecond\n").output_handle
    with store.open(handle) as file:
        assert (file.readable(), file.seekable(), file.writable()) == (True, True, False)
        assert list(file) == [b"first\n", b"second\n"]
        file.seek(-7, io.SEEK_END)
        buffer = bytearray(20)
        assert file.readinto(buffer) == 7  # type: ignore[attr-defined]
        assert buffer[:7] == b"second\n"
        assert file.read(5) == b""
        with pytest.raises(ValueError, match="whence"):
            file.seek(0, 7)
    assert file.closed
    with pytest.raises(ValueError, match="closed"):
        file.read()
    with io.TextIOWrapper(store.open(handle)) as text:
        assert text.read() == "first\nsecond\n"


def test_an_open_payload_stays_readable_when_it_is_deleted(store: Store) -> None:
    data = bytes(range(256)) * 5000
    handle = store.put(data).output_handle
    with store.open(handle) as file:
        store.delete(handle)
        assert file.read() == data


def test_stat_returns_the_metadata(store: Store) -> None:
    stored = store.stat(store.put({"rows": [1, 2]}, source_tool="tool", principal="ann").output_handle, principal="ann")
    assert (stored.item_count, stored.items_path, stored.line_count) == (2, "/rows", 1)
    assert (stored.nature, stored.mime_type, stored.size_bytes) == ("json", "application/json", 14)
    assert (stored.source_tool, stored.principal) == ("tool", "ann")
    assert stored.created_at < stored.expires_at
    assert json.loads(json.dumps(stored.to_dict()))["output_handle"] == stored.output_handle


def test_list_shows_the_payloads_and_their_principals(tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store:
        assert list(store.list(principal=forebay.OPERATOR)) == []
        mine, anns = store.put([1]).output_handle, store.put([2], principal="ann").output_handle
        gone = store.put([3]).output_handle
        store.delete(gone)
        assert {one.output_handle for one in store.list()} == {mine}
        assert {one.output_handle for one in store.list(principal="ann")} == {anns}
        assert {one.output_handle for one in store.list(principal=forebay.OPERATOR)} == {mine, anns}
        assert list(store.list(principal="bob")) == []


@pytest.mark.parametrize("principal", ["bob", None, "", "ANN", "ann "])
def test_a_handle_of_another_principal_is_not_found(principal: str | None, store: Store) -> None:
    handle = store.put([1], principal="ann").output_handle
    unknown = "oh_" + "A" * 12
    for method in (store.fetch, store.stat, store.open, store.delete, store.outline):
        with pytest.raises(HandleNotFound) as theirs:
            method(handle, principal=principal)
        with pytest.raises(HandleNotFound) as nobodys:
            method(unknown, principal=principal)
        assert str(theirs.value).replace(handle, "") == str(nobodys.value).replace(unknown, "")
    assert whole(store, handle) == b"[1]"


def test_a_path_to_an_object_returns_the_whole_object(store: Store) -> None:
    handle = store.put({"orders": [{"id": 1, "tags": []}, {"id": 2, "tags": ["a"]}]}).output_handle
    assert store.fetch(handle, path="/orders/0").content == b'{"id":1,"tags":[]}'
    assert store.fetch(handle, path="/orders/1").content == b'{"id":2,"tags":["a"]}'
    assert store.fetch(handle, path="/orders/1/tags").content == b'["a"]'


def test_a_streamed_payload_is_outlined_by_its_first_items(store: Store) -> None:
    rows = b",".join(b'{"id":%d}' % n for n in range(200_000))
    chunks = iter([b'{"meta":{"n":1},"a/b":{"rows":[', rows, b']},"tail":2}'])
    expected = '{meta: {n: int}, "a/b": {rows: [{id: int}] ×200000}, tail: int}'
    assert store.put(chunks).outline == expected


def test_only_the_operator_can_delete_a_damaged_payload(tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store:
        handle = store.put(b"x" * 5000).output_handle
        (file,) = tmp_path.rglob(f"{handle}.*")
        file.write_bytes(file.read_bytes()[:-1])
        with pytest.raises(HandleCorrupt):
            store.delete(handle)
        store.delete(handle, principal=OPERATOR)
        assert not file.exists()


def test_a_pattern_counts_as_part_of_its_page(store: Store) -> None:
    handle = store.put(b"some text").output_handle
    with pytest.raises(InvalidArgument, match="max_bytes=1000 is too small for this pattern"):
        store.search(handle, "z" * 100_000, max_bytes=1000)
    assert store.search(handle, "text", offset=10**30).matches == ()


@pytest.mark.parametrize(
    "ask",
    [
        lambda store, handle: store.fetch(handle, path="/\ud800"),
        lambda store, handle: store.fetch(handle, fields=["\ud800"]),
        lambda store, handle: store.fetch(handle, format="q" * 200_000),
        lambda store, handle: store.fetch(handle, offset=-(10**4000)),
        lambda store, handle: store.search(handle, "\ud800"),
        lambda store, handle: store.get(handle, "/\ud800"),
    ],
)
def test_errors_for_invalid_arguments_are_short(ask: Callable[[Store, str], object], store: Store) -> None:
    handle = store.put([{"a": 1}]).output_handle
    with pytest.raises(InvalidArgument) as raised:
        ask(store, handle)
    assert len(str(raised.value)) < 200


@pytest.mark.posix
def test_a_search_does_not_build_more_matches_than_fit_on_a_page(tmp_path: Path) -> None:
    script = """
import forebay
with forebay.open_store(sys.argv[1], sweep_interval=0) as store:
    handle = store.put(b"y" * (16 << 20)).output_handle
    store.search(handle, "y", limit=1)
    before = peak()
    few = store.search(handle, "y", limit=100, context=10**7)
    many = store.search(handle, "y", limit=10**8, context=0)
    print(peak() - before, len(few.to_json()), len(many.to_json()), len(many.matches))
"""
    grown, few, many, matches = measured(script, (tmp_path / "store").as_uri())
    assert max(few, many) <= 65536
    assert matches > 600
    assert grown < 8 << 20


MAX_CACHED_BYTES = 250


def cached_sizes(store: Store) -> list[int]:
    sizes = [memoryview(data).nbytes for _, data in store._catalog._payloads._entries.values()]
    assert len(sizes) == 1 or sum(sizes) <= MAX_CACHED_BYTES
    return sizes


def test_the_cache_of_payloads_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_module, "_MAX_CACHED_PAYLOAD_BYTES", MAX_CACHED_BYTES)
    with store_at(tmp_path / "store") as store:
        handles = [store.put(b"[" + b"1," * 49 + b"1]").output_handle for _ in range(4)]
        for handle in handles:
            store.outline(handle)
        assert cached_sizes(store) == [101, 101]
        store.search(handles[-1], "1")
        assert len(cached_sizes(store)) == 2
        store.delete(handles[-1])
        assert len(cached_sizes(store)) == 1
        larger_than_all = store.put(b"[" + b"1," * 999 + b"1]").output_handle
        store.outline(larger_than_all)
        assert cached_sizes(store) == [2001]
