"""Answers that are lost, and a server that is away."""

import os
import signal
import socket
import time
from pathlib import Path

import pytest
from faults import redeem
from forebay import HandleNotFound, Store, StoreUnavailable, open_store
from s3_server import BUCKET, Proxy, S3Server, free_port, s3_environment, s3_server
from stores import noise
from waiting import wait_until

MAX_SECONDS = 20
"""An operation ends within 7 seconds on an idle machine; here it must only not hang."""


def opened(server: S3Server, prefix: str, port: int | None = None) -> Store:
    return open_store(server.url(prefix, port), sweep_interval=0)


def sum_of_objects(server: S3Server, prefix: str) -> int:
    folder = server.folder / BUCKET / prefix
    return sum((folder / key).stat().st_size for key in server.keys(prefix) if key.startswith("h/"))


@pytest.mark.parametrize("size", [100, 5 << 20, 20 << 20])
def test_a_put_whose_answer_is_lost_is_stored_once(size: int, server: S3Server, prefix: str, front: Proxy) -> None:
    with opened(server, prefix, front.port) as store:
        store.put(b"first")
        for number in range(3):
            front.cut_answers.append(f"{'POST' if size > 16 << 20 else 'PUT'} /{BUCKET}/{prefix}/h/")
            data = noise(size, number)
            handle = store.put(data).output_handle
            assert not front.cut_answers
            assert redeem(store, handle) == data
        assert len([key for key in server.keys(prefix) if key.startswith("h/")]) == 4
        assert store._backend.usage()["total"] == sum_of_objects(server, prefix)


def test_a_ledger_whose_answer_is_lost_is_changed_once(server: S3Server, prefix: str, front: Proxy) -> None:
    with opened(server, prefix, front.port) as store:
        front.cut_answers += [f"PUT /{BUCKET}/{prefix}/accounts"] * 3
        for number in range(10):
            store.put(noise(3 << 20, number))
        assert not front.cut_answers
        assert store._backend.usage()["total"] == sum_of_objects(server, prefix)
    with opened(server, prefix) as store:
        assert store._backend.usage()["total"] == sum_of_objects(server, prefix)


def test_a_delete_whose_answers_are_lost_is_counted_once(server: S3Server, prefix: str, front: Proxy) -> None:
    with opened(server, prefix, front.port) as store:
        handles = [store.put(noise(1000, number)).output_handle for number in range(8)]
        for number, handle in enumerate(handles[:6]):
            method = "DELETE" if number % 2 else "PUT"
            front.cut_answers.append(f"{method} /{BUCKET}/{prefix}/h/")
            store.delete(handle)
            with pytest.raises(HandleNotFound):
                store.stat(handle)
        assert not front.cut_answers
        assert store._backend.usage()["total"] == sum_of_objects(server, prefix)


def test_a_lock_whose_answers_are_lost_is_held_and_released(server: S3Server, prefix: str, front: Proxy) -> None:
    with opened(server, prefix, front.port) as store, opened(server, prefix) as other:
        front.cut_answers += [f"PUT /{BUCKET}/{prefix}/lease"] * 2
        with store._backend.lock(wait=False) as is_acquired:
            assert is_acquired
            with other._backend.lock(wait=False) as is_acquired_by_other:
                assert not is_acquired_by_other
        assert not front.cut_answers
        with other._backend.lock(wait=False) as is_acquired_by_other:
            assert is_acquired_by_other


def check_unavailable(store: Store, handle: str, data: bytes) -> None:
    """Check that every operation fails in time, and says what to do."""
    for operation in (
        lambda: store.put(b"x" * 100),
        lambda: store.put(data),
        lambda: store.fetch(handle, offset=100_000, limit=1),
        lambda: store.delete(handle),
        lambda: store.sweep(),
        lambda: next(store.list()),
    ):
        began_at = time.monotonic()
        with pytest.raises(StoreUnavailable, match="call again"):
            operation()
        assert time.monotonic() - began_at < MAX_SECONDS


def stop(pid: int) -> None:
    """Stop a process, and wait until its threads have stopped."""
    os.kill(pid, signal.SIGSTOP)
    threads = Path(f"/proc/{pid}/task")
    wait_until(
        lambda: all(" T (stopped)" in (task / "status").read_text().replace("\t", " ") for task in threads.iterdir())
    )


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_server_that_is_away_is_unavailable_soon_and_comes_back(how: str, tmp_path: Path, prefix: str) -> None:
    port, rows = free_port(), [{"id": number} for number in range(200_000)]
    large = noise(18 << 20)
    with s3_environment():
        with s3_server(tmp_path, port) as server:
            store = opened(server, prefix)
            handle = store.put(rows).output_handle
            store.fetch(handle, offset=10, limit=1)
            if how == "stopped":
                stop(server.process.pid)
                check_unavailable(store, handle, large)
                server.process.send_signal(signal.SIGCONT)
        if how == "killed":
            check_unavailable(store, handle, large)
        with s3_server(tmp_path, port) as server:
            assert store.fetch(handle, offset=100_000, limit=1).content == b'[{"id":100000}]'
            assert redeem(store, store.put(large).output_handle) == large
            store.sweep()
            store.close()
            with opened(server, prefix) as store:
                assert store._backend.usage()["total"] >= sum_of_objects(server, prefix)


def test_a_server_that_never_answers_cannot_be_opened(prefix: str) -> None:
    with s3_environment(), socket.create_server(("127.0.0.1", 0)) as listener:
        began_at = time.monotonic()
        with pytest.raises(StoreUnavailable, match="check the endpoint"):
            open_store(f"s3://{BUCKET}/{prefix}?endpoint=http://127.0.0.1:{listener.getsockname()[1]}")
        assert time.monotonic() - began_at < MAX_SECONDS


def test_events_reach_the_journal_after_the_server_comes_back(server: S3Server, prefix: str, front: Proxy) -> None:
    with opened(server, prefix, front.port) as store:
        store.put(b"first")
        front.is_stalled = True
        with pytest.raises(StoreUnavailable):
            store.journal.recent()
        front.is_stalled = False
        store.put(b"second")
        wait_until(lambda: len(store.journal.recent()) == 2)
