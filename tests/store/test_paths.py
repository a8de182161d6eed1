"""Paths into a stored payload: every method reads the same value, and pages tell where their items are."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forebay import PathNotFound, Store
from forebay.store.frames import FRAME_BYTES, TAIL_BYTES
from hypothesis import given
from hypothesis import strategies as st
from stores import RecordedReads, content, pages, store_at


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store_at(tmp_path_factory.mktemp("store")) as opened:
        yield opened


def dump_members(members: list[tuple[str, str]]) -> str:
    return "{" + ", ".join(f'"{key}": {value}' for key, value in members) + "}"


# Objects with duplicate keys, which a Python dict cannot have.
twins = st.recursive(
    st.sampled_from(["1", '"x"', "[]", "[1, [2], 3]", '[{"a": [4]}, {"b": 5, "b": 6}]']),
    lambda inner: st.lists(st.tuples(st.sampled_from("ab"), inner), max_size=4).map(dump_members),
    max_leaves=12,
)
twin_paths = st.lists(st.sampled_from(["a", "b", "0", "1", "2"]), max_size=4).map(
    lambda keys: "".join(f"/{k}" for k in keys)
)


@given(twins, twin_paths)
def test_fetch_and_get_return_the_same_value(store: Store, text: str, path: str) -> None:
    handle = store.put(text, mime_type="application/json").output_handle
    try:
        meant = store.get(handle, path)
    except PathNotFound:
        with pytest.raises(PathNotFound):
            store.fetch(handle, path=path)
        return
    shown = b"".join(map(content, pages(store, handle, path=path, format="bytes")))
    assert shown == meant


@given(twins)
def test_the_path_of_an_item_returns_the_item(store: Store, text: str) -> None:
    handle = store.put(text, mime_type="application/json").output_handle
    where = store.stat(handle).items_path
    if where is not None:
        items = content(store.fetch(handle, format="items"))
        assert [json.loads(store.get(handle, f"{where}/{number}")) for number in range(len(items))] == items
        assert content(store.fetch(handle, path=where)) == items
        with pytest.raises(PathNotFound, match="nothing at path"):
            store.get(handle, f"{where}/{len(items)}")


def test_a_path_uses_the_first_of_repeated_keys_except_on_the_way_to_the_items(store: Store) -> None:
    handle = store.put(b'{"a":{"x":1},"a":{"x":2},"rows":[1],"rows":[1,2,3]}').output_handle
    assert content(store.fetch(handle)) == [1, 2, 3]
    for path, value in {"/a": b'{"x":1}', "/a/x": b"1", "/rows": b"[1,2,3]", "/rows/2": b"3"}.items():
        assert store.get(handle, path) == value
        assert content(store.fetch(handle, path=path, format="bytes")) == value


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/rows/60000", "/rows/60000/tags", "/rows/60000/tags/1", "/rows/99999999/a"])
def test_a_path_into_an_item_reads_the_frames_that_hold_it(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"id": number, "tags": ["x" * 100, number]} for number in range(70_000)]
    with store_at(tmp_path / "store", compression="none") as store:
        handle = store.put({"rows": rows}).output_handle
    with store_at(tmp_path / "store") as store:
        reads = RecordedReads(monkeypatch)

        def read() -> None:
            if "99999999" in path:
                with pytest.raises(PathNotFound, match="nothing at path '/rows/99999999/a'; outline"):
                    store.fetch(handle, path=path)
            else:
                store.fetch(handle, path=path)
                store.get(handle, path)

        ranges, size = reads.measure(read)
    assert ranges <= 3
    assert size <= TAIL_BYTES + 4 * (FRAME_BYTES + 64)


def test_a_path_into_ndjson_reads_only_the_frames_it_touches(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = store.put(b"".join(b'{"id":%d,"a":[%d]}\n' % (n, n) for n in range(200_000))).output_handle
    store.stat(handle)
    reads = RecordedReads(monkeypatch)
    assert reads.measure(lambda: store.fetch(handle, path="/150000/a"))[0] == 1
    assert content(store.fetch(handle, path="/150000/a")) == [150_000]


@pytest.mark.parametrize("path", [None, ""])
def test_a_page_has_the_path_of_its_items(path: str | None, store: Store) -> None:
    handle = store.put({"meta": {"page": 1}, "a/b": {"orders": [1, 2, 3]}}).output_handle
    page = store.fetch(handle, path=path, offset=1)
    assert (page.path, page.items_path) == (path, "/a~1b/orders")
    assert json.loads(page.to_json())["items_path"] == "/a~1b/orders"
    assert store.fetch(handle, path=page.path, offset=1) == page
    same = store.fetch(handle, path=page.items_path, offset=1)
    assert (same.content, same.offset, same.total, same.items_path) == (page.content, 1, 3, None)


@pytest.mark.parametrize(
    ("payload", "ask"),
    [
        ([1, 2], {}),
        ([1, 2], {"path": ""}),
        ({"rows": [1, 2]}, {"path": "/rows"}),
        ({"rows": [1, 2]}, {"format": "text"}),
        ({"a": 1}, {}),
        (b"1\n2\n", {}),
        # A path so long that it would leave no room for the items.
        ({"k" * 400: [1, 2]}, {"max_bytes": 512}),
    ],
)
def test_a_page_has_no_items_path_if_the_value_is_the_list(payload: Any, ask: dict[str, Any], store: Store) -> None:
    page = store.fetch(store.put(payload).output_handle, **ask)
    assert page.items_path is None
    assert "items_path" not in json.loads(page.to_json())
