"""The same jobs in other stores: store a tool's result, read fifty items from its middle, store small values.

A tool returns objects and a server sends JSON, so every side gets objects and returns JSON, or objects for the small
values. Each store is on disk and used as its documentation shows.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import corpus
import diskcache  # type: ignore[import-untyped]
import forebay
import mcp_refcache
import orjson
import pytest
from conftest import MeasureRounds
from key_value.aio.stores.disk import DiskStore

LIMIT = 50
SMALL = 1000


class Peer(Protocol):
    def put(self, key: str, value: list[Any]) -> str:
        """Store a value and return the key to read it by."""

    def page(self, key: str, offset: int) -> bytes:
        """Return `LIMIT` items as JSON; the offset is a multiple of `LIMIT`."""

    def get(self, key: str) -> list[Any]: ...
    def close(self) -> None: ...


class Forebay:
    def __init__(self, folder: Path) -> None:
        self.store = forebay.open_store(folder.as_uri())
        self.close = self.store.close

    def put(self, _: str, value: list[Any]) -> str:
        return self.store.put(value).output_handle

    def page(self, key: str, offset: int) -> bytes:
        content = self.store.fetch(key, offset=offset, limit=LIMIT).content
        assert isinstance(content, bytes)
        return content

    def get(self, key: str) -> list[Any]:
        value: list[Any] = orjson.loads(self.store.get(key, ""))
        return value


class Diskcache:
    def __init__(self, folder: Path) -> None:
        self.cache = diskcache.Cache(str(folder))
        self.close = self.cache.close

    def put(self, key: str, value: list[Any]) -> str:
        self.cache.set(key, value, expire=24 * 3600)
        return key

    def page(self, key: str, offset: int) -> bytes:
        return orjson.dumps(self.get(key)[offset : offset + LIMIT])

    def get(self, key: str) -> list[Any]:
        value: list[Any] = self.cache[key]
        return value


class Refcache:
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.backend = mcp_refcache.SQLiteBackend(folder / "cache.db")
        # Characters are its fastest measure, and need no tokenizer download.
        limits = mcp_refcache.PreviewConfig(size_mode=mcp_refcache.SizeMode.CHARACTER, max_size=65536)
        self.cache = mcp_refcache.RefCache(backend=self.backend, preview_config=limits)
        self.close = self.backend.close

    def put(self, key: str, value: list[Any]) -> str:
        return self.cache.set(key, value).ref_id

    def page(self, key: str, offset: int) -> bytes:
        response = self.cache.get(key, page=offset // LIMIT + 1, page_size=LIMIT)
        assert isinstance(response, mcp_refcache.CacheResponse)
        return orjson.dumps(response.preview)

    def get(self, key: str) -> list[Any]:
        value: list[Any] = self.cache.resolve(key)
        return value


class KeyValue:
    def __init__(self, folder: Path) -> None:
        self.runner = asyncio.Runner()
        self.store = DiskStore(directory=folder)

    def put(self, key: str, value: list[Any]) -> str:
        self.runner.run(self.store.put(key, {"items": value}, ttl=24 * 3600))
        return key

    def page(self, key: str, offset: int) -> bytes:
        return orjson.dumps(self.get(key)[offset : offset + LIMIT])

    def get(self, key: str) -> list[Any]:
        entry = self.runner.run(self.store.get(key))
        assert entry is not None
        value: list[Any] = entry["items"]
        return value

    def close(self) -> None:
        self.runner.run(self.store.close())
        self.runner.close()


PEERS: dict[str, Callable[[Path], Peer]] = {
    "forebay": Forebay,
    "diskcache": Diskcache,
    "mcp-refcache": Refcache,
    "key-value disk": KeyValue,
}


@pytest.fixture(scope="module")
def peers(folder: Path) -> Iterator[dict[str, Peer]]:
    with ExitStack() as stack:
        yield {
            who: stack.enter_context(contextlib.closing(make(folder / who.replace(" ", "-"))))
            for who, make in PEERS.items()
        }


@cache
def large() -> list[Any]:
    value: list[Any] = orjson.loads(corpus.records(100 * corpus.MB))
    return value


@pytest.mark.parametrize("who", PEERS)
def bench_peers_put(measure_rounds: MeasureRounds, peers: dict[str, Peer], who: str) -> None:
    peer, value = peers[who], large()
    assert peer.get(peer.put("large", value)) == value
    measure_rounds("store, put", "objects 100 MB", who, 100 * corpus.MB, lambda: peer.put("large", value), rounds=3)


@pytest.mark.parametrize("who", PEERS)
def bench_peers_page(measure_rounds: MeasureRounds, peers: dict[str, Peer], who: str) -> None:
    peer, value = peers[who], large()
    key, middle = peer.put("large", value), len(value) // 2 // LIMIT * LIMIT
    assert orjson.loads(peer.page(key, middle)) == value[middle : middle + LIMIT]
    measure_rounds(
        "store, page of 50 items", "objects 100 MB", who, 100 * corpus.MB, lambda: peer.page(key, middle), rounds=3
    )


@pytest.mark.parametrize("who", PEERS)
def bench_peers_small(measure_rounds: MeasureRounds, peers: dict[str, Peer], who: str) -> None:
    """Put and get a thousand values of ten records each."""
    peer = peers[who]
    values = [large()[start : start + 10] for start in range(0, SMALL * 10, 10)]

    def put_and_get() -> list[list[Any]]:
        return [peer.get(peer.put(f"small-{i}", value)) for i, value in enumerate(values)]

    assert put_and_get() == values
    measure_rounds("store, 1,000 puts and gets", "2 KB each", who, SMALL * 2000, put_and_get, rounds=3)
