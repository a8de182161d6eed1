"""How every bench says what it measured: a row of the report, a corpus, and who did the work."""

import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest
from pytest_benchmark.fixture import BenchmarkFixture


class Measure(Protocol):
    def __call__(
        self, row: str, corpus: str, who: str, size: int, work: Callable[..., Any], *args: Any, **notes: str
    ) -> Any: ...


@pytest.fixture
def measure(benchmark: BenchmarkFixture) -> Measure:
    """Times `work(*args)` as `who`'s contribution to `row`, on `size` bytes of `corpus`."""

    def measure(row: str, corpus: str, who: str, size: int, work: Callable[..., Any], *args: Any, **notes: str) -> Any:
        benchmark.extra_info.update(row=row, corpus=corpus, who=who, bytes=size, **notes)
        return benchmark(work, *args)

    return measure


class MeasureRounds(Protocol):
    def __call__(
        self,
        row: str,
        corpus: str,
        who: str,
        size: int,
        work: Callable[[], Any],
        before: Callable[[], Any] = ...,
        *,
        rounds: int = ...,
        **notes: str,
    ) -> Any: ...


@pytest.fixture
def measure_rounds(benchmark: BenchmarkFixture) -> MeasureRounds:
    """Times `work` in a few rounds, each after `before`, which is not timed: for what leaves files behind."""

    def measure(
        row: str,
        corpus: str,
        who: str,
        size: int,
        work: Callable[[], Any],
        before: Callable[[], Any] = lambda: None,
        *,
        rounds: int = 5,
        **notes: str,
    ) -> Any:
        benchmark.extra_info.update(row=row, corpus=corpus, who=who, bytes=size, **notes)
        return benchmark.pedantic(work, setup=before, rounds=rounds)  # type: ignore[no-untyped-call]

    return measure


class Measured(Protocol):
    def __call__(self, row: str, corpus: str, who: str, size: int, seconds: Sequence[float], **notes: str) -> None: ...


@pytest.fixture
def measured(benchmark: BenchmarkFixture) -> Measured:
    """Takes times that a bench took itself, in turn with those of its peer, because what counts is their difference."""

    def measured(row: str, corpus: str, who: str, size: int, seconds: Sequence[float], **notes: str) -> None:
        taken = {"min": min(seconds), "median": statistics.median(seconds)}
        benchmark.extra_info.update(row=row, corpus=corpus, who=who, bytes=size, seconds=taken, **notes)
        benchmark.pedantic(lambda: None)  # type: ignore[no-untyped-call]

    return measured


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder for all who are compared, on the disk that the project is on: /tmp may be memory."""
    target = Path(__file__).parent.parent / "target"
    target.mkdir(exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="bench-", dir=target))
    yield path
    shutil.rmtree(path)
