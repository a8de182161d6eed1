"""Requests, bytes, memory and money of a store that replicas share, computed from the load.

`scale_tables.py` prints the tables of docs/scale.md from it, and `scale_simulation.py` compares it with a simulation.
The constants of a request come from `scale.json`, which `scale.py` measures. The latencies and prices of a provider are
stated here.
"""

import dataclasses
import json
import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forebay.store.handles import LIFETIMES

__all__ = [
    "Latency",
    "Ledger",
    "Load",
    "Prices",
    "RedisForecast",
    "S3Forecast",
    "find_conflict",
    "forecast_redis",
    "forecast_s3",
]

DAY = 86_400.0
MONTH_DAYS = 30.0
BEAT_SECONDS = 20.0
FLUSH_SECONDS = 2.0
RELEASE_SECONDS = 0.5
POSITION_SECONDS = 5.0
DEAD_SECONDS = 900.0
LEASE_RENEWAL_SECONDS = 20.0
SLICES_PER_LIMIT = 256
UNLIMITED_SLICE_BYTES = 4 << 20
PART_BYTES = 8 << 20
MAX_SINGLE_BYTES = 16 << 20
LISTED_AT_ONCE = 1000
SEGMENT_BYTES = 256 << 10
LINE_BYTES = 300
JOURNAL_LINES = 100_000

_MAX_SWEEP_SECONDS = 30 * DAY
"""Longer sweeps never keep up."""

_MIN_QUIET = 1e-9

MEASURED: dict[str, Any] = json.loads(Path(__file__).with_name("scale.json").read_text())


HEADS_PER_DELETION: float = MEASURED["s3"]["sweeps"]["100 expired handles"]["requests"]["HEAD h"] / 100


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What users do, and how the store is configured."""

    replicas: int = 3
    handles_per_day: float = 10_000.0
    stored_bytes: float = 50_000.0
    """Mean size of a handle as it is stored. Sizes are distributed exponentially."""
    pages_per_handle: float = 3.0
    ttls: tuple[tuple[float, float], ...] = ((DAY, 1.0),)
    """Times to live in seconds, and their shares of the handles."""
    principals: int = 100
    quota_bytes: float | None = 1 << 40
    principal_quota_bytes: float | None = 1 << 37
    sweepers: int | None = None
    """Processes that sweep; `None` for all replicas."""
    sweep_interval: float = 300.0
    crashes_per_day: float = 0.0
    """Of each replica. It starts again at once, as a new process."""
    probes_per_second: float = 0.0
    """Requests for `/ready` at each replica that ask the store."""

    @property
    def rate(self) -> float:
        """Handles a second, of all replicas."""
        return self.handles_per_day / DAY

    @property
    def mean_ttl(self) -> float:
        return sum(ttl * share for ttl, share in self.ttls)

    @property
    def mean_lifecycle(self) -> float:
        """How long handles stay if only lifecycle rules remove them: by days, at midnight."""
        total = 0.0
        for ttl, share in self.ttls:
            lifetime = next((seconds for seconds in LIFETIMES if seconds is not None and seconds >= ttl), math.inf)
            total += share * (math.ceil(lifetime / DAY) + 1.5) * DAY
        return total


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Seconds that a request takes, as S3 answers within a region."""

    get: float = 0.015
    head: float = 0.010
    put: float = 0.030
    delete: float = 0.020
    list: float = 0.060

    @property
    def deletion(self) -> float:
        """How long a sweep takes to delete a handle: its state, a tombstone, the deletion."""
        return HEADS_PER_DELETION * self.head + self.put + self.delete


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Dollars: those of S3 in us-east-1. Traffic within the region is free."""

    write: float = 5e-6
    """Of a PUT, POST or LIST."""
    read: float = 0.4e-6
    """Of a GET or HEAD. A DELETE costs nothing."""
    gigabyte_month: float = 0.023


@dataclasses.dataclass(frozen=True, slots=True)
class Ledger:
    """What happens to the ledger of a bucket, per second."""

    refills: float
    beats: float
    releases: float
    """Commits of a sweep, for what it deleted."""
    writes: float
    reads: float
    conflict: float
    """The part of well-prepared writes that another replica's write overtakes."""
    capacity: float
    """Commits a second that are possible at all."""
    size_bytes: float
    active_replicas: float
    unspent_bytes: float
    """What an active replica has been granted of the total account and has not spent."""

    @property
    def commits(self) -> float:
        return self.refills + self.beats + self.releases


@dataclasses.dataclass(frozen=True, slots=True)
class Sweeps:
    """The sweeps of a store."""

    per_day: float
    seconds: float
    footers: float
    """Footers that a sweep reads."""
    busy: float
    """The part of the time in which somebody sweeps. At 1 the sweeps do not keep up."""


