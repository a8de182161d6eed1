"""A cluster and Sentinel: the same store, also after a failover. TLS, and a server with passwords."""

import json
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import forebay
import pytest
from faults import error_code, redeem
from forebay import OPERATOR, HandleNotFound, Store
from forebay.store.backends import TOTAL_ACCOUNT
from redis_server import (
    RedisServer,
    find_free_port,
    get_cluster_url,
    redis_cluster,
    redis_sentinels,
    redis_server,
)
from stores import events, noise
from waiting import wait_until

pytestmark = pytest.mark.slow

RECORDS = [{"id": number, "name": f"n{number}" * 20} for number in range(20_000)]


def opened(url: str, **options: Any) -> Store:
    return forebay.open_store(url, **{"sweep_interval": 0, **options})


def use_everything(store: Store) -> dict[str, bytes]:
    """Call what touches every key, and return payloads that are stored then."""
    payloads = {
        store.put(noise(3000 + number, number)).output_handle: noise(3000 + number, number) for number in range(30)
    }
    large = store.put(noise(3_000_000), principal="ann").output_handle
    records = store.put(RECORDS, principal="ann").output_handle
    assert json.loads(store.fetch(records, offset=15_000, limit=3, principal="ann").content) == RECORDS[15_000:15_003]
    query = store.query(records, 'SELECT count(*) AS n FROM "items"', principal="ann")
    assert json.loads(query.content)[0] == [len(RECORDS)]
    assert redeem(store, large, "ann") == noise(3_000_000)
    for handle, payload in payloads.items():
        assert redeem(store, handle) == payload
    outputs = {output.output_handle: output.stored_bytes for output in store.list(principal=OPERATOR)}
    assert outputs.keys() == payloads.keys() | {large, records}
    for handle in (large, records):
        store.delete(handle, principal="ann")
        with pytest.raises(HandleNotFound):
            store.fetch(handle, principal="ann")
    store.sweep()
    assert store._backend.usage() == {TOTAL_ACCOUNT: sum(map(outputs.get, payloads))}  # type: ignore[arg-type]
    store.call_counts.add("crawl", calls=2)
    assert [row["calls"] for row in store.call_counts.read()] == [2]
    assert len(events(store, "output_handle_deleted")) == 2
    return payloads


def test_a_cluster_survives_the_loss_of_a_node_with_a_replica() -> None:
    with redis_cluster(replicas=1) as nodes:
        # The address has only some of the nodes.
        with opened(get_cluster_url(nodes[1:3])) as store:
            payloads = use_everything(store)
            assert all(len(node.client.keys("forebay:{oh_*")) > 0 for node in nodes[:3])
            wait_until(lambda: nodes[0].client.wait(1, 100) == 1)
            nodes[0].stop()
            wait_until(lambda: error_code(lambda: [redeem(store, handle) for handle in payloads]) == "", 60)
            wait_until(lambda: error_code(lambda: store.put(b"x" * 4000)) == "", 60)
            for handle, payload in payloads.items():
                assert redeem(store, handle) == payload
                store.delete(handle)
            assert len(list(store.list(principal=OPERATOR))) >= 1
            store.sweep()
        with opened(get_cluster_url(nodes[1:])) as store:
            total = sum(output.stored_bytes for output in store.list(principal=OPERATOR))
            assert store._backend.usage()[TOTAL_ACCOUNT] == total


@pytest.mark.parametrize("what", ["object", "index"])
def test_keys_may_move_to_another_node(what: str) -> None:
    with redis_cluster() as nodes, opened(get_cluster_url(nodes)) as store:
        kept = store.put(noise(300_000), principal="ann").output_handle
        key = f"forebay:{{{kept}}}" if what == "object" else "forebay:{forebay}:index"
        source = next(node for node in nodes if node.client.keys(key.replace("{", "?")))
        target = next(node for node in nodes if node is not source)
        slot = source.client.execute_command("CLUSTER", "KEYSLOT", key)
        ids = {node: node.client.execute_command("CLUSTER", "MYID") for node in nodes}
        target.client.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
        source.client.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
        if what == "object":
            # A key that has moved already, and one that has not.
            source.client.execute_command("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
            # Two keys of a slot cannot change together now: the caller has to try again.
            with pytest.raises(forebay.StoreUnavailable):
                store.delete(kept, principal="ann")
        assert redeem(store, kept, "ann") == noise(300_000)
        for moved in source.client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source.client.execute_command("MIGRATE", "127.0.0.1", target.port, moved, 0, 5000)
        for node in nodes:
            node.client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[target])
        if what == "object":
            store.delete(kept, principal="ann")
        handle = store.put(noise(2_000_000), principal="ann").output_handle
        assert redeem(store, handle, "ann") == noise(2_000_000)
        with opened(get_cluster_url(nodes)) as other:
            other.sweep()
            sizes = {output.output_handle: output.stored_bytes for output in other.list(principal=OPERATOR)}
            assert {*sizes} == {handle} | ({kept} if what == "index" else set())
            assert other._backend.usage()[TOTAL_ACCOUNT] == sum(sizes.values())


