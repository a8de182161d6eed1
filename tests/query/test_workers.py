"""Workers: reused while they are healthy, ended after any failure, and never trusted."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from forebay import QueryFailed, Store, open_store
from forebay.query import process
from forebay.query.process import POOL, Worker, WorkerPool
from on_wine import IS_WINE
from process_ids import is_running
from waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    POOL.end_all()
    with open_store(tmp_path / "store", sweep_interval=0) as store:
        yield store
    POOL.end_all()


@pytest.fixture
def handle(store: Store) -> str:
    return store.put([{"id": n, "name": f"name {n}"} for n in range(100)]).output_handle


def idle_pids() -> list[int]:
    return [worker.pid for worker in POOL._idle]


def test_no_worker_is_kept_ready_after_the_end() -> None:
    pool = WorkerPool()
    pool.prestart()
    assert pool._spare is not None
    pool.end_all()
    # As the timer of an earlier query does.
    pool._start_spare()
    assert pool._spare is None


def test_a_worker_is_reused(store: Store, handle: str) -> None:
    store.query(handle, "SELECT max(id) FROM items")
    pids = idle_pids()
    assert len(pids) == 1
    store.query(handle, "SELECT max(id) FROM items")
    # A statement that did not run does no harm.
    with pytest.raises(QueryFailed):
        store.query(handle, "SELECT max(ids) FROM items")
    assert set(pids) <= set(idle_pids())


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT name::INTEGER FROM items", "Conversion Error"),
        pytest.param(
            *("SELECT repeat('x', 3000000000)", "memory"),
            marks=pytest.mark.xfail(IS_WINE, reason="Wine does not enforce the limit of a job"),
        ),
        ("SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000) c", "took longer than 0.5 s"),
    ],
)
def test_a_worker_that_failed_is_not_used_again(store: Store, handle: str, sql: str, message: str) -> None:
    store.query(handle, "SELECT max(id), min(name) FROM items")
    with pytest.raises(QueryFailed, match=message):
        store.query(handle, sql, timeout=0.5)
    assert all(is_running(pid) for pid in idle_pids())
    assert store.query(handle, "SELECT max(id) FROM items").rows == [[99]]


def test_a_worker_that_is_killed_is_replaced(store: Store, handle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    busy: list[int] = []
    query = Worker.query

    def record(worker: Worker, *arguments: Any, **options: Any) -> Any:
        busy.append(worker.pid)
        return query(worker, *arguments, **options)

    with monkeypatch.context() as patch, ThreadPoolExecutor() as threads:
        patch.setattr(Worker, "query", record)
        slow = threads.submit(
            store.query, handle, "SELECT count(*) FROM range(9999999) a, range(9999999) b", timeout=30.0
        )
        wait_until(lambda: busy != [])
        # Windows has no SIGKILL, and ends the process by this number, too.
        os.kill(busy[0], 9)
        with pytest.raises(QueryFailed, match="process died"):
            slow.result()
    assert store.query(handle, "SELECT max(id) FROM items").rows == [[99]]


def test_a_worker_ends_if_its_parent_dies_in_the_middle_of_a_message() -> None:
    worker = Worker()
    try:
        worker.parse("SELECT 1", 10.0)
        worker._process.send((1000).to_bytes(4, "big") + bytes(4) + b'{"sql"', [], 10.0)
        close_input(worker)
        wait_until(lambda: not worker.is_running)
    finally:
        worker.end()


def close_input(worker: Worker) -> None:
    """Close this process's end of the connection for sending."""
    process: Any = worker._process
    (process._input if sys.platform == "win32" else process._socket).close()


def test_queries_of_many_threads_are_all_right(store: Store) -> None:
    handles = [store.put([{"id": n, "k": k} for n in range(50)]).output_handle for k in range(4)]
    with ThreadPoolExecutor(12) as threads:
        results = threads.map(lambda n: store.query(handles[n % 4], "SELECT any_value(k) FROM items").rows, range(40))
        assert [*results] == [[[n % 4]] for n in range(40)]
    assert len(idle_pids()) <= 2


def test_too_many_queries_are_told_to_wait(store: Store, handle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POOL, "_running", threading.BoundedSemaphore(1))
    with POOL._running, pytest.raises(QueryFailed, match="too many queries are running; try again"):
        store.query(handle, "SELECT 1", timeout=0.1)


@pytest.mark.posix
def test_a_forked_child_has_workers_of_its_own(store: Store, handle: str) -> None:
    POOL.prestart()
    assert store.query(handle, "SELECT max(id) FROM items").rows == [[99]]
    child = os.fork()
    if child == 0:
        try:
            is_right = store.query(handle, "SELECT max(id) FROM items").rows == [[99]]
            POOL.end_all()
            os._exit(0 if is_right else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert store.query(handle, "SELECT min(id) FROM items").rows == [[0]]


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    program = (
        "import forebay, os, sys; from pathlib import Path; from forebay.query.process import POOL\n"
        "store = forebay.open_store(Path(sys.argv[1])); POOL.prestart()\n"
        "store.query(store.put([{'id': 1}]).output_handle, 'SELECT 1'); POOL.prestart()\n"
        "print(*[worker.pid for worker in [*POOL._idle, POOL._spare]], flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", program, tmp_path / "store"], stdout=subprocess.PIPE, check=False)
    assert killed.returncode in (-9, 9)
    pids = [int(word) for word in killed.stdout.split()]
    assert len(pids) == 2
    wait_until(lambda: not any(is_running(pid) for pid in pids))


