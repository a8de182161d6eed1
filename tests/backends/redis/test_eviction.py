"""Payloads that Redis evicts or expires by itself: not found, and their bytes are given back."""

from collections.abc import Iterator

import forebay
import pytest
from faults import error_code, redeem
from forebay import OPERATOR, HandleNotFound, Store
from forebay.store.backends import TOTAL_ACCOUNT, name_account
from redis_server import RedisServer, redis_server
from stores import Clock, events, noise


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with redis_server("--maxmemory-policy", "volatile-ttl") as server:
        yield server


def opened(server: RedisServer, **options: object) -> Store:
    return forebay.open_store(server.url, **{"sweep_interval": 0, **options})


def assert_exact(store: Store) -> None:
    total = sum(output.stored_bytes for output in store.list(principal=OPERATOR))
    assert store._backend.usage()[TOTAL_ACCOUNT] == total


@pytest.mark.parametrize("size", [30_000, 3_000_000])
def test_a_full_server_evicts_what_expires_first(server: RedisServer, size: int) -> None:
    with opened(server) as store:
        used = server.client.info("memory")["used_memory"]
        server.client.config_set("maxmemory", used + 1_000_000 + 20 * size)
        payloads = {}
        for number in range(60):
            # The later it is stored, the later it expires.
            handle = store.put(noise(size, number), ttl=1000 + 100 * number, principal="ann").output_handle
            payloads[handle] = noise(size, number)
        # Nothing more is evicted.
        server.client.config_set("maxmemory", 0)
        left = {output.output_handle for output in store.list(principal="ann")}
        assert 0 < len(left) < 55
        # Redis looks at a few keys, so the order is about that of their expiry.
        assert sum(handle in left for handle in list(payloads)[30:]) > len(left) * 0.7
        for handle, payload in payloads.items():
            if handle in left:
                assert redeem(store, handle, "ann") == payload
            else:
                assert error_code(lambda handle=handle: store.fetch(handle, principal="ann")) == (  # type: ignore[misc]
                    "output_handle_not_found"
                )
        assert_exact(store)
        assert store.sweep().kept == len(left)
        assert store._backend.usage()[name_account("ann")] <= 55 * (size + 1000)


def test_what_is_evicted_while_it_is_read_is_not_found(server: RedisServer) -> None:
    with opened(server) as store:
        handle = store.put(noise(1_000_000)).output_handle
        with store.open(handle) as file:
            assert file.read(10) == noise(1_000_000)[:10]
            server.client.delete(f"forebay:{{{handle}}}")
            file.seek(400_000)
            with pytest.raises(HandleNotFound):
                file.read(10)
        with pytest.raises(HandleNotFound):
            store.fetch(handle)
        with pytest.raises(HandleNotFound):
            store.delete(handle)
        assert list(store.list(principal=OPERATOR)) == []
        assert store._backend.usage() == {TOTAL_ACCOUNT: 0}


def test_an_evicted_payload_is_subtracted_once(server: RedisServer) -> None:
    with opened(server) as store:
        handles = [store.put(noise(5000), principal="ann").output_handle for _ in range(2)]
        server.client.delete(f"forebay:{{{handles[0]}}}")
        backend = store._backend
        assert backend.delete(handles[0], 5000, [TOTAL_ACCOUNT])
        assert not backend.delete(handles[0], 5000, [TOTAL_ACCOUNT])
        assert_exact(store)


def test_a_sweep_records_what_redis_has_expired(server: RedisServer, clock: Clock) -> None:
    with opened(server, clock=clock) as store:
        handle = store.put(b"x" * 4000, ttl=60).output_handle
        milliseconds = server.client.pttl(f"forebay:{{{handle}}}")
        assert 600_000 < milliseconds <= 660_000
        server.client.delete(f"forebay:{{{handle}}}")
        clock.now += 10
        clock.now += 55
        store.sweep()
        store.sweep()
        assert [event["handle"] for event in events(store, "output_handle_expired")] == [handle]
        assert store._backend.usage() == {TOTAL_ACCOUNT: 0}


def test_only_payloads_and_results_of_requests_can_expire(server: RedisServer) -> None:
    with opened(server) as store:
        store.put(b"x")
        store.sweep()
        store.call_counts.add("crawl", calls=1)
        store.call_counts.flush()
        store.journal.recent()
        with store._backend.lock(wait=False):
            keys = server.client.keys()
            expiring = [key.decode() for key in keys if server.client.pttl(key) >= 0]
            lasting = {key.decode().rpartition(":")[2] for key in keys if server.client.pttl(key) == -1}
        assert {"index", "usage", "added", "lock", "journal", "days"} <= lasting
        assert all("{oh_" in key or ":once:" in key for key in expiring)


def test_accounts_that_are_too_high_are_corrected(server: RedisServer) -> None:
    with opened(server) as store:
        store.put(noise(5000), principal="ann")
        exact = store._backend.usage()
        usage = "forebay:{forebay}:usage"
        for name in exact:
            server.client.hincrby(usage, name, 777)
        server.client.hset(usage, name_account("bob"), 12)
        store.sweep()
        assert store._backend.usage() == exact
        # Without the total nothing is counted yet.
        server.client.delete(usage)
        assert not store._quota.is_counted()
        store.put(noise(50), principal="ann")
        assert_exact(store)
