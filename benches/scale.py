"""Count what stores on S3 and Redis ask of their servers: requests, bytes and memory, on loopback.

    TEST_SERVERS=target/servers python benches/scale.py target/scale.json

Requests and bytes are exact. Times are those of this machine, with a server on the same machine: add a round trip of
your network for each request. `scale_model.py` computes costs and limits from the file that this writes.
"""

import contextlib
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

import corpus
from forebay import Store, open_store
from forebay.store.backends.object_ledger import Ledger, Replica
from meters import Meter, RedisMeter, S3Meter, Usage
from redis_server import RedisServer, redis_server
from s3_server import S3Server, proxy, s3_server

SIZES = {"1 KB": 1_000, "100 KB": 100_000, "5 MB": 5_000_000, "100 MB": 100_000_000}
PUTS = {"1 KB": 20, "100 KB": 20, "5 MB": 5, "100 MB": 1}
SWEPT = (100, 1_000, 3_000)
MINUTE = 60.0
IDLE_SECONDS = 65.0
"""A minute, and the time until the flush of what happened at its end."""

PRINCIPAL = "ann"
OPTIONS: dict[str, Any] = {"sweep_interval": 0, "quota_bytes": 64 << 30, "principal_quota_bytes": 16 << 30}
RELEASE_SECONDS = 1.5
PAGES = 7
SHARING_REPLICAS = 20
SHARING_SECONDS = 300.0
SHARING_RATE = 0.05
"""Puts a second of each replica."""

SHARING_PRINCIPALS = 10
SHARING_BYTES = 20_000
LIMIT = 50
PATTERN = '"note":"nothing to see here"'

Results = dict[str, Any]
Open = Callable[[], Store]
Start = Callable[[], contextlib.AbstractContextManager[tuple[Meter, Open]]]


def measure_sizes(meter: Meter, open_new: Open) -> Results:
    """Measure puts and what reads them, by the size of the payload."""
    return {name: measure_size(meter, open_new, name) for name in SIZES}


def measure_size(meter: Meter, open_new: Open, name: str) -> Results:
    payload = corpus.records(SIZES[name])
    rows = json.loads(payload)
    count = PUTS[name]
    results: Results = {}
    with open_new() as store:
        # Takes a slice of the quota, which the next puts spend.
        store.put(b"first", principal=PRINCIPAL)
        with meter.measure() as usage:
            stored = [store.put(payload, principal=PRINCIPAL) for _ in range(count)]
        results["put"] = usage.to_dict(count)
        handles = [each.output_handle for each in stored]
        results["stored_bytes"] = store.stat(handles[0], principal=PRINCIPAL).stored_bytes
    for temperature, usages in measure_pages(meter, open_new, handles[0], rows).items():
        fastest = min(usages, key=lambda usage: usage.seconds)
        assert all(usage.requests["GET h"] == fastest.requests["GET h"] for usage in usages)
        results[f"page, {temperature}"] = fastest.to_dict()
    with open_new() as store:
        for temperature in ("cold", "warm"):
            with meter.measure() as usage:
                search = store.search(handles[0], PATTERN, count_only=True, principal=PRINCIPAL)
            assert search.total_matches == payload.count(PATTERN.encode())
            results[f"search, {temperature}"] = usage.to_dict()
    for temperature in ("first", "again"):
        with open_new() as store:
            with meter.measure() as usage:
                query = store.query(handles[0], "SELECT count(*) AS n FROM items", principal=PRINCIPAL)
            assert str(len(rows)).encode() in query.content
            results[f"query, {temperature}"] = usage.to_dict()
    with open_new() as store:
        store.put(b"first", principal=PRINCIPAL)
        with meter.measure() as usage:
            for handle in handles[1:] or handles:
                store.delete(handle, principal=PRINCIPAL)
            # The ledger learns of it soon.
            time.sleep(RELEASE_SECONDS)
        usage.seconds -= RELEASE_SECONDS
        results["delete"] = usage.to_dict(len(handles[1:] or handles))
        with meter.measure() as usage:
            store._quota.is_counted()
        results["usage"] = usage.to_dict()
    return results


