"""Results are compared before any time is taken, and a peer that is wrong is not measured."""

from typing import Any

import pytest
from forebay.bench.contest import Benchmark, Contender, run_benchmark


def make_benchmark(*peers: Contender, **options: Any) -> Benchmark:
    ours = Contender("forebay", lambda: [1, 2, 3], len, describe=lambda result: f"{len(result)} items")
    return Benchmark("group", "name", 1000, ours, peers, **options)


def fail() -> None:
    raise OverflowError("an integer of 30 digits")


def test_only_peers_with_the_same_result_are_measured() -> None:
    steps: list[str] = []
    prepared: list[str] = []
    result = run_benchmark(
        make_benchmark(
            Contender("same", lambda: 3, before=lambda: prepared.append("same")),
            Contender("other", lambda: 4),
            Contender("failing", fail),
            Contender("hungry", lambda: 3, memory_bytes=10**15),
            Contender("memcpy", lambda: True, is_baseline=True),
            Contender("lazy", lambda: None, is_baseline=True),
        ),
        0.01,
        available_bytes=1 << 30,
        on_step=steps.append,
    )
    assert result.ours.note == "3 items"
    assert result.ours.timing is not None
    outcomes = {peer.who: peer for peer in result.peers}
    assert [name for name, peer in outcomes.items() if peer.timing is not None] == ["same", "memcpy"]
    assert outcomes["other"].problem == "returns another result"
    assert outcomes["failing"].problem == "fails: OverflowError: an integer of 30 digits"
    assert outcomes["hungry"].problem == "needs about 1000000.0 GB of memory, and 1.1 GB are free"
    assert steps[:5] == ["forebay", "same", "other", "failing", "hungry"]
    assert outcomes["lazy"].problem == "does not do its work"
    assert set(steps[7:]) == {"forebay", "same", "memcpy"}
    # Once before it is checked, and once before each timed call.
    timing = outcomes["same"].timing
    assert timing is not None
    assert len(prepared) == 1 + timing.rounds


def test_a_flaw_is_said_in_the_words_of_the_benchmark() -> None:
    benchmark = make_benchmark(
        Contender("short", lambda: 2), find_flaw=lambda ours, theirs: f"finds {theirs} of {ours}"
    )
    (peer,) = run_benchmark(benchmark, 0.01, available_bytes=0).peers
    assert (peer.problem, peer.timing) == ("finds 2 of 3", None)


def test_an_error_of_ours_is_not_hidden() -> None:
    benchmark = Benchmark("group", "name", 1, Contender("forebay", fail), [])
    with pytest.raises(OverflowError):
        run_benchmark(benchmark, 0.01, available_bytes=0)
