"""Every call of the operating system fails once: nothing acknowledged is lost, nothing else is seen, no lock stays."""

import fcntl
import multiprocessing
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import forebay.store
import pytest
from failing_os import KINDS, LATE_KINDS, FailingCall, iter_failing_calls
from faults import assert_tidy, error_code, opened, redeem, spawnable, stored_files
from forebay import OPERATOR, Store
from stores import noise

pytestmark = [pytest.mark.posix, pytest.mark.slow]

FAULTS = [*((kind, False) for kind in KINDS), *((kind, True) for kind in LATE_KINDS if kind != "close")]
OPTIONS: dict[str, Any] = {"durability": "power", "quota_bytes": 100_000}
EXPECTED_CODES = {"", "store_unavailable", "store_full"}


@pytest.fixture(scope="module")
def child() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.fixture(scope="module")
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def put_from_elsewhere(root: Path) -> str:
    with opened(root, **OPTIONS) as store:
        return store.put(b"from elsewhere", principal="cleo").output_handle


class Trial:
    """A store with some payloads, one action during which one call fails, and the checks afterwards."""

    def __init__(self, root: Path, failing: FailingCall) -> None:
        self.root = root
        self.failing = failing
        self.kept: dict[str, bytes] = {}

    def run(
        self,
        act: Callable[["Trial", Store], None],
        threads: ThreadPoolExecutor,
        child: ProcessPoolExecutor,
    ) -> None:
        with opened(self.root, **OPTIONS) as store:
            for number in range(2):
                data = b"kept %d" % number
                self.kept[store.put(data, principal="ann").output_handle] = data
            try:
                act(self, store)
                self.check(store)
                # A lock that is still held would block these.
                mine = threads.submit(store.put, b"next", principal="ann").result(timeout=30).output_handle
                theirs = child.submit(spawnable(put_from_elsewhere), self.root).result(timeout=30)
                self.kept |= {mine: b"next", theirs: b"from elsewhere"}
                self.check(store)
                threads.submit(store.sweep).result(timeout=30)
                store.journal.record("afterwards")
                assert store.journal.recent(1)[0]["event"] == "afterwards"
            except BaseException as error:
                error.add_note(f"the call that failed: {self.failing.description}")
                raise
        assert_tidy(self.root)

    def check(self, store: Store) -> None:
        assert {handle: redeem(store, handle, OPERATOR) for handle in self.kept} == self.kept
        assert {stored.output_handle for stored in store.list(principal=OPERATOR)} == set(self.kept)


def put(trial: Trial, store: Store, data: Any = b"new", expected: bytes = b"new") -> None:
    acknowledged: list[str] = []
    with trial.failing.inject():
        code = error_code(lambda: acknowledged.append(store.put(data, principal="bob").output_handle))
    assert code in EXPECTED_CODES
    trial.kept |= dict.fromkeys(acknowledged, expected)


def put_stream(trial: Trial, store: Store) -> None:
    put(trial, store, iter([noise(20_000)] * 3), noise(20_000) * 3)


def put_first(trial: Trial, store: Store) -> None:  # noqa: ARG001
    """Put to a root that does not exist yet."""
    root = trial.root.parent / "parent" / "new"
    acknowledged: list[str] = []

    def open_and_put() -> None:
        with opened(root, **OPTIONS) as new:
            acknowledged.append(new.put(b"first").output_handle)

    with trial.failing.inject():
        assert error_code(open_and_put) in EXPECTED_CODES
    with opened(root, **OPTIONS) as new:
        assert {stored.output_handle for stored in new.list()} == set(acknowledged)
        new.put(b"second")
    assert_tidy(root)


def refuse(trial: Trial, store: Store) -> None:
    with trial.failing.inject():
        assert error_code(lambda: store.put(noise(200_000), principal="bob")) in ("store_full", "store_unavailable")


def make_room(trial: Trial, store: Store) -> None:
    for seed in range(3):
        store.put(noise(25_000, seed), principal="bob", ttl=0)
    put(trial, store, noise(60_000), noise(60_000))


def delete(trial: Trial, store: Store) -> None:
    handle = next(iter(trial.kept))
    with trial.failing.inject():
        code = error_code(lambda: store.delete(handle, principal="ann"))
    assert code in (*EXPECTED_CODES, "output_handle_not_found")
    if not code or handle not in stored_files(trial.root):
        del trial.kept[handle]
    assert code or handle not in trial.kept


