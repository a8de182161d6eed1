"""Replicas behind a load balancer: any of them redeems the handles of the others, while they come and go."""

import http.client
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import forebay
import pytest
from redis_server import RedisServer
from replicas import Replica, run_haproxy, run_nginx, start_replicas
from wires import LEGACY, MODERN, HttpWire, connect_http, extract_message

CLIENTS = 64
BALANCERS: dict[str, Callable[[Path, list[Replica]], AbstractContextManager[int]]] = {
    "haproxy": run_haproxy,
    "nginx": run_nginx,
}
SIZE = 60_000


class Outcome(NamedTuple):
    stored: dict[str, int]
    """The handles that a client was given, and the items of each."""
    errors: list[str]


class Client:
    """A client that calls a tool and reads each result by its handle. If its session is gone, it begins a new one."""

    def __init__(self, port: int, number: int) -> None:
        self._port = port
        self._era = (LEGACY, MODERN)[number % 2]
        self._wire: HttpWire | None = None
        self.stored: dict[str, int] = {}
        self.errors: list[str] = []

    def call(self, name: str, **arguments: Any) -> Any:
        """Return the result of a call, or `None` if it failed."""
        for _ in range(5):
            body = b""
            try:
                self._wire = self._wire or connect_http(self._port, self._era)
                body = self._wire.request("tools/call", {"name": name, "arguments": arguments})
                message = json.loads(extract_message(body))
            except (OSError, http.client.HTTPException, ValueError, AssertionError) as error:
                self.errors.append(f"{self._era} {name}: {error!r} {body[:200]!r}")
                self._wire = None
                return None
            if "result" in message:
                return message["result"]
            text = json.dumps(message["error"])
            if "Session not found" not in text and "session" not in text.lower():
                self.errors.append(f"{name}: {text}")
                return None
            self._wire = None
        return None

    def work(self, rounds: int, go_on: threading.Event) -> None:
        number = 0
        while number < rounds or not go_on.is_set():
            number += 1
            result = self.call("json", size=SIZE)
            if result is not None:
                descriptor = json.loads(result["content"][0]["text"])
                self.stored[descriptor["output_handle"]] = descriptor["item_count"]
                page = self.call("output_fetch", output_handle=descriptor["output_handle"], offset=7, limit=3)
                if page is not None:
                    assert '"id":100007' in page["content"][0]["text"].replace(" ", "").replace("\\", "")


@contextmanager
def load(port: int, rounds: int = 3) -> Iterator[Callable[[], Outcome]]:
    """Run the clients until the function is called, which returns what they saw."""
    clients = [Client(port, number) for number in range(CLIENTS)]
    done = threading.Event()
    with ThreadPoolExecutor(CLIENTS) as pool:
        try:
            working = [pool.submit(client.work, rounds, done) for client in clients]

            def finish() -> Outcome:
                done.set()
                for each in working:
                    each.result(120)
                stored = {handle: count for client in clients for handle, count in client.stored.items()}
                return Outcome(stored, [error for client in clients for error in client.errors])

            yield finish
        finally:
            done.set()


def assert_redeemable(address: str, stored: dict[str, int]) -> None:
    with forebay.open_store(address, sweep_interval=0) as store:
        for handle, count in stored.items():
            last = json.loads(store.fetch(handle, offset=count - 1).content)
            assert last[0]["id"] == 100_000 + count - 1


@pytest.fixture(params=BALANCERS)
def balancer(request: pytest.FixtureRequest) -> Callable[[Path, list[Replica]], AbstractContextManager[int]]:
    return BALANCERS[request.param]


def test_a_replica_that_drains_costs_no_client_an_error(
    balancer: Callable[[Path, list[Replica]], AbstractContextManager[int]], redis_address: str, tmp_path: Path
) -> None:
    options = {"shutdown_delay_seconds": 3, "shutdown_grace_seconds": 30}
    with start_replicas(tmp_path, redis_address, **options) as replicas, balancer(tmp_path, replicas) as port:
        with load(port) as finish:
            assert replicas[0].drain() == 0
            replicas[0].start()
            assert replicas[1].drain() == 0
            outcome = finish()
        assert outcome.errors == []
        assert len(outcome.stored) >= CLIENTS
        assert_redeemable(redis_address, outcome.stored)


def test_a_replica_that_is_killed_costs_only_the_calls_in_flight(
    balancer: Callable[[Path, list[Replica]], AbstractContextManager[int]], redis_address: str, tmp_path: Path
) -> None:
    with start_replicas(tmp_path, redis_address) as replicas, balancer(tmp_path, replicas) as port:
        with load(port) as finish:
            threading.Event().wait(2)
            replicas[0].kill()
            threading.Event().wait(2)
            replicas[0].start()
            outcome = finish()
        # At most one call of each client was in flight.
        assert len(outcome.errors) <= CLIENTS, Counter(outcome.errors)
        assert len(outcome.stored) >= CLIENTS
        assert_redeemable(redis_address, outcome.stored)


def test_a_store_that_is_away_makes_replicas_unready_until_it_is_back(
    shared_redis: RedisServer, redis_address: str, tmp_path: Path
) -> None:
    with start_replicas(tmp_path, redis_address, count=2) as replicas:
        client = Client(replicas[0].port, 1)
        result = client.call("json", size=SIZE)
        assert "output_handle" in result["content"][0]["text"]
        shared_redis.stop()
        try:
            result = client.call("json", size=SIZE)
            assert "store_unavailable" in json.dumps(result)
            assert replicas[1].server.request("GET", "/ready").status == 503
        finally:
            shared_redis.start()
        for _ in range(300):
            if replicas[1].server.request("GET", "/ready").status == 200:
                break
            threading.Event().wait(0.05)
        result = Client(replicas[1].port, 1).call("json", size=SIZE)
        assert "output_handle" in result["content"][0]["text"]
