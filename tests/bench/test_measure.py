"""Sides take turns, within their budget."""

import gc
import threading

from forebay.bench.measure import Side, measure_in_turn
from hypothesis import given, settings
from hypothesis import strategies as st


def make_work(calls: list[str], name: str, steps: int) -> Side:
    def work() -> int:
        calls.append(name)
        return sum(range(steps))

    return Side(work)


def test_sides_take_turns_and_the_first_one_changes() -> None:
    order: list[int] = []
    steps = 200_000
    sides = [make_work([], "one", steps), make_work([], "other", steps)]
    timings = measure_in_turn(sides, 0.2, on_sample=order.append)
    assert order[:6] == [0, 1, 1, 0, 0, 1]
    assert all(timing.rounds >= 3 and 0 < timing.best <= timing.median for timing in timings)
    assert all(timing.noise >= 0 for timing in timings)


def test_a_side_beyond_its_share_is_measured_once() -> None:
    calls: list[str] = []
    slow, fast = make_work(calls, "slow", 3_000_000), make_work(calls, "fast", 100_000)
    one, other = measure_in_turn([slow, fast], 1e-3)
    # One call shows how long it takes.
    assert (one.rounds, calls.count("slow")) == (1, 2)
    assert other.rounds >= 1


def test_a_call_that_waits_counts_with_its_processor_time() -> None:
    released = threading.Event()

    def wait() -> int:
        # Nobody sets it: the call waits for all of this time, and computes for almost none.
        released.wait(0.2)
        return sum(range(10_000))

    patient, strict = measure_in_turn([Side(wait), Side(wait, leaves_out_waiting=True)], 0.01)
    assert patient.best >= 0.2 > 2 * strict.best > 0


def test_what_comes_before_a_call_runs_before_each() -> None:
    log: list[str] = []
    (timing,) = measure_in_turn([Side(lambda: log.append("work"), lambda: log.append("before"))], 0.01)
    assert log == ["before", "work"] * timing.rounds


@settings(max_examples=10)
@given(st.integers(1, 4))
def test_short_calls_are_repeated_within_a_sample(count: int) -> None:
    calls: list[str] = []
    timings = measure_in_turn([make_work(calls, "short", 1) for _ in range(count)], 0.01)
    assert len(timings) == count
    assert len(calls) > 100 * count


def test_the_collector_is_as_before() -> None:
    states: list[bool] = []
    measure_in_turn([Side(lambda: states.append(gc.isenabled()), lambda: None)], 0.001)
    assert gc.isenabled()
    gc.disable()
    try:
        measure_in_turn([Side(lambda: states.append(gc.isenabled()), lambda: None)], 0.001)
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert not any(states)
