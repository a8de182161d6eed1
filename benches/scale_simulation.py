"""Simulate replicas that share a bucket, in virtual time, and compare what they request with `scale_model.py`.

    python benches/scale_simulation.py                 # a year of 1,000 replicas
    python benches/scale_simulation.py --days 30 --replicas 20

The ledger is simulated write by write, in windows of some minutes that are spread over the time; sweeps, crashes and
expiry over all of it, with the handles of a minute together. Neither uses a formula of the model.
"""

import argparse
import dataclasses
import heapq
import itertools
import math
import random
import time
from collections import Counter, defaultdict, deque
from collections.abc import Generator, Iterator
from typing import NamedTuple

from forebay.store.handles import LIFETIMES
from scale_model import (
    BEAT_SECONDS,
    DAY,
    DEAD_SECONDS,
    FLUSH_SECONDS,
    LEASE_RENEWAL_SECONDS,
    LISTED_AT_ONCE,
    POSITION_SECONDS,
    RELEASE_SECONDS,
    SLICES_PER_LIMIT,
    UNLIMITED_SLICE_BYTES,
    Latency,
    Load,
    forecast_s3,
)

__all__ = ["Comparison", "LedgerSimulation", "check", "compare", "simulate"]

_MIN_WARM_UP_SECONDS = 300.0
_STEP = 60.0
_MANY_BUSY = 0.9
_LEASE_SECONDS = 120.0
"""How long the lease of a crashed sweep keeps others away: its end, and the difference of clocks."""

_Operation = Generator[float, None, None]


@dataclasses.dataclass(slots=True)
class _Replica:
    """A process as the ledger sees it."""

    name: int
    unspent: Counter[int] = dataclasses.field(default_factory=Counter)
    has_lease: bool = False
    has_spent: bool = False
    has_timer: bool = False
    view: int | None = 0
    """The version of the ledger that it saw last."""
    is_busy: bool = False
    waiting: deque[_Operation] = dataclasses.field(default_factory=deque)
    flush_at: float = -math.inf


