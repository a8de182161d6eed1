"""Functions release the interpreter, and many threads on one payload get the same results as one thread."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import forebay
import pytest

THREADS = 8
CALLS = 64

RECORDS = [{"id": n, "name": f"naïve {n} 検索", "tags": ["a", "b" * (n % 7)]} for n in range(3000)]
DOCUMENT = json.dumps({"statuses": RECORDS, "count": len(RECORDS)}, ensure_ascii=False).encode()
LOG = "".join(f"{n} ERROR 検索 failed after {n % 100} ms\n" for n in range(5000)).encode()


def read_page(offset: int) -> Any:
    index = forebay.index_items(DOCUMENT)
    read = forebay.read_items(DOCUMENT, index, offset, 50)
    return read.content, read.next_offset


def find_matches(pattern: str, regex: bool) -> Any:
    result = forebay.search(LOG, pattern, regex=regex)
    return [(match.start, match.end, match.line, match.context) for match in result.matches], result.next_offset


def index_stream() -> bytes:
    indexer = forebay.ItemIndexer()
    for start in range(0, len(DOCUMENT), 4099):
        indexer.feed(DOCUMENT[start : start + 4099])
    return indexer.finish().to_bytes()


VERBS: dict[str, Callable[[int], Any]] = {
    "index_items": lambda _: forebay.index_items(DOCUMENT).to_bytes(),
    "index_lines": lambda _: forebay.index_lines(LOG).to_bytes(),
    "ItemIndexer": lambda _: index_stream(),
    "read_items": lambda n: read_page(n * 40),
    "read_text": lambda n: forebay.read_text(LOG, n * 101, 1000).text,
    "read_lines": lambda n: forebay.read_lines(LOG, n * 7, 20).text,
    "preview": lambda n: forebay.preview(DOCUMENT, 100 + n),
    "truncate": lambda n: forebay.truncate(DOCUMENT, max_bytes=1000 + n),
    "truncate_lines": lambda n: forebay.truncate_lines(LOG, n, n),
    "outline": lambda _: forebay.outline(DOCUMENT),
    "get": lambda n: forebay.get(DOCUMENT, f"/statuses/{n * 11}/name"),
    "locate": lambda n: forebay.locate(DOCUMENT, f"/statuses/{n}"),
    "project": lambda _: forebay.project(forebay.get(DOCUMENT, "/statuses"), ["id"]),
    "patch": lambda n: forebay.patch(DOCUMENT, [{"op": "remove", "path": f"/statuses/{n}"}]),
    "search": lambda n: find_matches(f"{n} ms", regex=False),
    "search by expression": lambda n: find_matches(rf"\b{n}\d ERROR", regex=True),
}


def run_in_threads(verb: Callable[[int], Any]) -> list[Any]:
    """Call `verb` from threads that start together; return the results in order of the calls."""
    barrier = threading.Barrier(THREADS)

    def work(thread: int) -> list[tuple[int, Any]]:
        barrier.wait()
        return [(n, verb(n)) for n in range(thread, CALLS, THREADS)]

    with ThreadPoolExecutor(THREADS) as pool:
        answers = dict(pair for pairs in pool.map(work, range(THREADS)) for pair in pairs)
    return [answers[n] for n in range(CALLS)]


@pytest.mark.slow
@pytest.mark.parametrize("name", VERBS)
def test_threads_get_the_same_results_as_one_thread(name: str) -> None:
    verb = VERBS[name]
    assert run_in_threads(verb) == [verb(n) for n in range(CALLS)]


def test_an_index_is_shared_by_threads() -> None:
    index = forebay.index_items(DOCUMENT)
    pages = run_in_threads(lambda n: json.loads(forebay.read_items(DOCUMENT, index, n, 1).content))
    assert pages == [[RECORDS[n]] for n in range(CALLS)]


def test_errors_arrive_in_the_thread_that_caused_them() -> None:
    def cause(n: int) -> int:
        with pytest.raises(forebay.InvalidJSON) as caught:
            forebay.index_items(b"[" + b" " * n + b"}")
        return caught.value.index

    assert run_in_threads(cause) == [n + 1 for n in range(CALLS)]


ROWS = b'{"id": 1, "name": "na\xc3\xafve"}\n' * 2000


def test_pieces_from_many_threads_are_taken_one_at_a_time() -> None:
    indexer = forebay.ItemIndexer()
    run_in_threads(lambda _: indexer.feed(ROWS))
    assert indexer.finish() == forebay.index_items(ROWS * CALLS)


def test_pieces_fed_after_the_end_are_refused() -> None:
    indexer = forebay.ItemIndexer()
    indexes = []

    def feed_or_finish(n: int) -> bool:
        if n == CALLS // 2:
            indexes.append(indexer.finish())
            return False
        try:
            indexer.feed(ROWS)
        except forebay.InvalidArgument as error:
            assert "finished or failed" in str(error)  # noqa: PT017 - those before the end are taken
            return False
        return True

    taken = sum(run_in_threads(feed_or_finish))
    assert indexes == [forebay.index_items(ROWS * taken)]


def index_in_pieces(data: bytes) -> forebay.ItemIndex:
    indexer = forebay.ItemIndexer()
    for start in range(0, len(data), 1_000_000):
        indexer.feed(data[start : start + 1_000_000])
    return indexer.finish()


def test_a_large_payload_has_the_same_index_as_its_pieces() -> None:
    items = json.dumps(RECORDS, ensure_ascii=False).encode()[1:-1]
    data = b'{"statuses": [' + b", ".join([items] * 60) + b'], "count": 180000}'
    # Two threads validate it, if there are two processors.
    assert len(data) > 8 << 20
    index = forebay.index_items(data)
    assert (index, len(index)) == (index_in_pieces(data), 180_000)
    for at in (1_000, len(data) // 2, len(data) - 1):
        broken = data[:at] + b"\xff" + data[at + 1 :]
        for find in (forebay.index_items, index_in_pieces):
            with pytest.raises(forebay.InvalidJSON) as caught:
                find(broken)
            assert caught.value.index == at


@pytest.fixture
def no_forced_switches() -> Iterator[None]:
    """Let other threads run only when the running one releases the interpreter itself."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("no_forced_switches")
def test_other_threads_run_during_a_call() -> None:
    started, done = threading.Event(), threading.Event()

    def signal() -> None:
        started.wait()
        done.set()

    thread = threading.Thread(target=signal)
    thread.start()
    started.set()
    for _ in range(1000):
        forebay.index_items(DOCUMENT)
        if done.is_set():
            break
    was_let_in = done.is_set()
    thread.join()
    assert was_let_in
