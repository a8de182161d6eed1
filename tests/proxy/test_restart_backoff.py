"""Delays before a server is restarted."""

import pytest
from forebay.proxy.stdio import RestartBackoff
from hypothesis import given
from hypothesis import strategies as st


def test_delays_double_after_the_first_restart() -> None:
    now = 0.0
    backoff = RestartBackoff(max_restarts=10, window_seconds=1000, delay_seconds=0.5, clock=lambda: now)
    assert [backoff.next_delay() for _ in range(6)] == [0, 0.5, 1, 2, 4, 8]


def test_a_server_that_ran_long_is_restarted_at_once() -> None:
    now = 0.0
    backoff = RestartBackoff(max_restarts=10, window_seconds=60, delay_seconds=0.5, clock=lambda: now)
    for _ in range(4):
        backoff.next_delay()
    now = 100.0
    assert backoff.next_delay() == 0


def test_a_limit_of_0_means_no_restart() -> None:
    assert RestartBackoff(max_restarts=0).next_delay() is None


@pytest.mark.slow
@given(st.integers(1, 5), st.floats(0.1, 10), st.floats(0, 1), st.lists(st.floats(0, 5), max_size=60))
def test_no_window_has_more_starts_than_the_limit(limit: int, window: float, delay: float, lives: list[float]) -> None:
    now = 0.0
    backoff = RestartBackoff(limit, window, delay, clock=lambda: now)
    starts: list[float] = []
    for life in lives:
        now += life
        now += backoff.next_delay() or 0.0
        starts.append(now)
    for first, last in zip(starts, starts[limit:], strict=False):
        assert last - first >= window * (1 - 1e-9)
