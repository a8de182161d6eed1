"""Quotas: what a store and a principal may hold, and what is evicted."""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from faults import counters, expected_counters
from forebay import OPERATOR, HandleNotFound, StoreFull, StoreUnavailable
from forebay.store.backends import Blob
from forebay.store.catalog import Catalog
from forebay.store.frames import Footer
from stores import Clock, events, noise, payload_files, store_at, whole


def test_a_put_over_the_total_quota_is_refused_until_space_is_freed(tmp_path: Path) -> None:
    with store_at(tmp_path / "store", quota_bytes=250_000) as store:
        first = store.put(noise(100_000, 1)).output_handle
        store.put(noise(100_000, 2), principal="ann")
        with pytest.raises(StoreFull, match=r"the store's quota of 250,000 bytes has .* left.*; delete what"):
            store.put(noise(100_000, 3), principal="bob")
        (event,) = events(store, "store_failed")
        assert (event["code"], event["principal"]) == ("store_full", "bob")
        assert len(payload_files(tmp_path / "store")) == 2
        store.delete(first)
        store.put(noise(100_000, 3), principal="bob")


def test_each_principal_has_a_quota_and_none_has_no_quota(tmp_path: Path) -> None:
    with store_at(tmp_path / "store", principal_quota_bytes=150_000) as store:
        store.put(noise(100_000), principal="ann")
        with pytest.raises(StoreFull, match="your quota of 150,000 bytes"):
            store.put(noise(100_000), principal="ann")
        store.put(noise(100_000), principal="bob")
        for _ in range(3):
            store.put(noise(100_000))
        # A refused payload is not counted.
        store.put(noise(40_000), principal="ann")


def test_a_refused_payload_takes_no_space(tmp_path: Path) -> None:
    with store_at(tmp_path / "store", quota_bytes=260_000, principal_quota_bytes=150_000) as store:
        store.put(noise(100_000), principal="ann")
        for _ in range(5):
            with pytest.raises(StoreFull):
                store.put(noise(100_000), principal="ann")
        store.put(noise(140_000), principal="bob")


def test_all_stores_on_a_root_share_the_quota(tmp_path: Path) -> None:
    with (
        store_at(tmp_path / "store", quota_bytes=150_000) as store,
        store_at(tmp_path / "store", quota_bytes=150_000) as other,
    ):
        store.put(noise(100_000))
        with pytest.raises(StoreFull):
            other.put(noise(100_000))


def test_the_quota_counts_bytes_on_disk(tmp_path: Path) -> None:
    with store_at(tmp_path / "store", quota_bytes=100_000) as store:
        store.put(b"a" * 10_000_000)


def test_the_oldest_payloads_of_the_same_principal_are_evicted(tmp_path: Path, clock: Clock) -> None:
    with store_at(tmp_path / "store", principal_quota_bytes=250_000, on_full="evict", clock=clock) as store:
        handles = []
        others = store.put(noise(100_000), principal="bob").output_handle
        for number in range(4):
            clock.now += 1
            handles.append(store.put(noise(100_000, number), principal="ann").output_handle)
        assert {one.output_handle for one in store.list(principal="ann")} == set(handles[2:])
        assert whole(store, others) == noise(100_000)
        assert [event["handle"] for event in events(store, "output_handle_evicted")] == [handles[1], handles[0]]


@pytest.mark.parametrize("stream", [False, True])
def test_nothing_is_evicted_for_a_payload_that_never_fits(stream: bool, tmp_path: Path) -> None:
    with store_at(tmp_path / "store", quota_bytes=250_000, on_full="evict") as store:
        mine = store.put(noise(100_000), principal="ann").output_handle
        with pytest.raises(StoreFull):
            store.put(iter([noise(300_000)]) if stream else noise(300_000), principal="ann")
        store.put(noise(100_000), principal="bob")
        with pytest.raises(StoreFull):
            # It would not fit even if all of ann's payloads were evicted.
            store.put(noise(180_000), principal="ann")
        assert whole(store, mine) == noise(100_000)
        assert events(store, "output_handle_evicted") == []


@pytest.mark.parametrize("on_full", ["refuse", "evict"])
def test_an_endless_stream_is_refused_early(on_full: str, tmp_path: Path) -> None:
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        chunk = noise(1 << 20)
        while taken < 1 << 30:
            taken += len(chunk)
            yield chunk

    with store_at(tmp_path / "store", quota_bytes=3_000_000, on_full=on_full) as store:
        with pytest.raises(StoreFull):
            store.put(endless())
        assert taken < 32 << 20
        assert payload_files(tmp_path / "store") == []
        store.put(noise(1_000_000))


