"""Counts of what a store asks of a server: requests by kind, bytes and CPU time."""

import contextlib
import dataclasses
import itertools
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from forebay.store.backends.redis_client import RedisClient
from redis_server import RedisServer
from s3_server import BUCKET, Proxy

__all__ = ["Meter", "RedisMeter", "S3Meter", "Usage"]


@dataclasses.dataclass(slots=True)
class Usage:
    """What a piece of work took of a server."""

    requests: Counter[str] = dataclasses.field(default_factory=Counter)
    """Requests by kind: `PUT h` and `LIST journal` of a bucket, commands of Redis."""
    sent_bytes: int = 0
    received_bytes: int = 0
    seconds: float = 0.0
    server_seconds: float = 0.0
    """CPU time of the server, where it tells."""

    def to_dict(self, count: int = 1) -> dict[str, Any]:
        """Return the values divided by the number of times that the work was done."""
        return {
            "requests": {kind: round(number / count, 4) for kind, number in sorted(self.requests.items())},
            "sent_bytes": round(self.sent_bytes / count),
            "received_bytes": round(self.received_bytes / count),
            "seconds": round(self.seconds / count, 6),
            "server_seconds": round(self.server_seconds / count, 7),
        }


class Meter(Protocol):
    """Counts what happens in a `with` block."""

    def measure(self) -> contextlib.AbstractContextManager[Usage]: ...


class S3Meter:
    """Counts the requests that pass a proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    @contextlib.contextmanager
    def measure(self) -> Iterator[Usage]:
        usage, began_at = Usage(), time.perf_counter()
        first, sent, received = len(self._proxy.requests), self._proxy.sent_bytes, self._proxy.received_bytes
        yield usage
        usage.seconds = time.perf_counter() - began_at
        usage.requests.update(map(_classify, self._proxy.requests[first:]))
        usage.sent_bytes = self._proxy.sent_bytes - sent
        usage.received_bytes = self._proxy.received_bytes - received


def _classify(line: str) -> str:
    """Return the kind of a request from its first line."""
    method, target, *_ = line.split()
    path, _, query = target.partition("?")
    if "list-type" in query:
        folder = re.search(r"prefix=[^&]*?(?:%2F|/)(\w+)(?:%2F|/)?(?:&|$)", query)
        return f"LIST {folder[1] if folder else '?'}"
    key = path.removeprefix(f"/{BUCKET}/").split("/")
    return f"{method} {key[1]}" if len(key) > 1 else f"{method} ?"


class RedisMeter:
    """Counts the commands that a server runs, with those inside of scripts, and the round trips of this process."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._trips = itertools.count()
        send = RedisClient.send

        def counted(client: RedisClient, request: Callable[[Any], Any], *, is_urgent: bool = True) -> Any:
            if client.address.hosts == (("127.0.0.1", server.port),):
                next(self._trips)
            return send(client, request, is_urgent=is_urgent)

        RedisClient.send = counted  # type: ignore[assignment,method-assign]

    @contextlib.contextmanager
    def measure(self) -> Iterator[Usage]:
        usage, began_at, first, before = Usage(), time.perf_counter(), next(self._trips), self._read()
        yield usage
        usage.seconds = time.perf_counter() - began_at
        after, trips = self._read(), next(self._trips) - first - 1
        changes = {name: after[name] - before.get(name, 0) for name in after}
        commands = {name[8:]: round(number) for name, number in changes.items() if name.startswith("cmdstat_")}
        # The meter itself asks by INFO.
        usage.requests = +Counter(commands | {"info": 0, "round trips": trips})
        usage.sent_bytes = round(changes["total_net_input_bytes"])
        usage.received_bytes = round(changes["total_net_output_bytes"])
        usage.server_seconds = changes["used_cpu_user_main_thread"] + changes["used_cpu_sys_main_thread"]

    def _read(self) -> dict[str, float]:
        client = self._server.client
        calls = {name: row["calls"] for name, row in client.info("commandstats").items()}
        return {**client.info("stats"), **client.info("cpu"), **calls}
