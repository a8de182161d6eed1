"""Search a log of 100 MB: literals against `bytes.find`, expressions against `re` over bytes.

Both sides are asked for every match and must agree before either is timed. Ours also counts lines and cuts
contexts out; the peers only find.
"""

import random
import re
from collections.abc import Callable
from functools import cache
from itertools import islice
from typing import Any

import headgate
import pytest

SIZE = 100_000_000
LIMIT = 100_000

NEEDLES = {
    "rare": "segmentation fault",
    "absent": "kernel panic",
    "absent, common first byte": "e_not_in_here",
    "absent, common bytes": "stationer",
    "long": "upstream prematurely closed connection while reading response header from upstream",
    "multibyte": "接続がリセット",
    "multibyte, absent": "Überlauf",
    "short": "QX",
    "word": "FATAL",
    "identifier": "user_id=990017",
}

PATTERNS = {
    "two words": r"\bfailed\b.{0,40}timeout",
    "address": r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b",
    "alternation": r"ERROR|FATAL",
    "suffix": r"[a-z]+ing\b",
    "any case": r"(?i)connection reset",
    "timestamp": r"\d{4}-\d\d-\d\dT0[0-2]:5\d:07",
    "identifier": r"user_id=\d{6,}",
    "quoted": r'"[^"]*timeout[^"]*"',
    "line end": r"\d+ms$",
    "line start": r"^.{0,60}WARN",
}

ORDINARY = (
    "cache hit for key session:{n} in {n} us",
    'GET /api/v2/items/{n} "Mozilla/5.0" 200 {n} bytes',
    "user {n} opened the project Überblick at step {n}",
    "stored {n} rows of résumé_data, {n} left",
    "の要求を {n} 件受け付けました shard={n}",
    "heartbeat from node-{n} ok, load 0.{n}",
    "token refreshed for tenant {n}, expires after {n} s",
)
EVENTS = (
    "request {n} failed after a timeout",
    "request {n} failed, retry {n} had its own timeout",
    "the job failed and nobody knows why, step {n}",
    "peer 10.20.{b}.{b} left the cluster",
    "Connection Reset by peer {n}",
    "接続がリセット されました {n}",
    "login of user_id={n} refused",
    "user_id=990017 refused, short user_id=17",
    'config "read timeout" is "{n} s"',
    "slow query took {n}ms",
    "still waiting, retrying {n}",
    "worker {n} died: segmentation fault",
    "build QX{n} done",
    "upstream prematurely closed connection while reading response header from upstream, client {n}",
)


@cache
def log(size_bytes: int) -> bytes:
    """Lines of about 90 bytes, one in fifty of them worth finding; the same for the same size."""
    rng = random.Random(20260314)  # noqa: S311
    lines: list[bytes] = []
    size = 0
    millis = 0
    while size < size_bytes:
        millis += rng.randrange(400)
        clock = f"{millis // 3_600_000 % 24:02}:{millis // 60_000 % 60:02}:{millis // 1000 % 60:02}.{millis % 1000:03}"
        stamp = f"2026-03-{14 + millis // 86_400_000}T{clock}Z"
        is_event = rng.random() < 0.02
        level = rng.choice(("WARN", "ERROR", "FATAL", "INFO")) if is_event else "INFO"
        message = rng.choice(EVENTS if is_event else ORDINARY).format(n=rng.randrange(10**7), b=rng.randrange(256))
        line = f"{stamp} {level:5} svc-{rng.randrange(40):02} {message}\n".encode()
        lines.append(line)
        size += len(line)
    return b"".join(lines)[:size_bytes]


Spans = list[tuple[int, int]]
Find = Callable[[bytes], Spans]


def ours(pattern: str, *, regex: bool) -> Find:
    def find(data: bytes) -> Spans:
        found = headgate.search(data, pattern, regex=regex, limit=LIMIT, context=0)
        return [(match.start, match.end) for match in found.matches]

    return find


def bytes_find(needle: str) -> Find:
    sought = needle.encode()

    def find(data: bytes) -> Spans:
        spans: Spans = []
        at = data.find(sought)
        while at >= 0 and len(spans) < LIMIT:
            spans.append((at, at + len(sought)))
            at = data.find(sought, at + len(sought))
        return spans

    return find


def python_re(pattern: str) -> Find:
    compiled = re.compile(pattern.encode(), re.MULTILINE)
    return lambda data: [match.span() for match in islice(compiled.finditer(data), LIMIT)]


def compare(benchmark: Any, group: str, find: Find, peer: Find) -> None:
    data = log(SIZE)
    assert find(data) == peer(data)
    benchmark.group = group
    benchmark.extra_info["bytes"] = len(data)
    benchmark.pedantic(find, args=(data,), rounds=5, warmup_rounds=1)


@pytest.mark.parametrize("side", ["headgate", "bytes.find"])
@pytest.mark.parametrize("name", NEEDLES)
def bench_literal(benchmark: Any, name: str, side: str) -> None:
    sides = {"headgate": ours(NEEDLES[name], regex=False), "bytes.find": bytes_find(NEEDLES[name])}
    compare(benchmark, f"literal, {name}", sides.pop(side), *sides.values())


@pytest.mark.parametrize("side", ["headgate", "re"])
@pytest.mark.parametrize("name", PATTERNS)
def bench_regex(benchmark: Any, name: str, side: str) -> None:
    sides = {"headgate": ours(PATTERNS[name], regex=True), "re": python_re(PATTERNS[name])}
    compare(benchmark, f"regex, {name}", sides.pop(side), *sides.values())
