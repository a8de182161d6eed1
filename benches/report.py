"""Print one table of all benches: `python benches/report.py target/bench.json target/criterion`.

Ratios compare the fastest round of either side, because noise from other load only ever adds time. Bars in seconds
apply to forebay's median, which is what a caller experiences. A ratio says how many times faster than the peer forebay
is; against memcpy, which part of its speed forebay reaches.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import chart
from forebay.bench.units import format_duration, format_ratio

FOLDER = Path(__file__).parent
FOREBAY = "forebay"


class Bar(NamedTuple):
    """The goal of a line: a ratio to a peer or, where `seconds` is set, a time of forebay's own."""

    row: str
    corpus: str
    peer: str
    ratio: float = 0.0
    stretch: float = 0.0
    seconds: float = 0.0


# The first bar that matches a line counts. With `seconds`, the time of the peer is subtracted.
BARS = [
    Bar("index, trusted", "tiny_ints 100 MB", "memcpy", 0.6),
    Bar("index, trusted", "records 100 MB", "memcpy", 0.5, stretch=1.0),
    Bar("index, trusted", "big_items 100 MB", "memcpy", 0.8, stretch=1.0),
    Bar("index, trusted", "* 100 MB", "msgspec", 5),
    Bar("index, trusted", "* 100 MB", "orjson", 50),
    Bar("index, validated", "tiny_ints 100 MB", "memcpy", 0.05),
    Bar("index, validated", "* 100 MB", "memcpy", 0.2, stretch=0.4),
    Bar("index, validated", "* 100 MB", "pysimdjson", 1.5),
    Bar("index, validated, 2 threads", "*", "1 thread", 1.7),
    Bar("index in Rust, trusted", "*", "sonic-rs", 1.5),
    Bar("index in Rust, trusted", "*", "rsonpath", 1.5),
    Bar("truncate to 10 KB", "* 100 MB", "orjson", 50),
    Bar("truncate to 10 KB", "* 1 MB", "orjson", 12),
    Bar("truncate to 10 KB", "* 100 MB", "memcpy", 0.5),
    Bar("page of 50 items", "* 100 MB", "orjson", 1000),
    Bar("page of 50 items", "* 100 MB", "", seconds=100e-6),
    Bar("20 pages at the end", "*", "?*", 0.5),
    Bar("preview of 2 KB", "*", "", seconds=2e-6),
    Bar("search, ten literals", "*", "bytes.find", 2),
    Bar("search, expression", "*", "re", 1),
    Bar("start and import", "*", "bare interpreter", seconds=50e-3),
    Bar("truncate in 2 threads", "*", "1 thread", 1.3),
    Bar("put, uncompressed", "*", "plain write", 0.7),
    Bar("put, compressed", "*", "zstd -1 -T2", 0.9),
    Bar("10,000 small puts", "*", "plain files", 0.5),
    Bar("page from a bucket, cold", "*", "obstore and orjson", 300),
    Bar("page from a bucket, warm", "*", "obstore and orjson", 1000),
    Bar("put to a bucket", "*", "obstore, plain", 0.9),
    Bar("put to a bucket", "*", "zstd -1 -T2 to nowhere", 1 / 1.5),
    Bar("redact", "*", "orjson and re", 4),
    Bar("page of 50 stored items", "* 100 MB", "orjson", 500),
    Bar("page of 50 stored items", "*", "", seconds=1e-3),
    Bar("page of 50 items on Redis", "*", "json.loads(redis.get())", 300),
    Bar("where, three conditions", "* 100 MB", "orjson and a loop", 10, stretch=25),
    Bar("20 stored pages", "*", "?*", 0.5),
    Bar("20 stored pages", "*", "", seconds=20e-3),
    Bar("many handles, *", "*", "?*", 1 / 2),
    Bar("store, *", "*", "?*", 1),
    Bar("first query", "records 100 MB", "orjson and a loop", 5),
    Bar("first query", "records 20 MB", "orjson and a loop", 3.5),
    Bar("first query", "records 20 MB", "", seconds=120e-3),
    Bar("first query, CPU", "*", "orjson and a loop", 4.5),
    Bar("first query, nested field", "records 100 MB", "orjson and a loop", 4),
    Bar("first query, nested field, CPU", "*", "orjson and a loop", 4.5),
    Bar("query with a sidecar", "*", "orjson and a loop", 75),
    Bar("warm aggregate", "*", "", seconds=10e-3),
    Bar("warm unnest", "*", "", seconds=45e-3),
    Bar("added to an inline 1 KB", "*", "", seconds=30e-6),
    Bar("result to a handle", "*", "the store's put", 1 / 1.5),
    Bar("output_fetch by a client", "*", "an empty tool", 1 / 2),
    Bar("execute an operation", "*", "bare call", seconds=20e-6),
    Bar("validate", "*", "jsonschema", 10),
    Bar("added by a gateway", "1 KB", "fastmcp proxy", 2),
    Bar("added by a gateway", "20 MB", "fastmcp proxy", 20),
    Bar("gateway beside the least", "*", "read, unescape and put", 1 / 2),
    Bar("added by a gateway, a MB", "*", "at 5 MB", 1 / 1.2),
    Bar("64 clients over HTTP", "*", "fastmcp proxy", 2),
    Bar("start before the server's", "*", "direct", seconds=300e-3),
    Bar("hub, CPU of a call", "*", "fastmcp proxy", 10),
    Bar("hub, CPU of a call", "*", "mcp-proxy in Go", 1 / 2),
    Bar("hub, CPU of a call", "* 2025-11-25", "", seconds=0.2e-3),
    Bar("hub, CPU of a call", "* 2026-07-28", "", seconds=0.15e-3),
    Bar("hub, a call", "1 connections", "", seconds=1 / 2000),
    Bar("hub, a call", "*", "", seconds=1 / 4000),
    Bar("hub, p50 of a call", "*", "direct", seconds=1e-3),
    Bar("call to a URL, CPU", "*", "httpx2 in threads", 3),
    Bar("hub, CPU with HTTP upstream", "*", "", seconds=0.5e-3),
    Bar("hub, CPU of a large result", "*", "", seconds=20e-3),
    Bar("hub, CPU of a page", "*", "", seconds=0.8e-3),
    Bar("serve on stdio, 64 in flight", "*", "", seconds=1 / 8000),
    Bar("wrap on stdio, 64 in flight", "*", "", seconds=1 / 25000),
]


