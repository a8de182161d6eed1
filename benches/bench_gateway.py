"""What a gateway adds to a server on stdio: forebay's, beside fastmcp's proxy before the same server.

The client is raw: it sends a line and waits for one. All sides are asked in turn, so that whatever else the machine
does meets each of them.
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


class Talk:
    """A client on a pipe."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self._id = 0
        self.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "b", "version": "1"})
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, **params: Any) -> bytes:
        self._id += 1
        self._send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        assert self.process.stdout
        while b'"id":%d' % self._id not in (line := self.process.stdout.readline())[:200].replace(b": ", b":"):
            assert line, "it has ended"
        return line

    def text(self, size: int) -> bytes:
        return self.ask("tools/call", name="text", arguments={"size": size})

    def peak(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024


@contextmanager
def talking(command: list[str]) -> Iterator[Talk]:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield Talk(process)
        finally:
            process.kill()


def wrapped(folder: Path) -> list[str]:
    store = (folder / "gateway").as_uri()
    return [sys.executable, "-m", "forebay", "wrap", "--store", store, "--", *SERVER]


@cache
def in_turn(folder: Path, size: str) -> tuple[Seconds, int]:
    """What a call takes by each way, and the most memory that forebay's took for calls of this size."""
    sides = {"direct": SERVER, "forebay": wrapped(folder)} | ({"fastmcp proxy": PROXY} if size != "80 MB" else {})
    seconds: Seconds = {who: [] for who in (*sides, "read, unescape and put")}
    with ExitStack() as stack:
        talks = {who: stack.enter_context(talking(command)) for who, command in sides.items()}
        store = stack.enter_context(forebay.open_store((folder / "gateway").as_uri()))
        check(talks, store, size)
        for _ in range(ROUNDS[size]):
            for who, talk in talks.items():
                start = time.perf_counter()
                line = talk.text(SIZES[size])
                seconds[who].append(time.perf_counter() - start)
                if who == "forebay" and size != "1 KB":
                    store.delete(orjson.loads(orjson.loads(line)["result"]["content"][0]["text"])["output_handle"])
                elif who == "direct" and size != "1 KB":
                    seconds["read, unescape and put"].append(seconds[who][-1] + unescaped_and_put(store, line))
        return seconds, talks["forebay"].peak()


def check(talks: dict[str, Talk], store: forebay.Store, size: str) -> None:
    """Every way gives what the server has, or a handle that gives every byte of it."""
    text = raw_stdio.text(SIZES[size])
    for who, talk in talks.items():
        got = orjson.loads(talk.text(SIZES[size]))["result"]["content"][0]["text"]
        if who != "forebay" or size == "1 KB":
            assert got == text
            continue
        with store.open(orjson.loads(got)["output_handle"]) as file:
            assert file.read() == text.encode()


def unescaped_and_put(store: forebay.Store, line: bytes) -> float:
    """What cannot be done without: taking the text out of the message, and storing it."""
    start = time.perf_counter()
    first, last = _core.locate(line, "/result/content/0/text")
    descriptor = store.put(_core.unescape(memoryview(line)[first + 1 : last - 1]))
    seconds = time.perf_counter() - start
    store.delete(descriptor.output_handle)
    return seconds


def added(seconds: Seconds, who: str) -> list[float]:
    """One number: of two calls the difference is as often the machine's as the gateway's."""
    return [statistics.median(seconds[who]) - statistics.median(seconds["direct"])]


@pytest.mark.parametrize("size", ["1 KB", "5 MB", "20 MB"])
@pytest.mark.parametrize("who", ["forebay", "fastmcp proxy"])
def bench_added(measured: Measured, folder: Path, size: str, who: str) -> None:
    seconds, peak = in_turn(folder, size)
    note = {"note": f"peak {peak / MB:.0f} MB"} if who == "forebay" else {}
    measured("added by a gateway", size, who, SIZES[size], added(seconds, who), **note)


@pytest.mark.parametrize("who", ["forebay", "read, unescape and put"])
def bench_least(measured: Measured, folder: Path, who: str) -> None:
    """What it adds, beside what cannot be done without; the direct call's own reading is in both."""
    seconds, _ = in_turn(folder, "20 MB")
    least = added(seconds, who) if who == "forebay" else [statistics.median(seconds[who])]
    measured("gateway beside the least", "20 MB", who, SIZES["20 MB"], least)


@pytest.mark.parametrize("who", ["forebay", "at 5 MB"])
def bench_growth(measured: Measured, folder: Path, who: str) -> None:
    """Time added a megabyte, at 80 MB and at 5."""
    size = "80 MB" if who == "forebay" else "5 MB"
    seconds, peak = in_turn(folder, size)
    each = [value / SIZES[size] * MB for value in added(seconds, "forebay")]
    measured("added by a gateway, a MB", "80 MB", who, MB, each, note=f"peak {peak / MB:.0f} MB")


STARTED = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(repr(time.monotonic()))"


@pytest.mark.parametrize("who", ["forebay", "direct"])
def bench_start(measured: Measured, folder: Path, tmp_path: Path, who: str) -> None:
    """From the command to the server's own first line."""
    server = [sys.executable, "-S", "-c", STARTED, str(tmp_path / "started")]
    command = server if who == "direct" else [*wrapped(folder)[: -len(SERVER)], *server]
    seconds = []
    for _ in range(10):
        start = time.monotonic()
        subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=60)
        seconds.append(float((tmp_path / "started").read_text()) - start)
    measured("start before the server's", "stdio", who, 0, seconds)
