"""Times of two or more sides, which take turns so that other load on the machine affects all of them."""

import contextlib
import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

if sys.platform != "win32":
    import resource

__all__ = ["Side", "Timing", "measure_in_turn"]

_MIN_SAMPLE_SECONDS = 1e-3
"""Shorter calls are repeated within a sample, because the clock and the loop cost time, too."""

_MAX_CALLS = 10_000
_MAX_ROUNDS = 200
_MIN_ROUNDS = 3

Work = Callable[[], Any]


class Side(NamedTuple):
    """What is measured."""

    work: Work
    before: Work | None = None
    """Called before every call, without being timed."""
    leaves_out_waiting: bool = False
    """Whether only processor time counts if a call took longer by the clock, because it waited for the processor.

    Where other programs keep a machine busy, a long call waits in any case, and a short one often does not.
    """


class Timing(NamedTuple):
    """Seconds of a call: the fastest sample, the median, and how many samples there are."""

    best: float
    median: float
    rounds: int

    @property
    def noise(self) -> float:
        """How much longer the median took than the fastest sample, as a share of the latter."""
        return self.median / self.best - 1 if self.best > 0 else 0.0


class _Sampler:
    """The samples of a side."""

    def __init__(self, side: Side, budget_seconds: float) -> None:
        self._side = side
        self._budget_seconds = budget_seconds
        self._spent_seconds = 0.0
        self._calls = 1
        self.samples: list[float] = []

    @property
    def is_done(self) -> bool:
        # A side that alone takes more than its share is measured once.
        minimum = _MIN_ROUNDS if self.samples[0] * _MIN_ROUNDS <= 2 * self._budget_seconds else 1
        has_enough = len(self.samples) >= minimum and self._spent_seconds >= self._budget_seconds
        return has_enough or len(self.samples) >= _MAX_ROUNDS

    def take_sample(self) -> None:
        began_at = time.perf_counter()
        if self._side.before is not None:
            self._side.before()
        elif not self.samples:
            self._calls = self._count_calls()
        work, calls = self._side.work, self._calls
        processor_start = _get_processor_seconds()
        start = time.perf_counter()
        if calls == 1:
            result = work()
            end = time.perf_counter()
            processor_seconds = _get_processor_seconds() - processor_start
            # After the clock was read: the time to free a result is not counted, to the advantage of large results.
            del result
        else:
            for _ in range(calls):
                work()
            end = time.perf_counter()
            processor_seconds = _get_processor_seconds() - processor_start
        seconds = end - start
        if self._side.leaves_out_waiting and 0 < processor_seconds < seconds:
            seconds = processor_seconds
        self.samples.append(seconds / calls)
        self._spent_seconds += time.perf_counter() - began_at

    def _count_calls(self) -> int:
        """Return how many calls make a sample long enough."""
        start = time.perf_counter()
        self._side.work()
        seconds = max(time.perf_counter() - start, 1e-9)
        return min(max(1, round(_MIN_SAMPLE_SECONDS / seconds)), _MAX_CALLS) if seconds < _MIN_SAMPLE_SECONDS else 1


def _get_processor_seconds() -> float:
    """Return the processor time of this process, and of child processes that have ended. Windows counts no children."""
    seconds = time.process_time()
    if sys.platform != "win32":
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds += children.ru_utime + children.ru_stime
    return seconds


def measure_in_turn(
    sides: Sequence[Side], seconds: float, *, on_sample: Callable[[int], None] = lambda _: None
) -> list[Timing]:
    """Return the times of sides.

    A round runs every side once, and the next round runs them in the opposite order, because a later side finds warmer
    caches. A side leaves the rounds when it has used its share of the seconds. `on_sample` gets the number of a side.
    """
    running = [_Sampler(side, seconds / len(sides)) for side in sides]
    order = [*enumerate(running)]
    with _without_collector():
        while order:
            for number, sampler in order:
                on_sample(number)
                sampler.take_sample()
            order = [entry for entry in reversed(order) if not entry[1].is_done]
    return [Timing(min(one.samples), statistics.median(one.samples), len(one.samples)) for one in running]


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Turn Python's collector off, which would run while other libraries build many objects."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