# Rows that compare forebay with itself or with nothing: they are in the table but not in the chart.
WITHOUT_PEER = {"20 pages at the end", "20 stored pages", "start and import", "truncate in 2 threads"}
WITHOUT_PEER |= {"index, validated, 2 threads"}
WITHOUT_PEER |= {"result to a handle", "output_fetch by a client", "execute an operation"}
WITHOUT_PEER |= {f"many handles, {act}" for act in ("put", "page", "refuse", "list 20", "list one")}
WITHOUT_PEER |= {f"many handles, {act}" for act in ("first sweep one", "sweep one", "sweep expired")}
WITHOUT_PEER |= {"warm aggregate", "warm unnest", "hub, p50 of a call"}
WITHOUT_PEER |= {"gateway beside the least", "added by a gateway, a MB", "start before the server's"}


class Timing(NamedTuple):
    best: float
    median: float
    size: int
    note: str = ""


class Line(NamedTuple):
    """A line of the table: the times of forebay and of a peer."""

    row: str
    corpus: str
    ours: Timing
    peer: str
    theirs: Timing | None
    bar: Bar | None

    @property
    def ratio(self) -> float | None:
        return self.theirs.best / self.ours.best if self.theirs else None

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return ""
        if self.bar.seconds:
            baseline = self.theirs.median if self.theirs else 0.0
            return "met" if self.ours.median - baseline <= self.bar.seconds else "missed"
        if self.ratio is None or self.ratio < self.bar.ratio:
            return "missed"
        return "stretch" if self.bar.stretch and self.ratio >= self.bar.stretch else "met"


Timings = dict[tuple[str, str], dict[str, Timing]]


def read_pytest(path: Path) -> Timings:
    timings: Timings = defaultdict(dict)
    for bench in json.loads(path.read_bytes())["benchmarks"]:
        info = bench["extra_info"]
        stats = info.get("seconds") or bench["stats"]
        timing = Timing(stats["min"], stats["median"], info["bytes"], info.get("note", ""))
        timings[info["row"], info["corpus"]][info["who"]] = timing
    return timings


