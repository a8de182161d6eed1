"""Rate limits: the number of requests that each caller may make."""

from collections import defaultdict
from fractions import Fraction
from pathlib import Path

import pytest
from forebay.http.limits import InFlightLimit, TokenBuckets, get_client_network
from hypothesis import given
from hypothesis import strategies as st
from listening_harness import run_server

SECOND = 10**9


class NaiveBucket:
    """A token bucket in exact fractions."""

    def __init__(self, requests_per_minute: int) -> None:
        self._capacity = Fraction(requests_per_minute)
        self._rate = Fraction(requests_per_minute, 60 * SECOND)
        self._remaining: dict[str, Fraction] = defaultdict(lambda: self._capacity)
        self._now = 0

    def take(self, caller: str, now: int) -> Fraction:
        for name in list(self._remaining):
            self._remaining[name] = min(self._capacity, self._remaining[name] + self._rate * (now - self._now))
        self._now = now
        if self._remaining[caller] >= 1:
            self._remaining[caller] -= 1
            return Fraction(0)
        return (1 - self._remaining[caller]) / self._rate


@given(
    st.integers(1, 1000),
    st.lists(
        st.tuples(
            st.sampled_from("ab"), st.sampled_from([0, 1, SECOND // 7, SECOND, 60 * SECOND]) | st.integers(0, 10**11)
        ),
        max_size=200,
    ),
)
def test_a_bucket_equals_one_in_exact_fractions(requests_per_minute: int, requests: list[tuple[str, int]]) -> None:
    now = 0
    rates, naive = TokenBuckets(requests_per_minute, clock=lambda: now), NaiveBucket(requests_per_minute)
    for caller, elapsed in requests:
        now += elapsed
        wait, exact = rates.take(caller), naive.take(caller, now)
        assert wait - 1 < exact <= wait


@given(st.integers(1, 50))
def test_a_caller_that_waits_as_long_as_returned_is_served(requests_per_minute: int) -> None:
    now = 0
    rates = TokenBuckets(requests_per_minute, clock=lambda: now)
    for _ in range(requests_per_minute):
        assert rates.take("a") == 0
    for _ in range(5):
        wait = rates.take("a")
        assert wait > 0
        now += wait - 1
        assert rates.take("a") == 1
        now += 1
        assert rates.take("a") == 0


def test_each_caller_has_its_own_bucket() -> None:
    rates = TokenBuckets(2, clock=lambda: 0)
    assert [bool(rates.take("a")) for _ in range(5)] == [False, False, True, True, True]
    assert [bool(rates.take("b")) for _ in range(3)] == [False, False, True]


def test_the_number_of_buckets_is_limited() -> None:
    rates = TokenBuckets(1, max_callers=3, clock=lambda: 0)
    for caller in "abc":
        assert rates.take(caller) == 0
    assert rates.take("a") > 0
    # b was idle for longest.
    assert rates.take("d") == 0
    assert rates.take("a") > 0
    assert len(rates._buckets) == 3
    assert rates.take("b") == 0


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("", "x", False),
    ],
)
def test_an_ipv6_network_counts_as_one_caller(first: str, second: str, is_same: bool) -> None:
    assert (get_client_network(first) == get_client_network(second)) is is_same


def test_a_principal_has_its_share_of_the_requests_in_flight() -> None:
    limit = InFlightLimit(max_connections=8)
    assert [limit.enter("a") for _ in range(3)] == [True, True, False]
    assert limit.enter("b")
    limit.leave("a")
    assert [limit.enter("a") for _ in range(2)] == [True, False]
    for principal in "aab":
        limit.leave(principal)
    assert not limit._in_flight


def test_a_refused_request_gets_429_and_retry_after(tmp_path: Path) -> None:
    with run_server(tmp_path, rate_limit_per_minute=7) as server:
        answers = [server.list_tools() for _ in range(8)]
    assert [answer.status for answer in answers] == [200] * 7 + [429]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 9
    assert answers[-1].message["error"]["code"] == -32000
