"""Killed writers: what they acknowledged is there, the accounts are right, and nothing of anything else stays."""

import contextlib
import hashlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forebay
import pytest
import redis_writer
from faults import redeem
from forebay import OPERATOR, HandleNotFound, Store, StoreFull, StoreUnavailable
from forebay.store.backends import TOTAL_ACCOUNT, name_account, redis_leases
from forebay.store.backends import redis as redis_backend
from redis_server import RedisServer, get_cluster_url
from stores import noise

pytestmark = pytest.mark.slow

KILLS = 40
CLUSTER_KILLS = 15


@pytest.fixture(params=["server", "cluster"])
def servers(request: pytest.FixtureRequest) -> list[RedisServer]:
    """One server, or the nodes of a cluster; empty."""
    if request.param == "server":
        nodes = [request.getfixturevalue("shared_redis")]
    else:
        nodes = request.getfixturevalue("shared_cluster")
    for node in nodes:
        node.client.flushall()
    return list(nodes)


def get_url(servers: list[RedisServer]) -> str:
    return servers[0].url if len(servers) == 1 else get_cluster_url(servers)


def opened(servers: list[RedisServer], **options: Any) -> Store:
    return forebay.open_store(get_url(servers), **{"sweep_interval": 0, **options})


def find_keys(servers: list[RedisServer], pattern: str) -> set[str]:
    return {key.decode() for server in servers for key in server.client.keys(pattern)}


def assert_exact(store: Store, servers: list[RedisServer]) -> dict[str, str | None]:
    """Check that listing, accounts and keys agree, and return the handles and their principals."""
    outputs = list(store.list(principal=OPERATOR))
    sums = {TOTAL_ACCOUNT: 0}
    for output in outputs:
        for name in [TOTAL_ACCOUNT, *([name_account(output.principal)] if output.principal else [])]:
            sums[name] = sums.get(name, 0) + output.stored_bytes
    assert store._backend.usage() == sums
    handles = {output.output_handle: output.principal for output in outputs}
    assert find_keys(servers, "forebay:{oh_*}*") == {f"forebay:{{{handle}}}" for handle in handles}
    return handles


def start_writer(servers: list[RedisServer], seed: int, quota: int = 0, count: int = 1000) -> "subprocess.Popen[str]":
    arguments = map(str, [get_url(servers), seed, quota, count])
    script = Path(redis_writer.__file__)
    return subprocess.Popen([sys.executable, script, *arguments], stdout=subprocess.PIPE, text=True)


def expire_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take all uploads for those of dead writers."""
    monkeypatch.setattr(redis_leases, "UPLOAD_SECONDS", 0)
    monkeypatch.setattr(redis_backend, "UPLOAD_SECONDS", 0)


def test_what_killed_processes_acknowledged_is_there(servers: list[RedisServer]) -> None:
    rng = random.Random(1)
    acknowledged: dict[str, tuple[str, str]] = {}
    maybe_deleted: set[str] = set()
    for seed in range(KILLS if len(servers) == 1 else CLUSTER_KILLS):
        writer = start_writer(servers, seed)
        assert writer.stdout is not None
        # The first acknowledgement says that the process has started.
        lines = [writer.stdout.readline()]
        time.sleep(rng.random() * 0.3)
        writer.kill()
        lines += writer.stdout.read().splitlines()
        writer.stdout.close()
        writer.wait()
        for line in lines:
            match line.split():
                case ["delete", handle]:
                    maybe_deleted.add(handle)
                case [handle, principal, digest]:
                    acknowledged[handle] = principal, digest
    with opened(servers) as store:
        # All writers are dead.
        backend: Any = store._backend
        for member in backend.client.call("ZRANGE", backend.keys.uploads, 0, -1):
            backend.client.call("ZADD", backend.keys.uploads, 0, member)
        # Before the sweep they may be too high, but never too low.
        total = sum(output.stored_bytes for output in store.list(principal=OPERATOR))
        assert store._backend.usage()[TOTAL_ACCOUNT] >= total
        store.sweep()
        handles = assert_exact(store, servers)
        found = {
            handle
            for handle, (principal, digest) in acknowledged.items()
            if is_stored(store, handle, principal, digest)
        }
        assert acknowledged.keys() - maybe_deleted <= found
        # At most what was stored, but not acknowledged before its process was killed.
        assert len(handles.keys() - acknowledged.keys()) <= KILLS
        assert len(found) > 20


def is_stored(store: Store, handle: str, principal: str, digest: str) -> bool:
    try:
        data = redeem(store, handle, principal)
    except HandleNotFound:
        return False
    assert hashlib.sha256(data).hexdigest() == digest
    return True


class Killed(BaseException):
    """A process that is killed does nothing any more."""


def kill_at_request(store: Store, number: int, *, is_sent: bool) -> Callable[[], int]:
    """Let a store's requests fail from one on, which may still be sent; return a function that counts them."""
    backend: Any = store._backend
    client, count = backend.client, 0
    send = client.send

    def send_until_killed(request: Any, **options: Any) -> Any:
        nonlocal count
        if threading.current_thread() is not threading.main_thread():
            raise StoreUnavailable("killed")
        count += 1
        if count > number + 1:
            raise StoreUnavailable("killed")
        if count == number + 1:
            if is_sent:
                send(request, **options)
            raise Killed
        return send(request, **options)

    client.send = send_until_killed
    return lambda: count


