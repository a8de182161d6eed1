"""Statements that a hostile model may send: none reads, writes, reveals or exhausts anything, and all end in time."""

import contextlib
import multiprocessing
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
import query_attacks
from faults import spawnable
from forebay.errors import InvalidArgument, QueryFailed
from forebay.query.limits import WORKER_MEMORY_BYTES
from forebay.store import Store, open_store

pytestmark = pytest.mark.slow

CANARY = "canary-8f14e45f"
TIMEOUT_SECONDS = 1.0
SHORT_TIMEOUT_SECONDS = 0.3
"""For statements that take longer than any limit: only the limit ends them."""
SLACK_SECONDS = 30.0
"""Time to start a worker and to load the tables, on a busy machine."""
MAX_BYTES = 16_384
BASE_MEMORY_BYTES = 256 << 20
"""More than a worker takes before its limit counts."""


class Target(NamedTuple):
    """What the attacks are after."""

    store: Store
    own: str
    names: dict[str, str]
    connections: list[object]
    folder: Path


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with make_target(tmp_path_factory.mktemp("attacked")) as target:
        yield target


@contextlib.contextmanager
def make_target(folder: Path) -> Iterator[Target]:
    file = folder / "secret.csv"
    file.write_text(f"a,b\n{CANARY},1\n")
    out = folder / "out"
    out.mkdir()
    connections: list[object] = []
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        open_store(folder / "store") as store,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("FOREBAY_CANARY", CANARY)
        threading.Thread(target=_accept, args=(server, connections), daemon=True).start()
        orders = [{"id": n, "note": f"note {n}"} for n in range(500)]
        own = store.put({"orders": orders}, principal="ann").output_handle
        foreign = store.put({"orders": [{"id": 1, "note": CANARY}]}, principal="bob").output_handle
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        names = {"file": str(file), "folder": str(out), "url": url, "foreign": foreign, "own": own}
        yield Target(store, own, names, connections, folder)
        # Windows shuts down connections only; there the thread ends when the socket is closed.
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def _accept(server: socket.socket, connections: list[object]) -> None:
    while True:
        try:
            connections.append(server.accept())
        except OSError:
            return


def attack(target: Target, statement: str, timeout: float = TIMEOUT_SECONDS) -> str:
    """Run a statement and check all that holds for any of them. Return the answer or the error."""
    for name, value in target.names.items():
        statement = statement.replace("{" + name + "}", value)
    files_before = sorted(target.folder.rglob("*"))
    started = time.monotonic()
    try:
        page = target.store.query(
            target.own, statement, timeout=timeout, max_bytes=MAX_BYTES, principal="ann", escape_levels=1
        )
        answer = page.to_json().decode()
        assert len(answer) <= MAX_BYTES
    except (QueryFailed, InvalidArgument) as error:
        answer = f"error: {error.to_dict()}"
    assert time.monotonic() - started < timeout + SLACK_SECONDS
    # An error may repeat a part of the statement, which has no secret.
    assert CANARY not in answer
    assert target.connections == []
    assert sorted(target.folder.rglob("*")) == files_before
    normal = target.store.query(target.own, "SELECT count(*), max(id) FROM orders", principal="ann", timeout=30.0)
    assert normal.rows == [[500, 499]]
    return answer


def shorten(statement: str) -> str:
    return statement[:48]


@pytest.mark.parametrize("statement", query_attacks.REFUSED, ids=shorten)
def test_a_statement_that_is_no_question_about_the_tables_is_refused(target: Target, statement: str) -> None:
    assert attack(target, statement).startswith("error: ")


@pytest.mark.parametrize("statement", query_attacks.REVEALING, ids=shorten)
def test_the_catalog_reveals_nothing(target: Target, statement: str) -> None:
    answer = attack(target, statement)
    if not answer.startswith("error: "):
        for secret in (str(Path.home()), str(target.folder), "/proc", "/tmp", target.names["foreign"]):  # noqa: S108
            assert secret not in answer


@pytest.fixture(scope="module")
def peaks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """For each memory bomb, the bytes that the largest worker has taken until then."""
    # In a process of its own: other tests of this one may have had larger children.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(spawnable(measure_peaks), tmp_path_factory.mktemp("bombed")).result()


def measure_peaks(folder: Path) -> dict[str, int]:
    import resource

    peaks = {}
    with make_target(folder) as target:
        for statement in query_attacks.MEMORY_BOMBS:
            attack(target, statement)
            peaks[statement] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return peaks


@pytest.mark.posix
@pytest.mark.parametrize("statement", query_attacks.MEMORY_BOMBS, ids=shorten)
def test_memory_is_bounded(peaks: dict[str, int], statement: str) -> None:
    assert 0 < peaks[statement] < WORKER_MEMORY_BYTES + BASE_MEMORY_BYTES


@pytest.mark.parametrize("statement", query_attacks.TIME_BOMBS, ids=shorten)
def test_time_is_bounded(target: Target, statement: str) -> None:
    attack(target, statement, SHORT_TIMEOUT_SECONDS)


def test_there_are_enough_attacks() -> None:
    lists = (query_attacks.REFUSED, query_attacks.REVEALING, query_attacks.MEMORY_BOMBS, query_attacks.TIME_BOMBS)
    assert len({statement for statements in lists for statement in statements}) >= 140
