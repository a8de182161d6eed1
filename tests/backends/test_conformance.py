"""What every backend must do: the same store, whatever it is on."""

import gzip
import itertools
import json
import multiprocessing
import os
import random
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import forebay
import pytest
from faults import error_code, redeem, spawnable
from forebay import OPERATOR, HandleNotFound, Store, StoreFull, StoreUnavailable
from forebay.store.backends import TOTAL_ACCOUNT, AccountFull, name_account
from forebay.store.entries import Entry
from forebay.store.handles import get_lifetime_class, new_handle
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stores import Clock, events, noise

BUCKETS = ("s3:", "gs:", "az:")

RECORDS = [
    {"id": number, "name": f"n{number % 7}", "total": number * 1.5, "note": "é" * (number % 50)}
    for number in range(3000)
]


def opened(address: str, **options: Any) -> Store:
    """Open a store without background sweeps."""
    return forebay.open_store(address, **{"sweep_interval": 0, **options})


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    with opened(address) as store:
        yield store


def listed(store: Store) -> dict[str, int]:
    """Return the stored bytes of every payload."""
    return {output.output_handle: output.stored_bytes for output in store.list(principal=OPERATOR)}


def assert_exact(store: Store) -> None:
    """Check that after a sweep the accounts match what is stored."""
    store.sweep()
    sums: dict[str, int] = {TOTAL_ACCOUNT: 0}
    for output in store.list(principal=OPERATOR):
        names = [TOTAL_ACCOUNT] if output.principal is None else [TOTAL_ACCOUNT, name_account(output.principal)]
        for name in names:
            sums[name] = sums.get(name, 0) + output.stored_bytes
    usage = store._backend.usage()
    assert {name: size for name, size in usage.items() if size} == {name: size for name, size in sums.items() if size}


# Payloads


@pytest.mark.parametrize("size", [0, 1, 3000, 3073, 128 << 10, (128 << 10) + 1, 1 << 20, 5_000_000])
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_payload_comes_back(store: Store, size: int, is_stream: bool) -> None:
    data = noise(size, size)
    payload = (data[start : start + 70_000] for start in range(0, size, 70_000)) if is_stream else data
    descriptor = store.put(payload, principal="ann")
    assert descriptor.size_bytes == size
    assert redeem(store, descriptor.output_handle, "ann") == data
    assert_exact(store)


@pytest.mark.slow
def test_a_large_payload_comes_back_from_another_store(address: str) -> None:
    block = noise(1 << 20)
    with opened(address, compression="none") as store:
        handle = store.put(bytes([number]) + block for number in range(40)).output_handle
    with opened(address) as store, store.open(handle) as file:
        for number in range(40):
            assert file.read(1 + len(block)) == bytes([number]) + block
        assert file.read() == b""
        file.seek(-5, os.SEEK_END)
        assert file.read() == block[-5:]


def test_text_that_was_compressed_is_read_from_what_was_written(store: Store) -> None:
    text = json.dumps(RECORDS * 20).encode()
    for payload in (gzip.compress(text), iter([gzip.compress(text)[:1000], gzip.compress(text)[1000:]])):
        handle = store.put(payload, mime_type="application/gzip").output_handle
        assert json.loads(store.fetch(handle, offset=59_990, limit=5).content) == RECORDS[2990:2995]
        assert gzip.decompress(redeem(store, handle)) == text


def test_the_payload_of_a_stream_that_fails_is_not_stored(store: Store) -> None:
    def chunks() -> Iterator[bytes]:
        for number in range(30):
            yield noise(1 << 20, number)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.put(chunks(), principal="ann")
    assert listed(store) == {}
    assert not any(store._backend.usage().values())
    assert_exact(store)


