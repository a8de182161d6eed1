"""Fixtures that record a measurement: the row of the report, the corpus, and the library that did the work."""

import os
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
    """Return a function that times `work(*args)` of the library `who` for `row`, on `size` bytes of `corpus`."""

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
    """Return a function that times `work` in a few rounds, with the untimed `before` ahead of each to remove files."""

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
    """Return a function that records times the bench took itself, alternating with its peer's."""

    def measured(row: str, corpus: str, who: str, size: int, seconds: Sequence[float], **notes: str) -> None:
        summary = {"min": min(seconds), "median": statistics.median(seconds)}
        benchmark.extra_info.update(row=row, corpus=corpus, who=who, bytes=size, seconds=summary, **notes)
        benchmark.pedantic(lambda: None)  # type: ignore[no-untyped-call]

    return measured


@pytest.fixture(scope="session")
def folders() -> Iterator[Path]:
    """A folder on the project's disk: /tmp may be in memory."""
    target = Path(__file__).parent.parent / "target"
    target.mkdir(exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="bench-", dir=target))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def folder(folders: Path) -> Iterator[Path]:
    """A folder for everything compared in a module.

    Its files are emptied when the module ends, and removed when all benches end: for minutes after many files were
    removed, ext4 creates files thirty times slower (12 and 420 µs), which the next module would measure.
    """
    path = Path(tempfile.mkdtemp(dir=folders))
    yield path
    for file in path.rglob("*"):
        if file.is_file() and not file.is_symlink():
            os.truncate(file, 0)