class LedgerSimulation:
    """Replicas that put, write heartbeats and delete, some minutes long. Account 0 is the total."""

    def __init__(self, load: Load, latency: Latency, rng: random.Random) -> None:
        self._load, self._latency, self._rng = load, latency, rng
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, _Operation]] = []
        self._now = 0.0
        self._version = 0
        self._replicas = [_Replica(name) for name in range(load.replicas)]
        self._holders: set[int] = set()
        self.used: Counter[int] = Counter()
        """The accounts in the ledger."""
        self.stored: Counter[int] = Counter()
        self.lost: Counter[int] = Counter()
        """What crashed replicas had been granted."""
        self.counts: defaultdict[str, float] = defaultdict(float)
        self.unspent_seconds = self.active_seconds = 0.0

    def run(self, seconds: float, warm_up: float = 0.0) -> None:
        """Simulate a warm-up, and then the time that counts."""
        self._start(self._arrive())
        self._start(self._read_pages())
        if self._load.sweepers != 0:
            self._start(self._delete())
        if self._load.crashes_per_day:
            self._start(self._crash())
        self._start(self._observe())
        for end in (warm_up, warm_up + seconds):
            if end > warm_up:
                self.counts.clear()
                self.unspent_seconds = self.active_seconds = 0.0
            while self._events and self._events[0][0] < end:
                self._now, _, operation = heapq.heappop(self._events)
                self._step(operation)

    def _start(self, operation: _Operation) -> None:
        self._step(operation)

    def _step(self, operation: _Operation) -> None:
        delay = next(operation, None)
        if delay is not None:
            heapq.heappush(self._events, (self._now + delay, next(self._numbers), operation))

    def _arrive(self) -> _Operation:
        while True:
            yield self._rng.expovariate(self._load.rate)
            replica = self._rng.choice(self._replicas)
            size = self._rng.expovariate(1 / self._load.stored_bytes)
            self.counts["PUT object"] += 1
            self._note_event(replica)
            self._start(self._put(replica, 1 + self._rng.randrange(self._load.principals), size))

    def _read_pages(self) -> _Operation:
        while self._load.pages_per_handle:
            yield self._rng.expovariate(self._load.rate * self._load.pages_per_handle)
            self._note_event(self._rng.choice(self._replicas))

    def _note_event(self, replica: _Replica) -> None:
        if self._now >= replica.flush_at:
            replica.flush_at = self._now + FLUSH_SECONDS
            self.counts["PUT journal"] += 1

    def _put(self, replica: _Replica, account: int, size: float) -> _Operation:
        names = (0, account)
        if not self._take(replica, names, size):
            yield from self._acquire(replica)
            while not self._take(replica, names, size):
                yield from self._refill(replica, names, size)
            self._release(replica)
        for name in names:
            self.stored[name] += round(size)
        if not replica.has_timer:
            replica.has_timer = True
            self._start(self._beat(replica))

    def _take(self, replica: _Replica, names: tuple[int, ...], size: float) -> bool:
        if not replica.has_lease or any(replica.unspent[name] < round(size) for name in names):
            return False
        for name in names:
            replica.unspent[name] -= round(size)
        replica.has_spent = True
        return True

    def _acquire(self, replica: _Replica) -> _Operation:
        """Wait for the right to write the ledger, which one thread of a replica has at a time."""
        while replica.is_busy:
            yield 0.001
        replica.is_busy = True

    def _release(self, replica: _Replica) -> None:
        replica.is_busy = False

    def _refill(self, replica: _Replica, names: tuple[int, ...], size: float) -> _Operation:
        self.counts["refills"] += 1
        yield from self._write(replica)
        holders = len(self._holders | {replica.name})
        limits = (self._load.quota_bytes, self._load.principal_quota_bytes)
        for name, limit in zip(names, limits, strict=True):
            missing = max(0, round(size) - replica.unspent[name])
            share = UNLIMITED_SLICE_BYTES if limit is None else int(limit) // (SLICES_PER_LIMIT * (1 + holders))
            if missing:
                granted = max(missing, share)
                replica.unspent[name] += granted
                self.used[name] += granted
        replica.has_lease = True
        self._holders.add(replica.name)

    def _write(self, replica: _Replica) -> _Operation:
        """Replace the ledger if it has not changed since it was read, else read it and try again."""
        get, put = self._latency.get / 2, self._latency.put / 2
        for attempt in itertools.count(1):
            if replica.view is None:
                self.counts["GET accounts"] += 1
                yield get
                replica.view = self._version
                yield get
            self.counts["PUT accounts"] += 1
            yield put
            is_written = replica.view == self._version
            if is_written:
                self._version += 1
            replica.view = self._version if is_written else None
            yield put
            if is_written:
                self.counts["commits"] += 1
                return
            yield self._rng.uniform(0, min(0.1, 0.002 * attempt))

    def _beat(self, replica: _Replica) -> _Operation:
        while replica.has_lease:
            yield BEAT_SECONDS
            is_idle = not replica.has_spent
            replica.has_spent = False
            self.counts["beats"] += 1
            yield from self._acquire(replica)
            returned: Counter[int] = Counter()
            if is_idle:
                returned, replica.unspent = replica.unspent, Counter()
            yield from self._write(replica)
            self.used.subtract(returned)
            if is_idle and not +replica.unspent:
                replica.has_lease = False
                self._holders.discard(replica.name)
            self._release(replica)
        replica.has_timer = False

    def _delete(self) -> _Operation:
        """Delete as many handles as are put, in sweeps."""
        sweeps = forecast_s3(self._load, self._latency).sweeps
        gap = DAY / sweeps.per_day
        burst = self._load.rate * gap * self._latency.deletion
        # The window may begin within a sweep.
        began_at = self._now - self._rng.uniform(0, gap)
        while True:
            replica = self._rng.choice(self._replicas)
            while self._now < began_at + burst:
                self.counts["GET accounts"] += (RELEASE_SECONDS + self._latency.put) / POSITION_SECONDS
                yield RELEASE_SECONDS
                self.counts["releases"] += 1
                yield from self._acquire(replica)
                yield from self._write(replica)
                self._release(replica)
            began_at += gap
            yield max(0.001, began_at - self._now)
            self.counts["GET accounts"] += 2

    def _crash(self) -> _Operation:
        while True:
            yield self._rng.expovariate(self._load.replicas * self._load.crashes_per_day / DAY)
            replica = self._rng.choice(self._replicas)
            if not replica.is_busy:
                # The ledger goes on to count its slices, and keeps its name until a recount.
                self.lost.update(replica.unspent)
                replica.unspent.clear()
                replica.has_lease, replica.view = False, None
                self.counts["crashes"] += 1

    def _observe(self) -> _Operation:
        while True:
            yield 5.0
            granted = self.lost + self.stored
            for replica in self._replicas:
                granted.update(replica.unspent)
            # Whatever replicas do, the ledger is never too low.
            assert all(self.used[name] >= size for name, size in granted.items())
            active = [replica for replica in self._replicas if replica.has_lease]
            self.active_seconds += 5.0 * len(active)
            self.unspent_seconds += 5.0 * sum(replica.unspent[0] for replica in active)


