"""What a gateway costs for each call: forebay's `serve` and `wrap`, fastmcp's proxy and a proxy in Go.

Load generator and server are `benches/load`, a program in Go, so that neither end is the bottleneck. The processor time
is that of the gateway alone, without the server that it starts. Without Go, these benches are skipped.
"""

import http.client
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from bench_gateway_http import free_port, run_server
from conftest import Measured

FOLDER = Path(__file__).parent
TARGET = FOLDER.parent / "target"
LOAD = str(TARGET / "load")
GO_PROXY = str(TARGET / "mcp-proxy")
"""github.com/TBXark/mcp-proxy, which `make bench` installs if it can."""

FOREBAY, FASTMCP, GO, DIRECT = "forebay", "fastmcp proxy", "mcp-proxy in Go", "direct"
PEERS = [FOREBAY, FASTMCP, GO]
ERAS = {"session": "2025-11-25", "modern": "2026-07-28"}

pytestmark = pytest.mark.skipif(not Path(LOAD).exists(), reason="benches/load needs Go")


class Load(NamedTuple):
    """Result of a run of the load generator, by call."""

    cpu_seconds: float
    seconds: float
    p50_seconds: float


class Gateway(NamedTuple):
    pid: int
    url: str

    @property
    def cpu_seconds(self) -> float:
        """The processor time of the gateway so far, without its children."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory_bytes(self) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))

    @property
    def server_count(self) -> int:
        """The number of processes of the upstream, without the guards that lead their groups."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        children = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
        return sum(os.getpgid(pid) != pid for pid in children)

    def run(self, calls: int, *options: str) -> Load:
        before = self.cpu_seconds
        result = run_load("http", self.url, "-calls", str(calls), *options)
        return result._replace(cpu_seconds=(self.cpu_seconds - before) / calls)


def run_load(*arguments: str) -> Load:
    """Run the load generator, which checks every response."""
    output = subprocess.run([LOAD, *arguments], check=True, capture_output=True, text=True, timeout=300).stdout
    result = json.loads(output)
    return Load(0.0, result["seconds"] / result["calls"], result["p50_ms"] / 1e3)


def describe_upstream(upstream: list[str] | str) -> str:
    """Return the upstream of a configuration of `serve`: a command or a URL."""
    if isinstance(upstream, str):
        return f"[upstreams.server]\nurl = {json.dumps(upstream)}\n"
    return f"[upstreams.server]\ncommand = {json.dumps(upstream[0])}\nargs = {json.dumps(upstream[1:])}\n"


def gateway_command(who: str, folder: Path, port: int, upstream: list[str] | str) -> tuple[list[str], str]:
    """Return the command that starts a gateway, and the path of its endpoint. `upstream` is a command or a URL."""
    if who == DIRECT:
        return [LOAD, "serve-http", f"127.0.0.1:{port}"], "/mcp"
    if who == FOREBAY:
        config = folder / f"forebay-{port}.toml"
        config.write_text(f'store = "{(folder / "hub").as_uri()}"\n{describe_upstream(upstream)}')
        serve = [sys.executable, "-m", "forebay", "serve", "--config", str(config), "--http", f"127.0.0.1:{port}"]
        return serve, "/mcp"
    if who == FASTMCP:
        server = [upstream] if isinstance(upstream, str) else upstream
        return [sys.executable, str(FOLDER / "fastmcp_http_proxy.py"), str(port), *server], "/mcp"
    address = f"127.0.0.1:{port}"
    options = {"baseURL": f"http://{address}", "addr": address, "name": "b", "version": "1", "type": "streamable-http"}
    config = folder / f"mcp-proxy-{port}.json"
    server_options = {"command": upstream[0], "args": upstream[1:]}
    config.write_text(json.dumps({"mcpProxy": options, "mcpServers": {"server": server_options}}))
    return [GO_PROXY, "--config", str(config)], "/server/mcp"


@contextmanager
def start_gateway(who: str, folder: Path, upstream: list[str] | str) -> Iterator[Gateway]:
    port = free_port()
    command, path = gateway_command(who, folder, port, upstream)
    with run_server(command, port) as process:
        yield Gateway(process.pid, f"http://127.0.0.1:{port}{path}")


def skip_without(who: str) -> None:
    if who == GO and not Path(GO_PROXY).exists():
        pytest.skip("mcp-proxy is not installed")


CALLS = {FOREBAY: 4000, FASTMCP: 800, GO: 8000, DIRECT: 8000}


