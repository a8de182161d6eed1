"""How many requests calls take, and what happens if one of them or its answer is lost."""

import io
import json
from collections.abc import Iterator
from typing import Any

import forebay
import pytest
from cutting_proxy import CuttingProxy, cutting_proxy
from faults import redeem
from forebay import OPERATOR, HandleNotFound, Store
from forebay.store.backends import TOTAL_ACCOUNT, name_account
from forebay.store.backends.redis_client import RedisClient
from redis_server import RedisServer
from stores import noise

RECORDS = [{"id": number, "name": f"n{number}" * 20} for number in range(100_000)]


@pytest.fixture
def proxy(shared_redis: RedisServer) -> Iterator[CuttingProxy]:
    shared_redis.client.flushall()
    with cutting_proxy(shared_redis.port) as proxy:
        yield proxy


def opened(proxy: CuttingProxy) -> Store:
    return forebay.open_store(f"redis://127.0.0.1:{proxy.port}", sweep_interval=0)


def count_requests(proxy: CuttingProxy, call: Any) -> int:
    before = proxy.requests
    call()
    return proxy.requests - before


def test_a_page_takes_two_requests_and_then_one(proxy: CuttingProxy) -> None:
    with opened(proxy) as store:
        handle = store.put(RECORDS).output_handle
    with opened(proxy) as store:
        store.journal.recent()

        def fetch(offset: int) -> None:
            assert json.loads(store.fetch(handle, offset=offset, limit=50).content) == RECORDS[offset : offset + 50]

        # Behind a flush of the journal, which a thread does, none of these waits.
        assert count_requests(proxy, lambda: fetch(50_000)) <= 2
        assert count_requests(proxy, lambda: fetch(20_000)) <= 1
        small = store.put(RECORDS[:100]).output_handle
        assert count_requests(proxy, lambda: store.fetch(small)) == 1


def test_a_sweep_takes_a_few_requests(proxy: CuttingProxy) -> None:
    with opened(proxy) as store:
        for number in range(60):
            store.put(b"x" * number, principal="ann")
    with opened(proxy) as store:
        before = proxy.requests
        report = store.sweep()
        assert report.kept == 60
        assert proxy.requests - before < 20


def run_all_operations(store: Store) -> None:
    """Store, read, replace and delete, and check each result."""
    payloads = [noise(size, size) for size in (100, 2_500_000)]
    handles = [store.put(payload, principal="ann").output_handle for payload in payloads]
    for handle, payload in zip(handles, payloads, strict=True):
        assert redeem(store, handle, "ann") == payload
    for content in (b"first" * 1000, b"second" * 2000):
        with store._open_reader(handles[0], "ann") as reader:
            assert store.sidecars.write(reader.footer.meta, {}, io.BytesIO(content))
            with store.sidecars.open(reader.footer.meta) as sidecar:
                assert sidecar is not None
                assert bytes(sidecar[1].read_all()) == content
    listed = {output.output_handle: output.stored_bytes for output in store.list(principal=OPERATOR)}
    assert {*handles} == {*listed}
    assert store.sweep().kept == 3
    store.delete(handles[1], principal="ann")
    with pytest.raises(HandleNotFound):
        store.fetch(handles[1], principal="ann")
    store.call_counts.add("crawl", calls=3)
    assert [row["calls"] for row in store.call_counts.read()] == [3]
    sidecar_bytes = store._backend.open(store_sidecar(handles[0])).size
    left = listed[handles[0]] + sidecar_bytes
    assert store._backend.usage() == {TOTAL_ACCOUNT: left, name_account("ann"): left}
    created = [event for event in store.journal.recent(100) if event["event"] == "output_handle_created"]
    assert [event["handle"] for event in created] == handles[::-1]


def store_sidecar(handle: str) -> str:
    return forebay.store.handles.get_sidecar_handle(handle)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["request", "answer"])
def test_every_request_may_be_lost(proxy: CuttingProxy, shared_redis: RedisServer, what: Any) -> None:
    number, has_cut = 0, True
    while has_cut:
        shared_redis.client.flushall()
        # With a connection that is ready: the handshake is the library's.
        with opened(proxy) as store:
            proxy.cut(number, what)
            run_all_operations(store)
            has_cut = proxy.cuts > 0
        assert shared_redis.client.zcard("forebay:{forebay}:uploads") == 0
        assert not shared_redis.client.keys("forebay:{oh_*}:*")
        number += 1
    assert number > 30


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["redis", "redis_cluster"])
def test_requests_may_be_repeated(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, topology: str
) -> None:
    """The client sends a request again if its answer was lost."""
    url = request.getfixturevalue(f"{topology}_address")
    send = RedisClient.send

    def send_twice(client: RedisClient, call: Any, **options: Any) -> Any:
        send(client, call, **options)
        return send(client, call, **options)

    monkeypatch.setattr(RedisClient, "send", send_twice)
    with forebay.open_store(url, sweep_interval=0) as store:
        run_all_operations(store)


def test_a_replaced_object_is_never_read_as_the_old_one(redis_address: str) -> None:
    with forebay.open_store(redis_address, sweep_interval=0) as store:
        handle = store.put([1]).output_handle
        sidecar = store_sidecar(handle)

        def write(content: bytes) -> None:
            with store._open_reader(handle, None) as reader:
                assert store.sidecars.write(reader.footer.meta, {}, io.BytesIO(content))

        # Of one size, and with the same bytes at the end.
        old, new = (noise(1_000_000, seed) + bytes(200_000) for seed in (1, 2))
        write(old)
        backend = store._backend
        with backend.open(sidecar) as blob:
            assert old[:1000] in blob.read(0, 2000)
            version = blob.version
            write(new)
            with pytest.raises(HandleNotFound):
                blob.read(500_000, 1000)
        with backend.open(sidecar, version) as blob, pytest.raises(HandleNotFound):
            blob.read(0, 10)
        with backend.open(sidecar, version) as blob, pytest.raises(HandleNotFound):
            blob.check()
        with backend.open(sidecar) as blob:
            assert blob.version != version
            assert new[:1000] in blob.read(0, 2000)
