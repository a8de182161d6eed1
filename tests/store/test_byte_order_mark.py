"""JSON that starts with a byte order mark is JSON, and no byte of it is lost."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from documents import values
from forebay import Store
from forebay.outputs.contract import retrieve_artifact, store_artifact, wrap_response
from forebay.store.payload import CHUNK_BYTES
from hypothesis import given
from hypothesis import strategies as st
from stores import content, pages, store_at, whole

MARK = b"\xef\xbb\xbf"
ROWS = [{"id": i, "name": f"Nr {i}", "tags": ["a", "b"]} for i in range(300)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store_at(tmp_path_factory.mktemp("store")) as store:
        yield store


@given(values, st.integers(1, 5), st.booleans())
def test_pages_are_those_of_the_same_json_without_the_mark(
    store: Store, value: Any, cut: int, is_streamed: bool
) -> None:
    data = json.dumps([value] * 3).encode()
    marked = MARK + data
    plain = store.put(data)
    put = store.put(iter([marked[:cut], marked[cut:]]) if is_streamed else marked)
    assert (put.mime_type, put.item_count, put.items_path) == ("application/json", 3, plain.items_path)
    assert put.outline == plain.outline
    assert whole(store, put.output_handle) == marked
    read, expected = (
        [content(page) for page in pages(store, handle, limit=2)] for handle in (put.output_handle, plain.output_handle)
    )
    assert read == expected
    for pointer in ("", "/2"):
        assert store.get(put.output_handle, pointer) == store.get(plain.output_handle, pointer)


def test_every_way_to_read_marked_json(store: Store) -> None:
    marked = MARK + json.dumps({"note": "n" * 3000, "rows": ROWS}, indent=1).encode()
    descriptor = store.put(marked)
    handle = descriptor.output_handle
    assert (descriptor.item_count, descriptor.items_path, descriptor.size_bytes) == (300, "/rows", len(marked))
    assert descriptor.preview is not None
    assert descriptor.preview.startswith("{")
    assert descriptor.outline == store.outline(handle)
    assert store.outline(handle).startswith("{note: str, rows: [{id: int")
    assert json.loads(store.get(handle, "/rows/7/name")) == "Nr 7"
    assert json.loads(store.get(handle, "")) == json.loads(marked)
    assert json.loads(store.fetch(handle, path="/note", format="text").content) == "n" * 3000
    page = store.fetch(handle, offset=299, fields=["id"])
    assert (page.content, page.not_in_items) == (b'[{"id":299}]', {"size_bytes": 3002, "paths": {"/note": 3002}})
    (match,) = store.search(handle, '"Nr 123"').matches
    assert match["item"] == 123
    assert marked[match["byte_offset"] :].startswith(b'"Nr 123"')
    assert content(store.fetch(handle, format="bytes", limit=4)) == MARK + b"{"
    assert b"".join(content(page) for page in pages(store, handle, format="bytes", max_bytes=900)) == marked
    assert "".join(content(page) for page in pages(store, handle, format="text", max_bytes=900)).encode() == marked


def test_marked_ndjson_and_large_streams(store: Store) -> None:
    rows = [json.dumps(row).encode() for row in ROWS * 90]
    marked = MARK + b"\n".join(rows)
    assert len(marked) > CHUNK_BYTES
    for payload in (marked, iter([marked[:2], marked[2:]])):
        descriptor = store.put(payload)
        assert (descriptor.mime_type, descriptor.item_count) == ("application/x-ndjson", len(rows))
        assert descriptor.outline is not None
        assert descriptor.outline.endswith("[{id: int, name: str, tags: [str] ×2}] ×27000")
        assert store.fetch(descriptor.output_handle, limit=1).content == b"[" + rows[0] + b"]"
        assert store.get(descriptor.output_handle, "/26999") == rows[-1]


def test_marked_text_is_text(store: Store) -> None:
    descriptor = store.put(MARK + b"just text")
    assert (descriptor.mime_type, descriptor.line_count) == ("text/plain", 1)
    assert store.fetch(descriptor.output_handle).content == "\ufeffjust text"


def test_contract_responses_show_marked_json(store: Store) -> None:
    marked = MARK + json.dumps(ROWS).encode()
    response = wrap_response(marked, summary="rows", store=store).to_dict()
    ref = {"artifactRef": response["artifactRef"]}
    assert (response["count"], response["hasMore"]) == (300, True)
    assert response == {**wrap_response(json.dumps(ROWS).encode(), summary="rows", store=store).to_dict(), **ref}
    assert retrieve_artifact(response["artifactRef"], store=store) == ROWS
    assert wrap_response(MARK + b"[1]", summary="one", store=store).to_dict()["data"] == [1]
    assert retrieve_artifact(store_artifact("a", "b", MARK + b"{}\n{}", store=store), store=store) == [{}, {}]
