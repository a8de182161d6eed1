"""What a store remembers of recent payloads is bounded."""

from pathlib import Path

import forebay
import pytest
from forebay.store import catalog


def kept(store: forebay.Store) -> list[int]:
    wholes = [memoryview(data).nbytes for _, data in store._catalog._payloads.values()]
    assert sum(wholes) == store._catalog._cached_bytes
    return wholes


def test_whole_payloads_are_kept_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_MAX_CACHED_PAYLOAD_BYTES", 250)
    with forebay.open_store((tmp_path / "store").as_uri()) as store:
        handles = [store.put(b"[" + b"1," * 49 + b"1]").output_handle for _ in range(4)]
        for handle in handles:
            store.outline(handle)
        assert kept(store) == [101, 101]
        store.search(handles[-1], "1")
        assert len(kept(store)) == 2
        store.delete(handles[-1])
        assert len(kept(store)) == 1
        larger_than_all = store.put(b"[" + b"1," * 999 + b"1]").output_handle
        store.outline(larger_than_all)
        assert kept(store) == [2001]
