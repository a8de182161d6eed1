"""Threads that do what takes long, and are there for no longer than that."""

import threading
import time
from functools import partial

import pytest
from forebay.proxy.workers import WorkerPool
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.slow

PATIENCE = 30


def _threads() -> int:
    return sum(thread.name == "forebay-work" for thread in threading.enumerate())


def _wait(event: threading.Event) -> None:
    event.wait(PATIENCE)


def test_threads_that_have_nothing_to_do_end() -> None:
    before = _threads()
    work, go = WorkerPool(8, idle_seconds=0.05), threading.Event()
    for _ in range(8):
        work.submit(partial(_wait, go))
    assert _threads() >= 8
    go.set()
    assert work.wait_idle(PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while _threads() > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 4))
def test_all_is_done_however_often_threads_end_in_between(pauses: list[int], workers: int) -> None:
    work, done = WorkerPool(workers, idle_seconds=0.001), list[int]()
    for number, pause in enumerate(pauses):
        time.sleep(pause / 1000)
        work.submit(partial(done.append, number))
    assert work.wait_idle(PATIENCE)
    assert sorted(done) == [*range(len(pauses))]