READY = b"\\x00\\x00\\x00\\x02\\x00\\x00\\x00\\x00{}"

LIES = {
    "nothing": "",
    "silence": "import time; time.sleep(60)",
    "garbage": "os.write(output, b'x' * 5000)",
    "a large header": "os.write(output, b'\\xff' * 8)",
    "a large body": "os.write(output, ready + b'\\0\\0\\0\\2\\xff\\xff\\xff\\xff{}' * 3)",
    "no object": "os.write(output, ready + b'\\0\\0\\0\\2\\0\\0\\0\\0[]' * 3)",
    "no keys": "os.write(output, ready * 5)",
    "no rows": 'send(\'{"columns": [["a", "b"]], "row_count": 1}\', b\'{\')',
    "wrong columns": "send('{\"columns\": 5, \"row_count\": 1}', b'[1]')",
    "wrong rows": 'send(\'{"columns": [], "row_count": "x"}\', b\'[1\')',
    "infinitely many rows": "send('{\"columns\": [], \"row_count\": 1e999}', b'[1]')",
    "too many rows": "send('{\"columns\": [], \"row_count\": 1' + '0' * 4000 + '}', b'[1]')",
    "less than no rows": "send('{\"columns\": [], \"row_count\": -1}', b'[1]')",
    "nesting": "send('[' * 500000, b'')",
    "surrogates": 'send(\'{"columns": [["\\\\ud800", "b"]], "row_count": 1}\', b\'[1]\')',
}


def make_liar(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the next worker a program that sends what it likes."""
    program = f"""
import os
output = 1 if os.name == 'nt' else 0
ready = b'{READY.decode()}'
def send(header, body):
    lengths = len(header).to_bytes(4, 'big') + len(body).to_bytes(4, 'big')
    os.write(output, ready * 3 + lengths + header.encode() + body)
{lie}
"""
    POOL.end_all()
    monkeypatch.setattr(process, "_BOOT_CODE", program)
    monkeypatch.setattr(process, "_START_SECONDS", 2.0)


@pytest.mark.parametrize("lie", LIES)
def test_the_parent_trusts_nothing_of_a_worker(
    store: Store, handle: str, lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_liar(LIES[lie], monkeypatch)
    if lie == "silence":
        monkeypatch.setattr(process, "_START_SECONDS", 0.3)
    with contextlib.suppress(QueryFailed):
        answer = json.loads(store.query(handle, "SELECT 1", timeout=1.0).to_json())
        # What it says is shown only if it has the form of a result.
        assert (lie, answer["rows"]) == ("surrogates", [[1]])
    monkeypatch.undo()
    POOL.end_all()
    assert store.query(handle, "SELECT max(id) FROM items").rows == [[99]]


@pytest.mark.parametrize("kind", ["VARCHAR", "VARCHAR FROM read_text('/etc/hostname')"])
def test_the_types_of_a_worker_are_types(store: Store, handle: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_liar(
        f"""send('{{"columns": [["a", ' + {json.dumps(json.dumps(kind))} + ']], "row_count": 1}}', b'["x"]')
# It must not exit before the parent has sent all requests.
while os.read(0, 1 << 16): pass""",
        monkeypatch,
    )
    with (
        contextlib.nullcontext() if kind == "VARCHAR" else pytest.raises(QueryFailed, match="process died"),
        store.open_export(handle, sql="SELECT 1", format="parquet") as export,
    ):
        assert b"".join(map(bytes, export.chunks)).startswith(b"PAR1")


def test_a_program_that_cannot_be_started_is_an_error(
    store: Store, handle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "_base_executable" if sys.platform == "win32" else "executable", "/no/such/python")
    with pytest.raises(QueryFailed, match="no process can be started"):
        store.query(handle, "SELECT 1")


@pytest.mark.posix
def test_a_worker_has_an_empty_environment_and_no_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_CANARY", "canary")
    worker = Worker()
    try:
        worker.parse("SELECT 1", 30.0)
        assert Path(f"/proc/{worker.pid}/environ").read_bytes() == b""
        files = {str(path.readlink()) for path in Path(f"/proc/{worker.pid}/fd").iterdir()}
        assert {name.partition(":")[0] for name in files} <= {"/dev/null", "socket", "anon_inode", "pipe"}
        assert "Seccomp:\t2" in Path(f"/proc/{worker.pid}/status").read_text()
    finally:
        worker.end()
