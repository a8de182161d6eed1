"""How every bench says what it measured: a row of the report, a corpus, and who did the work."""

from collections.abc import Callable
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
