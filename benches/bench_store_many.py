"""A store with many handles: a put, a page and a refusal beside an empty one, a sweep or list for each handle."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

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
ROUNDS = 3
# Does not compress, and is larger than what the quotas below leave free.
TOO_LARGE = os.urandom(100_000)


@pytest.fixture(scope="module")
def roots(folder: Path) -> dict[int, Path]:
    """Folders with no, few and many payloads, which are counted already."""
    found = {count: folder / f"handles-{count}" for count in (0, FEW, MANY)}
    for count, root in found.items():
        many_handles.fill(root, count)
        with open_store(root) as store:
            assert store.sweep().kept == count + 1
            assert not store.sweep().corrupt
    return found


@contextlib.contextmanager
def open_store(root: Path, **quotas: int | None) -> Iterator[forebay.Store]:
    options = {"quota_bytes": None, "principal_quota_bytes": None, **quotas}
    with forebay.open_store(root.as_uri(), sweep_interval=0, **options) as store:
        yield store


@pytest.mark.parametrize("who", BESIDE_EMPTY)
def bench_put_beside_many(measure: Measure, roots: dict[int, Path], who: str) -> None:
    with open_store(roots[BESIDE_EMPTY[who]]) as store:
        measure("many handles, put", CORPUS, who, 1, lambda: store.put(b"x", principal=PRINCIPAL, ttl=0))


@pytest.mark.parametrize("who", BESIDE_EMPTY)
def bench_page_beside_many(measure: Measure, roots: dict[int, Path], who: str) -> None:
    with open_store(roots[BESIDE_EMPTY[who]]) as store:
        handle = store.put([1, 2, 3]).output_handle
        measure("many handles, page", CORPUS, who, 7, lambda: store.fetch(handle))
        store.delete(handle)


@pytest.mark.parametrize("who", BESIDE_EMPTY)
def bench_refuse_beside_many(measure: Measure, roots: dict[int, Path], who: str) -> None:
    root = roots[BESIDE_EMPTY[who]]
    with open_store(root) as store:
        used_bytes = store.sweep().stored_bytes

    with open_store(root, quota_bytes=used_bytes + len(TOO_LARGE) // 2) as store:

        def refuse() -> None:
            with pytest.raises(forebay.StoreFull):
                store.put(TOO_LARGE, principal=PRINCIPAL)

        measure("many handles, refuse", CORPUS, who, len(TOO_LARGE), refuse)


@pytest.mark.parametrize("who", BESIDE_FEW)
@pytest.mark.parametrize("action", ["sweep", "list"])
def bench_each_of_many(measured: Measured, roots: dict[int, Path], action: str, who: str) -> None:
    """Time the whole store, and report the time for each handle."""
    count = BESIDE_FEW[who]
    with open_store(roots[count]) as store:
        acts: dict[str, Callable[[], object]] = {
            "sweep": store.sweep,
            "list": lambda: sum(1 for _ in store.list(principal=forebay.OPERATOR)),
        }
        seconds = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            acts[action]()
            seconds.append((time.perf_counter() - start) / count)
    measured(f"many handles, {action} one", CORPUS, who, 1, seconds)
