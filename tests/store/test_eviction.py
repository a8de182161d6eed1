"""The order of eviction, compared with a sorted list."""

import tracemalloc
from collections import defaultdict

from forebay.store.eviction import Candidate, EvictionOrder
from forebay.store.handles import new_handle
from hypothesis import given
from hypothesis import strategies as st

candidates = st.builds(
    Candidate,
    created_at=st.integers(0, 50).map(float),
    handle=st.builds(new_handle, st.sampled_from([12, 26])),
    size=st.integers(0, 1 << 62),
)
principals = st.none() | st.just("ann")


@given(st.lists(st.tuples(principals, st.lists(candidates, max_size=60), st.integers(0, 60)), max_size=8))
def test_candidates_are_popped_oldest_first(steps: list[tuple[str | None, list[Candidate], int]]) -> None:
    order = EvictionOrder()
    naive: defaultdict[str | None, list[Candidate]] = defaultdict(list)
    for principal, added, popped in steps:
        for candidate in added:
            order.add(principal, candidate)
        expected = naive[principal] = sorted([*naive[principal], *added])
        assert [order.pop_oldest(principal) for _ in range(popped)] == [*expected[:popped], *[None] * popped][:popped]
        del expected[:popped]


def test_a_candidate_takes_less_than_80_bytes() -> None:
    count = 20_000
    order = EvictionOrder()
    tracemalloc.start()
    try:
        for number in range(count):
            order.add("ann", Candidate(number, new_handle(), 1000 + number))
        popped = [candidate.size for candidate in (order.pop_oldest("ann") for _ in range(100)) if candidate]
        assert popped == [*range(1000, 1100)]
        assert tracemalloc.get_traced_memory()[1] < 80 * count
    finally:
        tracemalloc.stop()