class SweepSimulation:
    """Sweeps, expiry and crashes, with the handles of a minute together."""

    def __init__(self, load: Load, latency: Latency, rng: random.Random, unspent_bytes: float) -> None:
        self._load, self._latency, self._rng = load, latency, rng
        self._unspent_bytes = unspent_bytes
        """What a replica loses in a crash, on average over the active ones and the others."""
        self.counts: defaultdict[str, float] = defaultdict(float)
        self.stored_seconds = self.lost_seconds = self.handle_seconds = 0.0

    def run(self, days: float) -> None:
        """Simulate a number of days, after as many days as the longest time to live."""
        if self._load.sweepers == 0:
            self._expire_by_lifecycle(days)
        else:
            self._sweep(days)
        for kind in self.counts:
            self.counts[kind] /= days
        self.handle_seconds /= days * DAY
        self.lost_seconds /= days * DAY

    def _expire_by_lifecycle(self, days: float) -> None:
        """Remove handles as S3 does: at the midnight after a number of days."""
        for ttl, share in self._load.ttls:
            lifetime = next(seconds for seconds in LIFETIMES if seconds is not None and seconds >= ttl)
            rule_days = math.ceil(lifetime / DAY) + 1
            for step in range(int(days * DAY / _STEP)):
                created_at = step * _STEP
                removed_at = math.ceil(created_at / DAY + rule_days) * DAY
                count = _draw_poisson(self._rng, self._load.rate * share * _STEP)
                self.handle_seconds += count * (removed_at - created_at)

    def _sweep(self, days: float) -> None:
        load, rng = self._load, self._rng
        first_day = max(ttl for ttl, _ in load.ttls) / DAY + 0.5
        end = (first_day + days) * DAY
        steps = math.ceil(end / _STEP) + 1
        created = [self._accumulate(steps, load.rate * share * _STEP) for _, share in load.ttls]
        removed = [0.0] * len(load.ttls)
        """Until when handles of each time to live were created that are deleted."""
        sweepers = load.sweepers or load.replicas
        known = [-math.inf] * sweepers
        attempts = [(rng.uniform(0, load.sweep_interval), number) for number in range(sweepers)]
        heapq.heapify(attempts)
        crashes = _iter_times(rng, load.replicas * load.crashes_per_day / DAY)
        next_crash, free_at, lost = next(crashes), 0.0, deque[tuple[float, float]]()
        last = left = 0.0
        holder = -1

        def count(kind: str, number: float = 1.0) -> None:
            if start >= first_day * DAY:
                self.counts[kind] += number

        while attempts and attempts[0][0] < end:
            start, number = heapq.heappop(attempts)
            while next_crash <= start:
                victim = rng.randrange(load.replicas)
                if victim < sweepers:
                    known[victim] = -math.inf
                if victim == holder and next_crash < free_at:
                    # Its lease keeps the others away for a while.
                    free_at = next_crash + _LEASE_SECONDS
                lost.append((next_crash, rng.expovariate(1 / self._unspent_bytes) if self._unspent_bytes else 0.0))
                next_crash = next(crashes)
            count("GET lease")
            if start < free_at:
                # All its attempts until the end of that sweep.
                more = math.ceil((free_at - start) / load.sweep_interval) - 1
                count("GET lease", more)
                heapq.heappush(attempts, (start + (more + 1) * load.sweep_interval, number))
                continue
            handles = footers = deleted = 0.0
            for index, (ttl, _) in enumerate(load.ttls):
                table = created[index]
                handles += _interpolate(table, start) - _interpolate(table, removed[index])
                footers += _interpolate(table, start) - _interpolate(table, max(removed[index], known[number]))
                expired = max(0.0, start - ttl)
                deleted += _interpolate(table, expired) - _interpolate(table, removed[index])
                removed[index] = max(removed[index], expired)
            pages = max(1, math.ceil(handles / LISTED_AT_ONCE))
            others = 4 if deleted >= 1 else 2
            seconds = (
                3 * self._latency.get
                + 2 * self._latency.put
                + (pages + others) * self._latency.list
                + footers * self._latency.get
                + deleted * self._latency.deletion
            )
            known[number], free_at, holder = start, start + seconds, number
            count("sweeps")
            count("LIST", pages + others)
            count("GET footer", footers)
            count("PUT tombstone", deleted)
            count("PUT lease", 2 + int(seconds / LEASE_RENEWAL_SECONDS))
            heapq.heappush(attempts, (max(start, free_at) + load.sweep_interval, number))
            if start >= first_day * DAY:
                duration = start - max(last, first_day * DAY)
                # Between two sweeps the number grows by what is put.
                self.handle_seconds += duration * (left + handles) / 2
            while lost and lost[0][0] + DEAD_SECONDS - BEAT_SECONDS / 2 < start:
                # The recount ends with the sweep.
                crashed_at, size = lost.popleft()
                self.lost_seconds += (start + seconds - crashed_at) * size * (crashed_at >= first_day * DAY)
            last, left = start, handles - deleted

    def _accumulate(self, steps: int, mean: float) -> list[float]:
        """Return the number of handles created until each step."""
        total, table = 0.0, [0.0]
        for _ in range(steps):
            total += _draw_poisson(self._rng, mean)
            table.append(total)
        return table