def read_criterion(folder: Path) -> Timings:
    """Read Criterion's results: the group is the row, the function the library, the parameter the corpus."""
    timings: Timings = defaultdict(dict)
    for path in sorted(folder.rglob("new/benchmark.json")):
        bench = json.loads(path.read_bytes())
        sample = json.loads((path.parent / "sample.json").read_bytes())
        estimates = json.loads((path.parent / "estimates.json").read_bytes())
        best = min(time / count for time, count in zip(sample["times"], sample["iters"], strict=True))
        timing = Timing(best * 1e-9, estimates["median"]["point_estimate"] * 1e-9, bench["throughput"]["Bytes"])
        timings[bench["group_id"], bench["value_str"]][bench["function_id"]] = timing
    return timings


def find_bar(row: str, corpus: str, peer: str) -> Bar | None:
    def matches(bar: Bar) -> bool:
        return fnmatch(row, bar.row) and fnmatch(corpus, bar.corpus) and fnmatch(peer, bar.peer)

    return next((bar for bar in BARS if matches(bar)), None)


def compare(timings: Timings) -> Iterator[Line]:
    for (row, corpus), by_who in timings.items():
        if FOREBAY not in by_who:
            continue
        ours = by_who[FOREBAY]
        for peer, theirs in by_who.items():
            if peer != FOREBAY:
                yield Line(row, corpus, ours, peer, theirs, find_bar(row, corpus, peer))
        if bar := find_bar(row, corpus, ""):
            yield Line(row, corpus, ours, "", None, bar)


def format_cells(line: Line) -> list[str]:
    bar = ""
    if line.bar and line.bar.seconds:
        bar = f"{'+' if line.theirs else ''}≤ {format_duration(line.bar.seconds)}"
    elif line.bar:
        bar = f"≥ {format_ratio(line.bar.ratio)}"
    absolute = line.bar is not None and line.bar.seconds > 0
    ours, theirs = (
        format_duration(timing.median if absolute else timing.best) if timing else ""
        for timing in (line.ours, line.theirs)
    )
    ratio = format_ratio(line.ratio) if line.ratio and not absolute else ""
    notes = [line.ours.note, f"{line.peer}: {line.theirs.note}" if line.theirs and line.theirs.note else ""]
    return [line.row, line.corpus, ours, line.peer, theirs, ratio, bar, line.verdict, "; ".join(filter(None, notes))]


HEADER = ["row", "corpus", "forebay", "peer", "its time", "ratio", "bar", "", ""]


def format_table(lines: list[Line]) -> str:
    rows = [HEADER, *(format_cells(line) for line in lines)]
    for above, row in reversed(list(pairwise(rows))):
        if above[:2] == row[:2]:
            row[:2] = "", ""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = ["─" * width for width in widths]
    numeric = {2, 4, 5, 6}

    def render(row: list[str]) -> str:
        padded = (
            cell.rjust(width) if column in numeric else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(padded).rstrip()

    return "\n".join(render(row) for row in [rows[0], rule, *rows[1:]])


def line_to_json(line: Line) -> dict[str, Any]:
    return {
        "row": line.row,
        "corpus": line.corpus,
        "bytes": line.ours.size,
        "forebay_seconds": {"min": line.ours.best, "median": line.ours.median},
        "peer": line.peer or None,
        "peer_seconds": {"min": line.theirs.best, "median": line.theirs.median} if line.theirs else None,
        "ratio": line.ratio,
        "bar": line.bar and {"ratio": line.bar.ratio or None, "seconds": line.bar.seconds or None},
        "verdict": line.verdict or None,
        "note": line.ours.note or None,
        "peer_note": (line.theirs and line.theirs.note) or None,
    }


def describe_machine(path: Path) -> dict[str, Any]:
    """Return the processor and Python version, and nothing that identifies the machine."""
    info = json.loads(path.read_bytes())["machine_info"]
    cpu = info["cpu"]
    return {"cpu": cpu.get("brand_raw"), "cores": cpu.get("count"), "python": info["python_version"]}


def main(bench: Path, criterion: Path) -> None:
    lines = list(compare(read_pytest(bench) | read_criterion(criterion)))
    print(format_table(lines))
    judged = [line for line in lines if line.verdict]
    missed = sum(line.verdict == "missed" for line in judged)
    print(f"\n{len(judged) - missed} of {len(judged)} bars met; ratios of fastest rounds, bars in seconds by median")
    results = {"machine": describe_machine(bench), "lines": [line_to_json(line) for line in lines]}
    (FOLDER / "results.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    marks = [
        chart.Mark(line.row, line.corpus, line.peer, line.ratio, line.bar.ratio if line.bar else None)
        for line in lines
        if line.ratio and line.row not in WITHOUT_PEER
    ]
    chart.draw(marks, FOLDER / "results.svg")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
