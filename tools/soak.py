"""Run a store, `forebay wrap` and `forebay serve` under mixed load, and check every byte that they acknowledge.

    python tools/soak.py --seconds 3600

Writers put payloads into one store and are killed at random; some have a disk that is full after a megabyte. A gateway
on stdio, whose server dies now and then, and a gateway over HTTP with four principals turn results into handles; a
client of the latter never reads. A ledger keeps the digest of every payload that was acknowledged, and a checker reads
them back, at random while the load runs and all of them at the end. Memory, descriptors and threads of the gateways
must not grow after the first quarter of the time.
"""

import argparse
import dataclasses
import hashlib
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

import forebay  # noqa: E402
from forebay.store.handles import make_client_principal  # noqa: E402
from gateway_harness import ADVERSE, StdioClient, parse_text, wrap  # noqa: E402
from serve_harness import upstream_command  # noqa: E402
from serve_http_harness import NAMES, call_tool, connect_as, serving_http, token  # noqa: E402
from wires import LEGACY, MODERN  # noqa: E402

MAX_ENTRIES = 2000
"""Payloads to keep; of more, half are deleted, so that the disk does not fill up."""

MAX_RESULT_BYTES = 2_000_000
FULL_DISK_BYTES = 1 << 20
PROBE_SECONDS = 2.0

MAX_GROWTH = {"memory": 16 << 20, "descriptors": 16, "threads": 8}
"""How much more a gateway may use in the last quarter of the time than in the second."""


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class Ledger:
    """Digests of the payloads that must be there, by store, principal and handle."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[tuple[Path, str | None, str], str] = {}
        self.acknowledged = 0
        self.problems: list[str] = []

    def add(self, root: Path, principal: str | None, handle: str, checksum: str) -> None:
        with self._lock:
            self._entries[root, principal, handle] = checksum
            self.acknowledged += 1

    def report(self, problem: str) -> None:
        with self._lock:
            self.problems.append(problem)

    def entries(self) -> list[tuple[Path, str | None, str, str]]:
        with self._lock:
            return [(*key, checksum) for key, checksum in self._entries.items()]

    def check(self, stores: dict[Path, forebay.Store], count: int | None = None) -> None:
        """Read some payloads, or all of them, and compare their digests."""
        entries = self.entries()
        for root, principal, handle, checksum in (
            entries if count is None else random.sample(entries, min(count, len(entries)))
        ):
            try:
                with stores[root].open(handle, principal=principal) as file:
                    data = file.read()
            except forebay.ForebayError as error:
                self.report(f"{handle} of {principal} is lost: {error}")
                continue
            if digest(data) != checksum:
                self.report(f"{handle} of {principal} is damaged")

    def thin_out(self, stores: dict[Path, forebay.Store]) -> None:
        """Delete half of the payloads if there are many."""
        entries = self.entries()
        if len(entries) <= MAX_ENTRIES:
            return
        for root, principal, handle, _ in random.sample(entries, len(entries) // 2):
            with self._lock:
                del self._entries[root, principal, handle]
            stores[root].delete(handle, principal=principal)


def write_payloads(root: str, seed: int) -> None:
    """Put payloads forever, and print each handle once it is acknowledged. Runs in a process of its own."""
    rng = random.Random(seed)  # noqa: S311
    if seed % 4 == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (FULL_DISK_BYTES, FULL_DISK_BYTES))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with forebay.open_store(root, sweep_interval=rng.choice([0, 0.05])) as store:
        while True:
            data = rng.choice([b'{"id":1,"name":"row"}\n', rng.randbytes(50), b"a line\n"]) * rng.choice(
                [1, 100, 60_000]
            )
            principal = rng.choice(["ann", "bob", f"guest-{seed % 5}"])
            try:
                handle = store.put(data, principal=principal).output_handle
            except forebay.StoreFull:
                continue
            os.write(1, f"{handle} {principal} {digest(data)}\n".encode())


def kill_writers(root: Path, ledger: Ledger, stop: threading.Event) -> None:
    """Start writers one after the other, and kill each after a moment."""
    for seed in range(1, sys.maxsize):
        if stop.is_set():
            return
        command = [sys.executable, __file__, "--write", root.as_uri(), str(seed)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
            stop.wait(random.uniform(0.4, 2))  # noqa: S311
            writer.kill()
            output, errors = writer.communicate()
        if b"Traceback" in errors:
            ledger.report(f"a writer failed: {errors[-500:].decode(errors='replace')}")
        for line in output.split(b"\n")[:-1]:
            handle, principal, checksum = line.decode().split()
            ledger.add(root, principal, handle, checksum)


def make_text(rng: random.Random) -> tuple[dict[str, Any], bytes]:
    """Return arguments of the server's tool `text`, and the text that it returns."""
    unit = f'{rng.randrange(10**9)} é"\\\n'
    size = rng.choice([10, 50_000, MAX_RESULT_BYTES])
    return {"of": unit, "size": size}, (unit * (size // len(unit))).encode()


def call_wrap(client: StdioClient, root: Path, ledger: Ledger, stop: threading.Event) -> None:
    """Call tools through a gateway on stdio, read results back, and let the server die now and then."""
    rng = random.Random(1)  # noqa: S311
    while not stop.is_set():
        if rng.random() < 0.02:
            client.call("dies", after=1)
        arguments, text = make_text(rng)
        result = client.call("text", **arguments)
        if result.get("isError"):
            continue
        if len(text) < 1000:
            if result["content"][0]["text"].encode() != text:
                ledger.report("wrap changed an inline result")
            continue
        handle = parse_text(result)["output_handle"]
        ledger.add(root, None, handle, digest(text))
        page = parse_text(client.call("output_fetch", output_handle=handle, format="text"))
        if not text.startswith(page["content"].encode()):
            ledger.report(f"a page of {handle} is wrong")


def call_serve(port: int, name: str, root: Path, ledger: Ledger, stop: threading.Event) -> None:
    """Call tools as one principal over HTTP, in both eras in turn."""
    rng = random.Random(name)  # noqa: S311
    while not stop.is_set():
        wire = connect_as(port, rng.choice([LEGACY, MODERN]), name)
        for _ in range(20):
            arguments, text = make_text(rng)
            answer = call_tool(wire, "text", **arguments)
            if isinstance(answer, dict) and "output_handle" in answer:
                ledger.add(root, make_client_principal(name), answer["output_handle"], digest(text))
            elif len(text) < 1000 and answer != text.decode():
                ledger.report("serve changed an inline result")
        wire.end_session()


def never_read(port: int, stop: threading.Event) -> None:
    """Open connections that send a large request and never read, or that send nothing."""
    while not stop.is_set():
        with ExitStack() as stack, suppress(OSError):
            for number in range(20):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                if number % 2:
                    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
                    head = (
                        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token(NAMES[0])}\r\n"
                    )
                    head += "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
                    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            stop.wait(5)


@dataclasses.dataclass
class Usage:
    """What a process uses, sampled over time."""

    name: str
    pid: int
    samples: list[dict[str, int]] = dataclasses.field(default_factory=list)

    def sample(self) -> None:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        self.samples.append(
            {
                "memory": int(status["VmRSS"].split()[0]) << 10,
                "descriptors": len(list(Path(f"/proc/{self.pid}/fd").iterdir())),
                "threads": int(status["Threads"]),
            }
        )

    def find_growth(self) -> list[str]:
        """Return what the process uses more of in the last quarter than in the second."""
        quarter = len(self.samples) // 4
        early, late = self.samples[quarter : 2 * quarter], self.samples[-quarter:]
        growth = []
        for key, allowed in MAX_GROWTH.items() if quarter else ():
            before, after = max(sample[key] for sample in early), max(sample[key] for sample in late)
            if after > before + allowed:
                growth.append(f"{self.name}: {key} grew from {before:,} to {after:,}")
        return growth


@contextmanager
def running(ledger: Ledger, stop: threading.Event, *loads: Callable[[], None]) -> Iterator[None]:
    """Run each load in a thread. A load that raises is a problem and ends the run."""

    def run(load: Callable[[], None]) -> None:
        try:
            load()
        except Exception as error:
            if not stop.is_set():
                ledger.report(f"a load failed: {type(error).__name__}: {error}")
                stop.set()

    threads = [threading.Thread(target=run, args=(load,)) for load in loads]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)