@pytest.mark.parametrize("stream", [False, True])
def test_expired_payloads_make_room_even_before_a_sweep(stream: bool, tmp_path: Path) -> None:
    size = 3 << 20 if stream else 100_000
    with store_at(tmp_path / "store", quota_bytes=size * 3 // 2) as store:
        store.put(noise(size, 1), ttl=0, principal="ann")
        payload = noise(size, 2)
        handle = store.put(iter([payload]) if stream else payload).output_handle
        assert whole(store, handle) == payload
        assert len(events(store, "output_handle_expired")) == len(payload_files(tmp_path / "store")) == 1


def test_expired_payloads_are_removed_before_older_ones(tmp_path: Path) -> None:
    with store_at(tmp_path / "store", quota_bytes=250_000, on_full="evict") as store:
        oldest = store.put(noise(100_000, 1)).output_handle
        store.put(noise(100_000, 2), ttl=0)
        store.put(noise(100_000, 3))
        assert whole(store, oldest) == noise(100_000, 1)
        assert events(store, "output_handle_evicted") == []


def test_an_evicting_store_reads_a_footer_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    reads = Catalog.read_footer

    def watched(self: Catalog, handle: str, blob: Blob) -> Footer:
        read.append(handle)
        return reads(self, handle, blob)

    with store_at(tmp_path / "store", quota_bytes=40_000, on_full="evict") as store:
        monkeypatch.setattr(Catalog, "read_footer", watched)
        for number in range(60):
            store.put(noise(2000, number))
        assert len(events(store, "output_handle_evicted")) > 40
    assert len(read) == len(set(read))


@pytest.mark.slow
def test_sweeps_during_puts_leave_correct_counters(tmp_path: Path) -> None:
    root = tmp_path / "store"

    def work(worker: int) -> None:
        with store_at(root) as store:
            for number in range(60):
                handle = store.put(noise(100 + number, worker), principal=f"p{worker % 2}").output_handle
                if number % 3:
                    store.delete(handle, principal=f"p{worker % 2}")

    with store_at(root) as store, ThreadPoolExecutor(4) as pool:
        working = [pool.submit(work, worker) for worker in range(4)]
        while not all(future.done() for future in working):
            store.sweep()
        for future in working:
            future.result()
    assert counters(root) == expected_counters(root)


@pytest.mark.posix
def test_a_put_whose_folder_cannot_be_synced_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    syncs = os.fsync

    def broken(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        syncs(fd)

    with store_at(root, durability="power") as store:
        store.put(b"before")
        monkeypatch.setattr(os, "fsync", broken)
        with pytest.raises(StoreUnavailable, match="Input/output error"):
            store.put(b"never acknowledged")
    assert len(payload_files(root)) == 1
    assert counters(root) == expected_counters(root)


@pytest.mark.slow
def test_concurrent_puts_all_evict_enough(tmp_path: Path) -> None:
    with store_at(tmp_path / "store", quota_bytes=200_000, on_full="evict") as store, ThreadPoolExecutor(16) as pool:
        handles = list(pool.map(lambda seed: store.put(noise(10_000, seed)).output_handle, range(200)))
    assert len(handles) == 200


@pytest.mark.parametrize("how", ["by hand", "damaged"])
def test_removed_files_make_room_at_the_next_put(how: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with store_at(root, quota_bytes=150_000) as store:
        handle = store.put(noise(100_000)).output_handle
        (path,) = payload_files(root)
        if how == "by hand":
            shutil.rmtree(path.parent)
        else:
            path.write_bytes(b"damaged")
            store.delete(handle, principal=OPERATOR)
        store.put(noise(100_000))
    assert counters(root) == expected_counters(root)


def test_a_jumped_clock_is_trusted_again_even_without_sweeps(tmp_path: Path, clock: Clock) -> None:
    with store_at(tmp_path / "store", quota_bytes=150_000, clock=clock) as store:
        store.put(noise(100_000))
        clock.now += 2 * 24 * 3600
        with pytest.raises(StoreFull):
            store.put(noise(100_000))
        store.put(noise(100_000))


def test_a_root_without_counters_is_counted_before_the_first_put(tmp_path: Path) -> None:
    with store_at(tmp_path / "other") as other:
        other.put(noise(80_000))
    shutil.rmtree(tmp_path / "other" / ".usage")
    with store_at(tmp_path / "store", quota_bytes=100_000) as store:
        store.put(noise(10))
        (tmp_path / "store").rename(tmp_path / "aside")
        (tmp_path / "other").rename(tmp_path / "store")
        with pytest.raises(HandleNotFound):
            store.stat("oh_AAAAAAAAAAAA")
        with pytest.raises(StoreFull):
            store.put(noise(80_000))


def test_a_disk_that_is_full_at_the_commit_is_a_full_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int) -> None:  # noqa: ARG001
        raise OSError(errno.ENOSPC, "No space left on device")

    with store_at(tmp_path / "store", durability="power") as store:
        store.put(b"before")
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(StoreFull, match="the disk has no room"):
            store.put(b"after")
