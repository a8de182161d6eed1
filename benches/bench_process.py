"""The cost of importing forebay, and whether its functions release the interpreter for other threads."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import corpus
import forebay
import pytest
from conftest import Measure

CALLS = 8


def run_python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("who", "code"), [("forebay", "import forebay"), ("bare interpreter", "pass")])
def bench_import(measure: Measure, who: str, code: str) -> None:
    measure("start and import", "", who, 0, run_python, code)


def truncate_in(threads: int, data: bytes) -> None:
    """Make `CALLS` calls in all, spread over the threads."""
    with ThreadPoolExecutor(threads) as pool:
        answers = set(pool.map(forebay.truncate, [data] * CALLS))
    assert len(answers) == 1


@pytest.mark.parametrize(("who", "threads"), [("forebay", 2), ("1 thread", 1)])
def bench_threads(measure: Measure, who: str, threads: int) -> None:
    data = corpus.load("records", "100 MB")
    wall, cpu = time.perf_counter(), time.process_time()
    truncate_in(threads, data)
    cores = (time.process_time() - cpu) / (time.perf_counter() - wall)
    row = "truncate in 2 threads"
    measure(row, "records 100 MB", who, len(data) * CALLS, truncate_in, threads, data, note=f"{cores:.1f} cores busy")
