"""Worker threads run all jobs and end when they are idle."""

import threading
import time
from functools import partial

import pytest
from forebay.proxy.workers import WorkerPool
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
