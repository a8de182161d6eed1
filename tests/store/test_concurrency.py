"""Many processes and threads on one root: no payload is lost or mixed up, and the counters are right."""

import multiprocessing
import operator
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import forebay
import pytest
from faults import assert_tidy, digest, error_code, opened, redeem, spawnable, stored_files
from forebay import OPERATOR, ForebayError, HandleNotFound, Store
from forebay.store.backends.local import LocalBackend
from forebay.store.handles import Principal
from forebay.system import files

PROCESSES = 8
THREADS = 8
SECONDS = float(os.environ.get("STRESS_SECONDS", "10"))


def make_payload(owner: str, rng: random.Random) -> bytes:
    """Return a payload that has its owner's name and a checksum."""
    filling = rng.choice([b"x" * rng.randrange(4000), rng.randbytes(rng.randrange(2000)), b"[1,2]\n" * 100_000])
    body = owner.encode() + b"\n" + filling
    return digest(body).encode() + b"\n" + body


def check_owner(payload: bytes) -> str:
    """Check that a payload is complete, and return its owner."""
    seal, _, body = payload.partition(b"\n")
    assert digest(body) == seal.decode()
    return body.partition(b"\n")[0].decode()


class Worker:
    """Puts, reads, deletes and sweeps at random, and knows which of its payloads must exist."""

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name
        self.rng = random.Random(name)
        self.mine: list[str] = []

    def run(self, until: float) -> list[str]:
        while time.monotonic() < until:
            act = self.rng.choices([self.put, self.read, self.read_another, self.delete, self.sweep], [8, 8, 4, 5, 1])
            act[0]()
        return self.mine

    def put(self) -> None:
        ttl = self.rng.choice([None, None, 0.05])
        described = self.store.put(make_payload(self.name, self.rng), principal=self.name, ttl=ttl)
        if ttl is None:
            self.mine.append(described.output_handle)

    def read(self) -> None:
        if self.mine:
            handle = self.rng.choice(self.mine)
            assert check_owner(redeem(self.store, handle, self.name)) == self.name
            assert self.store.fetch(handle, principal=self.name, format="bytes", limit=9).offset == 0

    def read_another(self) -> None:
        """Read a payload of any worker, which may be deleted meanwhile."""
        for stored in self.store.list(principal=OPERATOR):
            if self.rng.random() < 0.1:
                handle = stored.output_handle
                try:
                    assert check_owner(redeem(self.store, handle, OPERATOR)) == stored.principal
                    if stored.principal != self.name:
                        with pytest.raises(HandleNotFound):
                            self.store.stat(handle, principal=self.name)
                except HandleNotFound:
                    assert handle not in self.mine
                return

    def delete(self) -> None:
        if self.mine:
            handle = self.mine.pop(self.rng.randrange(len(self.mine)))
            self.store.delete(handle, principal=self.name)
            with pytest.raises(HandleNotFound):
                self.store.stat(handle, principal=self.name)

    def sweep(self) -> None:
        self.store.sweep()


def run_threads(root: Path, process: int, seconds: float) -> dict[str, list[str]]:
    """Run the threads of one process, and return the handles that each of them has left in the store."""
    names = [f"p{process}-t{thread}" for thread in range(THREADS)]
    until = time.monotonic() + seconds
    with opened(root, quota_bytes=None, sweep_interval=0.5) as store, ThreadPoolExecutor(THREADS) as threads:
        return dict(zip(names, threads.map(lambda name: Worker(store, name).run(until), names), strict=True))