def test_pages_searches_and_queries_are_those_of_local_files(address: str, tmp_path: Path) -> None:
    payloads: list[tuple[Any, str | None]] = [
        (RECORDS, None),
        (json.dumps({"data": {"rows": RECORDS}, "next": None}).encode(), None),
        ("\n".join(f"line {number} of a log" for number in range(20_000)), "text/plain"),
        ("id,name\n" + "\n".join(f"{number},n{number}" for number in range(20_000)), "text/csv"),
        (noise(300_000), None),
    ]
    with opened(address) as store, opened((tmp_path / "twin").as_uri()) as twin:
        for payload, mime_type in payloads:
            one, other = (each.put(payload, mime_type=mime_type) for each in (store, twin))
            assert one.to_dict() | {"output_handle": 0, "expires_at": 0} == other.to_dict() | {
                "output_handle": 0,
                "expires_at": 0,
            }
            pairs = [(store, one.output_handle), (twin, other.output_handle)]
            for offset, limit in itertools.product((0, 7, 2999, 100_000), (1, 50, 5000)):
                pages = [each.fetch(handle, offset=offset, limit=limit) for each, handle in pairs]
                contents = [
                    str(page.content).replace(handle, "") for page, (_, handle) in zip(pages, pairs, strict=True)
                ]
                assert contents[0] == contents[1]
                assert pages[0].next_offset == pages[1].next_offset
            found = [each.search(handle, "n[35]|9", regex=True, limit=20) for each, handle in pairs]
            assert found[0].matches == found[1].matches
            assert found[0].total_matches == found[1].total_matches
        one, other = store.put(RECORDS), twin.put(RECORDS)
        filtered = [
            each.fetch(descriptor.output_handle, where={"name": "n3", "total": {">": 900}}, fields=["id"]).content
            for each, descriptor in ((store, one), (twin, other))
        ]
        assert filtered[0] == filtered[1]
        answers = [
            each.query(
                descriptor.output_handle, 'SELECT name, count(*) AS n FROM "items" GROUP BY 1 ORDER BY 1'
            ).content
            for each, descriptor in ((store, one), (twin, other), (store, one))
        ]
        assert answers[0] == answers[1] == answers[2]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.binary(max_size=2000),
    repeat=st.integers(1, 400),
    reads=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**5)), max_size=8),
)
def test_any_range_of_a_payload_is_right(store: Store, data: bytes, repeat: int, reads: list[tuple[int, int]]) -> None:
    whole = data * repeat
    handle = store.put(iter([whole]) if len(whole) % 2 else whole).output_handle
    with store.open(handle) as file:
        for start, length in reads:
            file.seek(start)
            assert file.read(length) == whole[start : start + length]
    store.delete(handle)


# Several stores at one address


def test_stores_at_one_address_share_their_payloads(address: str) -> None:
    with opened(address) as one, opened(address) as other:
        handle = one.put(RECORDS, principal="ann").output_handle
        assert json.loads(other.fetch(handle, offset=5, limit=2, principal="ann").content) == RECORDS[5:7]
        with pytest.raises(HandleNotFound):
            other.fetch(handle, principal="bob")
        # Both have the footer in memory now, and find out that the payload is gone.
        one.fetch(handle, principal="ann")
        other.delete(handle, principal="ann")
        for store in (one, other):
            for call in (store.fetch, store.stat, store.outline):
                with pytest.raises(HandleNotFound):
                    call(handle, principal="ann")
            with pytest.raises(HandleNotFound):
                store.search(handle, "n3", principal="ann")
        assert listed(one) == listed(other) == {}
    with opened(address) as one:
        assert_exact(one)


def test_a_payload_that_was_searched_is_not_found_once_it_is_deleted(address: str) -> None:
    with opened(address) as one, opened(address) as other:
        handle = one.put(RECORDS).output_handle
        for _ in range(2):
            assert one.search(handle, "n3", count_only=True).total_matches == 429
        other.delete(handle)
        with pytest.raises(HandleNotFound):
            one.search(handle, "n3", count_only=True)
        with pytest.raises(HandleNotFound):
            one.get(handle, "/5/name")


def test_a_listing_has_the_payloads_of_a_principal(address: str) -> None:
    with opened(address) as store:
        expected = {
            principal: {store.put(noise(50, number), principal=principal).output_handle for number in range(15)}
            for principal in ("ann", "bob", None)
        }
        assert {
            principal: {one.output_handle for one in store.list(principal=principal)} for principal in expected
        } == expected
        assert len(listed(store)) == 45


def test_payloads_expire(address: str, clock: Clock) -> None:
    with opened(address, clock=clock) as store:
        short, long = (store.put(b"x" * 5000, ttl=ttl, principal="ann").output_handle for ttl in (60, 10_000))
        assert get_lifetime_class(short) == 0
        clock.now += 59
        assert redeem(store, short, "ann")
        clock.now += 2
        with pytest.raises(HandleNotFound):
            store.fetch(short, principal="ann")
        assert [one.output_handle for one in store.list(principal="ann")] == [long]
        clock.now += 7200
        # The first sweep after a jump of the clock removes nothing.
        assert store.sweep().expired == 0
        report = store.sweep()
        assert (report.expired, report.kept) == (1, 1)
        assert [event["handle"] for event in events(store, "output_handle_expired")] == [short]
        assert_exact(store)


def test_replicas_sweep_in_turn(address: str, clock: Clock) -> None:
    with (
        opened(address, clock=clock, sweep_interval=300) as one,
        opened(address, clock=clock, sweep_interval=300) as other,
    ):
        one.put(b"payload", ttl=100)
        clock.now += 10
        is_local = one.folder is not None
        assert one._sweeper.sweep_if_due()
        assert other._sweeper.sweep_if_due() == one._sweeper.sweep_if_due() == is_local
        clock.now += 241
        assert other._sweeper.sweep_if_due()
        assert one._sweeper.sweep_if_due() == is_local


