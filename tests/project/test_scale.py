"""The model behind docs/scale.md agrees with a simulation, and the document has its tables."""

import math
import random
from collections import Counter
from pathlib import Path

import pytest
from scale_model import DAY, MEASURED, Latency, Load, forecast_ledger, forecast_s3, forecast_sweeps
from scale_simulation import LedgerSimulation, check, compare
from scale_tables import iter_tables, replace_tables

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "scale.md"
HALF_DAYS = ((3600.0, 0.5), (DAY / 2, 0.5))

LOADS = {
    "one sweeper": Load(replicas=20, handles_per_day=40_000, ttls=HALF_DAYS, sweepers=1, crashes_per_day=1),
    "every replica sweeps": Load(replicas=20, handles_per_day=100_000, ttls=HALF_DAYS, crashes_per_day=1),
    "small quotas": Load(
        replicas=20,
        handles_per_day=400_000,
        ttls=HALF_DAYS,
        sweepers=1,
        quota_bytes=4 << 30,
        principal_quota_bytes=1 << 30,
    ),
    "lifecycle rules": Load(replicas=20, handles_per_day=20_000, ttls=HALF_DAYS, sweepers=0),
}


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_the_model_agrees_with_a_simulation(load: Load) -> None:
    check(compare(load, 60, windows=2, window_seconds=7200))


def test_the_document_has_the_tables() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert replace_tables(text) == text
    for table in iter_tables():
        assert table in text
        # All rows have as many cells as the header.
        assert len({line.count("|") for line in table.splitlines()[1:]}) == 1


def test_a_single_replica_is_never_overtaken() -> None:
    load = Load(replicas=1, handles_per_day=86_400)
    ledger = forecast_ledger(load, Latency(), forecast_sweeps(load, Latency()))
    assert ledger.conflict == 0
    assert math.isclose(ledger.writes, ledger.commits)
    assert ledger.reads == 0


def test_costs_are_those_of_the_requests() -> None:
    forecast = forecast_s3(Load(handles_per_day=1e6 / 30))
    assert math.isclose(forecast.dollars()["puts"], 5.0)
    costs = forecast.dollars()
    assert math.isclose(costs["total"], sum(cost for cause, cost in costs.items() if cause != "total"))


def test_the_simulation_agrees_with_real_replicas() -> None:
    """`benches/scale.py` has counted what replicas on a real server requested for some minutes."""
    measured = MEASURED["s3"]["sharing"]
    seconds = measured["seconds"]
    load = Load(
        replicas=measured["replicas"],
        handles_per_day=measured["puts"] / seconds * DAY,
        principals=measured["principals"],
        stored_bytes=measured["stored_bytes"],
        quota_bytes=64 << 30,
        principal_quota_bytes=16 << 30,
        pages_per_handle=0,
        sweepers=0,
    )
    loopback = Latency(get=0.001, put=0.002)
    counts: Counter[str] = Counter()
    runs = 20
    for seed in range(runs):
        simulation = LedgerSimulation(load, loopback, random.Random(seed))
        simulation.run(seconds)
        counts.update({kind: round(number) for kind, number in simulation.counts.items()})
    for kind in ("PUT accounts", "GET accounts", "PUT journal"):
        assert measured["requests"][kind] == pytest.approx(counts[kind] / runs, rel=0.1), kind