def _interpolate(table: list[float], when: float) -> float:
    if when <= 0:
        return 0.0
    index = min(int(when / _STEP), len(table) - 2)
    return table[index] + (table[index + 1] - table[index]) * (when / _STEP - index)


def _draw_poisson(rng: random.Random, mean: float) -> int:
    if mean > 50:
        return max(0, round(rng.gauss(mean, math.sqrt(mean))))
    count, product, limit = 0, rng.random(), math.exp(-mean)
    while product > limit:
        count += 1
        product *= rng.random()
    return count


def _iter_times(rng: random.Random, rate: float) -> Iterator[float]:
    when = 0.0
    while True:
        when += rng.expovariate(rate) if rate else math.inf
        yield when


class Comparison(NamedTuple):
    """A number of the model, and that of the simulation."""

    name: str
    computed: float
    simulated: float
    tolerance: float

    @property
    def difference(self) -> float:
        return self.computed / self.simulated - 1 if self.simulated else 0.0


def simulate(
    load: Load, days: float, *, windows: int = 24, window_seconds: float = 600.0, seed: int = 1
) -> tuple[dict[str, float], dict[str, float]]:
    """Return what a simulation requests a day by kind, and the means of other values."""
    latency, rng = Latency(), random.Random(seed)  # noqa: S311 - it has to be reproducible, not secret
    counts: defaultdict[str, float] = defaultdict(float)
    unspent = active = 0.0
    for _ in range(windows):
        window = LedgerSimulation(load, latency, rng)
        window.run(window_seconds, max(_MIN_WARM_UP_SECONDS, window_seconds))
        for kind, number in window.counts.items():
            counts[kind] += number
        unspent += window.unspent_seconds
        active += window.active_seconds
    factor = DAY / (windows * window_seconds)
    requests = {kind: number * factor for kind, number in counts.items()}
    sweeps = SweepSimulation(load, latency, rng, unspent / (windows * window_seconds * load.replicas))
    sweeps.run(days)
    values = {
        "active replicas": active / (windows * window_seconds),
        "unspent bytes of an active replica": unspent / active if active else 0.0,
        "handles": sweeps.handle_seconds,
        "lost bytes": sweeps.lost_seconds,
    }
    return requests | sweeps.counts, values


