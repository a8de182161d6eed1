"""The caches of an open store are bounded."""

from pathlib import Path

import forebay
import pytest
from forebay.store import catalog

MAX_BYTES = 250


def cached_sizes(store: forebay.Store) -> list[int]:
    payloads = store._catalog._payloads
    sizes = [memoryview(data).nbytes for _, data in payloads.values()]
    assert payloads.currsize == sum(min(size, MAX_BYTES) for size in sizes) <= MAX_BYTES
    return sizes


def test_whole_payloads_are_kept_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_MAX_CACHED_PAYLOAD_BYTES", MAX_BYTES)
    with forebay.open_store((tmp_path / "store").as_uri()) as store:
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
