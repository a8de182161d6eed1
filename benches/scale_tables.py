"""Print the tables of docs/scale.md, or replace them: `python benches/scale_tables.py [docs/scale.md]`.

Counts of requests were measured by `scale.py`. Latencies, costs and limits are computed by `scale_model.py`.
"""

import dataclasses
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from scale_model import (
    DAY,
    MEASURED,
    MONTH_DAYS,
    Latency,
    Load,
    Prices,
    S3Forecast,
    find_conflict,
    forecast_redis,
    forecast_s3,
)

__all__ = ["iter_tables", "replace_tables"]

_NETWORK_SECONDS = 0.0005
"""A round trip between two machines of a region."""

_MILLION = 1e6 / MONTH_DAYS

_SHARED = Load(replicas=3, handles_per_day=_MILLION, probes_per_second=1.0)
_LOADS = [
    _SHARED,
    Load(replicas=10, handles_per_day=10 * _MILLION, probes_per_second=1.0, sweepers=1),
    Load(replicas=30, handles_per_day=10 * _MILLION, probes_per_second=1.0),
    Load(replicas=100, handles_per_day=30 * _MILLION, principals=1000, probes_per_second=1.0, sweepers=1),
    Load(replicas=1000, handles_per_day=30 * _MILLION, principals=1000, probes_per_second=1.0, sweepers=1),
]
_SWEEPS = [
    ("every replica", Load(replicas=10, handles_per_day=10 * _MILLION)),
    ("one process, every 5 minutes", Load(replicas=10, handles_per_day=10 * _MILLION, sweepers=1)),
    ("one process, every hour", Load(replicas=10, handles_per_day=10 * _MILLION, sweepers=1, sweep_interval=3600)),
    ("lifecycle rules only", Load(replicas=10, handles_per_day=10 * _MILLION, sweepers=0)),
]


def iter_tables() -> Iterator[str]:
    """Return the tables in Markdown."""
    yield _format("requests", ["work", "S3: requests", "Redis: round trips", "Redis: core"], _iter_requests())
    header = [
        "page of 50 items",
        "local",
        "Redis on loopback",
        "Redis, 0.5 ms away",
        "S3 on loopback",
        "S3, 15 ms a GET",
    ]
    yield _format("pages", header, _iter_pages())
    header = [
        "replicas",
        "handles a month",
        "puts",
        "pages",
        "ledger",
        "journal, counts",
        "sweeps",
        "probes",
        "storage",
    ]
    yield _format("money", [*header, "total"], _iter_money())
    header = ["replicas", "handles a day", "commits a second", "overtaken", "ledger", "a sweep takes", "sweeping"]
    yield _format("limits", header, _iter_limits())
    header = ["replicas", "principals", "sweeps, every replica", "sweeps, one process", "ledger"]
    yield _format("ends", header, _iter_ends())
    header = ["who sweeps", "sweeps a day", "footers a day", "$ a month", "a handle stays for"]
    yield _format("sweeps", header, _iter_sweeps())
    header = ["commits a second", "overtaken", "PUTs for each commit", "$ a month"]
    yield _format("ledger", header, _iter_commits())
    header = [
        "replicas",
        "handles a day",
        "payloads",
        "handles",
        "journal",
        "connections",
        "core: calls",
        "core: sweeps",
    ]
    yield _format("redis", header, _iter_redis())


