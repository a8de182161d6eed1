"""Scans of all items of a view: chunks in order, in threads, in bounded memory."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from forebay import Store
from forebay._core import Chunk, ItemIndex, read_items
from forebay.store.reader import View
from forebay.store.scan import CHUNK_BYTES, map_chunks
from stores import store_at

ROWS = [{"id": number, "text": "é" * (number % 300)} for number in range(30_000)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store_at(tmp_path_factory.mktemp("store")) as opened:
        yield opened


def scan_ids(view: View) -> tuple[list[int], set[str]]:
    """Return the ids of all items, each read from its chunk, and the names of the threads that read them."""
    index = view.items
    assert index is not None
    threads = set()

    def read_ids(data: memoryview, chunk: Chunk) -> list[int]:
        threads.add(threading.current_thread().name)
        page = read_items(data, index, chunk.first, chunk.count, 1 << 40, base=chunk.start)
        assert page.returned == chunk.count
        return [int(item["id"]) for item in json.loads(page.content)]

    return [number for ids in map_chunks(view, index, read_ids) for number in ids], threads


def as_csv(rows: list[dict[str, Any]]) -> str:
    return "id,text\n" + "".join(f"{row['id']},{row['text']}\n" for row in rows)


@pytest.mark.parametrize(
    ("payload", "path", "mime_type"),
    [
        (ROWS, None, None),
        ({"a": [1], "b": {"rows": ROWS}}, None, None),
        ({"a": [1], "b": {"rows": ROWS}}, "/b/rows", None),
        ({"small": ROWS[:20_000], "b": {"rows": ROWS}}, "/small", None),
        ("".join(json.dumps(row) + "\n" for row in ROWS), None, None),
        (as_csv(ROWS), None, "text/csv"),
    ],
    ids=["array", "nested", "path to the items", "another path", "ndjson", "csv"],
)
def test_chunks_come_in_order_from_threads(store: Store, payload: Any, path: str | None, mime_type: str | None) -> None:
    handle = store.put(payload, mime_type=mime_type).output_handle
    with store.open_view(handle, path) as view:
        assert view.items is not None
        assert view.items.end - view.items.start > 3 * CHUNK_BYTES
        ids, threads = scan_ids(view)
    assert ids == [*range(len(view.items))]
    assert all(name.startswith("forebay-scan") for name in threads)


def test_a_small_payload_needs_no_threads(store: Store) -> None:
    with store.open_view(store.put(ROWS[:100]).output_handle) as view:
        assert scan_ids(view) == ([*range(100)], {threading.current_thread().name})


def test_a_scan_can_be_left_early(store: Store) -> None:
    started = []

    def read(data: memoryview, chunk: Chunk) -> int:
        started.append(chunk.block)
        return len(data)

    with store.open_view(store.put(ROWS).output_handle) as view:
        index: ItemIndex | None = view.items
        assert index is not None
        scan = map_chunks(view, index, read)
        assert next(scan) <= CHUNK_BYTES
        scan.close()  # type: ignore[attr-defined]
    assert len(started) <= 3


def test_an_error_ends_the_scan(store: Store) -> None:
    def fail(_: memoryview, chunk: Chunk) -> None:
        if chunk.first:
            raise RuntimeError("this chunk")

    with store.open_view(store.put(ROWS).output_handle) as view:
        assert view.items is not None
        with pytest.raises(RuntimeError, match="this chunk"):
            list(map_chunks(view, view.items, fail))
