"""Redis servers on loopback for tests: one, a cluster, or a server and its replica under Sentinel."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis
from waiting import wait_until

_START_SECONDS = 30
_SLOTS = 16384


def find_server() -> str:
    """Return the path of redis-server or valkey-server: from the folder `TEST_SERVERS`, or installed."""
    folders = os.pathsep.join([os.environ.get("TEST_SERVERS", ""), os.environ.get("PATH", "")])
    for name in ("redis-server", "valkey-server"):
        path = shutil.which(name, path=folders)
        if path is not None:
            return path
    pytest.fail("these tests start redis-server: install it (Debian: apt install redis-server)")


def find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class RedisServer:
    """A server that keeps its data in memory only. It can be stopped, and started again at the same port."""

    def __init__(self, *arguments: str) -> None:
        self.port = find_free_port()
        self.client: Any = redis.Redis("127.0.0.1", self.port, protocol=2, socket_timeout=10)
        self._arguments = arguments
        self._folder = tempfile.mkdtemp(prefix="forebay-redis-")
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        options = ("--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
        command = [find_server(), *self._first_arguments(), *options, *self._arguments]
        self._process = subprocess.Popen(command, cwd=self._folder, stdout=subprocess.DEVNULL)
        wait_until(self.is_ready, _START_SECONDS)

    def _first_arguments(self) -> Sequence[str]:
        return ()

    def is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the server did not start"
        try:
            return bool(self.client.ping())
        except redis.exceptions.AuthenticationError:
            return True
        except redis.exceptions.ConnectionError:
            return False

    def pause(self) -> None:
        """Stop the process without closing its connections: it does not answer any more."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Kill the process. Its data is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.stop()
        self.client.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def count_commands(self) -> int:
        """Return how many commands clients have sent, without those inside of scripts."""
        return int(self.client.info("stats")["total_commands_processed"])


class SentinelServer(RedisServer):
    """A sentinel that watches a server by the name `main`."""

    def __init__(self, master: RedisServer) -> None:
        self._master = master
        super().__init__()

    def _first_arguments(self) -> Sequence[str]:
        config = Path(self._folder) / "sentinel.conf"
        config.write_text(
            f"sentinel monitor main 127.0.0.1 {self._master.port} 2\n"
            "sentinel down-after-milliseconds main 1000\n"
            "sentinel failover-timeout main 5000\n"
        )
        return (str(config), "--sentinel")


@contextlib.contextmanager
def redis_server(*arguments: str) -> Iterator[RedisServer]:
    with contextlib.closing(RedisServer(*arguments)) as server:
        yield server


@contextlib.contextmanager
def redis_cluster(replicas: int = 0) -> Iterator[list[RedisServer]]:
    """Three nodes that have a third of the slots each, and some replicas of the first one."""
    with contextlib.ExitStack() as stack:
        nodes = []
        for _ in range(3 + replicas):
            options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000")
            nodes.append(RedisServer(*options, "--cluster-port", str(find_free_port())))
            stack.callback(nodes[-1].close)
        for number, node in enumerate(nodes):
            if number < 3:
                first, end = _SLOTS * number // 3, _SLOTS * (number + 1) // 3
                node.client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
            for other in nodes:
                bus = other.client.config_get("cluster-port")["cluster-port"]
                node.client.execute_command("CLUSTER", "MEET", "127.0.0.1", other.port, bus)
        wait_until(lambda: all(_has_state_ok(node, len(nodes)) for node in nodes), _START_SECONDS)
        for node in nodes[3:]:
            node.client.execute_command("CLUSTER", "REPLICATE", nodes[0].client.execute_command("CLUSTER", "MYID"))
        wait_until(lambda: nodes[0].client.info("replication")["connected_slaves"] == replicas, _START_SECONDS)
        yield nodes


def _has_state_ok(node: RedisServer, count: int) -> bool:
    info: bytes = node.client.execute_command("CLUSTER", "INFO")
    return {b"cluster_state:ok", b"cluster_known_nodes:%d" % count} <= set(info.split(b"\r\n"))


def get_cluster_url(nodes: Sequence[RedisServer]) -> str:
    return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)


@contextlib.contextmanager
def redis_sentinels() -> Iterator[tuple[RedisServer, RedisServer, str]]:
    """A server, its replica, and the address of the store that three sentinels watch."""
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(redis_server())
        replica = stack.enter_context(redis_server("--replicaof", f"127.0.0.1 {master.port}"))
        wait_until(lambda: replica.client.info("replication")["master_link_status"] == "up", _START_SECONDS)
        sentinels = []
        for _ in range(3):
            sentinels.append(SentinelServer(master))
            stack.callback(sentinels[-1].close)
        for sentinel in sentinels:
            wait_until(lambda sentinel=sentinel: _sees_all(sentinel), _START_SECONDS)  # type: ignore[misc]
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in sentinels)
        yield master, replica, f"redis+sentinel://{hosts}/main"


def _sees_all(sentinel: RedisServer) -> bool:
    (state,) = sentinel.client.sentinel_masters().values()
    return bool(state["num-slaves"] == 1 and state["num-other-sentinels"] == 2)
