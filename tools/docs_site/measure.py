"""Measure what calls cost, for the pages of the verbs: `python -m docs_site.measure`, or `make docs-measure`.

Writes `docs/measured.json`. Each time is the best of several runs: five for calls that read something for the first
time, each in a store of its own, and up to fifty for other calls. `make bench` compares with other libraries.
"""

import datetime
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forebay
import orjson

from docs_site.layout import DOCS

__all__: list[str] = []

_RECORDS = 930_000
_ROUNDS = 5
_MAX_REPEATS = 9
_REPEAT_SECONDS = 0.5


def _build_payload() -> bytes:
    """Return about 100 MB of JSON, with a list of records."""
    countries = ["DE", "FR", "IT", "ES", "PL"]
    records = (
        {
            "id": number,
            "status": "failed" if number % 9 == 4 else "paid",
            "total": number * 37 % 90_000 / 100,
            "customer": {"name": f"Customer {number * 7919 % 50_000}", "country": countries[number % 5]},
            "note": "refund requested by phone" if number % 50_000 == 123 else "",
        }
        for number in range(_RECORDS)
    )
    return b'{"page":1,"orders":[' + b",".join(map(orjson.dumps, records)) + b'],"next":{"cursor":"abc"}}'


def _time(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _measure(data: bytes) -> Iterator[tuple[str, str, list[float]]]:
    """Yield verb, call, and the seconds of each run."""
    times: dict[tuple[str, str], list[float]] = {}

    def add(verb: str, call: str, function: Callable[[], object], *, is_first: bool = False) -> None:
        seconds = times.setdefault((verb, call), [])
        seconds.append(_time(function))
        repeats = 0 if is_first else min(_MAX_REPEATS, int(_REPEAT_SECONDS / seconds[-1]))
        seconds += [_time(function) for _ in range(repeats)]

    for _ in range(_ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            _measure_store(Path(folder), data, add)
        index = forebay.index_items(data)
        add("index", "`index_items`", lambda: forebay.index_items(data))
        add("index", "`index_items`, `validate=False`", lambda: forebay.index_items(data, validate=False))
        add("index", "`index_lines`", lambda: forebay.index_lines(data))
        add("index", "`read_items`, 50 in the middle", lambda: forebay.read_items(data, index, _RECORDS // 2, 50))  # noqa: B023
        add("outline", "`forebay.outline`", lambda: forebay.outline(data))
        operations = [{"op": "replace", "path": "/page", "value": 2}]
        add("patch", "one `replace`", lambda: forebay.patch(data, operations))  # noqa: B023
        add("truncate", "`forebay.truncate` to 10 KB", lambda: forebay.truncate(data))
        add("project", "`forebay.project`, two fields", lambda: forebay.project(data, ["id", "customer.country"]))
    for (verb, call), seconds in times.items():
        yield verb, call, seconds


def _measure_store(folder: Path, data: bytes, add: Callable[..., None]) -> None:
    handles: list[str] = []
    middle = _RECORDS // 2

    def open_store() -> forebay.Store:
        return forebay.open_store(folder / "store", quota_bytes=None, sweep_interval=0, warn_bytes=1 << 40)

    with open_store() as store:
        add("put", "bytes", lambda: handles.append(store.put(data).output_handle), is_first=True)
        chunks = [data[start : start + (1 << 20)] for start in range(0, len(data), 1 << 20)]
        add(
            "put",
            "an iterator of chunks of 1 MB",
            lambda: store.put(iter(chunks), mime_type="application/json"),
            is_first=True,
        )
    (handle,) = handles
    with open_store() as store:
        add(
            "fetch",
            "50 items in the middle, the first page of a process",
            lambda: store.fetch(handle, offset=middle, limit=50),
            is_first=True,
        )
        add("fetch", "50 other items", lambda: store.fetch(handle, offset=middle + 99_999, limit=50))
        add("fetch", "50 items, two fields", lambda: store.fetch(handle, offset=99, limit=50, fields=["id", "total"]))
        add("fetch", "a `path` into an item", lambda: store.fetch(handle, path=f"/orders/{middle}/customer"))
        add("fetch", "a `path` elsewhere, the first time", lambda: store.fetch(handle, path="/next"), is_first=True)
        add("fetch", "a `path` elsewhere, again", lambda: store.fetch(handle, path="/next/cursor"))
    with open_store() as store:
        where = {"status": "failed", "total": {">": 890}}
        add(
            "where",
            "the first page of two conditions",
            lambda: store.fetch(handle, where=where, limit=50),
            is_first=True,
        )
        add("where", "the next page", lambda: store.fetch(handle, where=where, limit=50, offset=50))
    with open_store() as store:
        add("search", "a literal that matches often", lambda: store.search(handle, "failed"), is_first=True)
        add("search", "its next page", lambda: store.search(handle, "failed", offset=100_000))
        add(
            "search", "a literal that matches 14 times", lambda: store.search(handle, "refund requested"), is_first=True
        )
        add(
            "search",
            "an expression, once the payload is in memory",
            lambda: store.search(handle, r"refund.{0,9}requested", regex=True),
        )
        add("export", "all items to CSV", lambda: _export(store, handle, "csv", None))
        add("export", "a ninth of the items to NDJSON", lambda: _export(store, handle, "ndjson", {"status": "failed"}))
    with open_store() as store:
        group = "SELECT status, count(*), sum(total) FROM items GROUP BY 1"
        add("query", "the first query of a handle", lambda: store.query(handle, group, timeout=60), is_first=True)
        add(
            "query",
            "another query of the same fields",
            lambda: store.query(handle, "SELECT max(total) FROM items WHERE status = 'paid'"),
        )
        add(
            "query",
            "one of another field",
            lambda: store.query(handle, "SELECT customer.country, count(*) FROM items GROUP BY 1"),
            is_first=True,
        )


def _export(store: forebay.Store, handle: str, kind: str, where: object) -> int:
    with store.open_export(handle, format=kind, where=where) as export:
        return sum(len(memoryview(chunk)) for chunk in export.chunks)


def _format_time(seconds: float) -> str:
    for factor, unit in ((1e6, "µs"), (1e3, "ms"), (1, "s")):
        if seconds * factor < 1000 or unit == "s":
            value = seconds * factor
            return f"{value:.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"
    raise AssertionError


def main() -> None:
    """Measure, and write `docs/measured.json`."""
    data = _build_payload()
    costs = [{"verb": verb, "call": call, "time": _format_time(min(seconds))} for verb, call, seconds in _measure(data)]
    # The load of a machine that does nothing else is about 1 now.
    is_busy = os.getloadavg()[0] > (os.cpu_count() or 1)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    measured: dict[str, Any] = {
        "payload": f"{len(data) / 1e6:.0f} MB, {_RECORDS:,} records",
        "machine": f"{os.cpu_count()} cores of {platform.machine()}, {today}, forebay {forebay.__version__}",
        "is_busy": is_busy,
        "costs": costs,
    }
    path = DOCS / "measured.json"
    path.write_text(json.dumps(measured, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
