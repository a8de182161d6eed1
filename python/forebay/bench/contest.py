"""A benchmark: forebay and its peers on the same work, their results compared before any time is measured."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from forebay.bench.measure import Side, Timing, measure_in_turn

__all__ = ["FOREBAY", "MEMCPY", "Benchmark", "Contender", "Outcome", "Result", "run_benchmark"]

FOREBAY = "forebay"
MEMCPY = "memcpy"

_MAX_REASON_CHARS = 160


@dataclasses.dataclass(frozen=True, slots=True)
class Contender:
    """A side of a benchmark."""

    who: str
    work: Callable[[], Any]
    """The call that is timed."""
    view: Callable[[Any], Any] = lambda result: result
    """Returns what of a result is compared with the other side."""
    before: Callable[[], Any] | None = None
    """Called before every timed call, to bring everything into the state that is measured."""
    describe: Callable[[Any], str] = lambda _: ""
    """Returns a note about a result."""
    memory_bytes: int = 0
    """Estimate of the memory that a call needs."""
    is_baseline: bool = False
    """Whether it does less than the work. Then `view` returns whether it did that, and no result is compared."""


def _require_equal(ours: Any, theirs: Any) -> str | None:
    return None if ours == theirs else "returns another result"


@dataclasses.dataclass(frozen=True, slots=True)
class Benchmark:
    """Work that forebay and its peers do."""

    group: str
    name: str
    size_bytes: int
    """Bytes of the payload that the work is on."""
    ours: Contender
    peers: Sequence[Contender]
    reads_all: bool = True
    """Whether forebay reads the whole payload, so that a speed in bytes per second means something."""
    find_flaw: Callable[[Any, Any], str | None] = _require_equal
    """Returns what is wrong with the view of a peer's result, given ours; `None` if nothing is."""
    note: str = ""


class Outcome(NamedTuple):
    """What became of a side: its times, or why there are none."""

    who: str
    timing: Timing | None
    note: str = ""
    problem: str = ""


class Result(NamedTuple):
    """A benchmark that was run: the outcomes of forebay and of its peers."""

    benchmark: Benchmark
    ours: Outcome
    peers: list[Outcome]


def run_benchmark(
    benchmark: Benchmark, seconds: float, *, available_bytes: int, on_step: Callable[[str], None] = lambda _: None
) -> Result:
    """Check that all sides return the same, then measure those that do, in turn.

    A peer that fails, that returns something else, or that needs more memory than there is, is not measured.
    `on_step` gets the name of the side that runs.
    """
    on_step(FOREBAY)
    if benchmark.ours.before is not None:
        benchmark.ours.before()
    result = benchmark.ours.work()
    ours, note = benchmark.ours.view(result), benchmark.ours.describe(result)
    del result
    outcomes = {}
    for peer in benchmark.peers:
        on_step(peer.who)
        outcomes[peer.who] = _check(benchmark, peer, ours, available_bytes)
    sides = [benchmark.ours, *(peer for peer in benchmark.peers if not outcomes[peer.who].problem)]
    timings = measure_in_turn(
        [Side(side.work, side.before, side is not benchmark.ours) for side in sides],
        seconds,
        on_sample=lambda number: on_step(sides[number].who),
    )
    for side, timing in zip(sides[1:], timings[1:], strict=True):
        outcomes[side.who] = outcomes[side.who]._replace(timing=timing)
    return Result(benchmark, Outcome(FOREBAY, timings[0], note), [outcomes[peer.who] for peer in benchmark.peers])


def _check(benchmark: Benchmark, peer: Contender, ours: Any, available_bytes: int) -> Outcome:
    """Run a peer once, and return its outcome without times."""
    if peer.memory_bytes > available_bytes:
        problem = f"needs about {peer.memory_bytes / 1e9:.1f} GB of memory, and {available_bytes / 1e9:.1f} GB are free"
        return Outcome(peer.who, None, problem=problem)
    try:
        if peer.before is not None:
            peer.before()
        result = peer.work()
        view = peer.view(result)
        if peer.is_baseline:
            flaw = None if view is True else "does not do its work"
        else:
            flaw = benchmark.find_flaw(ours, view)
        note = peer.describe(result)
    except Exception as error:
        # A peer may fail in any way on a payload that forebay can read, which is worth a line in the report.
        text = f"fails: {type(error).__name__}: {error}"
        return Outcome(peer.who, None, problem=text[:_MAX_REASON_CHARS])
    return Outcome(peer.who, None, note, flaw or "")