@dataclasses.dataclass(frozen=True, slots=True)
class S3Forecast:
    """What a store in a bucket takes."""

    requests: Mapping[str, float]
    """Requests a day by kind."""
    bytes_written: Mapping[str, float]
    """Bytes a day, by kind."""
    stored_bytes: float
    handles: float
    lost_bytes: float
    """Bytes that the accounts count for slices of crashed replicas, on average."""
    ledger: Ledger
    sweeps: Sweeps

    def dollars(self, prices: Prices | None = None) -> dict[str, float]:
        """Return the costs of a month, by what causes them."""
        prices = prices or Prices()
        costs: defaultdict[str, float] = defaultdict(float)
        for kind, count in self.requests.items():
            price = {"PUT": prices.write, "LIST": prices.write, "DELETE": 0.0}.get(kind.split()[0], prices.read)
            costs[_CAUSES[kind]] += count * price * MONTH_DAYS
        costs["storage"] = self.stored_bytes / 1e9 * prices.gigabyte_month
        return {**costs, "total": sum(costs.values())}


_CAUSES = {
    "PUT object": "puts",
    "GET page": "pages",
    "PUT accounts": "ledger",
    "GET accounts": "ledger",
    "PUT journal": "journal and counts",
    "PUT calls": "journal and counts",
    "GET footer": "sweeps",
    "LIST": "sweeps",
    "HEAD object": "sweeps",
    "PUT tombstone": "sweeps",
    "DELETE object": "sweeps",
    "GET lease": "sweeps",
    "PUT lease": "sweeps",
    "HEAD lease": "readiness probes",
}


def forecast_s3(load: Load, latency: Latency | None = None) -> S3Forecast:
    """Return what a load takes of a bucket."""
    latency = latency or Latency()
    sweeps = forecast_sweeps(load, latency)
    ledger = forecast_ledger(load, latency, sweeps)
    gap = DAY / sweeps.per_day if sweeps.per_day else math.inf
    lifetime = load.mean_ttl + gap / 2 if sweeps.per_day else load.mean_lifecycle
    handles = load.rate * lifetime
    pages = load.handles_per_day * load.pages_per_handle
    flushes = load.replicas * DAY / (FLUSH_SECONDS + load.replicas / (load.rate * (1 + load.pages_per_handle)))
    deleted = load.handles_per_day if sweeps.per_day else 0.0
    sweepers = load.replicas if load.sweepers is None else load.sweepers
    attempts = (sweepers - sweeps.busy) * DAY / load.sweep_interval if sweepers else 0.0
    listings = handles / LISTED_AT_ONCE + 0.5
    # The log and the counts are listed before and, if something has expired, after.
    others = 4.0
    renewals = math.floor(sweeps.seconds / LEASE_RENEWAL_SECONDS)
    burst = deleted / sweeps.per_day * latency.deletion if sweeps.per_day else 0.0
    requests = {
        "PUT object": load.handles_per_day * _count_writes(load.stored_bytes),
        "GET page": pages * _count_reads(load.stored_bytes),
        "PUT accounts": ledger.writes * DAY,
        "GET accounts": ledger.reads * DAY + sweeps.per_day * (2 + burst / POSITION_SECONDS),
        "PUT journal": flushes,
        "PUT calls": flushes,
        "GET footer": sweeps.per_day * sweeps.footers,
        "LIST": sweeps.per_day * (listings + others),
        "HEAD object": deleted * HEADS_PER_DELETION,
        "PUT tombstone": deleted,
        "DELETE object": deleted,
        "GET lease": attempts,
        "PUT lease": sweeps.per_day * (2 + renewals),
        "HEAD lease": load.replicas * load.probes_per_second * DAY,
    }
    lines = load.handles_per_day * (2 + load.pages_per_handle) * LINE_BYTES
    written = {
        "objects": load.handles_per_day * load.stored_bytes,
        # A flush writes the whole segment again, which is half full on average.
        "journal": flushes * min(SEGMENT_BYTES / 2, lines * 30 / load.replicas),
        "ledger": ledger.writes * DAY * ledger.size_bytes,
    }
    lost = load.replicas * load.crashes_per_day / DAY * (ledger.active_replicas / load.replicas) * ledger.unspent_bytes
    delay = DEAD_SECONDS - BEAT_SECONDS / 2 + gap / 2 + sweeps.seconds
    return S3Forecast(requests, written, handles * load.stored_bytes, handles, lost * delay, ledger, sweeps)


