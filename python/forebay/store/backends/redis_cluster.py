"""The nodes of a Redis cluster: which one has a key, and connections to it.

The library's own client asks all nodes for the slots again, one after the other and behind a lock, after each request
that fails. While a cluster of three is away, 16 threads that read wait 80 seconds for their errors.
"""

import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import redis
from redis.crc import key_slot

from forebay.store.threads import fork_safe_lock

__all__ = ["ClusterNodes", "Command", "execute"]

# Not the generator of `random` itself, whose sequence belongs to the program.
_random = random.SystemRandom()

Command = Sequence[Any]
_Node = tuple[str, int]

_MAX_ASKED_NODES = 4
"""How many nodes are asked for the slots of all until one answers."""


def execute(client: Any, commands: Sequence[Command], *, is_asking: bool = False) -> list[Any]:
    """Send commands in one request, and return the replies, of which some may be errors."""
    with client.pipeline(transaction=False) as pipeline:
        for command in commands:
            if is_asking:
                pipeline.execute_command("ASKING")
            pipeline.execute_command(*command)
        # Errors that the library raises quote the command, and so the payload.
        replies: list[Any] = pipeline.execute(raise_on_error=False)
    return replies[1::2] if is_asking else replies


_STALE_ERRORS = (
    redis.exceptions.MovedError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.BusyLoadingError,
)
"""Replies after which the slots may be on other nodes."""


class ClusterNodes:
    """Connections to the nodes of a cluster. After a request that failed, the next one asks for the slots again."""

    def __init__(self, seeds: Sequence[_Node], connect: Callable[..., Any]) -> None:
        """Use a function that returns a client for a node; with `is_hasty=True` one that waits for a short time."""
        self._seeds = seeds
        self._connect = connect
        self._lock = fork_safe_lock()
        self._clients: dict[_Node, Any] = {}
        self._ranges: list[tuple[int, int, _Node]] = []
        self._is_stale = True
        self._refreshed_at = self._failed_at = -math.inf

    def execute(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands, in one request to each node, and return the replies, of which some may be errors."""
        if self._is_stale:
            self._refresh()
        numbers_by_node: dict[_Node, list[int]] = {}
        for number, command in enumerate(commands):
            numbers_by_node.setdefault(self._find_node(command), []).append(number)
        replies: list[Any] = [None] * len(commands)
        try:
            for node, numbers in numbers_by_node.items():
                found = execute(self._get_client(node), [commands[number] for number in numbers])
                for number, reply in zip(numbers, found, strict=True):
                    replies[number] = self._follow(commands[number], reply)
        except (redis.exceptions.RedisError, OSError):
            self._is_stale = True
            raise
        return replies

    def execute_everywhere(self, command: Command) -> list[Any]:
        """Send a command to each node that has slots, and return the replies."""
        if self._is_stale:
            self._refresh()
        nodes = {node for *_, node in self._ranges}
        return [execute(self._get_client(node), [command])[0] for node in nodes]

    def _follow(self, command: Command, reply: Any) -> Any:
        """Return the reply of the node that a key is just moved to, or else the given one."""
        if isinstance(reply, redis.exceptions.AskError) and not isinstance(reply, redis.exceptions.MovedError):
            return execute(self._get_client((reply.host, reply.port)), [command], is_asking=True)[0]
        if isinstance(reply, _STALE_ERRORS):
            self._is_stale = True
        return reply

    def _find_node(self, command: Command) -> _Node:
        name, *arguments = command
        if not arguments:
            return self._ranges[0][2]
        slot = key_slot(arguments[2 if name in ("EVAL", "EVALSHA") else 0].encode())
        for first, last, node in self._ranges:
            if first <= slot <= last:
                return node
        self._is_stale = True
        raise redis.exceptions.ConnectionError(f"no node of the cluster has slot {slot}")

    def _get_client(self, node: _Node) -> Any:
        with self._lock:
            if node not in self._clients:
                self._clients[node] = self._connect(*node)
            return self._clients[node]

    def _refresh(self) -> None:
        """Ask a node which one has which slots."""
        began_at = time.monotonic()
        with self._lock:
            # Another thread may have done this, or have tried it, while this one waited.
            if self._refreshed_at > began_at:
                return
            if self._failed_at > began_at:
                raise redis.exceptions.ConnectionError("no node of the cluster answers")
            error: Exception = redis.exceptions.ConnectionError("no node of the cluster has slots")
            nodes = [*{*self._seeds, *(node for *_, node in self._ranges)}]
            for host, port in _random.sample(nodes, min(len(nodes), _MAX_ASKED_NODES)):
                try:
                    with self._connect(host, port, is_hasty=True) as client:
                        ranges = _parse_slots(client.execute_command("CLUSTER", "SLOTS"), host)
                except (redis.exceptions.RedisError, OSError) as refusal:
                    error = refusal
                    continue
                if ranges:
                    self._ranges, self._is_stale = ranges, False
                    self._refreshed_at = time.monotonic()
                    return
            self._failed_at = time.monotonic()
            raise error

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for client in self._clients.values():
                client.close()


def _parse_slots(reply: Sequence[Any], asked_host: str) -> list[tuple[int, int, _Node]]:
    """Return the first slot, the last slot and the node of each range. A node may not know its own address."""
    return [
        (int(first), int(last), (host.decode() if host else asked_host, int(port)))
        for first, last, (host, port, *_), *_ in reply
    ]
