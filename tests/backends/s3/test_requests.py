"""How many requests a store in a bucket makes, and how many bytes it reads."""

import json

import pytest
from forebay import Store, open_store
from s3_server import Proxy, S3Server


def opened(server: S3Server, prefix: str, front: Proxy, **options: object) -> Store:
    return open_store(server.url(prefix, front.port), **{"sweep_interval": 0, **options})


@pytest.fixture(scope="module")
def records() -> bytes:
    """100 MB of records."""
    rows = (
        {
            "id": n,
            "name": f"customer {n * 7919 % 100_003}",
            "total": n * 31 % 9973 / 7,
            "status": ["paid", "open"][n % 2],
        }
        for n in range(1_250_000)
    )
    return b"[" + b",".join(json.dumps(row).encode() for row in rows) + b"]"


def test_a_page_takes_two_requests_and_one_percent_of_the_bytes(
    records: bytes, server: S3Server, prefix: str, front: Proxy
) -> None:
    with opened(server, prefix, front) as store:
        stored = store.put(records)
        stored_bytes = store.stat(stored.output_handle).stored_bytes
    rows = json.loads(records)
    with opened(server, prefix, front) as store:
        front.reset()
        page = store.fetch(stored.output_handle, offset=700_000, limit=50)
        assert json.loads(page.content) == rows[700_000:700_050]
        assert [line.split()[0] for line in front.requests] == ["GET", "GET"]
        assert front.received_bytes <= len(records) / 100
        front.reset()
        page = store.fetch(stored.output_handle, offset=100_000, limit=50)
        assert json.loads(page.content) == rows[100_000:100_050]
        assert [line.split()[0] for line in front.requests] == ["GET"]
        front.reset()
        with store.open(stored.output_handle) as file:
            assert file.read() == records
        assert len(front.requests) <= stored_bytes / (8 << 20) + 1


def test_a_small_put_takes_one_request(server: S3Server, prefix: str, front: Proxy) -> None:
    with opened(server, prefix, front) as store:
        store.put(b"first")
        front.reset()
        handles = [store.put(f"payload {number}".encode()).output_handle for number in range(20)]
        assert sum(line.startswith("PUT") and "/h/" in line for line in front.requests) == 20
        # The others are of the log and the ledger.
        assert len(front.requests) <= 20 + 5
        assert [store.stat(handle).size_bytes for handle in handles] == [len(f"payload {n}") for n in range(20)]


def test_an_object_that_is_known_to_be_gone_is_not_found(server: S3Server, prefix: str, front: Proxy) -> None:
    with opened(server, prefix, front) as store, opened(server, prefix, front) as other:
        handle = store.put([{"id": n} for n in range(200_000)]).output_handle
        store.fetch(handle, offset=10, limit=1)
        other.delete(handle)
        with pytest.raises(LookupError):
            store.fetch(handle, offset=100_000, limit=1)
        with pytest.raises(LookupError):
            store.fetch(handle)
