"""Quotas of replicas that share a bucket: never exceeded together, and nearly all of it usable."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forebay import Store, StoreFull, open_store
from forebay.store.backends import TOTAL_ACCOUNT, name_account, object_accounts
from forebay.store.entries import Entry
from s3_server import BUCKET, S3Server
from stores import noise

QUOTA = 3_000_000
PRINCIPAL_QUOTA = 2_000_000

FILL = """
import random, sys
from forebay import StoreFull, open_store
address, seed, quota, principal_quota = sys.argv[1], *map(int, sys.argv[2:])
chosen = random.Random(seed)
with open_store(address, quota_bytes=quota, principal_quota_bytes=principal_quota, sweep_interval=0) as store:
    refused = 0
    while refused < 3:
        try:
            store.put(chosen.randbytes(chosen.randrange(200, 3000)), principal="ann" if refused % 2 else None)
        except StoreFull:
            refused += 1
"""


def sum_of_objects(server: S3Server, prefix: str) -> int:
    folder = server.folder / BUCKET / prefix
    return sum((folder / key).stat().st_size for key in server.keys(prefix) if key.startswith("h/"))


def opened(address: str, **options: object) -> Store:
    return open_store(address, **{"sweep_interval": 0, **options})


def usage(store: Store) -> dict[str, int]:
    """Return the accounts that are not empty."""
    return {name: size for name, size in store._backend.usage().items() if size}


@pytest.mark.slow
def test_eight_processes_fill_a_quota_and_never_exceed_it(server: S3Server, prefix: str, address: str) -> None:
    quotas = [str(QUOTA), str(PRINCIPAL_QUOTA)]
    children = [subprocess.Popen([sys.executable, "-c", FILL, address, str(seed), *quotas]) for seed in range(8)]
    try:
        while any(child.poll() is None for child in children):
            assert sum_of_objects(server, prefix) <= QUOTA
            time.sleep(0.05)
        assert [child.wait() for child in children] == [0] * 8
    finally:
        for child in children:
            child.kill()
            child.wait()
    stored = sum_of_objects(server, prefix)
    assert QUOTA * 0.99 <= stored <= QUOTA
    with opened(address) as store:
        assert usage(store)[TOTAL_ACCOUNT] == stored


def test_accounts_are_exact_after_puts_and_deletes_of_two_replicas(server: S3Server, prefix: str, address: str) -> None:
    with opened(address) as first, opened(address) as second:
        handles = [
            store.put(noise(5000, number), principal="ann").output_handle
            for number in range(6)
            for store in (first, second)
        ]
        for number, handle in enumerate(handles[:8]):
            (second, first)[number % 2].delete(handle, principal="ann")
        assert usage(first)[TOTAL_ACCOUNT] >= sum_of_objects(server, prefix)
        assert usage(second)[TOTAL_ACCOUNT] >= sum_of_objects(server, prefix)
    stored = sum_of_objects(server, prefix)
    with opened(address) as store:
        assert usage(store) == {TOTAL_ACCOUNT: stored, name_account("ann"): stored}
        store.sweep()
        assert usage(store) == {TOTAL_ACCOUNT: stored, name_account("ann"): stored}


def test_space_that_one_replica_frees_is_used_by_another(address: str) -> None:
    with opened(address, quota_bytes=50_000) as first, opened(address, quota_bytes=50_000) as second:
        handle = first.put(noise(40_000)).output_handle
        with pytest.raises(StoreFull):
            second.put(noise(40_000, 1))
        first.delete(handle)
        deadline = time.monotonic() + 20
        while True:
            try:
                second.put(noise(40_000, 1))
                break
            except StoreFull:
                assert time.monotonic() < deadline


def test_the_accounts_of_an_empty_store_are_there_at_once(address: str) -> None:
    with opened(address) as store:
        assert store._backend.usage() == {TOTAL_ACCOUNT: 0}
    with opened(address) as store:
        assert store._backend.usage([TOTAL_ACCOUNT]) == {TOTAL_ACCOUNT: 0}


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b'{"id": 1')])
def test_a_ledger_that_is_gone_or_damaged_is_counted_again(
    damage: Callable[[Path], object], server: S3Server, prefix: str, address: str
) -> None:
    with opened(address) as store:
        store.put(noise(10_000), principal="ann")
    damage(server.folder / BUCKET / prefix / "accounts")
    with opened(address) as store:
        assert store._backend.usage() == {}
        store.put(noise(10_000), principal="bob")
        assert usage(store)[TOTAL_ACCOUNT] == sum_of_objects(server, prefix)
        assert {name_account("ann"), name_account("bob")} <= usage(store).keys()


def test_a_replica_that_was_dropped_takes_a_new_slice(
    server: S3Server, prefix: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(address) as sleeping:
        sleeping.put(noise(1000), principal="ann")
        monkeypatch.setattr(object_accounts, "_DEAD_SECONDS", 0.0)
        with opened(address) as other:
            other.sweep()
        monkeypatch.undo()
        # What it did not spend is free now, so that it must not spend it.
        with opened(address) as other:
            assert usage(other)[TOTAL_ACCOUNT] == sum_of_objects(server, prefix)
        monkeypatch.setattr(object_accounts, "_now", lambda: time.monotonic() + 1e6)
        sleeping.put(noise(1000, 1), principal="ann")
        monkeypatch.undo()
        with opened(address) as other:
            assert usage(other)[TOTAL_ACCOUNT] >= sum_of_objects(server, prefix)
    with opened(address) as store:
        assert usage(store)[TOTAL_ACCOUNT] == sum_of_objects(server, prefix)


def test_an_upload_during_which_its_replica_was_dropped_is_counted(
    server: S3Server, prefix: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(address) as sleeping:
        backend: Any = sleeping._backend
        backend.usage()
        upload = backend.create("oh_" + "A" * 12)
        upload.write([noise(1000)])
        put = backend._client.put

        def put_after_sleep(key: str, *arguments: object) -> object:
            monkeypatch.setattr(backend._client, "put", put)
            monkeypatch.setattr(object_accounts, "_DEAD_SECONDS", 0.0)
            with opened(address) as other:
                other.sweep()
            monkeypatch.setattr(object_accounts, "_now", lambda: time.monotonic() + 1e6)
            return put(key, *arguments)

        sleeping.put(noise(500))
        monkeypatch.setattr(backend._client, "put", put_after_sleep)
        upload.commit("bin", {TOTAL_ACCOUNT: 10_000_000}, Entry(0, 0, 1000, None))
        monkeypatch.undo()
        with opened(address) as other:
            assert usage(other)[TOTAL_ACCOUNT] >= sum_of_objects(server, prefix)
