"""Recounts of the stored bytes: in slices, without the lock of the counters, and never below the true value."""

import multiprocessing
import os
import random
import struct
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from faults import assert_tidy, counters, expected_counters, opened, spawnable, stored_files
from forebay import HandleNotFound, Store, StoreFull
from forebay.store import sweep
from forebay.store.allowance import Allowance
from forebay.store.backends import Listed
from forebay.store.backends.local import LocalBackend
from forebay.system import files
from stores import Clock, events, noise

WORKERS = 4
PUTS = 150
QUOTA = 60_000
PRINCIPAL_QUOTA = 40_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


class Listings:
    """Watches the listings of all stores: how many payloads they return, and whether the counters are locked then."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.listed = self.locked = 0
        list_objects = LocalBackend.list

        def watched(backend: LocalBackend) -> Iterator[Listed]:
            for listed in list_objects(backend):
                self.listed += 1
                self.locked += is_locked(root / ".usage" / "total")
                yield listed

        monkeypatch.setattr(LocalBackend, "list", watched)


def is_locked(path: Path) -> bool:
    with path.open() as file:
        try:
            files.lock(file.fileno(), wait=False)
        except BlockingIOError:
            return True
        return False


def fill(store: Store, count: int, principal: str = "ann") -> list[str]:
    return [store.put(noise(1000, seed), principal=principal).output_handle for seed in range(count)]


def test_a_sweep_removes_the_empty_counter_of_a_writer_that_was_killed_while_it_made_the_file(root: Path) -> None:
    with opened(root) as store:
        fill(store, 1)
        leftover = root / ".usage" / f"p-{'0' * 32}"
        leftover.touch()
        store.sweep()
        assert not leftover.exists()
    assert_tidy(root)


@pytest.mark.parametrize("on_full", ["refuse", "evict"])
def test_payloads_are_listed_without_the_lock_of_the_counters(
    on_full: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(root, quota_bytes=20_000, on_full=on_full) as store:
        fill(store, 10)
        listings = Listings(root, monkeypatch)
        with pytest.raises(StoreFull):
            store.put(noise(19_000), principal="bob")
        store.sweep()
    assert listings.listed >= 20
    assert listings.locked == 0


def test_refused_puts_look_at_a_limited_number_of_payloads_and_continue(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    with opened(root, quota_bytes=70_000) as store:
        handles = fill(store, 50)
        store._sweeper._allowance = Allowance(10, clock)
        for handle in handles:
            stored_files(root)[handle].unlink()
        left = fill_again(root, 50)
        listings = Listings(root, monkeypatch)
        for second in range(7):
            assert listings.listed <= 10 * (second + 1)
            for _ in range(20):
                with pytest.raises(StoreFull):
                    store.put(noise(60_000), principal="bob")
            clock.now += 1
        assert listings.listed >= 50
        assert counters(root)["total"] == expected_counters(root)["total"]
        for path in left:
            path.unlink()
        accepted = 0
        while not accepted and clock.now < Clock().now + 30:
            clock.now += 1
            try:
                store.put(noise(60_000), principal="bob")
                accepted = 1
            except StoreFull:
                pass
        assert accepted
    assert_tidy(root)


def fill_again(root: Path, count: int) -> list[Path]:
    """Store payloads after the files of others were removed, and return their files."""
    with opened(root, quota_bytes=None) as store:
        return [stored_files(root)[handle] for handle in fill(store, count, "cleo")]


def test_expired_payloads_of_a_large_store_make_room_bit_by_bit(root: Path) -> None:
    clock = Clock()
    with opened(root, quota_bytes=70_000) as store:
        for seed in range(50):
            store.put(noise(1000, seed), ttl=0)
        store._sweeper._allowance = Allowance(10, clock)
        with pytest.raises(StoreFull):
            store.put(noise(25_000))
        assert len(events(store, "output_handle_expired")) == 10
        clock.now += 1
        store.put(noise(25_000))
        assert len(events(store, "output_handle_expired")) <= 20


def test_a_counter_file_of_8_bytes_is_read(root: Path) -> None:
    with opened(root, quota_bytes=20_000) as store:
        handles = fill(store, 2)
        for path in (root / ".usage").iterdir():
            path.write_bytes(path.read_bytes()[:8])
        assert counters(root) == expected_counters(root)
        store.put(noise(1000), principal="ann")
        store.delete(handles[0], principal="ann")
        assert counters(root) == expected_counters(root)
        (root / ".usage" / "total").write_bytes(struct.pack("<q", 19_900))
        store.put(noise(1000), principal="ann")
    assert_tidy(root)


@pytest.mark.parametrize("values", [(2**63 - 1, 2**63 - 1), (5, 2**63 - 1), (2**62, 0), (-(2**63), 5)])
def test_damaged_counters_are_counted_again(root: Path, values: tuple[int, int]) -> None:
    with opened(root, quota_bytes=20_000) as store:
        kept = store.put(noise(5000), principal="ann").output_handle
        for path in (root / ".usage").iterdir():
            path.write_bytes(struct.pack("<qq", *values))
        store.put(noise(5000), principal="ann")
        with pytest.raises(StoreFull):
            store.put(noise(15_000), principal="ann")
        store.delete(kept, principal="ann")
        store.put(noise(10_000), principal="ann")


def test_a_delete_before_the_first_count_sets_no_counter(root: Path) -> None:
    with opened(root) as store:
        handles = fill(store, 5)
    (root / ".usage" / "total").unlink()
    with opened(root, quota_bytes=6_000) as store:
        store.delete(handles[0], principal="ann")
        with pytest.raises(StoreFull):
            store.put(noise(3000))
    assert counters(root) == expected_counters(root)


def test_a_recount_during_puts_and_deletes_only_lowers_counters(root: Path) -> None:
    with opened(root) as store:
        handles = fill(store, 4)
        recount = store._backend.begin_recount()
        for handle, _ in store._backend.list():
            recount.add("ann", store.stat(handle, principal="ann").stored_bytes)
        store.delete(handles[0], principal="ann")
        store.put(noise(500), principal="ann")
        assert all(step is None for step in recount.apply())
        assert counters(root) == expected_counters(root)


def test_a_recount_that_missed_a_new_payload_counts_it(root: Path) -> None:
    with opened(root) as store:
        handles = fill(store, 4)
        stored_files(root)[handles[0]].unlink()
        recount = store._backend.begin_recount()
        for handle, _ in store._backend.list():
            recount.add("ann", store.stat(handle, principal="ann").stored_bytes)
        store.put(noise(500), principal="ann")
        store.put(noise(500), principal="bob")
        assert all(step is None for step in recount.apply())
        assert all(counters(root)[name] >= size for name, size in expected_counters(root).items())
        store.sweep()
    assert counters(root) == expected_counters(root)


def test_a_recount_of_a_replaced_root_changes_nothing(root: Path, tmp_path: Path) -> None:
    with opened(tmp_path / "other") as other:
        fill(other, 9)
    with opened(root) as store:
        fill(store, 2)
        recount = store._backend.begin_recount()
        root.rename(tmp_path / "aside")
        (tmp_path / "other").rename(root)
        with pytest.raises(HandleNotFound):
            store.stat("oh_AAAAAAAAAAAA")
        assert all(step is None for step in recount.apply())
    assert counters(root) == expected_counters(root)


def test_a_large_store_evicts_only_the_oldest_payloads_of_the_principal(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_MAX_COUNTED_PER_SECOND", 5)
    monkeypatch.setattr(sweep, "_MIN_SECONDS_BETWEEN_LISTINGS", 1e9)
    clock = Clock()
    with opened(root, principal_quota_bytes=30_000, on_full="evict", clock=clock) as store:
        theirs = fill(store, 10, "bob")
        mine = []
        for seed in range(60):
            clock.now += 1
            mine.append(store.put(noise(1000, seed), principal="ann").output_handle)
        kept = {stored.output_handle for stored in store.list(principal="ann")}
        assert kept == set(mine[-len(kept) :])
        assert len(kept) > 15
        assert len(list(store.list(principal="bob"))) == len(theirs)
        assert [event["handle"] for event in reversed(events(store, "output_handle_evicted"))] == mine[: -len(kept)]
    assert_tidy(root)


def test_a_large_store_evicts_nothing_if_other_processes_deleted_the_candidates(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_MAX_COUNTED_PER_SECOND", 5)
    monkeypatch.setattr(sweep, "_MIN_SECONDS_BETWEEN_LISTINGS", 1e9)
    with opened(root, quota_bytes=40_000, on_full="evict") as store, opened(root, quota_bytes=40_000) as other:
        mine = fill(store, 10)
        fill(store, 15, "bob")
        store.put(noise(1000))
        for handle in mine[2:]:
            other.delete(handle, principal="ann")
        other.put(noise(10_000), principal="bob")
        with pytest.raises(StoreFull):
            store.put(noise(15_000), principal="ann")
        assert {stored.output_handle for stored in store.list(principal="ann")} == set(mine[:2])
        assert events(store, "output_handle_evicted") == []


def put_and_delete(root: Path, worker: int) -> int:
    """Put and delete with few recounts allowed at once, and return how many puts were refused."""
    rng = random.Random(worker)
    mine: list[tuple[str, str]] = []
    refused = 0
    with opened(root, quota_bytes=QUOTA, principal_quota_bytes=PRINCIPAL_QUOTA) as store:
        store._sweeper._allowance = Allowance(7)
        for _ in range(PUTS):
            principal = f"p{rng.randrange(3)}"
            try:
                handle = store.put(noise(rng.randrange(200, 4000), rng.randrange(99)), principal=principal)
                mine.append((handle.output_handle, principal))
            except StoreFull:
                refused += 1
            if mine and rng.random() < 0.4:
                handle_to_delete, owner = mine.pop(rng.randrange(len(mine)))
                store.delete(handle_to_delete, principal=owner)
    return refused


@pytest.mark.slow
def test_processes_that_put_and_delete_during_recounts_never_exceed_the_quota(root: Path) -> None:
    with (
        opened(root, quota_bytes=QUOTA) as store,
        ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn")) as pool,
    ):
        store.put(b"first")
        jobs = [pool.submit(spawnable(put_and_delete), root, worker) for worker in range(WORKERS)]
        checks = 0
        while not all(job.done() for job in jobs):
            store.sweep()
            # Under the lock of the accounts no payload is added or removed.
            count_files = store._backend.accounts._files  # type: ignore[attr-defined]
            with count_files.lock, count_files as locked:
                counted = locked.get("total")
                true_bytes = sum(os.stat(path).st_size for path in stored_files(root).values())  # noqa: PTH116
            assert counted is not None
            assert true_bytes <= counted.used_bytes
            assert true_bytes <= QUOTA
            checks += 1
        assert checks
        assert sum(job.result() for job in jobs) > 0
        store.sweep()
    assert counters(root) == expected_counters(root)
    assert_tidy(root)