def _count_writes(stored_bytes: float) -> float:
    return 1.0 if stored_bytes <= MAX_SINGLE_BYTES else 2 + math.ceil(stored_bytes / PART_BYTES)


def _count_reads(stored_bytes: float) -> float:
    """Return the requests of a page at a replica that has not read the handle before, as measured."""
    sizes: list[Any] = sorted(MEASURED["s3"]["sizes"].values(), key=lambda size: size["stored_bytes"])
    fitting = next((size for size in sizes if size["stored_bytes"] >= stored_bytes), sizes[-1])
    return float(fitting["page, cold"]["requests"]["GET h"])


def forecast_sweeps(load: Load, latency: Latency) -> Sweeps:
    """Return the sweeps. One process sweeps at a time; a process that finds another sweeping skips its turn."""
    if load.sweepers == 0:
        return Sweeps(0.0, 0.0, 0.0, 0.0)
    sweepers = load.sweepers or load.replicas
    attempts = sweepers / load.sweep_interval
    fixed = 2 * latency.get + 4 * latency.list + latency.get + 2 * latency.put
    seconds = footers = 0.0
    for _ in range(1000):
        rate = attempts / (1 + attempts * seconds)
        since = sweepers / rate
        restarted = 1 - math.exp(-since * load.crashes_per_day / DAY)
        footers = 0.0
        for ttl, share in load.ttls:
            lifetime = ttl + 1 / rate
            seen = since * (1 - math.exp(-lifetime / since)) if sweepers > 1 and since > lifetime / 4 else since
            unknown = min(seen, lifetime)
            footers += load.rate * share * (unknown * (1 - restarted) + lifetime * restarted)
        handles = load.rate * (load.mean_ttl + 1 / rate)
        needed = (
            fixed
            + handles / LISTED_AT_ONCE * latency.list
            + footers * latency.get
            + load.rate / rate * latency.deletion
        )
        seconds = min(_MAX_SWEEP_SECONDS, seconds + 0.2 * (needed - seconds))
    rate = attempts / (1 + attempts * seconds)
    return Sweeps(rate * DAY, seconds, footers, rate * seconds)


def forecast_ledger(load: Load, latency: Latency, sweeps: Sweeps) -> Ledger:
    """Return what puts and heartbeats ask of the ledger.

    A replica is active from a put until an interval of the heartbeat without one; then it returns its slices.
    """
    put_rate = load.rate / load.replicas
    quiet = max(_MIN_QUIET, math.exp(-BEAT_SECONDS * put_rate))
    beats_per_period = 1 + 1 / quiet
    delay = 2 * latency.put + latency.get
    active_seconds = beats_per_period * (BEAT_SECONDS + delay)
    periods = load.replicas / (active_seconds + 1 / put_rate)
    active = load.replicas * active_seconds / (active_seconds + 1 / put_rate)
    puts = load.rate / periods
    more = puts - 1
    holders = active + 1 - active / load.replicas
    total = _Slice(load.quota_bytes, holders, load.stored_bytes)
    own = _Slice(load.principal_quota_bytes, holders, load.stored_bytes)
    # The number of puts in a period is distributed geometrically.
    missed = (1 - 1 / load.principals) / puts / (1 - (1 - 1 / load.principals) * (1 - 1 / puts))
    distinct = load.principals * (1 - missed)
    first = max(0.0, distinct - 1) / more if more else 0.0
    by_total = min(1.0, total.count_refills(more) / more) if more else 0.0
    by_own = min(1.0, first + distinct * own.count_refills(puts / distinct - 1) / more) if more else 0.0
    refills = periods * (1 + more * (1 - (1 - by_total) * (1 - by_own)))
    beats = periods * beats_per_period
    burst = load.rate * DAY / sweeps.per_day * latency.deletion if sweeps.per_day else 0.0
    releases = sweeps.per_day / DAY * max(1.0, burst / (RELEASE_SECONDS + delay) + 0.5)
    commits = refills + beats + releases
    others = commits * (1 - 1 / load.replicas)
    conflict = find_conflict(others, latency)
    # Commits of others since the last one of the replica itself, whose times are about exponentially distributed.
    overtaken = others * load.replicas / commits
    stale = overtaken / (1 + overtaken)
    account, replica, piece = (MEASURED["s3"]["ledger_bytes"][name] for name in ("an account", "a replica", "a slice"))
    return Ledger(
        refills=refills,
        beats=beats,
        releases=releases,
        writes=commits * (1 + stale / (1 - conflict)),
        reads=commits * stale / (1 - conflict),
        conflict=conflict,
        capacity=2 / (latency.get + latency.put),
        size_bytes=load.principals * account + active * (replica + distinct * piece),
        active_replicas=active,
        unspent_bytes=total.find_mean_level(more),
    )


