"""Writers that are killed: what they acknowledged stays, and nothing else is found."""

import contextlib
import random
import subprocess
import sys
import time

import pytest
from faults import digest, redeem
from forebay import OPERATOR, HandleNotFound, Store, open_store
from forebay.store.backends import TOTAL_ACCOUNT, object_accounts, object_lease
from s3_server import BUCKET, S3Server
from waiting import wait_until

pytestmark = pytest.mark.slow

WRITE = """
import hashlib, random, sys
from forebay import OPERATOR, open_store
chosen = random.Random(int(sys.argv[2]))
store = open_store(sys.argv[1], sweep_interval=0)
print("ready", flush=True)
while True:
    size = chosen.choice([500, 500, 70_000, 3_000_000, 19_000_000])
    data = chosen.randbytes(size)
    handle = store.put(data, principal=chosen.choice(["ann", None])).output_handle
    print(handle, hashlib.blake2b(data, digest_size=16).hexdigest(), flush=True)
    if chosen.random() < 0.3:
        print("deleting", handle, flush=True)
        store.delete(handle, principal=OPERATOR)
"""

HOLD = """
import sys
from forebay import open_store
store = open_store(sys.argv[1], sweep_interval=0)
with store._backend.lock(wait=True) as is_acquired:
    print(is_acquired, flush=True)
    sys.stdin.read()
"""


def opened(address: str) -> Store:
    return open_store(address, sweep_interval=0)


def test_killed_writers_lose_nothing_that_they_acknowledged(
    server: S3Server, prefix: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = random.Random(7)
    digests: dict[str, str] = {}
    deleted: set[str] = set()
    folder = server.folder / BUCKET / prefix
    for seed in range(12):
        child = subprocess.Popen([sys.executable, "-c", WRITE, address, str(seed)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(chosen.uniform(0.05, 1.2))
        child.kill()
        lines = child.stdout.read().splitlines(keepends=True)
        child.wait()
        child.stdout.close()
        for line in lines:
            words = line.split()
            if line.startswith("deleting"):
                deleted.add(words[1])
            elif line.endswith("\n"):
                digests[words[0]] = words[1]
    monkeypatch.setattr(object_accounts, "_DEAD_SECONDS", 0.0)
    with opened(address) as store:
        kept = digests.keys() - deleted
        assert len(kept) > 10
        for handle in kept:
            assert digest(redeem(store, handle, OPERATOR)) == digests[handle]
        for handle in deleted:
            # Killed while it was deleting: whole, or not there.
            with contextlib.suppress(HandleNotFound):
                assert digest(redeem(store, handle, OPERATOR)) == digests[handle]
        stored = sum((folder / key).stat().st_size for key in server.keys(prefix) if key.startswith("h/"))
        assert store._backend.usage()[TOTAL_ACCOUNT] >= stored
        report = store.sweep()
        assert report.corrupt == ()
        assert store._backend.usage()[TOTAL_ACCOUNT] == report.stored_bytes
        listed = {entry.output_handle for entry in store.list(principal=OPERATOR)}
        assert kept <= listed


def test_the_lock_of_a_killed_holder_is_taken_over(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "True\n"
        with opened(address) as store:
            with store._backend.lock(wait=False) as is_acquired:
                assert not is_acquired
            child.kill()
            child.wait()
            with store._backend.lock(wait=False) as is_acquired:
                assert not is_acquired
            monkeypatch.setattr(object_lease, "_MARGIN_SECONDS", -object_lease._LEASE_SECONDS)
            with store._backend.lock(wait=False) as is_acquired:
                assert is_acquired
    finally:
        child.kill()
        child.communicate()


def test_a_waiting_sweep_follows_the_one_that_holds_the_lock(address: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == "True\n"
        # Ends the block that holds the lock.
        child.stdin.close()
        child.stdin = None
        with opened(address) as store:
            store.sweep()
        wait_until(lambda: child.poll() == 0, seconds=30)
    finally:
        child.kill()
        child.communicate()