@pytest.mark.slow
def test_processes_that_share_a_root_lose_and_mix_nothing(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as processes:
        jobs = [processes.submit(spawnable(run_threads), root, process, SECONDS) for process in range(PROCESSES)]
        ledgers = {name: handles for job in jobs for name, handles in job.result().items()}
    assert len(ledgers) == PROCESSES * THREADS
    with opened(root) as store:
        store.sweep()
        for name, handles in ledgers.items():
            assert {stored.output_handle for stored in store.list(principal=name)} == set(handles)
            for handle in handles:
                assert check_owner(redeem(store, handle, name)) == name
    assert set(stored_files(root)) == {handle for handles in ledgers.values() for handle in handles}
    assert_tidy(root)


@pytest.mark.slow
def test_every_thread_lists_all_payloads(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as store:
        stored = {store.put(b"%d" % i).output_handle for i in range(500)}
        with ThreadPoolExecutor(8) as threads:
            listings = threads.map(lambda _: {found.output_handle for found in store.list()}, range(40))
            assert all(listing == stored for listing in listings)


@pytest.mark.slow
def test_every_thread_finds_payloads_that_another_process_stored_on_a_new_day(tmp_path: Path) -> None:
    day = 24 * 3600
    now = time.time()
    root = tmp_path / "store"
    threads = 8
    together = threading.Barrier(threads)

    def stat(handle: str) -> str:
        together.wait()
        try:
            return reader.stat(handle).output_handle
        except ForebayError as error:
            return str(error)

    with opened(root) as reader, ThreadPoolExecutor(threads) as pool:
        for age in range(1, 60):
            with opened(root, clock=lambda age=age: now - age * day) as writer:
                handle = writer.put(b"yesterday", ttl=999 * day).output_handle
            assert set(pool.map(stat, [handle] * threads)) == {handle}


@pytest.mark.posix
def test_many_principals_leave_no_file_open(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as store:
        store.put(b"the first opens the folders")
        before = os.listdir("/proc/self/fd")  # noqa: PTH208 - `Path` would hold one open meanwhile
        for i in range(100):
            store.put(b"payload", principal=f"principal {i}")
        assert os.listdir("/proc/self/fd") == before  # noqa: PTH208


def test_a_principal_without_payloads_has_no_counter(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with opened(root) as store:
        handle = store.put(b"payload", principal="ann").output_handle
        store.put(b"payload", principal="bob")
        store.delete(handle, principal="ann")
        store.sweep()
    assert sorted(path.name[:2] for path in (root / ".usage").iterdir()) == ["p-", "to"]


@pytest.mark.posix
def test_a_forked_child_can_put_and_sweep(tmp_path: Path) -> None:
    # Large enough for every thread of the pool to have been started before the fork.
    large = b"0123456789" * 2_000_000
    with forebay.open_store((tmp_path / "store").as_uri()) as store:
        store.put(large)
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            handle = store.put(large).output_handle
            os._exit(0 if store.open(handle).read() == large else 1)
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.posix
def test_concurrent_sweeps_count_each_payload_once(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    with forebay.open_store(url, sweep_interval=0) as store:
        for number in range(60):
            store.put(os.urandom(5000), ttl=0 if number % 2 else 60)
        children = []
        for _ in range(4):
            child = os.fork()
            if child == 0:
                with forebay.open_store(url, sweep_interval=0) as other:
                    other.sweep()
                os._exit(0)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
        stored = sum(listed.stored_bytes for listed in store.list())
        assert store._backend.usage() == {"total": stored}


@pytest.mark.posix
@pytest.mark.parametrize(
    "lock",
    [
        "_sweeper",
        "_writer",
        "_catalog",
        "call_counts",
        "_backend.folders",
        "_backend.accounts._files.lock",
        "_backend.log",
    ],
)
def test_a_forked_child_is_not_blocked_by_a_lock_of_its_parent(lock: str, tmp_path: Path) -> None:
    held, leave = threading.Event(), threading.Event()
    with forebay.open_store((tmp_path / "store").as_uri()) as store:
        store.put(b"before")

        def hold() -> None:
            owner = operator.attrgetter(lock)(store)
            with getattr(owner, "_lock", owner):
                held.set()
                leave.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            handle = store.put(b"0123456789" * 200_000).output_handle
            store.search(handle, "9")
            os._exit(0 if len(store.open(handle).read()) == 2_000_000 else 1)
        status = os.waitpid(child, 0)[1]
        leave.set()
        thread.join()
    assert status == 0


def test_a_lock_of_an_interrupted_holder_is_released(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with opened(root) as store, opened(root) as another:
        store.put(b"first")
        # An interrupt at the wrong moment would leave this lock held.
        files.lock(store._backend.accounts._files._total_fd)  # type: ignore[attr-defined]
        store.put(b"second")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(another.put, b"third").result(timeout=30)


INTERRUPT = """
import os, random, signal, sys, threading, time
import forebay


class Interrupted(Exception):
    pass


def interrupt(*_):
    raise Interrupted


def put_in_thread():
    thread = threading.Thread(target=store.put, args=(b"x",), daemon=True)
    thread.start()
    thread.join(30)
    return not thread.is_alive()


with forebay.open_store(sys.argv[1], sweep_interval=0, warn_bytes=0) as store:
    store.put(b"x")
    signal.signal(signal.SIGALRM, interrupt)
    generator, end = random.Random(1), time.monotonic() + 5
    while time.monotonic() < end:
        try:
            signal.setitimer(signal.ITIMER_REAL, generator.uniform(1e-5, 5e-4))
            # Not without end: Python ignores exceptions in finalizers.
            for _ in range(100):
                store.put(b"y")
        except Interrupted:
            pass
        # The next put of this process, which an interrupt has left with the lock of the files, releases it.
        store.put(b"z")
        if not put_in_thread():
            print("blocked", flush=True)
            os._exit(1)
    print("free", flush=True)
"""


@pytest.mark.posix
@pytest.mark.slow
def test_interrupts_leave_no_lock_held(tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPT, (tmp_path / "store").as_uri()]
    assert subprocess.run(command, capture_output=True, text=True, timeout=120).stdout == "free\n"


def test_a_background_sweep_does_not_wait_for_another_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    swept = threading.Event()
    lock = LocalBackend.lock

    def signal_and_lock(backend: LocalBackend, *, wait: bool) -> AbstractContextManager[bool]:
        if not wait:
            swept.set()
        return lock(backend, wait=wait)

    monkeypatch.setattr(LocalBackend, "lock", signal_and_lock)
    with opened(root) as other:
        other.put(b"payload")
        with other._backend.lock(wait=True):
            store = forebay.open_store(root.as_uri(), sweep_interval=0.01)
            store.put(b"another")
            assert swept.wait(30)
            with ThreadPoolExecutor(1) as pool:
                pool.submit(store.close).result(timeout=30)


@pytest.mark.parametrize("principal", ["ann", OPERATOR])
def test_a_delete_that_another_process_overtakes_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, principal: Principal
) -> None:
    root = tmp_path / "store"
    delete = LocalBackend.delete

    def delete_second(backend: LocalBackend, handle: str, size: int, accounts: Collection[str]) -> bool:
        monkeypatch.setattr(LocalBackend, "delete", delete)
        stored_files(root)[handle].unlink()
        return delete(backend, handle, size, accounts)

    with opened(root) as store:
        handle = store.put(b"payload", principal="ann").output_handle
        monkeypatch.setattr(LocalBackend, "delete", delete_second)
        with pytest.raises(HandleNotFound, match="call the tool again"):
            store.delete(handle, principal=principal)
        assert [event["event"] for event in store.journal.recent(1)] == ["output_handle_created"]
    assert_tidy(root)


def test_one_of_many_deletes_succeeds(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as store, ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            handle = store.put(b"payload").output_handle
            codes = list(pool.map(lambda _: error_code(lambda: store.delete(handle)), range(8)))  # noqa: B023
            assert sorted(codes) == ["", *["output_handle_not_found"] * 7]
