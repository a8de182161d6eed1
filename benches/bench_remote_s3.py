"""A store in a bucket, beside the library obstore alone, with an S3 server on loopback.

The peer reads a page as one would without forebay: download, parse, slice. The server and its disk are part of each
time. They are skipped without versitygw in `$TEST_SERVERS` or
`$PATH`.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import corpus
import forebay
import obstore
import orjson
import pytest
from conftest import Measured
from obstore.store import S3Store
from s3_server import BUCKET, S3Server, s3_server

LIMIT = 50
SIZE = 100 * corpus.MB
ROUNDS = 5
TURN_SECONDS = 0.1


class Bucket(NamedTuple):
    """A server with a store, and its bucket as the library opens it."""

    server: S3Server
    store: forebay.Store
    plain: Any


@pytest.fixture(scope="module")
def bucket(folder: Path) -> Iterator[Bucket]:
    if shutil.which("versitygw", path=os.environ.get("TEST_SERVERS") or None) is None:
        pytest.skip("there is no versitygw")
    with s3_server(folder) as server, forebay.open_store(server.url("store"), sweep_interval=0) as store:
        endpoint = f"http://127.0.0.1:{server.port}"
        yield Bucket(server, store, S3Store(BUCKET, endpoint=endpoint, client_options={"allow_http": True}))


def take_turns(works: dict[str, Callable[[], object]], clear: Callable[[], object]) -> dict[str, list[float]]:
    """Time each of the works in turn, in several rounds. A turn is the mean of as many calls as it has time for.

    A single call of a few milliseconds would mostly measure what the download before it has left to do: in the server,
    and in the memory of this process.
    """
    seconds: dict[str, list[float]] = {who: [] for who in works}
    for _ in range(ROUNDS):
        for who, work in works.items():
            calls: list[float] = []
            while sum(calls) < TURN_SECONDS:
                clear()
                began_at = time.perf_counter()
                work()
                calls.append(time.perf_counter() - began_at)
            seconds[who].append(sum(calls) / len(calls))
    return seconds


@pytest.fixture(scope="module")
def pages(bucket: Bucket) -> dict[str, dict[str, list[float]]]:
    data = corpus.load("records", "100 MB")
    obstore.put(bucket.plain, "plain/records.json", data)
    handle = bucket.store.put(data).output_handle
    middle = bucket.store.fetch(handle, limit=1).total // 2

    def fetch() -> bytes:
        content = bucket.store.fetch(handle, offset=middle, limit=LIMIT).content
        assert isinstance(content, bytes)
        return content

    def download() -> bytes:
        rows = orjson.loads(obstore.get(bucket.plain, "plain/records.json").bytes().to_bytes())
        return orjson.dumps(rows[middle : middle + LIMIT])

    assert orjson.loads(fetch()) == orjson.loads(download())
    forget = bucket.store._catalog.forget
    return {
        "cold": take_turns({"forebay": fetch, "obstore and orjson": download}, lambda: forget(handle)),
        "warm": take_turns({"forebay": fetch, "obstore and orjson": download}, lambda: None),
    }


@pytest.mark.parametrize("who", ["forebay", "obstore and orjson"])
@pytest.mark.parametrize("state", ["cold", "warm"])
def bench_page(measured: Measured, pages: dict[str, dict[str, list[float]]], state: str, who: str) -> None:
    measured(f"page from a bucket, {state}", "records 100 MB", who, SIZE, pages[state][who])


@pytest.fixture(scope="module")
def puts(bucket: Bucket, folder: Path) -> dict[str, list[float]]:
    data = corpus.load("records", "100 MB")
    path = folder / "records.json"
    path.write_bytes(data)
    handles: list[str] = []

    def compress() -> None:
        subprocess.run(["zstd", "-1", "-T2", "-q", "-c", path], check=True, stdout=subprocess.DEVNULL)

    def put() -> None:
        handles.append(bucket.store.put(data).output_handle)

    def clear() -> None:
        while handles:
            bucket.store.delete(handles.pop())

    put()
    with bucket.store.open(handles[0]) as file:
        assert file.read() == data
    works: dict[str, Callable[[], object]] = {
        "forebay": put,
        "obstore, plain": lambda: obstore.put(bucket.plain, "plain/put.json", data),
    }
    if shutil.which("zstd"):
        works["zstd -1 -T2 to nowhere"] = compress
    return take_turns(works, clear)


@pytest.mark.parametrize("who", ["forebay", "obstore, plain", "zstd -1 -T2 to nowhere"])
def bench_put(measured: Measured, puts: dict[str, list[float]], who: str) -> None:
    if who not in puts:
        pytest.skip("there is no zstd command")
    measured("put to a bucket", "records 100 MB", who, SIZE, puts[who])
