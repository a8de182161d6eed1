"""Worker threads run all jobs and end when they are idle; capacities limit how many messages there are at once."""

import threading
import time
from functools import partial

import pytest
from forebay.proxy.workers import Capacity, WorkerPool
from hypothesis import given
from hypothesis import strategies as st
from waiting import wait_until

pytestmark = pytest.mark.slow

PATIENCE = 30


def _thread_count() -> int:
    return sum(thread.name == "forebay-work" for thread in threading.enumerate())


def _wait(event: threading.Event) -> None:
    event.wait(PATIENCE)


def test_idle_threads_end() -> None:
    before = _thread_count()
    pool, go = WorkerPool(8, idle_seconds=0.05), threading.Event()
    for _ in range(8):
        pool.submit(partial(_wait, go))
    assert _thread_count() >= 8
    go.set()
    assert pool.wait_idle(PATIENCE)
    wait_until(lambda: _thread_count() <= before, PATIENCE)


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 4))
def test_all_jobs_run_although_threads_end_in_between(pauses: list[int], workers: int) -> None:
    pool, done = WorkerPool(workers, idle_seconds=0.001), list[int]()
    for number, pause in enumerate(pauses):
        time.sleep(pause / 1000)
        pool.submit(partial(done.append, number))
    assert pool.wait_idle(PATIENCE)
    assert sorted(done) == [*range(len(pauses))]


@given(st.lists(st.integers(0, 12), max_size=30), st.integers(1, 4), st.integers(1, 20))
def test_a_capacity_is_never_exceeded_except_by_a_single_message(
    sizes: list[int], max_count: int, max_bytes: int
) -> None:
    capacity, pool, lock = Capacity(max_count, max_bytes), WorkerPool(6), threading.Lock()
    held: list[int] = []

    def hold(size: int) -> None:
        capacity.acquire(size)
        with lock:
            held.append(size)
            assert len(held) <= max_count
            assert len(held) == 1 or sum(held) <= max_bytes
            done.append(size)
        with lock:
            held.remove(size)
        capacity.release(size)

    done: list[int] = []
    for size in sizes:
        pool.submit(partial(hold, size))
    assert pool.wait_idle(PATIENCE)
    assert sorted(done) == sorted(sizes)


def test_a_full_capacity_has_no_room_until_a_message_is_released() -> None:
    capacity = Capacity(2, 100)
    capacity.acquire(1000)
    assert not capacity.wait_for_room(0.01)
    capacity.add(1)
    capacity.release(1000)
    assert capacity.wait_for_room(0.01)
    capacity.add(1)
    assert not capacity.wait_for_room(0.01)
    capacity.close()
    assert capacity.wait_for_room(0.01)
