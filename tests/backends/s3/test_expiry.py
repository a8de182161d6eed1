"""Expired objects that no index has: removed by what a listing tells, without a read of their footers."""

import os
import shutil
import time

import pytest
from forebay import OPERATOR, Store, open_store
from forebay.store.backends import TOTAL_ACCOUNT
from s3_server import BUCKET, Proxy, S3Server
from stores import Clock, noise

DAY_SECONDS = 86400


def opened(address: str, **options: object) -> Store:
    return open_store(address, **{"sweep_interval": 0, **options})


def age(server: S3Server, prefix: str, seconds: float) -> None:
    """Make all objects look older."""
    folder = server.folder / BUCKET / prefix
    then = time.time() - seconds
    for key in server.keys(prefix):
        if key.startswith("h/"):
            os.utime(folder / key, (then, then))


def remove_index(server: S3Server, prefix: str) -> None:
    shutil.rmtree(server.folder / BUCKET / prefix / "index")


def test_what_the_listing_shows_as_expired_is_not_read(server: S3Server, prefix: str, front: Proxy) -> None:
    address = server.url(prefix, front.port)
    with opened(address) as store:
        short = [store.put(noise(1000, n), ttl=3000, principal="ann").output_handle for n in range(3)]
        long = store.put(noise(1000), ttl=10 * DAY_SECONDS, principal="ann")
    age(server, prefix, 2.1 * 3600)
    remove_index(server, prefix)
    with opened(address, clock=lambda: time.time() + 7200) as store:
        front.reset()
        report = store.sweep()
        assert (report.expired, report.kept) == (3, 1)
        read = [line for line in front.requests if line.startswith("GET") and "/h/" in line]
        assert not any(handle in line for handle in short for line in read)
        assert [entry.output_handle for entry in store.list(principal=OPERATOR)] == [long.output_handle]
        usage = store._backend.usage()
        # Also the account of the principal, which the listing does not name.
        assert {size for size in usage.values() if size} == {usage[TOTAL_ACCOUNT]} == {report.stored_bytes}


def test_a_jump_of_the_clock_expires_nothing_and_keeps_the_accounts(
    server: S3Server, prefix: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(address) as store:
        store.put(noise(1000), ttl=0, principal="ann")
        before = store._backend.usage()
    age(server, prefix, 3 * 3600)
    remove_index(server, prefix)
    with opened(address) as store:
        monkeypatch.setattr(store._sweeper, "_last_clocks", (time.time() - 1e6, time.monotonic()))
        assert store.sweep().expired == 0
        assert store._backend.usage() == before
        assert store.sweep().expired == 1
        assert store._backend.usage()[TOTAL_ACCOUNT] == 0


def test_the_clock_of_a_test_does_not_expire_what_the_server_has_dated(address: str) -> None:
    clock = Clock(time.time() + 100 * DAY_SECONDS)
    with opened(address, clock=clock) as store:
        handle = store.put(b"kept", ttl=3000).output_handle
        assert store.sweep().kept == 1
        clock.now += 2000
        assert store.sweep().kept == 1
        assert store.stat(handle).size_bytes == 4
        clock.now += 2000
        # The first sweep after a jump expires nothing.
        assert (store.sweep().kept, store.sweep().kept) == (1, 0)


def test_the_tombstone_of_a_killed_process_is_removed(server: S3Server, prefix: str, address: str) -> None:
    with opened(address) as store:
        handle = store.put(b"x" * 1000).output_handle
        path = next((server.folder / BUCKET / prefix / "h").rglob(handle))
        tombstone = b"forebay: being deleted by " + b"0" * 40 + b"\n"
        path.write_bytes(tombstone)
        assert store.sweep().kept == 0
        assert path.exists()
        with pytest.raises(LookupError):
            store.stat(handle)
        age(server, prefix, 3600)
        store.sweep()
        assert not path.exists()
        assert store._backend.usage() == {TOTAL_ACCOUNT: 0}