def test_a_full_store_is_swept_though_it_has_no_room_for_a_message(address: str) -> None:
    with opened(address) as store:
        store.put(noise(1000))
        stored_bytes = store.sweep().stored_bytes
    with opened(address, quota_bytes=stored_bytes + 100, sweep_interval=300) as store:
        assert store._sweeper.sweep_if_due()


# Quotas


def test_a_full_store_refuses_and_has_room_again(address: str) -> None:
    with opened(address, quota_bytes=120_000, principal_quota_bytes=60_000) as store:
        first = store.put(noise(50_000, 1), principal="ann").output_handle
        with pytest.raises(StoreFull, match="your quota of 60,000"):
            store.put(noise(50_000, 2), principal="ann")
        store.put(noise(45_000, 3), principal="bob")
        with pytest.raises(StoreFull, match="the store's quota of 120,000"):
            store.put(noise(30_000, 4))
        with pytest.raises(StoreFull, match="quota of"):
            store.put(noise(70_000, 5), principal="carl")
        store.delete(first, principal="ann")
        store.put(noise(50_000, 6), principal="ann")
        assert len(listed(store)) == 2
        assert_exact(store)


def test_a_full_store_evicts_the_oldest_of_the_principal(address: str, clock: Clock) -> None:
    with opened(address, clock=clock, on_full="evict", principal_quota_bytes=60_000) as store:
        kept = store.put(noise(30_000), principal="bob").output_handle
        handles = []
        for number in range(8):
            clock.now += 1
            handles.append(store.put(noise(15_000, number), principal="ann").output_handle)
        assert {one.output_handle for one in store.list(principal="ann")} == {*handles[-3:]}
        assert redeem(store, kept, "bob") == noise(30_000)
        assert_exact(store)


def test_threads_never_exceed_a_quota(address: str) -> None:
    quota = 400_000
    with opened(address, quota_bytes=quota) as one, opened(address, quota_bytes=quota) as other:

        def fill(number: int) -> int:
            return error_code(lambda: (one, other)[number % 2].put(noise(9_000, number))) == ""

        with ThreadPoolExecutor(8) as pool:
            stored = sum(pool.map(fill, range(80)))
        sizes = listed(one)
        assert stored == len(sizes)
        assert 0.9 * quota <= sum(sizes.values()) <= quota
        assert_exact(one)


def fill_until_full(address: str, seed: int) -> list[str]:
    handles = []
    with opened(address, quota_bytes=2_000_000, principal_quota_bytes=1_000_000) as store:
        rng = random.Random(seed)
        for number in range(200):
            try:
                payload = noise(rng.randrange(1000, 30_000), seed * 1000 + number)
                handles.append(store.put(payload, principal=f"p{number % 3}").output_handle)
            except StoreFull:
                if number > 100:
                    break
            if handles and rng.random() < 0.1:
                handle = handles.pop(rng.randrange(len(handles)))
                store.delete(handle, principal=store.stat(handle, principal=OPERATOR).principal)
    return handles


@pytest.mark.slow
def test_processes_never_exceed_a_quota(address: str) -> None:
    with (
        opened(address, quota_bytes=2_000_000, principal_quota_bytes=1_000_000) as store,
        ProcessPoolExecutor(4, multiprocessing.get_context("spawn")) as pool,
    ):
        jobs = [pool.submit(spawnable(fill_until_full), address, seed) for seed in range(4)]
        while not all(job.done() for job in jobs):
            # Each object that a listing finds was there with all others at the time it was added.
            assert sum(listed(store).values()) <= 2_000_000 + 30_000 * 8
            store.sweep()
        handles = {handle for job in jobs for handle in job.result()}
        sizes = listed(store)
        assert {*sizes} == handles
        assert sum(sizes.values()) <= 2_000_000
        assert_exact(store)


# Messages between processes


def test_a_message_reaches_one_process(address: str, clock: Clock) -> None:
    with opened(address, clock=clock) as one, opened(address, clock=clock) as other:
        one.put(b"")
        assert other.mailbox.read("a key") is None
        for content in (b"", b"first", noise(300_000)):
            one.mailbox.post("a key", content, 60, "ann")
            assert other.mailbox.read("a key") == content
            with ThreadPoolExecutor(4) as pool:
                taken = [*pool.map(lambda store: store.mailbox.take("a key"), (one, other, one, other))]
            assert sorted(taken, key=str) == sorted([content, None, None, None], key=str)
        one.mailbox.post("a key", b"late", 60)
        one.mailbox.post("another", b"key", 3600)
        clock.now += 61
        assert other.mailbox.read("a key") is other.mailbox.take("a key") is None
        assert other.mailbox.take("another") == b"key"
        assert len(listed(one)) == 1