def compare(
    load: Load, days: float, *, windows: int = 24, window_seconds: float = 600.0, seed: int = 1
) -> list[Comparison]:
    """Compare the model with a simulation, and raise `AssertionError` if they differ too much."""
    requests, values = simulate(load, days, windows=windows, window_seconds=window_seconds, seed=seed)
    model = forecast_s3(load)
    kinds = ["PUT object", "PUT accounts", "GET accounts", "PUT journal"]
    if load.sweepers != 0:
        kinds += ["PUT tombstone", "GET footer"]
    if load.sweepers == 1 or model.sweeps.busy > _MANY_BUSY:
        # Otherwise the attempts of several replicas fall together over time, and fewer of them sweep than computed.
        kinds += ["LIST", "GET lease", "PUT lease"]
    rows = [Comparison(kind, model.requests[kind], requests[kind], 0.05) for kind in kinds]
    rows += [
        Comparison("ledger: refills", model.ledger.refills * DAY, requests["refills"], 0.05),
        Comparison("ledger: heartbeats", model.ledger.beats * DAY, requests["beats"], 0.05),
        Comparison("active replicas", model.ledger.active_replicas, values["active replicas"], 0.05),
        Comparison("unspent bytes", model.ledger.unspent_bytes, values["unspent bytes of an active replica"], 0.15),
        Comparison("handles", model.handles, values["handles"], 0.05),
    ]
    if load.crashes_per_day:
        rows.append(Comparison("lost bytes", model.lost_bytes, values["lost bytes"], 0.15))
    return rows


def check(rows: list[Comparison]) -> None:
    """Raise `AssertionError` if the model and the simulation differ too much."""
    wrong = [row for row in rows if abs(row.difference) > row.tolerance]
    assert not wrong, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=float, default=365)
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--handles", type=float, default=300_000, help="handles a day")
    parser.add_argument("--windows", type=int, default=96)
    arguments = parser.parse_args()
    load = Load(
        replicas=arguments.replicas,
        handles_per_day=arguments.handles,
        principals=1000,
        ttls=((3600.0, 0.3), (DAY, 0.5), (3 * DAY, 0.2)),
        crashes_per_day=0.1,
    )
    began_at = time.perf_counter()
    rows = compare(load, arguments.days, windows=arguments.windows)
    print(f"{arguments.replicas} replicas, {arguments.handles:,.0f} handles a day, {arguments.days:g} days")
    for row in rows:
        print(f"{row.name:24} computed {row.computed:16,.1f}  simulated {row.simulated:16,.1f}  {row.difference:+7.1%}")
    print(f"{time.perf_counter() - began_at:.0f} s")
    check(rows)


if __name__ == "__main__":
    main()