def find_conflict(commits: float, latency: Latency | None = None) -> float:
    """Return the part of writes to the ledger that another one overtakes, if others commit so often in a second."""
    latency = latency or Latency()
    return 1 - math.exp(-commits * (latency.get + latency.put) / 2)


class _Slice:
    """What a replica is granted of an account at once."""

    def __init__(self, limit: float | None, holders: float, mean: float) -> None:
        self.size = UNLIMITED_SLICE_BYTES if limit is None else limit / (SLICES_PER_LIMIT * (1 + holders))
        self._mean = mean
        ratio = min(700.0, self.size / mean)
        self._level = self.size - mean * (1 - math.exp(-ratio))
        """Mean of what is left of a slice when the put that needed it is paid for."""
        self._puts = self._level / mean + 1
        """Mean number of puts until the next refill."""

    def count_refills(self, puts: float) -> float:
        """Return the refills of a number of puts with this mean, after the first of them."""
        if puts <= 0:
            return 0.0
        ratio = puts / (1 + puts)
        passed = ratio**self._puts
        return passed / (1 - passed) if passed < 1 - _MIN_QUIET else puts / self._puts

    def find_mean_level(self, puts: float) -> float:
        """Return the mean of what is not spent, while a mean number of puts comes."""
        spent, cycle = puts * self._mean, self._puts * self._mean
        if not spent:
            return self._level
        ratio = cycle / spent
        used = spent - (cycle / math.expm1(ratio) if ratio < 700 else 0.0)
        return max(0.0, self._level - used)


@dataclasses.dataclass(frozen=True, slots=True)
class RedisForecast:
    """What a store on Redis takes of its server."""

    memory: Mapping[str, float]
    """Bytes."""
    core: Mapping[str, float]
    """The part of a core of the server, by what needs it."""
    round_trips: float
    """A second."""


def forecast_redis(load: Load) -> RedisForecast:
    """Return what a load takes of a Redis server, or of the shard of a cluster that has the index."""
    found = MEASURED["redis"]
    sizes: list[Any] = sorted(found["sizes"].values(), key=lambda size: size["stored_bytes"])
    size = next((each for each in sizes if each["stored_bytes"] >= load.stored_bytes), sizes[-1])
    overhead, string = _read_redis_memory()
    # Objects stay for ten minutes after their expiry, or until a sweep.
    handles = load.rate * (load.mean_ttl + min(600.0, load.sweep_interval / 2))
    lines = min(JOURNAL_LINES, load.handles_per_day * (2 + load.pages_per_handle) * 30)
    known = _measure_sweep(found["sweeps"], "next")
    sweepers = load.sweepers or load.replicas
    trips = {work: size[work]["requests"]["round trips"] for work in ("put", "page, cold")}
    attempts = 0.0 if load.sweepers == 0 else sweepers / load.sweep_interval
    sweeps = attempts / (1 + attempts * handles * known["seconds"])
    return RedisForecast(
        memory={
            "payloads": handles * load.stored_bytes * string,
            "handles": handles * overhead,
            "journal": lines * found["memory"]["journal line"],
            "connections": load.replicas * found["memory"]["idle replica"],
        },
        core={
            "puts": load.rate * size["put"]["server_seconds"],
            "pages": load.rate * load.pages_per_handle * size["page, cold"]["server_seconds"],
            "deletions": load.rate * found["sweeps"]["100 expired handles"]["server_seconds"] / 100,
            "sweeps": sweeps * handles * known["server"],
        },
        round_trips=load.rate * (trips["put"] + load.pages_per_handle * trips["page, cold"]),
    )


def _read_redis_memory() -> tuple[float, float]:
    """Return the bytes that a handle takes beside its content, and those that a byte of the content takes."""
    memory = MEASURED["redis"]["memory"]
    small, large = memory["1 KB"], memory["5 MB"]
    overhead = small["memory_bytes"] - small["string_bytes"] - memory["journal line"]
    return overhead + small["string_bytes"] - small["stored_bytes"], large["string_bytes"] / large["stored_bytes"]


def _measure_sweep(sweeps: Mapping[str, Any], name: str) -> dict[str, float]:
    """Return the seconds of the server, and of all, that a sweep takes for a handle."""
    few, many = sweeps[f"100 handles, {name}"], sweeps[f"3000 handles, {name}"]
    return {
        "server": (many["server_seconds"] - few["server_seconds"]) / 2900,
        "seconds": (many["seconds"] - few["seconds"]) / 2900,
    }