# The interface of a backend


def test_an_upload_is_invisible_until_its_commit(store: Store) -> None:
    backend, handle = store._backend, new_handle(26, 60)
    store.put(b"")
    now = store.options.clock()
    entry = Entry(now, now + 60, 500_000, "ann")
    limits = {TOTAL_ACCOUNT: None, name_account("ann"): 1_000_000}
    upload = backend.create(handle)
    parts = [noise(100_000, number) for number in range(5)]
    for part in parts:
        upload.write([part[:10], memoryview(part)[10:]])
    assert upload.read(99_990, 20) == parts[0][-10:] + parts[1][:10]
    with pytest.raises(KeyError):
        backend.open(handle)
    assert handle not in {each for each, _ in backend.list()}
    with pytest.raises(AccountFull) as full:
        upload.commit("bin", {**limits, name_account("ann"): 400_000}, entry)
    assert not full.value.usage.get(name_account("ann"))
    upload.commit("bin", limits, entry)
    upload.abort()
    with backend.open(handle) as blob:
        version = blob.version
        assert blob.size == 500_000
        assert blob.read(0, 600_000) == b"".join(parts)
        assert blob.read(499_999, 5) == parts[-1][-1:]
        assert blob.read(500_000, 5) == b""
        blob.check()
    with backend.open(handle, version) as blob:
        assert blob.version == version
        assert blob.read(100_000, 100_000) == parts[1]
    assert backend.usage([name_account("ann")])[name_account("ann")] == 500_000
    assert backend.delete(handle, 500_000, limits)
    with pytest.raises((KeyError, HandleNotFound)):
        backend.open(handle, version).read(0, 1)
    assert not backend.usage([name_account("ann")]).get(name_account("ann"))


def test_an_upload_that_was_aborted_leaves_nothing(store: Store) -> None:
    store.put(b"")
    handle = new_handle()
    for size in (0, 10, 20 << 20):
        upload = store._backend.create(handle)
        upload.write([bytes(size)])
        upload.abort()
        upload.abort()
        with pytest.raises(KeyError):
            store._backend.open(handle)
    assert len(listed(store)) == 1
    assert_exact(store)


def test_one_holder_has_the_lock(address: str) -> None:
    with opened(address) as one, opened(address) as other:
        with one._backend.lock(wait=True) as has_lock:
            assert has_lock
            with other._backend.lock(wait=False) as has_second:
                assert not has_second
            waited = threading.Event()

            def wait() -> None:
                with other._backend.lock(wait=True):
                    waited.set()

            thread = threading.Thread(target=wait)
            thread.start()
            assert not waited.wait(0.3)
        assert waited.wait(60)
        thread.join()


def test_the_journal_is_that_of_all_stores(address: str) -> None:
    with opened(address) as one, opened(address) as other:
        for number in range(20):
            (one, other)[number % 2].journal.record("counted", principal="ann" if number % 4 else None, number=number)
            assert events((one, other)[number % 2], "counted")[0]["number"] == number
    with opened(address) as store:
        numbers = [event["number"] for event in events(store, "counted")]
        assert sorted(numbers) == list(range(20))
        for parity in (0, 1):
            own = [number for number in numbers if number % 2 == parity]
            assert own == sorted(own, reverse=True)
        assert len(store.journal.recent(100, principal="ann", is_operator=False)) == 15


def test_the_counts_of_calls_are_those_of_all_stores(address: str) -> None:
    with opened(address) as one, opened(address) as other:
        for store in (one, other, one):
            store.call_counts.add("crawl", "ann", calls=1, stored_bytes=1000)
            store.call_counts.add("crawl", calls=2)
            store.call_counts.flush()
    with opened(address) as store:
        rows = {
            (row["principal"], row["tool"]): (row["calls"], row["stored_bytes"]) for row in store.call_counts.read()
        }
    assert rows == {("ann", "crawl"): (3, 3000), (None, "crawl"): (6, 0)}


def test_a_forked_child_opens_the_store_itself_or_gets_an_error(address: str) -> None:
    with opened(address) as store:
        handle = store.put(RECORDS).output_handle
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            try:
                with opened(address) as own:
                    own.put(b"from the child")
                    os._exit(0 if json.loads(own.fetch(handle, limit=1).content) == RECORDS[:1] else 1)
            except StoreUnavailable as error:
                # The library for buckets cannot be used after a fork.
                os._exit(0 if address.startswith(BUCKETS) and "fork" in str(error) else 3)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert len(listed(store)) == (1 if address.startswith(BUCKETS) else 2)
        assert json.loads(store.fetch(handle, limit=1).content) == RECORDS[:1]
