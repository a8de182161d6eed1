"""A store with many handles beside an empty or a small one.

`FOREBAY_BENCH_HANDLES` sets how many. A million takes half an hour or more, and 5 GB of disk:

    FOREBAY_BENCH_HANDLES=1000000 python -m pytest benches/bench_store_many.py -q --benchmark-json=target/bench.json
    python benches/report.py target/bench.json target/criterion

A put, a page, a refused put and the first 20 handles of a listing take the same time in any store. A sweep or a
listing of a whole store visits every handle, so they are compared by the time for one handle. The first sweep of a
process reads the end of every file; later ones only list the folder. The notes have the memory that sweeps and listings
add to a process, and the time of the first refusal, which begins a recount.
"""

import contextlib
import itertools
import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import forebay
import many_handles
import pytest
from conftest import Measure, Measured

FEW = 1000
MANY = int(os.environ.get("FOREBAY_BENCH_HANDLES", "100000"))
CORPUS = f"{MANY:,} handles"
BESIDE_EMPTY = {"forebay": MANY, "an empty store": 0}
BESIDE_FEW = {"forebay": MANY, f"{FEW:,} handles": FEW}
PRINCIPAL = "principal 1"
ROUNDS = 2
MAX_ADDED_BYTES = 64 << 20
EXPIRING_SECONDS = 3600
# Does not compress, and is larger than what the quotas below leave free.
TOO_LARGE = os.urandom(100_000)


class Filled(NamedTuple):
    """A store that was filled for the benches."""

    root: Path
    stored_bytes: int


@pytest.fixture(scope="module")
def filled(folder: Path) -> dict[int, Filled]:
    """Stores with no, few and many payloads, which are counted already."""
    stores = {}
    for count in (0, FEW, MANY):
        root = folder / f"handles-{count}"
        many_handles.fill(root, count)
        with open_store(root) as store:
            swept = store.sweep()
        assert (swept.kept, swept.corrupt) == (count, ())
        stores[count] = Filled(root, swept.stored_bytes)
    return stores


@contextlib.contextmanager
def open_store(root: Path, **options: object) -> Iterator[forebay.Store]:
    defaults: dict[str, object] = {"quota_bytes": None, "principal_quota_bytes": None, "sweep_interval": 0}
    with forebay.open_store(root.as_uri(), **defaults | options) as store:
        yield store


@pytest.mark.parametrize("who", BESIDE_EMPTY)
def bench_put_beside_many(measure: Measure, filled: dict[int, Filled], who: str) -> None:
    handles = []
    with open_store(filled[BESIDE_EMPTY[who]].root) as store:
        measure("many handles, put", CORPUS, who, 1, lambda: handles.append(store.put(b"x", principal=PRINCIPAL)))
        for descriptor in handles:
            store.delete(descriptor.output_handle, principal=PRINCIPAL)


@pytest.mark.parametrize("who", BESIDE_EMPTY)
def bench_page_beside_many(measure: Measure, filled: dict[int, Filled], who: str) -> None:
    with open_store(filled[BESIDE_EMPTY[who]].root) as store:
        handle = store.put([1, 2, 3]).output_handle
        measure("many handles, page", CORPUS, who, 7, lambda: store.fetch(handle))
        store.delete(handle)


@pytest.mark.parametrize("who", BESIDE_EMPTY)
def bench_refuse_beside_many(measure: Measure, filled: dict[int, Filled], who: str) -> None:
    root, stored_bytes = filled[BESIDE_EMPTY[who]]
    with open_store(root, quota_bytes=stored_bytes + len(TOO_LARGE) // 2) as store:

        def refuse() -> None:
            with pytest.raises(forebay.StoreFull):
                store.put(TOO_LARGE, principal=PRINCIPAL)

        first = f"first: {time_call(refuse) * 1e3:.1f} ms"
        measure("many handles, refuse", CORPUS, who, len(TOO_LARGE), refuse, note=first)


@pytest.mark.parametrize("who", BESIDE_FEW)
def bench_list_20_of_many(measure: Measure, filled: dict[int, Filled], who: str) -> None:
    with open_store(filled[BESIDE_FEW[who]].root) as store:
        listing = measure("many handles, list 20", CORPUS, who, 20, lambda: [*itertools.islice(list_all(store), 20)])
        assert len(listing) == 20


def list_all(store: forebay.Store) -> Iterator[forebay.StoredOutput]:
    return store.list(principal=forebay.OPERATOR)


def time_call(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


class Visits(NamedTuple):
    """The time for each handle of a store in its first sweep, a later sweep and a listing; and the added memory."""

    first_sweep: float
    sweep: float
    list: float
    added_bytes: int


def visit_all(root: Path, count: int) -> Visits:
    """Measure in a process of its own."""
    before = read_peak_memory()
    repeats = max(1, 50_000 // count)
    first_sweep = sweep = listing = 0.0
    for _ in range(repeats):
        with open_store(root) as store:
            first_sweep += time_call(store.sweep)
            sweep += time_call(store.sweep)
            start = time.perf_counter()
            assert sum(1 for _ in list_all(store)) == count
            listing += time.perf_counter() - start
    visited = repeats * count
    return Visits(first_sweep / visited, sweep / visited, listing / visited, read_peak_memory() - before)


def read_peak_memory() -> int:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) << 10


@pytest.fixture(scope="module")
def visits(filled: dict[int, Filled]) -> dict[int, list[Visits]]:
    """Visits of few and of many handles, in turn."""
    found = defaultdict(list)
    for _ in range(ROUNDS):
        for count in (FEW, MANY):
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                found[count].append(pool.submit(visit_all, filled[count].root, count).result())
    return found


@pytest.mark.parametrize("who", BESIDE_FEW)
@pytest.mark.parametrize("action", ["first_sweep", "sweep", "list"])
def bench_each_of_many(measured: Measured, visits: dict[int, list[Visits]], action: str, who: str) -> None:
    rounds = visits[BESIDE_FEW[who]]
    added_bytes = max(visit.added_bytes for visit in rounds)
    assert added_bytes <= MAX_ADDED_BYTES
    seconds = [getattr(visit, action) for visit in rounds]
    note = f"+{added_bytes / 2**20:.0f} MB"
    measured(f"many handles, {action.replace('_', ' ')} one", CORPUS, who, 1, seconds, note=note)


@pytest.mark.parametrize("who", BESIDE_FEW)
def bench_sweep_of_expired(measured: Measured, filled: dict[int, Filled], who: str) -> None:
    """Sweep a store of which a tenth is expired, and report the time for each handle of the store."""
    count = BESIDE_FEW[who]
    seconds = []
    with open_store(filled[count].root, clock=lambda: time.time() + EXPIRING_SECONDS) as store:
        store.sweep()
        for _ in range(max(ROUNDS, 10_000 // count)):
            many_handles.fill(filled[count].root, count // 10, ttl=EXPIRING_SECONDS)
            start = time.perf_counter()
            swept = store.sweep()
            seconds.append((time.perf_counter() - start) / count)
            assert (swept.kept, swept.expired) == (count, count // 10)
    measured("many handles, sweep expired", CORPUS, who, 1, seconds)