def _format(name: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return f"<!-- {name} -->\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _iter_requests() -> Iterator[Sequence[str]]:
    for work in (
        "put",
        "page, cold",
        "page, warm",
        "search, cold",
        "search, warm",
        "query, first",
        "query, again",
        "delete",
    ):
        sizes = {name: (MEASURED["s3"]["sizes"][name][work], MEASURED["redis"]["sizes"][name][work]) for name in _NAMES}
        for name, usages in sizes.items():
            yield [f"{work}, {name}", *_describe(*usages)]


_WORK = ("put", "page, cold", "page, warm", "search, cold", "search, warm", "query, first", "query, again", "delete")
_NAMES = ("100 KB", "100 MB")


def _describe(s3: dict[str, Any], redis: dict[str, Any]) -> Sequence[str]:
    kinds = {kind: number for kind, number in s3["requests"].items() if kind.endswith(" h") and number >= 1}
    requests = ", ".join(f"{number:.0f} {kind.split()[0]}" for kind, number in kinds.items())
    return requests, f"{redis['requests']['round trips']:.0f}", f"{redis['server_seconds'] * 1000:.1f} ms"


def _iter_pages() -> Iterator[Sequence[str]]:
    for size in MEASURED["s3"]["sizes"]:
        for work in ("page, cold", "page, warm"):
            local, redis, s3 = (MEASURED[name]["sizes"][size][work] for name in ("local", "redis", "s3"))
            trips = redis["requests"]["round trips"]
            gets = s3["requests"]["GET h"]
            redis_seconds = redis["seconds"] + trips * _NETWORK_SECONDS
            yield [
                f"of {size}, {work.partition(', ')[2]}",
                *(_milliseconds(seconds) for seconds in (local["seconds"], redis["seconds"], redis_seconds)),
                *(_milliseconds(seconds) for seconds in (s3["seconds"], s3["seconds"] + gets * Latency().get)),
            ]


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def _iter_money() -> Iterator[Sequence[str]]:
    causes = ("puts", "pages", "ledger", "journal and counts", "sweeps", "readiness probes", "storage", "total")
    for load in _LOADS:
        dollars = forecast_s3(load).dollars()
        handles = f"{load.handles_per_day * MONTH_DAYS:,.0f}"
        yield [_name_replicas(load), handles, *(f"{dollars.get(cause, 0):,.2f}" for cause in causes)]


def _name_replicas(load: Load) -> str:
    return f"{load.replicas:,}" + ("" if load.sweepers is None else ", one sweeps")


def _iter_limits() -> Iterator[Sequence[str]]:
    for load in _LOADS:
        forecast = forecast_s3(load)
        ledger, sweeps = forecast.ledger, forecast.sweeps
        yield [
            _name_replicas(load),
            f"{load.handles_per_day:,.0f}",
            f"{ledger.commits:.1f} of {ledger.capacity:.0f}",
            f"{ledger.conflict:.0%}",
            f"{ledger.size_bytes / 1000:.0f} KB",
            _describe_seconds(sweeps.seconds),
            f"{sweeps.busy:.0%} of the time",
        ]


def _iter_ends() -> Iterator[Sequence[str]]:
    """Return how many handles a day make each part the limit."""
    for replicas, principals in ((3, 100), (30, 100), (100, 1000), (1000, 1000)):
        load = Load(replicas=replicas, principals=principals)
        yield [
            f"{replicas:,}",
            f"{principals:,}",
            _round(_find_limit(load, _is_late)),
            _round(_find_limit(dataclasses.replace(load, sweepers=1), _is_late)),
            _round(
                _find_limit(
                    dataclasses.replace(load, sweepers=0),
                    lambda forecast: forecast.ledger.commits > forecast.ledger.capacity / 2,
                )
            ),
        ]


_MAX_DELAY_SECONDS = 3600.0
_MAX_HANDLES_PER_DAY = 1e7


def _is_late(forecast: S3Forecast) -> bool:
    """Return whether an hour or more passes between two sweeps, although they should come every five minutes."""
    return forecast.sweeps.per_day * _MAX_DELAY_SECONDS < DAY


def _find_limit(load: Load, is_over: Callable[[S3Forecast], bool]) -> float:
    """Return the handles a day from which on a forecast is over a limit."""
    low, high = 1.0, _MAX_HANDLES_PER_DAY
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        if is_over(forecast_s3(dataclasses.replace(load, handles_per_day=middle))):
            high = middle
        else:
            low = middle
    return low


def _round(number: float) -> str:
    """Return a number with two digits that count."""
    if number > 0.99 * _MAX_HANDLES_PER_DAY:
        return "more"
    unit = 10 ** (int(math.log10(number)) - 1)
    return f"{round(number / unit) * unit:,}"


def _describe_seconds(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _iter_sweeps() -> Iterator[Sequence[str]]:
    for name, load in _SWEEPS:
        forecast = forecast_s3(load)
        stays = forecast.handles / load.rate
        yield [
            name,
            f"{forecast.sweeps.per_day:.0f}",
            f"{forecast.sweeps.per_day * forecast.sweeps.footers:,.0f}",
            f"{forecast.dollars().get('sweeps', 0):,.0f}",
            f"{stays / 3600:.1f} h",
        ]


def _iter_commits() -> Iterator[Sequence[str]]:
    prices = Prices()
    for commits in (1, 5, 10, 20, 30, 40):
        conflict = find_conflict(commits)
        writes = 1 + 1 / (1 - conflict)
        dollars = commits * DAY * MONTH_DAYS * (writes * prices.write + (writes - 1) * prices.read)
        yield [str(commits), f"{conflict:.0%}", f"{writes:.1f}", f"{dollars:,.0f}"]


def _iter_redis() -> Iterator[Sequence[str]]:
    for load in _LOADS:
        redis = forecast_redis(load)
        core = redis.core
        yield [
            _name_replicas(load),
            f"{load.handles_per_day:,.0f}",
            *(f"{redis.memory[name] / 1e9:.2f} GB" for name in ("payloads", "handles", "journal", "connections")),
            f"{core['puts'] + core['pages'] + core['deletions']:.1%}",
            f"{core['sweeps']:.1%}",
        ]


def replace_tables(text: str) -> str:
    """Return a text in which each table has the current content."""
    for table in iter_tables():
        marker = table.partition("\n")[0]
        text = re.sub(rf"{re.escape(marker)}\n(?:\|.*\n)*", lambda _, table=table: table, text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    if len(sys.argv) > 1:
        document = Path(sys.argv[1])
        document.write_text(replace_tables(document.read_text(encoding="utf-8")), encoding="utf-8")
    print("\n".join(iter_tables()))
