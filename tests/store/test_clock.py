"""Payloads expire by the wall clock, but a jump of the clock alone removes nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest
from faults import error_code, opened, redeem, stored_files
from forebay import OPERATOR, HandleNotFound, InvalidArgument, Store
from stores import Clock
from waiting import wait_until

DAY = 24 * 3600.0
NOW = Clock().now

READS: list[Callable[[Store, str], object]] = [
    lambda store, handle: store.fetch(handle),
    lambda store, handle: store.fetch(handle, format="bytes"),
    lambda store, handle: store.search(handle, "a"),
    lambda store, handle: store.outline(handle),
    lambda store, handle: store.get(handle, ""),
    lambda store, handle: store.open(handle),
    lambda store, handle: store.stat(handle),
    lambda store, handle: store.delete(handle),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def handles(store: Store) -> set[str]:
    return {stored.output_handle for stored in store.list(principal=OPERATOR)}


@pytest.mark.parametrize("days", [1.5, 30, 3650])
def test_a_sweep_right_after_a_jump_forward_removes_nothing(root: Path, clock: Clock, days: float) -> None:
    with opened(root, clock=clock) as store:
        handle = store.put([1], principal="ann").output_handle
        clock.now += days * DAY
        assert store.sweep().expired == 0
        clock.now -= days * DAY
        assert redeem(store, handle, "ann") == b"[1]"
        assert store.sweep().expired == 0
        assert redeem(store, handle, "ann") == b"[1]"


def test_the_next_sweep_after_a_jump_trusts_the_clock(root: Path, clock: Clock) -> None:
    with opened(root, clock=clock) as store:
        store.put([1])
        kept = store.put([2], ttl=99 * DAY).output_handle
        clock.now += 2 * DAY
        assert (store.sweep().expired, store.sweep().expired) == (0, 1)
        assert handles(store) == {kept}
        assert set(stored_files(root)) == {kept}


def test_a_handle_from_before_a_jump_backward_is_readable_and_expires(root: Path, clock: Clock) -> None:
    with opened(root, clock=clock) as store:
        handle = store.put([1]).output_handle
        clock.now -= 30 * DAY
        assert redeem(store, handle) == b"[1]"
        store.sweep()
        store.sweep()
        newer = store.put([2]).output_handle
        assert handles(store) == {handle, newer}
        with opened(root, clock=clock) as another:
            assert redeem(another, handle) == b"[1]"
        clock.now = NOW + DAY
        with pytest.raises(HandleNotFound):
            store.stat(handle)
        store.sweep()
        assert store.sweep().expired == 2
        assert stored_files(root) == {}


def test_jumps_of_the_clock_remove_nothing_that_has_not_expired(root: Path, clock: Clock) -> None:
    with opened(root, clock=clock) as store:
        stored = {}
        for days in (0, 3, -3, 400, -400, 0.5, -0.5):
            clock.now = NOW + days * DAY
            store.sweep()
            stored[store.put([days], ttl=2000 * DAY).output_handle] = b"[%r]" % days
            store.sweep()
        clock.now = NOW
        assert {handle: redeem(store, handle) for handle in stored} == stored


@pytest.mark.parametrize("read", READS)
def test_expired_payloads_are_not_found_even_before_a_sweep(
    root: Path, clock: Clock, read: Callable[[Store, str], object]
) -> None:
    with opened(root, clock=clock, ttl=10) as store:
        handle = store.put([{"a": 1}]).output_handle
        clock.now += 9.9
        store.stat(handle)
        store.outline(handle)
        clock.now += 0.1
        with pytest.raises(HandleNotFound):
            read(store, handle)
        assert handles(store) == set()
        assert set(stored_files(root)) == {handle}
        assert store.sweep().expired == 1
        assert stored_files(root) == {}


@pytest.mark.parametrize("read", READS)
def test_a_payload_with_a_ttl_of_0_is_not_found(root: Path, clock: Clock, read: Callable[[Store, str], object]) -> None:
    with opened(root, clock=clock) as store:
        handle = store.put([1], ttl=0).output_handle
        with pytest.raises(HandleNotFound):
            read(store, handle)
        assert store.sweep().expired == 1
    with opened(root, clock=clock, ttl=0) as store:
        with pytest.raises(HandleNotFound):
            read(store, store.put([1]).output_handle)
        kept = store.put([1], ttl=5).output_handle
        assert store.sweep().expired == 1
        assert redeem(store, kept) == b"[1]"


def test_the_ttl_of_a_store_does_not_apply_to_payloads_of_another_store(root: Path, clock: Clock) -> None:
    with opened(root, clock=clock, ttl=10) as short, opened(root, clock=clock, ttl=9 * DAY) as long:
        brief, lasting = short.put([1]).output_handle, long.put([2]).output_handle
        clock.now += 20
        assert short.sweep().expired == 1
        assert handles(long) == handles(short) == {lasting}
        assert redeem(short, lasting) == b"[2]"
        with pytest.raises(HandleNotFound):
            long.stat(brief)
        assert long.sweep().expired == 0
    with opened(root, clock=clock, ttl=0) as none:
        assert none.sweep().kept == 1
        assert redeem(none, lasting) == b"[2]"


def test_the_folder_of_another_day_is_removed_when_it_is_empty_and_not_before(root: Path, clock: Clock) -> None:
    with opened(root, clock=clock) as store:
        store.put([1], ttl=DAY)
        clock.now += 2 * DAY
        later = store.put([2], ttl=DAY).output_handle
        store.sweep()
        assert len(list(root.glob("2*"))) == 2
        store.sweep()
        (day,) = root.glob("2*")
        assert day == stored_files(root)[later].parent


def test_writers_with_different_clocks_do_not_remove_each_others_folders(root: Path, clock: Clock) -> None:
    with opened(root, clock=clock) as today, opened(root, clock=lambda: NOW - 9 * DAY) as behind:
        for i in range(50):
            behind.sweep()
            mine = today.put([i]).output_handle
            today.sweep()
            theirs = behind.put([i], ttl=99 * DAY).output_handle
            assert redeem(behind, mine) == redeem(today, theirs) == b"[%d]" % i
            today.delete(mine)
            behind.delete(theirs)


def test_the_background_sweep_removes_expired_payloads(root: Path) -> None:
    with opened(root, sweep_interval=0.01) as store:
        store.put([1], ttl=0)
        wait_until(lambda: not stored_files(root), 60)


@pytest.mark.parametrize("ttl", [-1, float("inf"), float("nan"), 1e18])
def test_an_invalid_ttl_of_a_put_is_refused_and_stores_nothing(root: Path, ttl: float) -> None:
    with opened(root) as store:
        with pytest.raises(InvalidArgument):
            store.put([1], ttl=ttl)
        assert handles(store) == set()
    assert stored_files(root) == {}


@pytest.mark.parametrize("now", [-5.0, 3e11])
def test_a_clock_outside_of_valid_years_stores_nothing(root: Path, clock: Clock, now: float) -> None:
    with opened(root, clock=clock) as store:
        handle = store.put([1]).output_handle
        clock.now = now
        with pytest.raises(InvalidArgument):
            store.put([2])
        clock.now = NOW
        assert redeem(store, handle) == b"[1]"


def test_a_store_that_is_only_read_also_sweeps(root: Path) -> None:
    with opened(root) as store:
        kept = store.put(b"kept").output_handle
        store.put(b"expired", ttl=0)
    with opened(root, sweep_interval=0.01) as reader:
        reader.fetch(kept)
        wait_until(lambda: len(stored_files(root)) == 1, 30)
    assert set(stored_files(root)) == {kept}


def fail() -> float:
    raise RuntimeError("no time")


BAD_CLOCKS: list[Callable[[], object]] = [
    lambda: float("nan"),
    lambda: float("inf"),
    lambda: float("-inf"),
    lambda: -1.0,
    lambda: 10**400,
    lambda: "noon",
    lambda: None,
    lambda: True,
    lambda: 1j,
    fail,
]


@pytest.mark.parametrize("bad_clock", BAD_CLOCKS)
def test_a_clock_without_a_time_is_an_invalid_argument(root: Path, bad_clock: Callable[[], float]) -> None:
    times: list[Callable[[], float]] = [lambda: NOW]
    with opened(root, clock=lambda: times[-1]()) as store:
        handle = store.put([1], ttl=DAY).output_handle
        times.append(bad_clock)
        for act in (lambda: store.put([2]), store.sweep, lambda: list(store.list())):
            with pytest.raises(InvalidArgument, match="the clock of this store"):
                act()
        for read in READS:
            with pytest.raises(InvalidArgument, match="the clock of this store"):
                read(store, handle)
        with pytest.raises(InvalidArgument):
            opened(root, clock=bad_clock)
        times.pop()
        assert redeem(store, handle) == b"[1]"
        assert handles(store) == {handle}


def test_a_clock_that_fails_after_the_commit_does_not_undo_the_put(root: Path) -> None:
    calls = 0

    def clock() -> float:
        nonlocal calls
        calls += 1
        return NOW if calls <= limit else float("nan")

    limit = 1000
    with opened(root, clock=clock) as store:
        store.put([0])
        for number in range(8):
            before = handles(store)
            calls, limit = 0, number
            code = error_code(lambda: store.put([1]))
            calls, limit = 0, 1000
            assert len(handles(store) - before) == (not code)
        assert code == ""