@pytest.mark.parametrize("is_sent", [False, True])
def test_a_put_that_is_killed_at_any_request_leaves_nothing(
    servers: list[RedisServer], monkeypatch: pytest.MonkeyPatch, is_sent: bool
) -> None:
    expire_leases(monkeypatch)
    with opened(servers) as store:
        kept = {store.put(noise(1000)).output_handle: None}
    number, is_complete = 0, False
    while not is_complete:
        with contextlib.suppress(Killed), opened(servers) as store:
            count = kill_at_request(store, number, is_sent=is_sent)
            kept[store.put(noise(2_500_000, number), principal="ann").output_handle] = None
            is_complete = count() <= number
        with opened(servers) as other:
            other.sweep()
            found = assert_exact(other, servers)
            # What was published before the process was killed may stay.
            unacknowledged = found.keys() - kept.keys()
            assert kept.keys() <= found.keys()
            assert len(unacknowledged) <= 1
            for handle in unacknowledged:
                assert redeem(other, handle, "ann") == noise(2_500_000, number)
                other.delete(handle, principal="ann")
        number += 1
    assert number > 5


@pytest.mark.parametrize("is_sent", [False, True])
def test_a_delete_that_is_killed_at_any_request_subtracts_once(
    servers: list[RedisServer], monkeypatch: pytest.MonkeyPatch, is_sent: bool
) -> None:
    expire_leases(monkeypatch)
    for number in range(4):
        with contextlib.suppress(Killed), opened(servers) as store:
            handle = store.put(noise(3000), principal="ann").output_handle
            kill_at_request(store, number, is_sent=is_sent)
            store._backend.delete(handle, 3000, [])
        with opened(servers) as other:
            other.sweep()
            for handle in assert_exact(other, servers):
                other.delete(handle, principal="ann")


def test_processes_never_exceed_a_quota_by_a_byte(servers: list[RedisServer]) -> None:
    quota = 20_000_000
    with opened(servers, quota_bytes=quota) as store:
        writers = [start_writer(servers, seed, quota, 40) for seed in range(8)]
        highest = 0
        while any(writer.poll() is None for writer in writers):
            used = store._backend.usage()[TOTAL_ACCOUNT]
            assert used <= quota
            highest = max(highest, used)
            stored = sum(int(size) for _, size in read_sizes(store))
            assert stored <= quota
        lines = []
        for writer in writers:
            assert writer.stdout is not None
            assert writer.wait() == 0
            lines += writer.stdout.read().splitlines()
            writer.stdout.close()
        assert "full" in lines
        assert highest > 0.8 * quota
        store.sweep()
        deleted = {line.split()[1] for line in lines if line.startswith("delete")}
        acknowledged = {line.split()[0] for line in lines} - {"full", "delete"}
        assert {*assert_exact(store, servers)} == acknowledged - deleted


def test_what_is_replaced_and_what_replaces_it_fit_a_quota(
    servers: list[RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(servers) as store:
        store.mailbox.post("key", b"", 100)
        quota = store._backend.usage()[TOTAL_ACCOUNT] + 100
    with opened(servers, quota_bytes=quota) as store:
        backend: Any = store._backend
        run = backend.client.run

        def run_and_check(*arguments: Any, **options: Any) -> Any:
            result = run(*arguments, **options)
            assert backend.usage()[TOTAL_ACCOUNT] <= quota
            return result

        monkeypatch.setattr(backend.client, "run", run_and_check)
        # As if another process had stored the same message after this one has deleted the old one.
        monkeypatch.setattr("forebay.store.sidecars.delete_hidden", lambda *_: False)
        with contextlib.suppress(StoreFull):
            store.mailbox.post("key", b"", 100)


def read_sizes(store: Store) -> list[tuple[str, int]]:
    """Return the records of the index, of one moment."""
    backend: Any = store._backend
    found = backend.client.call("ZRANGE", backend.keys.index, 0, -1)
    return [(fields[0].decode(), int(fields[2])) for fields in (record.split(b":") for record in found)]


def test_a_sweep_spares_the_uploads_of_living_writers(servers: list[RedisServer]) -> None:
    with opened(servers) as store, opened(servers) as other:

        def chunks() -> Iterator[bytes]:
            for number in range(12):
                yield noise(1_000_000, number)
                if number % 4 == 3:
                    assert other.sweep().orphans == 0

        handle = store.put(chunks()).output_handle
        assert redeem(other, handle) == b"".join(noise(1_000_000, number) for number in range(12))


def test_leases_are_renewed(servers: list[RedisServer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_leases, "UPLOAD_SECONDS", 1)
    monkeypatch.setattr(redis_leases, "_LOCK_SECONDS", 1)
    monkeypatch.setattr(redis_leases, "_RENEW_SECONDS", 0.1)
    with opened(servers) as store, opened(servers) as other:
        upload = store._backend.create("oh_AAAAAAAAAAAA")
        upload.write([noise(3_000_000)])
        with store._backend.lock(wait=True):
            time.sleep(1.5)
            assert other._backend.remove_leftovers() == 0
            with other._backend.lock(wait=False) as has_lock:
                assert not has_lock
        # Now as after a kill.
        store._backend.leases.close()  # type: ignore[attr-defined]
        with store._backend.lock(wait=True):
            time.sleep(1.3)
            with other._backend.lock(wait=True) as has_lock:
                assert has_lock
            assert other._backend.remove_leftovers() == 1
        with pytest.raises(StoreUnavailable, match="lost an unfinished payload"):
            upload.write([noise(3_000_000)])
        upload.abort()
        assert_exact(other, servers)
