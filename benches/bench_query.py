"""SQL over a stored payload, beside `orjson.loads` and a loop: first query, with a sidecar, with a warm worker."""

import gc
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import corpus
import forebay
import orjson
import pytest
from conftest import Measured, MeasureRounds
from forebay.query.process import POOL
from forebay.query.sidecar import wait_for_tables
from forebay.store.handles import get_sidecar_handle

AGGREGATE = "SELECT active, count(*), round(avg(score), 6) FROM items WHERE score > 25 GROUP BY ALL ORDER BY ALL"
NESTED = "SELECT owner.id % 10 AS k, count(*) FROM items GROUP BY ALL ORDER BY ALL"
UNNEST = "SELECT tag, count(*) FROM (SELECT unnest(tags) AS tag FROM items) GROUP BY ALL ORDER BY ALL"
SIZES = [20, 100]

FOREBAY = "forebay"
LOOP = "orjson and a loop"
LOOP_WITHOUT_COLLECTOR = "orjson and a loop, gc off"


class Queries:
    """A store with records of all sizes, and ways to bring it into each state before a query."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = forebay.open_store(folder.as_uri())
        self.handles = {size: self.store.put(corpus.records(size * corpus.MB)).output_handle for size in SIZES}

    def run(self, size: int, sql: str) -> list[list[Any]]:
        return self.store.query(self.handles[size], sql).rows

    def start_worker(self) -> None:
        """End all workers, and start one that has no table."""
        wait_for_tables()
        POOL.end_all()
        POOL.prestart()
        # Until it has started, which costs processor time that is not the query's.
        time.sleep(1)

    def forget_tables(self) -> None:
        """Remove the sidecars."""
        self.start_worker()
        for handle in self.handles.values():
            for path in self.folder.glob(f"*/{get_sidecar_handle(handle)}.*"):
                path.unlink()


@pytest.fixture(scope="module")
def queries(folder: Path) -> Iterator[Queries]:
    opened = Queries(folder / "queries")
    with opened.store:
        yield opened
    POOL.end_all()


def aggregate_in_python(queries: Queries, size: int) -> list[list[Any]]:
    with queries.store.open(queries.handles[size]) as file:
        records = orjson.loads(file.read())
    groups: dict[bool, list[float]] = {}
    for record in records:
        if record["score"] > 25:
            group = groups.setdefault(record["active"], [0, 0.0])
            group[0] += 1
            group[1] += record["score"]
    return [[active, count, round(total / count, 6)] for active, (count, total) in sorted(groups.items())]


def count_owners_in_python(queries: Queries, size: int) -> list[list[Any]]:
    with queries.store.open(queries.handles[size]) as file:
        records = orjson.loads(file.read())
    counts: dict[int, int] = {}
    for record in records:
        key = record["owner"]["id"] % 10
        counts[key] = counts.get(key, 0) + 1
    return [[key, count] for key, count in sorted(counts.items())]


IN_PYTHON = {AGGREGATE: aggregate_in_python, NESTED: count_owners_in_python}


def run_as(who: str, queries: Queries, size: int, sql: str = AGGREGATE) -> list[list[Any]]:
    """Answer the question with forebay or, as a script would, with orjson; its objects keep Python's collector busy."""
    if who == LOOP_WITHOUT_COLLECTOR:
        gc.disable()
    else:
        gc.enable()
    try:
        return queries.run(size, sql) if who == FOREBAY else IN_PYTHON[sql](queries, size)
    finally:
        gc.enable()


@pytest.mark.parametrize("who", [FOREBAY, LOOP, LOOP_WITHOUT_COLLECTOR])
@pytest.mark.parametrize("size", SIZES)
def bench_first_query(measure_rounds: MeasureRounds, queries: Queries, size: int, who: str) -> None:
    queries.forget_tables()
    assert run_as(FOREBAY, queries, size) == run_as(who, queries, size)
    before = queries.forget_tables if who == FOREBAY else lambda: None
    work = partial(run_as, who, queries, size)
    measure_rounds("first query", f"records {size} MB", who, size * corpus.MB, work, before, rounds=3)


@pytest.mark.parametrize("who", [FOREBAY, LOOP, LOOP_WITHOUT_COLLECTOR])
def bench_first_query_of_nested_field(measure_rounds: MeasureRounds, queries: Queries, who: str) -> None:
    queries.forget_tables()
    assert run_as(FOREBAY, queries, 100, NESTED) == run_as(who, queries, 100, NESTED)
    before = queries.forget_tables if who == FOREBAY else lambda: None
    work = partial(run_as, who, queries, 100, NESTED)
    measure_rounds("first query, nested field", "records 100 MB", who, 100 * corpus.MB, work, before, rounds=3)


@pytest.mark.parametrize("who", [FOREBAY, LOOP, LOOP_WITHOUT_COLLECTOR])
def bench_query_with_sidecar(measure_rounds: MeasureRounds, queries: Queries, who: str) -> None:
    assert run_as(FOREBAY, queries, 100) == run_as(who, queries, 100)
    queries.start_worker()
    before = queries.start_worker if who == FOREBAY else lambda: None
    work = partial(run_as, who, queries, 100)
    measure_rounds("query with a sidecar", "records 100 MB", who, 100 * corpus.MB, work, before, rounds=3)


@pytest.mark.parametrize(("row", "sql"), [("warm aggregate", AGGREGATE), ("warm unnest", UNNEST)])
def bench_warm_query(measure_rounds: MeasureRounds, queries: Queries, row: str, sql: str) -> None:
    queries.run(100, sql)
    wait_for_tables()
    measure_rounds(row, "records 100 MB", FOREBAY, 100 * corpus.MB, lambda: queries.run(100, sql), rounds=10)


@pytest.mark.parametrize(("row", "sql"), [("first query, CPU", AGGREGATE), ("first query, nested field, CPU", NESTED)])
@pytest.mark.parametrize("who", [FOREBAY, LOOP, LOOP_WITHOUT_COLLECTOR])
def bench_cpu_of_first_query(measured: Measured, queries: Queries, who: str, row: str, sql: str) -> None:
    """The processor time of this process and of the worker, without the start of the worker; and its memory."""
    expected = IN_PYTHON[sql](queries, 100)
    queries.forget_tables()
    workers = get_children() if who == FOREBAY else []
    before = get_cpu_seconds(workers)
    rows = run_as(who, queries, 100, sql)
    seconds = get_cpu_seconds(workers) - before
    assert rows == expected
    notes = {"note": f"{sum(map(get_peak_megabytes, workers))} MB in the worker"} if workers else {}
    measured(row, "records 100 MB", who, 100 * corpus.MB, [seconds], **notes)


def get_children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def get_cpu_seconds(workers: list[str]) -> float:
    """Return the processor time of this process and of others, so far."""
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in ["self", *workers]]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")


def get_peak_megabytes(pid: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1000 for line in lines if line.startswith("VmHWM"))