def measure_pages(meter: Meter, open_new: Open, handle: str, rows: list[Any]) -> dict[str, list[Usage]]:
    """Measure pages of a handle by replicas that have not read it before, and by one that has."""
    usages: dict[str, list[Usage]] = {"cold": [], "warm": []}
    for attempt in range(PAGES):
        with open_new() as store:
            for temperature, part in (("cold", 6), ("warm", 1)):
                position = (len(rows) * part // 7 + attempt) % len(rows)
                with meter.measure() as usage:
                    page = store.fetch(handle, offset=position, limit=LIMIT, principal=PRINCIPAL)
                assert json.loads(page.content) == rows[position : position + LIMIT]
                usages[temperature].append(usage)
    return usages


def measure_minutes(start: Start) -> Results:
    """Measure a minute of replicas that do nothing, put once, and put every second; each has a store of its own."""
    kinds = {"nothing": 0, "one put": 1, "a put a second": 60}
    results: Results = {}

    def run(kind: str, puts: int) -> None:
        with start() as (meter, open_new):
            with open_new() as other:
                # So that the first put does not create what replicas share.
                other.put(b"first", principal=PRINCIPAL)
            with open_new() as store, meter.measure() as usage:
                began_at = time.monotonic()
                for number in range(puts):
                    store.put(b"x" * 1000, principal=PRINCIPAL)
                    store.call_counts.add("tool", PRINCIPAL, calls=1, handles=1)
                    time.sleep(max(0.0, began_at + MINUTE * (number + 1) / puts - time.monotonic()))
                time.sleep(max(0.0, began_at + IDLE_SECONDS - time.monotonic()))
            results[kind] = usage.to_dict()

    threads = [threading.Thread(target=run, args=item) for item in kinds.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results.keys() == kinds.keys()
    return results


def measure_sweeps(start: Start) -> Results:
    """Measure sweeps by the number of stored handles, and an attempt while another replica sweeps."""
    results: Results = {}
    with start() as (meter, open_new):
        done = 0
        for count in SWEPT:
            with open_new() as store:
                for _ in range(done, count):
                    store.put(b"x" * 1000, principal=PRINCIPAL)
            done = count
            with open_new() as store:
                for name in ("first of a process", "next"):
                    with meter.measure() as usage:
                        report = store.sweep()
                    assert (report.kept, report.expired) == (count, 0)
                    results[f"{count} handles, {name}"] = usage.to_dict()
        with open_new() as other, open_new() as store, other._backend.lock(wait=True) as is_held:
            assert is_held
            with meter.measure() as usage:
                assert store._sweeper._sweep(wait=False) is None
            results["attempt while another sweeps"] = usage.to_dict()
    with start() as (meter, open_new), open_new() as store:
        for _ in range(100):
            store.put(b"x" * 1000, principal=PRINCIPAL, ttl=1)
        time.sleep(1.1)
        with meter.measure() as usage:
            assert store.sweep().expired == 100
            time.sleep(1.0)
        results["100 expired handles"] = usage.to_dict()
    return results


@contextlib.contextmanager
def start_s3(server: S3Server, name: str) -> Iterator[tuple[Meter, Open]]:
    """Start a proxy that counts in front of an empty store."""
    with proxy(server) as front:
        yield S3Meter(front), lambda: open_store(server.url(name, front.port), **OPTIONS)


@contextlib.contextmanager
def start_redis() -> Iterator[tuple[Meter, Open]]:
    with redis_server() as server:
        yield RedisMeter(server), lambda: open_store(server.url, **OPTIONS)


def measure_s3(folder: Path) -> Results:
    with s3_server(folder) as server:
        numbers = iter(range(100))

        def start() -> contextlib.AbstractContextManager[tuple[Meter, Open]]:
            return start_s3(server, f"store-{next(numbers)}")

        with start() as (meter, open_new):
            sizes = measure_sizes(meter, open_new)
            with meter.measure() as usage:
                open_new().close()
        return {
            "sizes": sizes,
            "open": usage.to_dict(),
            "minutes": measure_minutes(start),
            "sweeps": measure_sweeps(start),
            "sharing": measure_sharing(start),
            "ledger_bytes": measure_ledger(),
        }


def measure_sharing(start: Start) -> Results:
    """Measure replicas that put at random times, for `scale_simulation.py` to be compared with."""
    with start() as (meter, open_new), contextlib.ExitStack() as stack:
        with open_new() as first:
            first.put(b"first")
        stores = [stack.enter_context(open_new()) for _ in range(SHARING_REPLICAS)]
        end = time.monotonic() + SHARING_SECONDS

        def work(number: int) -> int:
            rng, puts = random.Random(number), 0  # noqa: S311 - it has to be reproducible, not secret
            while (delay := rng.expovariate(SHARING_RATE)) < end - time.monotonic():
                time.sleep(delay)
                principal = f"principal {rng.randrange(SHARING_PRINCIPALS)}"
                stores[number].put(rng.randbytes(round(rng.expovariate(1 / SHARING_BYTES))), principal=principal)
                puts += 1
            time.sleep(max(0.0, end - time.monotonic()))
            return puts

        with meter.measure() as usage, ThreadPoolExecutor(SHARING_REPLICAS) as pool:
            puts = sum(pool.map(work, range(SHARING_REPLICAS)))
        assert usage.requests["PUT h"] == puts
    return {
        **usage.to_dict(),
        "replicas": SHARING_REPLICAS,
        "principals": SHARING_PRINCIPALS,
        "puts": puts,
        "stored_bytes": SHARING_BYTES,
    }


def measure_ledger() -> Results:
    """Return the bytes of the ledger for each of its parts."""
    empty = Ledger.create({"total": 0})
    size = len(empty.encode("w" * 16))

    def measure(accounts: int, replicas: int, slices: int) -> int:
        ledger = Ledger.create({f"p-{number:032x}": 10**8 for number in range(accounts)} | {"total": 10**11})
        for number in range(replicas):
            granted = {"total": 10**7} | {f"p-{account:032x}": 10**6 for account in range(slices)}
            ledger.replicas[f"{number:012x}"] = Replica(time.time(), granted)
        ledger.position = 10**12
        for account in ledger.accounts.values():
            account.changed_at = account.lowered_at = 10**12
        return len(ledger.encode("w" * 16))

    return {
        "empty": size,
        "an account": (measure(1000, 0, 0) - measure(0, 0, 0)) / 1000,
        "a replica": (measure(0, 1000, 0) - measure(0, 0, 0)) / 1000,
        "a slice": (measure(0, 1000, 10) - measure(0, 1000, 0)) / 10_000,
    }


def measure_redis() -> Results:
    with redis_server() as server:
        meter: Meter = RedisMeter(server)

        def open_new() -> Store:
            return open_store(server.url, **OPTIONS)

        sizes = measure_sizes(meter, open_new)
        with meter.measure() as usage:
            open_new().close()
        server.client.flushall()
        memory = measure_redis_memory(server)
        stalls = measure_redis_stalls(server)
    return {
        "sizes": sizes,
        "open": usage.to_dict(),
        "minutes": measure_minutes(start_redis),
        "sweeps": measure_sweeps(start_redis),
        "memory": memory,
        "stalls": stalls,
    }


def measure_redis_memory(server: RedisServer) -> Results:
    """Measure the memory of a handle beyond its stored bytes, and that of a replica."""

    def used() -> int:
        return int(server.client.info("memory")["used_memory"])

    results: Results = {}
    with open_store(server.url, **OPTIONS) as store:
        store.put(b"first", principal=PRINCIPAL)
        for name in ("1 KB", "100 KB", "5 MB"):
            payload, count = corpus.records(SIZES[name]), 1000 if name == "1 KB" else 20
            before, lines = used(), server.client.xlen("forebay:{forebay}:journal")
            handles = [store.put(payload, principal=PRINCIPAL).output_handle for _ in range(count)]
            store._backend.log.flush()  # type: ignore[attr-defined]
            stored = store.stat(handles[0], principal=PRINCIPAL).stored_bytes
            record = server.client.memory_usage("forebay:{forebay}:index", samples=0)
            results[name] = {
                "stored_bytes": stored,
                "memory_bytes": round((used() - before) / count),
                "string_bytes": server.client.memory_usage(f"forebay:{{{handles[0]}}}"),
                "index_bytes": round(record / server.client.zcard("forebay:{forebay}:index")),
                "journal_lines": (server.client.xlen("forebay:{forebay}:journal") - lines) / count,
            }
    lines = server.client.xlen("forebay:{forebay}:journal")
    journal = server.client.memory_usage("forebay:{forebay}:journal", samples=0)
    results["journal line"] = round(journal / lines)
    connections = [int(row["tot-mem"]) for row in server.client.client_list()]
    results["connection"] = max(connections)
    with contextlib.ExitStack() as stack:
        before, clients = used(), server.client.info("clients")["connected_clients"]
        stores = [stack.enter_context(open_store(server.url, **OPTIONS)) for _ in range(100)]
        results["idle replica"] = round((used() - before) / len(stores))
        results["connections of a replica"] = (server.client.info("clients")["connected_clients"] - clients) / len(
            stores
        )
    return results


def measure_redis_stalls(server: RedisServer) -> Results:
    """Measure the longest commands of puts and reads of large payloads: nobody else is served meanwhile."""
    client, meter = server.client, RedisMeter(server)
    client.config_set("slowlog-log-slower-than", 100)
    client.config_set("slowlog-max-len", 10_000)
    results: Results = {}
    with open_store(server.url, compression="none", **OPTIONS) as store:
        for name in ("5 MB", "100 MB"):
            payload = corpus.records(SIZES[name])
            client.slowlog_reset()
            with meter.measure() as put:
                handle = store.put(payload, principal=PRINCIPAL).output_handle
            with meter.measure() as read, store.open(handle, principal=PRINCIPAL) as file:
                assert file.read() == payload
            log = client.slowlog_get(10_000)
            for command in ("SETRANGE", "GETRANGE"):
                slow = [entry["duration"] / 1e6 for entry in log if entry["command"].startswith(command.encode())]
                results[f"{command} of {name}"] = {"longest": max(slow), "median of slow ones": statistics.median(slow)}
            results[f"core to put {name}"] = put.server_seconds
            results[f"core to read {name}"] = read.server_seconds
            store.delete(handle, principal=PRINCIPAL)
    return results


def measure_local(folder: Path) -> Results:
    """Measure pages of local files, for comparison."""

    class NoMeter:
        @contextlib.contextmanager
        def measure(self) -> Iterator[Usage]:
            usage, began_at = Usage(), time.perf_counter()
            yield usage
            usage.seconds = time.perf_counter() - began_at

    return {"sizes": measure_sizes(NoMeter(), lambda: open_store(folder.as_uri(), **OPTIONS))}


def print_table(results: Results) -> None:
    for backend, found in results.items():
        for name, size in found["sizes"].items():
            for work, usage in size.items():
                if isinstance(usage, dict):
                    print_row(backend, f"{work} of {name}", usage)
        for group in ("minutes", "sweeps"):
            for name, usage in found.get(group, {}).items():
                print_row(backend, f"{group.removesuffix('s')}: {name}", usage)
        if "sharing" in found:
            print_row(backend, f"{found['sharing']['replicas']} replicas, {SHARING_SECONDS:.0f} s", found["sharing"])
        for group in ("ledger_bytes", "memory", "stalls"):
            for name, value in found.get(group, {}).items():
                print(f"{backend:6} {group}, {name}: {value}")


def print_row(backend: str, name: str, usage: Results) -> None:
    requests = ", ".join(f"{number:g} {kind}" for kind, number in usage["requests"].items())
    milliseconds, kilobytes = usage["seconds"] * 1000, usage["received_bytes"] / 1000
    cpu = f"{usage['server_seconds'] * 1e6:8.0f} us of the server" if usage["server_seconds"] else ""
    print(f"{backend:6} {name:42} {milliseconds:10.2f} ms {kilobytes:10.1f} KB {cpu}  {requests}")


def main(path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="forebay-scale-") as name:
        folder = Path(name)
        results = {
            "local": measure_local(folder / "local"),
            "redis": measure_redis(),
            "s3": measure_s3(folder / "s3"),
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    print_table(results)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
