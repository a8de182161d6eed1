"""Replicas of `forebay serve --http` behind the load balancers of `deploy/`."""

import contextlib
import http.client
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from listening_harness import HttpServer
from redis_server import find_free_port
from serve_harness import serve_command, upstream_command, write_config
from waiting import wait_until

DEPLOY = Path(__file__).parents[2] / "deploy"
_START_SECONDS = 30


class Replica:
    """A process that can be killed or drained, and started again at the same port."""

    def __init__(
        self, folder: Path, store: str, upstreams: dict[str, dict[str, Any]] | None = None, **options: Any
    ) -> None:
        folder.mkdir()
        upstreams = upstreams or {"large": upstream_command("large_server.py", "stdio")}
        self._path = write_config(folder, upstreams, store=store, **options)
        self.port = find_free_port()
        self.start()

    def start(self) -> None:
        command = [*serve_command(self._path), "--http", f"127.0.0.1:{self.port}", "--log-level", "info"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.server = HttpServer(process)
        wait_until(lambda: get_ready_status(self.port) == 200, _START_SECONDS)

    def kill(self) -> None:
        self.server.process.send_signal(signal.SIGKILL)
        self._wait()

    def drain(self) -> int:
        """Ask the process to stop, and return its exit code."""
        self.server.terminate()
        return self._wait()

    def _wait(self) -> int:
        code = self.server.wait()
        assert self.server.process.stderr
        self.server.process.stderr.close()
        return code

    def close(self) -> None:
        if self.server.process.poll() is None:
            self.kill()


def get_ready_status(port: int) -> int:
    """Return the status of `/ready`, or 0 if nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/ready")
        return connection.getresponse().status
    return 0


@contextlib.contextmanager
def start_replicas(folder: Path, store: str, count: int = 3, **options: Any) -> Iterator[list[Replica]]:
    with contextlib.ExitStack() as stack:
        replicas = []
        for number in range(count):
            replicas.append(Replica(folder / f"replica-{number}", store, **options))
            stack.callback(replicas[-1].close)
        yield replicas


@contextlib.contextmanager
def run_haproxy(folder: Path, replicas: Sequence[Replica]) -> Iterator[int]:
    """Run haproxy with the configuration of `deploy/`, and return its port."""
    port = find_free_port()
    addresses = {f"FOREBAY_REPLICA_{number}": f"127.0.0.1:{each.port}" for number, each in enumerate(replicas, 1)}
    environ = {**os.environ, "FOREBAY_BIND": f"127.0.0.1:{port}", **addresses}
    with _run_balancer([_find("haproxy"), "-f", str(DEPLOY / "haproxy.cfg")], folder, port, environ):
        yield port


@contextlib.contextmanager
def run_nginx(folder: Path, replicas: Sequence[Replica]) -> Iterator[int]:
    """Run nginx with the configuration of `deploy/` at other addresses, and return its port."""
    port = find_free_port()
    config = (DEPLOY / "nginx.conf").read_text().replace("listen 8080", f"listen 127.0.0.1:{port}")
    for number, replica in enumerate(replicas, 1):
        config = config.replace(f"replica-{number}:8000", f"127.0.0.1:{replica.port}")
    temporary = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = re.sub(r"http \{\n", f"http {{\n{temporary}", config, count=1)
    path = folder / "nginx.conf"
    path.write_text(f"daemon off;\npid {folder}/nginx.pid;\nerror_log {folder}/nginx.log;\n{config}")
    with _run_balancer([_find("nginx"), "-p", str(folder), "-c", str(path)], folder, port, dict(os.environ)):
        yield port


@contextlib.contextmanager
def _run_balancer(command: list[str], folder: Path, port: int, environ: dict[str, str]) -> Iterator[None]:
    with (folder / "balancer.log").open("wb") as log:
        process = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
    try:
        wait_until(lambda: get_ready_status(port) == 200, _START_SECONDS)
        yield
    finally:
        process.terminate()
        process.wait(_START_SECONDS)


def _find(name: str) -> str:
    path = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
    if path is None:
        pytest.fail(f"these tests start {name}: install it (Debian: apt install {name})")
    return path
