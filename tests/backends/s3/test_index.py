"""The index of a bucket: sweeps read it in place of footers, and do not depend on it."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from forebay import Store, StoreUnavailable, open_store
from forebay.store.backends import TOTAL_ACCOUNT, name_account, object_index
from forebay.store.backends.object_store import ObjectStoreBackend
from forebay.store.entries import Entry
from forebay.store.handles import LIFETIMES, format_date, get_lifetime_class, new_handle
from peak import MAX_GROWTH_BYTES, measured
from s3_server import BUCKET, Proxy, S3Server
from stores import noise
from waiting import wait_until

DAY_SECONDS = 86400

WRITE = """
import sys, time
from forebay import open_store
store = open_store(sys.argv[1], sweep_interval=0)
print(store.put(b"x" * 1000, principal="ann").output_handle, flush=True)
time.sleep(60)
"""


def opened(address: str, **options: object) -> Store:
    return open_store(address, **{"sweep_interval": 0, **options})


def index_of(store: Store) -> object_index.ObjectIndex:
    backend = store._backend
    assert isinstance(backend, ObjectStoreBackend)
    return backend.index


def footers(front: Proxy) -> list[str]:
    """Return the handles of the objects that were read."""
    paths = [line.split()[1].partition("?")[0] for line in front.requests if line.startswith("GET")]
    return [path.rpartition("/")[2] for path in paths if "/h/" in path]


def segments(server: S3Server, prefix: str) -> list[Path]:
    root = server.folder / BUCKET / prefix
    return [root / key for key in sorted(server.keys(prefix)) if key.startswith("index/")]


def lines(server: S3Server, prefix: str) -> list[list[object]]:
    return [json.loads(line) for path in segments(server, prefix) for line in path.read_bytes().splitlines()]


def add_segment(server: S3Server, prefix: str, content: bytes, lifetime: int = 7, name: str = "other") -> Path:
    path = server.folder / BUCKET / prefix / f"index/{lifetime}/{format_date(time.time())}/{name}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_second_process_sweeps_without_footers(server: S3Server, prefix: str, address: str, front: Proxy) -> None:
    sizes = dict.fromkeys(["ann", "bob", None], 0)
    with opened(address) as one, opened(address) as other:
        for number in range(40):
            store, principal = (one, other)[number % 2], (*sizes,)[number % 3]
            ttl = (1000, 5 * DAY_SECONDS, 400 * DAY_SECONDS)[number % 4 % 3]
            handle = store.put(noise(500 + number), ttl=ttl, principal=principal).output_handle
            sizes[principal] += store.stat(handle, principal=principal).stored_bytes
    with opened(server.url(prefix, front.port)) as store:
        front.reset()
        report = store.sweep()
        assert (report.kept, report.stored_bytes) == (40, sum(sizes.values()))
        assert footers(front) == []
        assert sum(line.startswith("GET") and "/index/" in line for line in front.requests) == len(
            segments(server, prefix)
        )
        front.reset()
        handle = store.put(b"new").output_handle
        assert store.sweep().kept == 41
        # Of the index, only what is new.
        assert sum(line.startswith("GET") and "/index/" in line for line in front.requests) == 1
        front.reset()
        assert store.sweep().kept == 41
        assert not any("/index/" in line for line in front.requests)
        sizes[None] += store.stat(handle).stored_bytes
    # Also a recount of all accounts is one by the index.
    (server.folder / BUCKET / prefix / "accounts").unlink()
    with opened(server.url(prefix, front.port)) as store:
        front.reset()
        store.sweep()
        assert footers(front) == []
        assert store._backend.usage() == {
            TOTAL_ACCOUNT: sum(sizes.values()),
            **{name_account(name): size for name, size in sizes.items() if name is not None},
        }


def test_expired_objects_are_removed_by_the_index(server: S3Server, prefix: str, address: str, front: Proxy) -> None:
    with opened(address) as store:
        short = [store.put(noise(1000, n), ttl=1000, principal="ann").output_handle for n in range(3)]
        store.put(noise(1000), ttl=3000, principal="ann")
    with opened(server.url(prefix, front.port), clock=lambda: time.time() + 2000) as store:
        front.reset()
        report = store.sweep()
        assert (report.expired, report.kept) == (3, 1)
        assert footers(front) == []
        assert {event["handle"] for event in store.journal.recent() if event["event"] == "output_handle_expired"} == {
            *short
        }
        usage = store._backend.usage()
        assert usage == {TOTAL_ACCOUNT: report.stored_bytes, name_account("ann"): report.stored_bytes}
        # The segment still has the lines of what was deleted.
        assert len(lines(server, prefix)) == 4
        assert (store.sweep().expired, store.sweep().kept) == (0, 1)


def test_lines_are_written_soon_and_by_none_that_is_idle(
    server: S3Server, prefix: str, address: str, front: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_index, "_FLUSH_SECONDS", 0.1)
    with opened(address) as store:
        store.put(b"x")
        wait_until(lambda: len(segments(server, prefix)) == 1, seconds=30)
        store.put(b"y")
        wait_until(lambda: len(lines(server, prefix)) == 2, seconds=30)
        with opened(server.url(prefix, front.port)) as idle:
            assert idle.sweep().kept == 2
        assert not any(line.startswith("PUT") and "/index/" in line for line in front.requests)
        assert len(segments(server, prefix)) == 1


def test_the_objects_of_a_killed_writer_are_found_by_their_footers(
    server: S3Server, prefix: str, address: str, front: Proxy
) -> None:
    with opened(address) as store:
        store.put(b"indexed")
    child = subprocess.Popen([sys.executable, "-c", WRITE, address], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        handle = child.stdout.readline().strip()
    finally:
        child.kill()
        child.communicate()
    assert handle not in {line[0] for line in lines(server, prefix)}
    with opened(server.url(prefix, front.port)) as store:
        front.reset()
        assert store.sweep().kept == 2
        assert footers(front) == [handle]
        assert store._backend.usage([name_account("ann")])[name_account("ann")] >= 1000
        front.reset()
        assert store.sweep().kept == 2
        assert footers(front) == []


def test_a_commit_succeeds_although_its_line_cannot_be_written(
    server: S3Server, prefix: str, address: str, front: Proxy
) -> None:
    blocker = server.folder / BUCKET / prefix / "index"
    with opened(address) as store:
        handles = [store.put(b"first").output_handle]
        # Where a file is, the server can make no folder.
        blocker.write_bytes(b"")
        with pytest.raises(StoreUnavailable):
            index_of(store)._flush()
        handles.append(store.put(b"second").output_handle)
        assert store.sweep().kept == 2
        blocker.unlink()
    # They were kept in memory.
    assert [line[0] for line in lines(server, prefix)] == handles
    with opened(server.url(prefix, front.port)) as store:
        front.reset()
        assert store.sweep().kept == 2
        assert footers(front) == []


def test_an_object_of_another_size_than_its_line_is_read(
    server: S3Server, prefix: str, address: str, front: Proxy
) -> None:
    with opened(address) as store:
        handle = store.put(noise(1000), ttl=2000).output_handle
    with opened(address) as store:
        # Written by a program that keeps no index.
        shutil.rmtree(server.folder / BUCKET / prefix / "h")
        replacement = store.put(noise(3000), ttl=3000).output_handle
        folder = server.folder / BUCKET / prefix / f"h/{get_lifetime_class(handle)}"
        (folder / replacement).rename(folder / handle)
    with opened(server.url(prefix, front.port), clock=lambda: time.time() + 2500) as store:
        front.reset()
        report = store.sweep()
        assert footers(front) == [handle]
        assert report.stored_bytes == (folder / handle).stat().st_size
        assert (report.kept, report.expired) == (1, 0)


def test_a_message_that_was_replaced_is_not_taken_for_the_old_one(
    server: S3Server, prefix: str, address: str, front: Proxy
) -> None:
    with opened(address) as store:
        store.put(b"payload")
        for ttl in (1000, 3000):
            store.mailbox.post("key", b"same size", ttl=ttl)
    assert len(lines(server, prefix)) == 1
    with opened(server.url(prefix, front.port), clock=lambda: time.time() + 2000) as store:
        front.reset()
        assert store.sweep().kept == 2
        assert len(footers(front)) == 1
        assert store.mailbox.read("key") == b"same size"


def test_damaged_and_wrong_lines_do_no_harm(server: S3Server, prefix: str, address: str) -> None:
    with opened(address) as store:
        handle = store.put(noise(1000), ttl=2000).output_handle
        size = store.stat(handle).stored_bytes
    (path,) = segments(server, prefix)
    path.unlink()
    wrong = [
        [handle, 0, 0, size + 1, None],
        [handle, 0, 0, size],
        [handle, 0, 0, -1, None],
        [handle, 0, 0, 1 << 63, None],
        [handle, None, None, size, None],
        [handle, 0, 0, size, 5],
        [new_handle(), 0, 4e9, 1000, "gone"],
        ["../x", 0, 0, size, None],
        {"handle": handle},
        7,
    ]
    add_segment(server, prefix, b"\xff\xfe\n\n[\n" + b"\n".join(json.dumps(line).encode() for line in wrong))
    add_segment(server, prefix, b"", name="empty")
    (server.folder / BUCKET / prefix / "index/stray").write_bytes(b"not a segment")
    with opened(address) as store:
        report = store.sweep()
        assert (report.kept, report.stored_bytes) == (1, size)
        assert len(index_of(store)._entries) == 1
        store.sweep()
        assert len(index_of(store)._entries) == 0
        assert store.stat(handle).stored_bytes == size


def test_segments_go_with_the_last_of_their_objects(server: S3Server, prefix: str, address: str) -> None:
    root = server.folder / BUCKET / prefix / "index"
    expected = set()
    for number, seconds in enumerate(LIFETIMES):
        for days_before in (0, 1, 400):
            # A day of writing, the lifetime, and a day of margin.
            age = days_before * DAY_SECONDS if seconds is None else seconds + (days_before + 1) * DAY_SECONDS
            day = format_date(time.time() - age)
            (root / f"{number}/{day}").mkdir(parents=True)
            (root / f"{number}/{day}/1-a").write_bytes(b"")
            if seconds is None or days_before == 0:
                expected.add(f"index/{number}/{day}/1-a")
    with opened(address) as store:
        store.put(b"x", ttl=1000)
        store.sweep()
        kept = {key for key in server.keys(prefix) if key.startswith("index/")}
        assert expected <= kept
        assert len(kept) <= len(expected) + 8
        assert not any(key.split("/")[2] < format_date(time.time() - 370 * DAY_SECONDS) for key in kept - expected)


def test_a_segment_ends_with_its_day(
    server: S3Server, prefix: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(address) as store:
        for day in ("2026-01-01", "2026-01-02", "2026-01-02"):
            monkeypatch.setattr(object_index, "format_date", lambda _, day=day: day)
            store.put(b"x")
            index_of(store)._flush()
    found = segments(server, prefix)
    assert [path.parent.name for path in found] == ["2026-01-01", "2026-01-02"]
    assert [len(path.read_bytes().splitlines()) for path in found] == [1, 2]


def test_segments_are_bounded(server: S3Server, prefix: str, address: str) -> None:
    with opened(address) as store:
        handle = store.put(b"x", principal="p" * 1000).output_handle
        entry = Entry(0.0, 1.0, 1, "p" * 1000)
        for count in (100, 100, 100, 100, 3000):
            for _ in range(count):
                index_of(store).add(handle, entry)
            index_of(store)._flush()
    found = segments(server, prefix)
    # Some lines of the last flush were too many to be kept in memory.
    assert [len(path.read_bytes()) > 1 << 18 for path in found] == [True, True]
    assert max(path.stat().st_size for path in found) <= 1 << 20
    assert len(lines(server, prefix)) > 700


def test_a_large_index_takes_little_memory(server: S3Server, prefix: str, address: str) -> None:
    with opened(address) as store:
        store.put(b"kept")
    now = time.time()
    for number in range(40):
        # Deleted or, three of four, also expired.
        expires_at = now + 1000 if number % 4 == 0 else now - 3 * DAY_SECONDS
        rows = ([new_handle(26), now, expires_at, 1000, f"principal {n % 50}"] for n in range(5000))
        add_segment(server, prefix, b"\n".join(json.dumps(row).encode() for row in rows), name=f"1-{number}")
    script = """
import sys
from forebay import open_store
with open_store(sys.argv[1], sweep_interval=0) as store:
    store.sweep()
    print(peak(), len(store._backend.index._entries))
    before = peak()
    store._backend.index._read_states.clear()
    store.sweep()
    print(peak() - before, len(store._backend.index._entries))
    store.sweep()
    print(len(store._backend.index._entries))
with open_store(sys.argv[1], sweep_interval=0) as store:
    print(store.sweep().kept)
"""
    _, read, growth, _, left, kept = measured(script, address)
    assert read == 50_001
    assert growth <= MAX_GROWTH_BYTES
    assert (left, kept) == (1, 1)
