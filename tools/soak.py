"""Run a store, `forebay wrap` and `forebay serve` under mixed load, and check every byte that they acknowledge.

    python tools/soak.py --seconds 3600

Writers put payloads into one store and are killed at random; some have a disk that is full after a megabyte. A gateway
on stdio, whose server dies now and then, and a gateway over HTTP with four principals turn results into handles. Some
clients of the latter never read, or leave their sessions behind. A ledger keeps the digest of every payload that was
acknowledged, and a checker reads them back, at random while the load runs and all of them at the end. All loads must
make progress, and memory, descriptors and threads of the gateways must not grow after the first quarter of the time.
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
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

import forebay  # noqa: E402
from forebay.store.handles import make_client_principal  # noqa: E402
from gateway_harness import ADVERSE, StdioClient, parse_text, wrap  # noqa: E402
from listening_harness import JSON  # noqa: E402
from serve_harness import upstream_command  # noqa: E402
from serve_http_harness import NAMES, call_tool, connect_as, serving_http, token  # noqa: E402
from wires import LEGACY, MODERN, make_request  # noqa: E402

MAX_ENTRIES = 2000
"""Payloads to keep; of more, half are deleted, so that the disk does not fill up."""

MAX_RESULT_BYTES = 2_000_000
FULL_DISK_BYTES = 1 << 20
PROBE_SECONDS = 2.0
DEATH_SECONDS = 15.0
"""Time between two deaths of the wrapped server, which is restarted at most five times a minute."""

SESSION_IDLE_SECONDS = 10.0
"""How long the gateway keeps a session that its client has left behind."""

MAX_PRINTED_PROBLEMS = 20
STALL_SECONDS = 120.0
"""How long a load may take for one step."""

MAX_GROWTH = {"memory": 8 << 20, "descriptors": 8, "threads": 8}
"""How much more a gateway may use in the last quarter of the time than in the second, each time the median."""


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
        """Record a problem. It is printed at once, because the end may be a crash."""
        with self._lock:
            self.problems.append(problem)
            if len(self.problems) <= MAX_PRINTED_PROBLEMS:
                print(f"problem: {problem}", flush=True)

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


def kill_writers(root: Path, ledger: Ledger, stop: threading.Event) -> Iterator[None]:
    """Start writers one after the other, and kill each after a moment."""
    for seed in range(1, sys.maxsize):
        if stop.is_set():
            return
        command = [sys.executable, __file__, "--write", root.as_uri(), str(seed)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as writer:
            # Every other writer may start, however slow the machine is.
            first_line = writer.stdout.readline() if writer.stdout and seed % 2 else b""
            stop.wait(random.uniform(0.4, 2))  # noqa: S311
            writer.kill()
            output, errors = writer.communicate()
        if b"Traceback" in errors:
            ledger.report(f"a writer failed: {errors[-500:].decode(errors='replace')}")
        lines = (first_line + output).split(b"\n")[:-1]
        for line in lines:
            handle, principal, checksum = line.decode().split()
            ledger.add(root, principal, handle, checksum)
        if lines:
            yield


def make_text(rng: random.Random) -> tuple[dict[str, Any], bytes]:
    """Return arguments of the server's tool `text`, and the text that it returns."""
    unit = f'{rng.randrange(10**9)} é"\\\n'
    size = rng.choice([10, 50_000, MAX_RESULT_BYTES])
    return {"of": unit, "size": size}, (unit * (size // len(unit))).encode()


def call_wrap(client: StdioClient, root: Path, ledger: Ledger, stop: threading.Event) -> Iterator[None]:
    """Call tools through a gateway on stdio, read results back, and let the server die now and then."""
    rng = random.Random(1)  # noqa: S311
    died_at = time.monotonic()
    while not stop.is_set():
        if time.monotonic() > died_at + DEATH_SECONDS:
            died_at = time.monotonic()
            client.call("dies", after=1)
        arguments, text = make_text(rng)
        result = client.call("text", **arguments)
        if result.get("isError"):
            # The server is being started again.
            stop.wait(0.1)
            continue
        if len(text) < 1000:
            if result["content"][0]["text"].encode() != text:
                ledger.report("wrap changed an inline result")
        else:
            handle = parse_text(result)["output_handle"]
            ledger.add(root, None, handle, digest(text))
            page = parse_text(client.call("output_fetch", output_handle=handle, format="text"))
            if not text.startswith(page["content"].encode()):
                ledger.report(f"a page of {handle} is wrong")
        yield


def call_serve(port: int, name: str, root: Path, ledger: Ledger) -> Iterator[None]:
    """Call tools as one principal over HTTP, in both eras in turn, and leave every other session behind."""
    rng = random.Random(name)  # noqa: S311
    for number in range(sys.maxsize):
        wire = connect_as(port, (LEGACY, MODERN)[number % 2], name)
        for _ in range(20):
            arguments, text = make_text(rng)
            answer = call_tool(wire, "text", **arguments)
            if len(text) >= 1000:
                ledger.add(root, make_client_principal(name), answer["output_handle"], digest(text))
            elif answer != text.decode():
                ledger.report(f"serve changed an inline result: {answer!r:.200}")
            yield
        if number % 4:
            wire.end_session()


def never_read(port: int, stop: threading.Event) -> Iterator[None]:
    """Open connections that call a tool and never read, or that send nothing."""
    message = make_request(1, "tools/call", {"name": "text", "arguments": {"size": 30_000}}, MODERN)
    body = json.dumps(message).encode()
    headers = JSON | {
        "host": f"127.0.0.1:{port}",
        "authorization": f"Bearer {token(NAMES[0])}",
        "content-length": str(len(body)),
        "mcp-protocol-version": MODERN,
        "mcp-method": "tools/call",
        "mcp-name": "text",
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    while True:
        with ExitStack() as stack:
            for number in range(20):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                if number % 2:
                    connection.sendall(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
            stop.wait(5)
        yield


@dataclasses.dataclass
class Usage:
    """What a process uses, sampled over time."""

    name: str
    process: "subprocess.Popen[Any]"
    samples: list[dict[str, int]] = dataclasses.field(default_factory=list)

    def sample(self) -> None:
        folder = Path(f"/proc/{self.process.pid}")
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        self.samples.append(
            {
                "memory": int(status["VmRSS"].split()[0]) << 10,
                "descriptors": len(list((folder / "fd").iterdir())),
                "threads": int(status["Threads"]),
            }
        )

    def summarize(self) -> Iterator[tuple[str, bool]]:
        """Yield a line for each thing the process uses, and whether it uses much more of it late than early."""
        quarter = len(self.samples) // 4
        if not quarter:
            yield f"{self.name}: too short a time to see whether it grows", True
            return
        for key, max_growth in MAX_GROWTH.items():
            values = [sample[key] for sample in self.samples]
            early, late = statistics.median(values[quarter : 2 * quarter]), statistics.median(values[-quarter:])
            text = f"{early:,.0f} in the second quarter, {late:,.0f} in the last, {max(values):,} at most"
            yield f"{self.name}: {key} {text}", late > early + max_growth


class Load:
    """A load in a thread of its own. It takes steps until it is stopped; any other end is a problem."""

    def __init__(self, name: str, steps: Iterator[None], ledger: Ledger, stop: threading.Event) -> None:
        self._name = name
        self._steps = steps
        self._ledger = ledger
        self._stop = stop
        self.count = 0
        self._stepped_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for _ in self._steps:
                self.count += 1
                self._stepped_at = time.monotonic()
                if self._stop.is_set():
                    return
            raise RuntimeError("it has ended")
        except Exception as error:
            if not self._stop.is_set():
                self._fail(f"{type(error).__name__}: {error}")

    def _fail(self, reason: str) -> None:
        self._ledger.report(f"the load {self._name} failed after {self.count:,} steps: {reason}")
        self._stop.set()

    def check(self) -> None:
        """Report a load that takes too long for a step."""
        if time.monotonic() > self._stepped_at + STALL_SECONDS:
            self._fail(f"no step within {STALL_SECONDS:g} s")

    def join(self) -> None:
        """Wait until the load has ended after `stop` was set."""
        self._thread.join(STALL_SECONDS)
        if self._thread.is_alive():
            self._fail("it does not end")


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
        options = {"output_mode": "auto", "session_idle_seconds": SESSION_IDLE_SECONDS}
        gateway = stack.enter_context(serving_http(folder / "served", upstreams, **options))
        usages = [Usage("wrap", client.process), Usage("serve", gateway.process)]
        steps = {
            "writers": kill_writers(roots[0], ledger, stop),
            "wrap": call_wrap(client, roots[1], ledger, stop),
            "unread": never_read(gateway.port, stop),
            **{f"serve as {name}": call_serve(gateway.port, name, roots[2], ledger) for name in NAMES},
        }
        loads = [Load(name, its_steps, ledger, stop) for name, its_steps in steps.items()]
        try:
            watch(usages, loads, ledger, stores, stop, seconds)
        finally:
            stop.set()
            for load in loads:
                load.join()
        ledger.check(stores)
    return ledger, usages


def watch(
    usages: list[Usage],
    loads: list[Load],
    ledger: Ledger,
    stores: dict[Path, forebay.Store],
    stop: threading.Event,
    seconds: float,
) -> None:
    """Watch gateways and loads, and check payloads, until the time is over or something has failed."""
    end, reported_at = time.monotonic() + seconds, time.monotonic()
    while time.monotonic() < end and not stop.wait(PROBE_SECONDS):
        if any(usage.process.poll() is not None for usage in usages):
            break
        for usage in usages:
            usage.sample()
        for load in loads:
            load.check()
        ledger.check(stores, 20)
        ledger.thin_out(stores)
        if time.monotonic() > reported_at + 30:
            reported_at = time.monotonic()
            memory = ", ".join(f"{usage.name} {usage.samples[-1]['memory'] >> 20} MB" for usage in usages)
            print(
                f"soak: {ledger.acknowledged:,} acknowledged, {len(ledger.problems)} problems, {memory}, "
                f"{max(0, int(end - reported_at))} s left",
                flush=True,
            )
    for usage in usages:
        if usage.process.poll() is not None:
            ledger.report(f"{usage.name} has ended with {usage.process.returncode}")


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
        for line, is_growth in usage.summarize():
            print(line)
            if is_growth:
                ledger.report(f"growth of {line}")
    print(f"soak: {ledger.acknowledged:,} acknowledged, {len(ledger.problems)} problems")
    return 1 if ledger.problems else 0


if __name__ == "__main__":
    sys.exit(main())
