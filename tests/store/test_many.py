"""Stores with many payloads: bounded memory, and listings that go on while payloads come and go."""

import os
import signal
import time
import tracemalloc
from pathlib import Path

import pytest
from faults import assert_tidy, counters, opened, stored_files
from forebay import StoreFull, StoreUnavailable
from forebay.store.allowance import Allowance
from forebay.store.handles import new_handle
from stores import Clock, events, file_of, noise


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def link(path: Path, count: int) -> list[str]:
    """Make more names for a stored file, which are listed as handles but are damaged, and return the handles."""
    handles = [new_handle() for _ in range(count)]
    for handle in handles:
        path.with_name(f"{handle}.bin.zst").hardlink_to(path)
    return handles


@pytest.mark.posix
def test_a_listing_does_not_hold_all_names(root: Path) -> None:
    with opened(root) as store:
        handle = store.put(noise(100)).output_handle
        handles = {handle, *link(file_of(root, handle), 20_000)}
        assert {handle for handle, _ in store._backend.list()} == handles
        tracemalloc.start()
        try:
            assert sum(1 for _ in store._backend.list()) == len(handles)
            assert tracemalloc.get_traced_memory()[1] < 600_000
        finally:
            tracemalloc.stop()


@pytest.mark.posix
def test_a_listing_ends_when_it_is_closed(root: Path) -> None:
    with opened(root) as store:
        handle = store.put(noise(100)).output_handle
        link(file_of(root, handle), 10)
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        listing = store._backend.list()
        next(listing)
        listing.close()  # type: ignore[attr-defined]
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_payloads_may_be_deleted_while_they_are_listed(root: Path) -> None:
    with opened(root) as store:
        handles = {store.put(noise(100)).output_handle for _ in range(1500)}
        listed = []
        for stored in store.list():
            listed.append(stored.output_handle)
            store.delete(stored.output_handle)
        assert len(listed) == len(handles)
        assert set(listed) == handles
    assert_tidy(root)


@pytest.mark.posix
def test_a_forked_child_does_not_continue_the_recount_of_its_parent(root: Path) -> None:
    clock = Clock()
    with opened(root, quota_bytes=None) as store:
        # More than the system reads from a folder at a time.
        for _ in range(3000):
            store.put(b"")
    used_bytes = sum(path.stat().st_size for path in stored_files(root).values())
    with opened(root, quota_bytes=used_bytes + 1000) as store:
        store._sweeper._allowance = Allowance(10, clock)

        def refuse() -> None:
            with pytest.raises(StoreFull):
                store.put(noise(2000))

        refuse()
        assert store._sweeper._paused is not None
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            try:
                store._sweeper._allowance = Allowance(1_000_000)
                while store._sweeper._paused is not None:
                    refuse()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        store._sweeper._allowance = Allowance(1_000_000)
        while store._sweeper._paused is not None:
            refuse()
    assert counters(root) == {"total": used_bytes}


@pytest.mark.posix
def test_a_forked_child_does_not_continue_a_listing_of_its_parent(root: Path) -> None:
    with opened(root) as store:
        for _ in range(3000):
            store.put(b"")
        listing = store._backend.list()
        handles = [next(listing)]
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            try:
                next(listing)
            except StoreUnavailable:
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert {handle for handle, _ in (*handles, *listing)} == {*stored_files(root)}


def test_a_sweep_forgets_payloads_that_others_deleted(root: Path) -> None:
    with opened(root) as store:
        handles = [store.put(noise(100), principal=f"p{number % 3}").output_handle for number in range(50)]
        assert store.sweep().kept == 50
        for handle in handles[10:]:
            stored_files(root)[handle].unlink()
        assert store.sweep().kept == len(store._sweeper._entries) == 10
        assert {handle for handle, _ in store._sweeper._entries} == {*handles[:10]}
    assert_tidy(root)


def test_a_second_sweep_reads_no_payload_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(root) as store:
        for number in range(20):
            store.put(noise(100), principal=f"p{number % 3}")
        first = store.sweep()
        monkeypatch.setattr(store._backend, "open", None)
        assert store.sweep() == first
        assert first.stored_bytes == sum(path.stat().st_size for path in stored_files(root).values())


def test_damaged_payloads_are_evicted_by_age_too(root: Path) -> None:
    with opened(root, quota_bytes=30_000, on_full="evict") as store:
        handles = [store.put(noise(8000, seed)).output_handle for seed in range(3)]
        path = stored_files(root)[handles[0]]
        path.write_bytes(bytes(path.stat().st_size))
        os.utime(path, (time.time() - 100, time.time() - 100))
        store.put(noise(8000, 4))
        assert [event["handle"] for event in events(store, "output_handle_evicted")] == handles[:1]