def sweep(trial: Trial, store: Store) -> None:
    for _ in range(2):
        store.put(b"expired", principal="bob", ttl=0)
    (trial.root / ".partial" / "oh_AAAAAAAAAAAA").write_bytes(b"of a crashed writer")
    (trial.root / "2020-01-01").mkdir(mode=0o700)
    with trial.failing.inject():
        assert error_code(store.sweep) in EXPECTED_CODES


def record(trial: Trial, store: Store) -> None:
    """Write to the journal, whose failures nobody notices, with a rotation."""
    store._backend.log._max_file_bytes = 400  # type: ignore[attr-defined]
    with trial.failing.inject():
        for number in range(8):
            store.journal.record("test", number=number)
    store._backend.log._max_file_bytes = 8 << 20  # type: ignore[attr-defined]
    events = [event["number"] for event in store.journal.recent(100) if event["event"] == "test"]
    assert events == sorted(events, reverse=True)
    assert len(events) >= 6


def read(trial: Trial, store: Store) -> None:
    handle = next(iter(trial.kept))
    with trial.failing.inject():
        assert error_code(lambda: store.fetch(handle, principal="ann")) in EXPECTED_CODES
        assert error_code(lambda: redeem(store, handle, "ann")) in EXPECTED_CODES
        assert error_code(lambda: store.journal.recent(5)) in EXPECTED_CODES
        assert error_code(lambda: list(store.list(principal="ann"))) in EXPECTED_CODES


def close(trial: Trial, store: Store) -> None:  # noqa: ARG001
    with opened(trial.root, **OPTIONS) as other:
        other.put(b"x", principal="ann", ttl=0)
        with trial.failing.inject():
            assert error_code(other.close) == ""


ACTS = [put, put_stream, put_first, refuse, make_room, delete, sweep, record, read, close]


@pytest.mark.parametrize(("kind", "is_late"), FAULTS)
@pytest.mark.parametrize("act", ACTS)
def test_a_failing_call_loses_nothing_and_leaves_no_lock(
    act: Callable[[Trial, Store], None],
    kind: str,
    is_late: bool,
    tmp_path: Path,
    threads: ThreadPoolExecutor,
    child: ProcessPoolExecutor,
) -> None:
    for number, failing in enumerate(iter_failing_calls(kind, is_late=is_late)):
        Trial(tmp_path / str(number) / "store", failing).run(act, threads, child)


@pytest.mark.parametrize("act", [put, sweep, delete, refuse])
def test_a_failing_call_leaves_no_file_open(
    act: Callable[[Trial, Store], None], tmp_path: Path, threads: ThreadPoolExecutor, child: ProcessPoolExecutor
) -> None:
    threads.submit(os.getpid).result()
    child.submit(os.getpid).result()
    before = count_open_files()
    for kind in ("flock", "fstat", "open", "pread", "pwrite", "listdir", "scandir"):
        for number, failing in enumerate(iter_failing_calls(kind)):
            Trial(tmp_path / f"{kind}{number}" / "store", failing).run(act, threads, child)
    assert count_open_files() == before


def count_open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - `Path` would hold one open meanwhile


@pytest.mark.posix
def test_all_calls_of_the_store_are_tried() -> None:
    """The sources call nothing of the system that `KINDS` lacks, except what cannot fail or is only read."""
    harmless = {"fsdecode", "fsencode", "fspath", "geteuid", "getpid", "register_at_fork", "strerror", "sysconf"}
    harmless |= {"cpu_count", "getegid", "getgroups", "major", "minor", "urandom"}
    # For configuration files, macOS and exports.
    not_for_stores = {"fchown", "fcntl", "link"}
    folder = Path(forebay.__file__).parent
    paths = [*(folder / "store").rglob("*.py"), folder / "system" / "posix_files.py"]
    called = {
        name for path in paths for name in re.findall(r"\b(?:os|fcntl)\.([a-z_]+)\(", path.read_text(encoding="utf-8"))
    }
    assert called - harmless - not_for_stores <= set(KINDS)
    assert all(hasattr(os, kind) or hasattr(fcntl, kind) for kind in KINDS)
