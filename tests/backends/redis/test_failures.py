"""Servers that are away, full, or set up wrong: clear errors in time, and a store that recovers."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import forebay
import pytest
from faults import error_code, redeem
from forebay import OPERATOR, HandleNotFound, InvalidArgument, Store, StoreFull, StoreUnavailable
from forebay.store.backends import TOTAL_ACCOUNT, redis_client, redis_log
from redis_server import RedisServer, redis_server
from stores import events, noise

MAX_SECONDS = 7


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


def opened(server: RedisServer, **options: object) -> Store:
    return forebay.open_store(server.url, **{"sweep_interval": 0, **options})


def assert_unavailable(call: Callable[[], object]) -> None:
    started_at = time.monotonic()
    with pytest.raises(StoreUnavailable, match="check that the server runs"):
        call()
    assert time.monotonic() - started_at < MAX_SECONDS


def stored_sum(store: Store) -> int:
    return sum(output.stored_bytes for output in store.list(principal=OPERATOR))


@pytest.mark.slow
def test_a_server_that_was_restarted_has_lost_its_data(server: RedisServer) -> None:
    with opened(server) as store:
        handle = store.put(noise(300_000)).output_handle
        kept = store.open(handle)
        server.stop()
        for call in (lambda: store.fetch(handle), lambda: store.put(b"y"), store.sweep, lambda: opened(server)):
            assert_unavailable(call)
        server.start()
        with pytest.raises(HandleNotFound):
            store.fetch(handle)
        with closing(kept), pytest.raises(HandleNotFound):
            kept.read(10)
        # The accounts are counted again.
        handle = store.put(noise(5000), principal="ann").output_handle
        assert redeem(store, handle, "ann") == noise(5000)
        assert store._backend.usage()[TOTAL_ACCOUNT] == stored_sum(store) > 5000


@pytest.mark.slow
def test_a_server_that_does_not_answer(server: RedisServer) -> None:
    with opened(server) as store:
        handle = store.put(b"x" * 3000).output_handle
        server.pause()
        try:
            for call in (
                lambda: store.fetch(handle),
                lambda: store.put(noise(3_000_000)),
                lambda: store.delete(handle),
                lambda: opened(server),
            ):
                assert_unavailable(call)
        finally:
            server.resume()
        assert redeem(store, handle) == b"x" * 3000
        store.put(noise(3_000_000))
        store.sweep()
        assert store._backend.usage()[TOTAL_ACCOUNT] == stored_sum(store)


def test_a_server_that_restarts_during_an_upload(server: RedisServer) -> None:
    def chunks() -> Iterator[bytes]:
        for number in range(40):
            if number == 20:
                server.stop()
                server.start()
            yield noise(1_000_000, number)

    with opened(server) as store:
        with pytest.raises((StoreUnavailable, StoreFull)):
            store.put(chunks())
        assert stored_sum(store) == 0
        store.put(b"x")


def test_a_full_server(server: RedisServer) -> None:
    with opened(server) as store:
        first = store.put(noise(2_000_000)).output_handle
        server.client.config_set("maxmemory", server.client.info("memory")["used_memory"] + 1_000_000)
        for _ in range(2):
            with pytest.raises(StoreFull, match="maxmemory"):
                store.put(noise(5_000_000))
        assert server.client.zcard("forebay:{forebay}:uploads") == 0
        assert not server.client.keys("forebay:{oh_*}:*")
        # Reading, sweeping and deleting need no memory.
        assert redeem(store, first) == noise(2_000_000)
        server.client.config_set("maxmemory", 1_000_000)
        assert error_code(lambda: store.put(b"x")) == "store_full"
        store.sweep()
        store.delete(first)
        assert store._backend.usage() == {TOTAL_ACCOUNT: 0}
        server.client.config_set("maxmemory", 0)
        store.put(noise(2_000_000))


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random", "allkeys-lfu"])
def test_a_policy_that_evicts_the_index_is_refused(server: RedisServer, policy: str) -> None:
    server.client.config_set("maxmemory-policy", policy)
    with pytest.raises(InvalidArgument, match=rf"{policy}.*noeviction.*volatile-ttl"):
        opened(server)
    for good in ("noeviction", "volatile-ttl", "volatile-lru"):
        server.client.config_set("maxmemory-policy", good)
        opened(server).close()


def test_a_user_with_few_permissions(server: RedisServer) -> None:
    commands = "+@read +@write +@scripting +time +ping -info -config -keys"
    server.client.execute_command("ACL", "SETUSER", "ann", "on", ">hunter2", "~forebay:*", *commands.split())
    url = server.url.replace("//", "//ann:{}@")
    with forebay.open_store(url.format("hunter2"), sweep_interval=0) as store:
        handle = store.put(noise(3_000_000)).output_handle
        assert redeem(store, handle) == noise(3_000_000)
        store.sweep()
        store.delete(handle)
        assert store.journal.recent()
    with pytest.raises(StoreUnavailable, match="REDIS_PASSWORD") as error:
        forebay.open_store(url.format("hunter3"))
    assert "hunter" not in str(error.value)
    with pytest.raises(StoreUnavailable, match=r"no permission|permissions"):
        forebay.open_store(url.format("hunter2") + "/?prefix=other")


def test_a_payload_that_is_too_long(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from forebay.store.backends import redis

    with opened(server, compression="none") as store:
        # What the server says, and what is known before.
        server.client.config_set("proto-max-bulk-len", 3 << 20)
        with pytest.raises(StoreFull, match="512 MiB"):
            store.put(noise(5 << 20))
        monkeypatch.setattr(redis, "MAX_STRING_BYTES", 2 << 20)
        with pytest.raises(StoreFull, match="512 MiB"):
            store.put(noise(3 << 20))
        store.put(noise(1 << 20))
        assert store.sweep().orphans == 0


def test_a_replica_is_no_store(server: RedisServer) -> None:
    with opened(server) as store:
        handle = store.put(b"x" * 4000).output_handle
        server.client.execute_command("REPLICAOF", "127.0.0.1", 1)
        assert_unavailable(lambda: store.put(b"y"))
        server.client.execute_command("REPLICAOF", "NO", "ONE")
        store.put(b"y")
        assert redeem(store, handle) == b"x" * 4000


def test_events_wait_for_a_server(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_client, "_RETRY_SECONDS", 0.1)
    monkeypatch.setattr(redis_log, "_FLUSH_SECONDS", 0.05)
    with opened(server) as store:
        server.stop()
        for number in range(20):
            store.journal.record("counted", number=number)
        time.sleep(0.5)
        server.start()
        store.journal.record("counted", number=20)
        assert [event["number"] for event in events(store, "counted")] == [*range(20, -1, -1)]
        log: Any = store._backend.log
        log._lines.extend(b"%d" % number for number in range(20_000))
        assert len(log._lines) == redis_log._MAX_WAITING_LINES


def test_counts_are_bounded(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from forebay.store.backends import redis_counts

    monkeypatch.setattr(redis_counts, "MAX_ROWS", 3)
    monkeypatch.setattr(redis_counts, "_MAX_DAYS", 5)
    with opened(server) as store:
        table = store._backend.call_counts
        for number in range(10):
            table.add("2026-01-01", {("ann", f"tool {number}"): [1, 2, 3, number], (None, "tool 0"): [1, 0, 0, 0]})
        ((day, rows),) = table.read()
        assert day == "2026-01-01"
        assert {*rows} == {("ann", "tool 0"), (None, "tool 0"), ("ann", "tool 1"), (None, "others")}
        assert rows[None, "tool 0"] == [10, 0, 0, 0]
        assert rows[None, "others"] == [8, 16, 24, sum(range(2, 10))]
        for number in range(2, 12):
            table.add(f"2026-01-{number:02}", {("ann", "tool"): [1, 1, 1, 1]})
        assert [day for day, _ in table.read()] == [f"2026-01-{number:02}" for number in range(11, 6, -1)]
        assert len(server.client.keys("*calls*")) == 5
