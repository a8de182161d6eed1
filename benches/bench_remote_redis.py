"""Read pages of payloads that are stored on a Redis server on loopback, beside a client that gets all of a payload."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import corpus
import forebay
import pytest
from conftest import MeasureRounds
from cutting_proxy import CuttingProxy, cutting_proxy
from redis_server import RedisServer, redis_server

LIMIT = 50
SIZES = [20, 100]
PEER = "json.loads(redis.get())"


class StoredPayloads:
    """A server with payloads of all sizes: in a store, and as plain values."""

    def __init__(self, server: RedisServer, proxy: CuttingProxy) -> None:
        self.server = server
        self.proxy = proxy
        self.handles = {}
        self.client = server.client
        self.reopen()
        for size in SIZES:
            payload = corpus.records(size * corpus.MB)
            self.handles[size] = self.store.put(payload).output_handle
            self.client.set(f"plain {size}", payload)

    def reopen(self, *, is_counted: bool = False) -> None:
        """Open the store again: it knows no payload."""
        port = self.proxy.port if is_counted else self.server.port
        self.store = forebay.open_store(f"redis://127.0.0.1:{port}", sweep_interval=0)

    def page(self, size: int, offset: int) -> bytes:
        content = self.store.fetch(self.handles[size], offset=offset, limit=LIMIT).content
        assert isinstance(content, bytes)
        return content

    def peer_page(self, size: int, offset: int) -> list[object]:
        items = json.loads(self.client.get(f"plain {size}"))[offset : offset + LIMIT]
        assert isinstance(items, list)
        return items


@pytest.fixture(scope="module")
def stored() -> Iterator[StoredPayloads]:
    with ExitStack() as stack:
        server = stack.enter_context(redis_server())
        yield StoredPayloads(server, stack.enter_context(cutting_proxy(server.port)))


@pytest.mark.parametrize("who", ["forebay", "known", PEER])
@pytest.mark.parametrize("size", SIZES)
def bench_page_on_redis(measure_rounds: MeasureRounds, stored: StoredPayloads, size: int, who: str) -> None:
    middle = stored.store.fetch(stored.handles[size], limit=1).total // 2
    assert json.loads(stored.page(size, middle)) == stored.peer_page(size, middle)
    stored.reopen(is_counted=True)
    for most, offset in ((2, middle), (1, middle // 2)):
        before = stored.proxy.requests
        stored.page(size, offset)
        assert stored.proxy.requests - before <= most
    stored.reopen()
    if who == "known":
        stored.page(size, 0)
    works: dict[str, tuple[Callable[[], object], Callable[[], None], int]] = {
        "forebay": (lambda: stored.page(size, middle), stored.reopen, 30),
        "known": (lambda: stored.page(size, middle), lambda: None, 100),
        PEER: (lambda: stored.peer_page(size, middle), lambda: None, 3),
    }
    work, before_each, rounds = works[who]
    row = "page of 50 items on Redis"
    label = "forebay, second page" if who == "known" else who
    measure_rounds(row, f"records {size} MB", label, size * corpus.MB, work, before_each, rounds=rounds)
