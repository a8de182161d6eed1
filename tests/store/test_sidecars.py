"""Sidecars: beside a payload, with its principal, expiry and quota, and never in anyone's way."""

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forebay import HandleNotFound, Store
from forebay.store.handles import OPERATOR, get_sidecar_handle, is_handle
from forebay.store.reader import PayloadReader
from stores import Clock, payload_files, store_at

CONTENT = bytes(range(256)) * 2000


@contextlib.contextmanager
def open_reader(store: Store, handle: str, principal: Any = None) -> Iterator[PayloadReader]:
    with store.open_view(handle, principal=principal) as view:
        assert isinstance(view, PayloadReader)
        yield view


def write(store: Store, handle: str, content: bytes = CONTENT, principal: Any = None) -> bool:
    with open_reader(store, handle, principal) as reader:
        return store.sidecars.write(reader.footer.meta, {"columns": ["é"]}, io.BytesIO(content))


def read(store: Store, handle: str, principal: Any = None) -> bytes | None:
    with open_reader(store, handle, principal) as reader, store.sidecars.open(reader.footer.meta) as sidecar:
        if sidecar is None:
            return None
        description, content = sidecar
        assert description == {"columns": ["é"]}
        return bytes(content.read_all())


def test_another_process_reads_what_was_written(tmp_path: Path) -> None:
    with store_at(tmp_path) as store:
        handle = store.put([1, 2]).output_handle
        assert read(store, handle) is None
        assert write(store, handle)
        with store_at(tmp_path) as other:
            assert read(other, handle) == CONTENT
            assert write(other, handle, b"less")
        assert read(store, handle) == b"less"
        assert len(payload_files(tmp_path)) == 2
        # An interrupted writer leaves the sidecar as it was.
        with pytest.raises(OSError, match="cut"), open_reader(store, handle) as reader:
            store.sidecars.write(reader.footer.meta, {}, _FailingFile(CONTENT))
        assert read(store, handle) == b"less"
        assert store.sweep().orphans == 0


class _FailingFile(io.BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        if self.tell():
            raise OSError("cut")
        return super().read(size)


def test_it_goes_with_its_payload(tmp_path: Path) -> None:
    clock = Clock()
    with store_at(tmp_path, clock=clock) as store:
        deleted, expiring, kept = (
            store.put([number], ttl=ttl).output_handle for number, ttl in enumerate((90, 60, 90))
        )
        assert all(write(store, handle) for handle in (deleted, expiring, kept))
        store.delete(deleted)
        assert len(payload_files(tmp_path)) == 4
        clock.now += 61
        store.sweep()
        store.sweep()
        assert len(payload_files(tmp_path)) == 2
        events = [event for event in store.journal.recent(100) if "SIDECAR" in str(event)]
        assert events == []
        assert read(store, kept) == CONTENT


def test_it_cannot_be_read_by_its_handle(tmp_path: Path) -> None:
    with store_at(tmp_path) as store:
        handle = store.put([1], principal="ann").output_handle
        assert write(store, handle, principal="ann")
        sidecar = get_sidecar_handle(handle)
        assert is_handle(sidecar)
        for principal in ("ann", "bob", None, OPERATOR):
            with pytest.raises(HandleNotFound):
                store.fetch(sidecar, principal=principal)
            with pytest.raises(HandleNotFound):
                store.delete(sidecar, principal=principal)
        assert [output.output_handle for output in store.list(principal=OPERATOR)] == [handle]


def test_it_counts_in_the_quotas(tmp_path: Path) -> None:
    with store_at(tmp_path, principal_quota_bytes=len(CONTENT)) as store:
        handle = store.put([1], principal="ann").output_handle
        before = store.sweep().stored_bytes
        assert not write(store, handle, principal="ann")
        assert store.sweep().stored_bytes == before
        assert write(store, handle, CONTENT[: len(CONTENT) // 2], principal="ann")
        assert store.sweep().stored_bytes > before + len(CONTENT) // 2
        # It gives way to nothing, and goes with its payload.
        store.delete(handle, principal="ann")
        store.put("x" * (len(CONTENT) // 2), principal="ann")


def test_an_evicted_payload_takes_it_along(tmp_path: Path) -> None:
    with store_at(tmp_path, quota_bytes=3 * len(CONTENT), on_full="evict", compression="none") as store:
        handle = store.put(CONTENT).output_handle
        assert write(store, handle)
        store.put(b"\0" * (len(CONTENT) * 5 // 2))
        with pytest.raises(HandleNotFound):
            store.fetch(handle)
        assert len(payload_files(tmp_path)) == 1


def test_that_of_another_payload_is_ignored(tmp_path: Path) -> None:
    with store_at(tmp_path) as store:
        one, other = (store.put([number]).output_handle for number in range(2))
        assert write(store, one)
        (path,) = tmp_path.glob(f"*/{get_sidecar_handle(one)}.*")
        path.rename(path.with_name(path.name.replace(get_sidecar_handle(one), get_sidecar_handle(other))))
        assert read(store, other) is None
        assert write(store, one)
        (path,) = tmp_path.glob(f"*/{get_sidecar_handle(one)}.*")
        path.write_bytes(path.read_bytes()[:-100])
        assert read(store, one) is None


@pytest.mark.parametrize("on_full", ["refuse", "evict"])
def test_a_sidecar_makes_way_for_a_payload(tmp_path: Path, on_full: Any) -> None:
    quota = 4 * len(CONTENT)
    for number in range(12):
        # Random handles sort before and after those of sidecars.
        with store_at(tmp_path / str(number), quota_bytes=quota, on_full=on_full) as store:
            handle = store.put(CONTENT, mime_type="application/octet-stream").output_handle
            assert write(store, handle, os.urandom(len(CONTENT)))
            store.put(os.urandom(quota - len(CONTENT) // 2))
            assert bytes(store.open(handle).read()) == CONTENT
            assert read(store, handle) is None