def test_many_threads_fail_in_time_while_a_cluster_is_away() -> None:
    with redis_cluster() as nodes, opened(get_cluster_url(nodes)) as store, ThreadPoolExecutor(16) as pool:
        handles = [store.put(noise(3000, number)).output_handle for number in range(32)]
        for node in nodes:
            node.pause()
        try:
            started_at = time.monotonic()
            codes = list(pool.map(lambda handle: error_code(lambda: store.fetch(handle)), handles[:16]))
            assert codes == ["store_unavailable"] * 16
            assert time.monotonic() - started_at < 7
        finally:
            for node in nodes:
                node.resume()
        wait_until(lambda: error_code(lambda: [store.fetch(handle) for handle in handles]) == "", 60)


def test_sentinel_names_the_new_master() -> None:
    with redis_sentinels() as (master, replica, url), opened(url) as store:
        payloads = use_everything(store)
        wait_until(lambda: master.client.wait(1, 100) == 1)
        master.stop()
        assert error_code(lambda: store.put(b"y")) in ("", "store_unavailable")
        wait_until(lambda: error_code(lambda: store.put(b"y")) == "", 60)
        assert replica.client.info("replication")["role"] == "master"
        for handle, payload in payloads.items():
            assert redeem(store, handle) == payload
            store.delete(handle)
        store.sweep()
        with opened(url) as other:
            total = sum(output.stored_bytes for output in other.list(principal=OPERATOR))
            assert other._backend.usage()[TOTAL_ACCOUNT] == total


def test_a_master_that_is_unknown_is_an_error_without_credentials() -> None:
    with redis_sentinels() as (_, _, url):
        address = url.replace("//", "//:hunter2@").replace("/main", "/other")
        with pytest.raises(forebay.StoreUnavailable, match="no sentinel knows a master other; check") as error:
            opened(address)
        assert "hunter2" not in str(error.value)


def test_the_error_names_the_right_scheme(shared_redis: RedisServer) -> None:
    with pytest.raises(forebay.StoreUnavailable, match=r"no node of a cluster: use its address with redis://"):
        opened(get_cluster_url([shared_redis]))
    with redis_cluster() as nodes:
        slot = nodes[0].client.execute_command("CLUSTER", "KEYSLOT", "forebay:{forebay}:index")
        other = next(node for number, node in enumerate(nodes) if slot * 3 // 16384 != number)
        with pytest.raises(forebay.StoreUnavailable, match=r"a node of a cluster: .* redis\+cluster://"):
            opened(other.url)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, and its key."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-out", str(certificate), "-keyout", str(key)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


def test_tls_and_a_password(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    port = find_free_port()
    files = ("--tls-cert-file", str(certificate[0]), "--tls-key-file", str(certificate[1]))
    options = ("--tls-port", str(port), *files, "--tls-auth-clients", "no", "--requirepass", "hunter2")
    with redis_server(*options):
        url = f"rediss://127.0.0.1:{port}"
        monkeypatch.setenv("REDIS_PASSWORD", "hunter2")
        with opened(f"{url}/2?ssl_ca_certs={certificate[0]}") as store:
            use_everything(store)
        with pytest.raises(forebay.StoreUnavailable, match="certificate verify failed"):
            opened(url)
        monkeypatch.setenv("REDIS_PASSWORD", "hunter3")
        with pytest.raises(forebay.StoreUnavailable, match="REDIS_PASSWORD") as error:
            opened(f"{url}/2?ssl_ca_certs={certificate[0]}")
        assert "hunter" not in str(error.value)


def test_stores_with_other_prefixes_and_databases_are_other_stores(shared_redis: RedisServer) -> None:
    shared_redis.client.flushall()
    urls = [shared_redis.url, f"{shared_redis.url}/?prefix=team:a", f"{shared_redis.url}/1"]
    handles = []
    for url in urls:
        with opened(url) as store:
            assert list(store.list(principal=OPERATOR)) == []
            handles.append(store.put(b"x").output_handle)
            assert store._backend.usage()[TOTAL_ACCOUNT] == store.stat(handles[-1]).stored_bytes
    with opened(urls[0]) as store, pytest.raises(HandleNotFound):
        store.fetch(handles[1])


def test_a_forked_child_uses_a_connection_of_its_own(shared_redis: RedisServer) -> None:
    shared_redis.client.flushall()
    with redis_cluster() as nodes:
        for url in (shared_redis.url, get_cluster_url(nodes)):
            with opened(url) as store:
                handle = store.put(RECORDS).output_handle
                children = []
                for number in range(3):
                    child = os.fork()
                    if child == 0:
                        try:
                            for offset in range(0, 3000, 30):
                                page = store.fetch(handle, offset=offset, limit=5)
                                assert json.loads(page.content) == RECORDS[offset : offset + 5]
                            store.put(noise(50_000, number), principal="child")
                            store._backend.log.close()
                            os._exit(0)
                        finally:
                            os._exit(1)
                    children.append(child)
                for offset in range(0, 3000, 30):
                    page = store.fetch(handle, offset=offset, limit=5)
                    assert json.loads(page.content) == RECORDS[offset : offset + 5]
                assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
                assert len(list(store.list(principal="child"))) == 3
                # Each event is written by the process that recorded it.
                assert len(events(store, "output_handle_created")) == 4
                assert len(events(store, "output_handle_fetched")) == 400