def soak(folder: Path, seconds: float) -> tuple[Ledger, list[Usage]]:
    """Run everything for some time."""
    ledger, stop = Ledger(), threading.Event()
    roots = [folder / name for name in ("written", "wrapped", "served/store")]
    (folder / "served").mkdir()
    with ExitStack() as stack:
        stores = {root: stack.enter_context(forebay.open_store(root.as_uri())) for root in roots}
        client = StdioClient(wrap(roots[1], "--output-mode", "auto"))
        stack.callback(client.kill)
        client.initialize()
        upstreams = {"texts": upstream_command(Path(ADVERSE[1]).name)}
        gateway = stack.enter_context(serving_http(folder / "served", upstreams, output_mode="auto"))
        usages = [Usage("wrap", client.process.pid), Usage("serve", gateway.process.pid)]
        loads = [
            lambda: kill_writers(roots[0], ledger, stop),
            lambda: call_wrap(client, roots[1], ledger, stop),
            lambda: never_read(gateway.port, stop),
            *(lambda name=name: call_serve(gateway.port, name, roots[2], ledger, stop) for name in NAMES),
        ]
        with running(ledger, stop, *loads):
            end, reported = time.monotonic() + seconds, time.monotonic()
            while time.monotonic() < end and not stop.wait(PROBE_SECONDS):
                for usage in usages:
                    usage.sample()
                ledger.check(stores, 20)
                ledger.thin_out(stores)
                if time.monotonic() > reported + 30:
                    reported = time.monotonic()
                    left = max(0, int(end - reported))
                    print(f"soak: {ledger.acknowledged:,} acknowledged, {len(ledger.problems)} problems, {left} s left")
        ledger.check(stores)
    return ledger, usages


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="how long the load runs (default: 600)")
    parser.add_argument("--write", nargs=2, metavar=("STORE", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write_payloads(options.write[0], int(options.write[1]))
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        ledger, usages = soak(Path(folder), options.seconds)
    for usage in usages:
        for key in MAX_GROWTH if usage.samples else ():
            values = [sample[key] for sample in usage.samples]
            print(f"{usage.name}: {key} {values[0]:,} at first, {max(values):,} at most, {values[-1]:,} at last")
    problems = [*ledger.problems, *(growth for usage in usages for growth in usage.find_growth())]
    for problem in problems[:20]:
        print(f"problem: {problem}")
    print(f"soak: {ledger.acknowledged:,} acknowledged, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
