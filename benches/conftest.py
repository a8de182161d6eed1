"""How every bench says what it measured: a row of the report, a corpus, and who did the work."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
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


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder for all who are compared, on the disk that the project is on: /tmp may be memory."""
    target = Path(__file__).parent.parent / "target"
    target.mkdir(exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="bench-", dir=target))
    yield path
    shutil.rmtree(path)