@cache
def measure_calls(folder: Path, who: str, era: str, connections: int) -> Load:
    with start_gateway(who, folder, [LOAD, "serve-stdio"]) as gateway:
        options = ["-connections", str(connections), "-era", era]
        gateway.run(50 * connections, *options)
        return gateway.run(CALLS[who] // (4 if connections == 1 else 1), *options)


@pytest.mark.parametrize("who", PEERS)
@pytest.mark.parametrize("era", ERAS)
def bench_cpu(measured: Measured, folder: Path, era: str, who: str) -> None:
    skip_without(who)
    if who == GO and era == "modern":
        pytest.skip("it does not know this version")
    load = measure_calls(folder, who, era, 16)
    note = f"{1 / load.seconds:,.0f} calls a second"
    measured("hub, CPU of a call", f"1 KB, {ERAS[era]}", who, 1000, [load.cpu_seconds], note=note)


@pytest.mark.parametrize("who", [*PEERS, DIRECT])
@pytest.mark.parametrize("connections", [1, 16, 64])
def bench_rate(measured: Measured, folder: Path, connections: int, who: str) -> None:
    skip_without(who)
    load = measure_calls(folder, who, "session", connections)
    note = f"{1 / load.seconds:,.0f} calls a second, p50 {load.p50_seconds * 1e3:.2f} ms"
    measured("hub, a call", f"{connections} connections", who, 1000, [load.seconds], note=note)


@pytest.mark.parametrize("who", [FOREBAY, DIRECT])
def bench_latency(measured: Measured, folder: Path, who: str) -> None:
    load = measure_calls(folder, who, "session", 1)
    measured("hub, p50 of a call", "1 connection", who, 1000, [load.p50_seconds])


@pytest.mark.parametrize("who", [FOREBAY, FASTMCP])
def bench_http_upstream(measured: Measured, folder: Path, who: str) -> None:
    with ExitStack() as stack:
        upstream = stack.enter_context(start_gateway(DIRECT, folder, ""))
        gateway = stack.enter_context(start_gateway(who, folder, upstream.url))
        gateway.run(800, "-connections", "16")
        load = gateway.run(CALLS[who], "-connections", "16")
    measured("hub, CPU with HTTP upstream", "1 KB", who, 1000, [load.cpu_seconds])


def bench_sessions(measured: Measured, folder: Path) -> None:
    """64 sessions of one principal: besides the time of a call, their memory and the processes of the upstream."""
    with start_gateway(FOREBAY, folder, [LOAD, "serve-stdio"]) as gateway:
        load = gateway.run(6400, "-connections", "64")
        note = f"{gateway.memory_bytes / 1e6:.0f} MB, {gateway.server_count} process of the upstream"
    measured("hub, a call of many sessions", "64 sessions", FOREBAY, 1000, [load.seconds], note=note)


def bench_large_result(measured: Measured, folder: Path) -> None:
    with start_gateway(FOREBAY, folder, [LOAD, "serve-stdio"]) as gateway:
        gateway.run(4, "-connections", "1", "-size", "5000000")
        load = gateway.run(20, "-connections", "1", "-size", "5000000")
    measured("hub, CPU of a large result", "5 MB", FOREBAY, 5_000_000, [load.cpu_seconds])
    shutil.rmtree(folder / "hub", ignore_errors=True)


class Session:
    """Client on one connection."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url)
        self._connection = http.client.HTTPConnection(self._address.netloc, timeout=60)
        self._headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        info = {"name": "bench", "version": "1"}
        params = {"protocolVersion": ERAS["session"], "capabilities": {}, "clientInfo": info}
        self._post({"id": 0, "method": "initialize", "params": params})
        self._post({"method": "notifications/initialized"})

    def call(self, tool: str, **arguments: object) -> Any:
        """Call a tool, and return its text as JSON."""
        body = self._post({"id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
        return json.loads(json.loads(body)["result"]["content"][0]["text"])

    def _post(self, message: dict[str, Any]) -> bytes:
        self._connection.request("POST", self._address.path, json.dumps({"jsonrpc": "2.0", **message}), self._headers)
        response = self._connection.getresponse()
        self._headers["mcp-session-id"] = response.getheader("mcp-session-id", self._headers.get("mcp-session-id", ""))
        return response.read()

    def close(self) -> None:
        self._connection.close()


def bench_page(measured: Measured, folder: Path) -> None:
    with ExitStack() as stack:
        gateway = stack.enter_context(start_gateway(FOREBAY, folder, [LOAD, "serve-stdio"]))
        session = stack.enter_context(closing(Session(gateway.url)))
        handle = session.call("text", size=5_000_000, of="x")["output_handle"]
        counts = [100, 1000]
        for count in counts:
            before = gateway.cpu_seconds
            for number in range(count):
                page = session.call("output_fetch", output_handle=handle, offset=number * 4000, limit=8192)
                assert 8000 < len(page["content"].encode()) == page["returned"] <= 8192
            seconds = (gateway.cpu_seconds - before) / count
    measured("hub, CPU of a page", "8 KB of 5 MB", FOREBAY, 8192, [seconds])
    shutil.rmtree(folder / "hub", ignore_errors=True)


@pytest.mark.parametrize("command", ["serve", "wrap"])
def bench_stdio(measured: Measured, folder: Path, command: str) -> None:
    store = (folder / "stdio").as_uri()
    gateway = [sys.executable, "-m", "forebay", command, "--store", store]
    if command == "serve":
        config = folder / "stdio.toml"
        config.write_text(describe_upstream([LOAD, "serve-stdio"]))
        gateway += ["--config", str(config)]
    else:
        gateway += ["--", LOAD, "serve-stdio"]
    loads = [run_load("stdio", "-in-flight", "64", "-calls", "20000", "--", *gateway) for _ in range(3)]
    note = f"{1 / min(load.seconds for load in loads):,.0f} calls a second"
    measured(f"{command} on stdio, 64 in flight", "1 KB", FOREBAY, 1000, [load.seconds for load in loads], note=note)
