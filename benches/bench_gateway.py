"""The time that a gateway adds to a server on stdio: forebay and fastmcp's proxy, in front of the same server.

The client is raw: it sends a line and waits for one. Calls alternate between the gateways, so that other load on the
machine affects all of them.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import forebay
import orjson
import pytest
import raw_stdio
from conftest import Measured
from forebay import _core

MB = 1_000_000
SIZES = {"1 KB": 1000, "5 MB": 5 * MB, "20 MB": 20 * MB, "80 MB": 80 * MB}
ROUNDS = {"1 KB": 500, "5 MB": 9, "20 MB": 9, "80 MB": 3}
FOLDER = Path(__file__).parent
SERVER = [sys.executable, str(FOLDER / "raw_stdio.py")]
PROXY = [sys.executable, str(FOLDER / "fastmcp_proxy.py"), *SERVER]

Seconds = dict[str, list[float]]


class Client:
    """A client of a server process."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self._id = 0
        self.request(
            "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "b", "version": "1"}
        )
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def request(self, method: str, **params: Any) -> bytes:
        self._id += 1
        self._send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        assert self.process.stdout
        while b'"id":%d' % self._id not in (line := self.process.stdout.readline())[:200].replace(b": ", b":"):
            assert line, "the server has ended"
        return line

    def text(self, size: int) -> bytes:
        return self.request("tools/call", name="text", arguments={"size": size})

    def peak_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024


@contextmanager
def connect(command: list[str]) -> Iterator[Client]:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield Client(process)
        finally:
            process.kill()


def wrap_command(folder: Path) -> list[str]:
    store = (folder / "gateway").as_uri()
    return [sys.executable, "-m", "forebay", "wrap", "--store", store, "--", *SERVER]


@cache
def time_in_turn(folder: Path, size: str) -> tuple[Seconds, int]:
    """Return the seconds per call for each gateway, and the peak memory of forebay's."""
    sides = {"direct": SERVER, "forebay": wrap_command(folder)} | ({"fastmcp proxy": PROXY} if size != "80 MB" else {})
    seconds: Seconds = {who: [] for who in (*sides, "read, unescape and put")}
    with ExitStack() as stack:
        clients = {who: stack.enter_context(connect(command)) for who, command in sides.items()}
        store = stack.enter_context(forebay.open_store((folder / "gateway").as_uri()))
        check(clients, store, size)
        for _ in range(ROUNDS[size]):
            for who, client in clients.items():
                start = time.perf_counter()
                line = client.text(SIZES[size])
                seconds[who].append(time.perf_counter() - start)
                if who == "forebay" and size != "1 KB":
                    store.delete(orjson.loads(orjson.loads(line)["result"]["content"][0]["text"])["output_handle"])
                elif who == "direct" and size != "1 KB":
                    seconds["read, unescape and put"].append(seconds[who][-1] + time_unescape_and_put(store, line))
        return seconds, clients["forebay"].peak_bytes()


def check(clients: dict[str, Client], store: forebay.Store, size: str) -> None:
    """Check that every gateway returns the server's text, or a handle to all of it."""
    text = raw_stdio.make_text(SIZES[size])
    for who, client in clients.items():
        got = orjson.loads(client.text(SIZES[size]))["result"]["content"][0]["text"]
        if who != "forebay" or size == "1 KB":
            assert got == text
            continue
        with store.open(orjson.loads(got)["output_handle"]) as file:
            assert file.read() == text.encode()


def time_unescape_and_put(store: forebay.Store, line: bytes) -> float:
    """Return the seconds of the least work possible: extract the text from the message and store it."""
    start = time.perf_counter()
    first, last = _core.locate(line, "/result/content/0/text")
    descriptor = store.put(_core.unescape(memoryview(line)[first + 1 : last - 1]))
    seconds = time.perf_counter() - start
    store.delete(descriptor.output_handle)
    return seconds


def added_seconds(seconds: Seconds, who: str) -> list[float]:
    """Return the difference of the medians; differences of single calls are mostly noise."""
    return [statistics.median(seconds[who]) - statistics.median(seconds["direct"])]


@pytest.mark.parametrize("size", ["1 KB", "5 MB", "20 MB"])
@pytest.mark.parametrize("who", ["forebay", "fastmcp proxy"])
def bench_added(measured: Measured, folder: Path, size: str, who: str) -> None:
    seconds, peak = time_in_turn(folder, size)
    note = {"note": f"peak {peak / MB:.0f} MB"} if who == "forebay" else {}
    measured("added by a gateway", size, who, SIZES[size], added_seconds(seconds, who), **note)


@pytest.mark.parametrize("who", ["forebay", "read, unescape and put"])
def bench_least(measured: Measured, folder: Path, who: str) -> None:
    """The time added, beside the least work possible. Both include reading the message, as the direct call does."""
    seconds, _ = time_in_turn(folder, "20 MB")
    values = added_seconds(seconds, who) if who == "forebay" else [statistics.median(seconds[who])]
    measured("gateway beside the least", "20 MB", who, SIZES["20 MB"], values)


@pytest.mark.parametrize("who", ["forebay", "at 5 MB"])
def bench_growth(measured: Measured, folder: Path, who: str) -> None:
    """The time added per megabyte, at 80 MB and at 5 MB."""
    size = "80 MB" if who == "forebay" else "5 MB"
    seconds, peak = time_in_turn(folder, size)
    per_megabyte = [value / SIZES[size] * MB for value in added_seconds(seconds, "forebay")]
    measured("added by a gateway, a MB", "80 MB", who, MB, per_megabyte, note=f"peak {peak / MB:.0f} MB")


RECORD_START = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(repr(time.monotonic()))"


@pytest.mark.parametrize("who", ["forebay", "direct"])
def bench_start(measured: Measured, folder: Path, tmp_path: Path, who: str) -> None:
    """The time from starting the command to the server's first line of code."""
    server = [sys.executable, "-S", "-c", RECORD_START, str(tmp_path / "started")]
    command = server if who == "direct" else [*wrap_command(folder)[: -len(SERVER)], *server]
    seconds = []
    for _ in range(10):
        start = time.monotonic()
        subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=60)
        seconds.append(float((tmp_path / "started").read_text()) - start)
    measured("start before the server's", "stdio", who, 0, seconds)
