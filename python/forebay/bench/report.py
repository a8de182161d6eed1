"""The report of a run as JSON, and its comparison with an earlier one."""

import os
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import forebay
from forebay.bench.contest import Outcome, Result
from forebay.bench.payloads import Payload
from forebay.bench.peers import Peer
from forebay.bench.run import Run
from forebay.errors import InvalidArgument

__all__ = ["Change", "check_comparable", "compare", "describe_machine", "make_report"]

_MIN_NOISE = 0.05
"""Smaller changes are never reported, because no two runs are alike."""


def describe_machine() -> dict[str, Any]:
    """Return the processor, the system and how busy the machine is, and nothing that identifies it."""
    load = 0.0
    # Windows does not measure it.
    if sys.platform != "win32":
        load = os.getloadavg()[0]
    return {
        "cpu": _find_processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load": round(load, 2),
        "is_busy": load > (os.cpu_count() or 1) / 2,
    }


def _find_processor() -> str:
    path = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*:\s*(.+)$", path.read_text(), re.MULTILINE) if path.exists() else None
    return found[1] if found else platform.processor() or platform.machine()


def make_report(payload: Payload, machine: Mapping[str, Any], peers: Mapping[str, Peer], run: Run) -> dict[str, Any]:
    """Return everything that a run found out."""
    installed = {peer.name: peer.version for peer in peers.values() if peer.version and peer.install}
    return {
        "forebay": forebay.__version__,
        "machine": dict(machine),
        "versions": installed,
        "payload": payload.to_dict(),
        "benchmarks": [_describe_result(result) for result in run.results],
        "left_out": [{"group": group, "reason": reason} for group, reason in run.left_out],
        "missing": [{"name": peer.name, "install": peer.install} for peer in peers.values() if peer.version is None],
    }


def _describe_result(result: Result) -> dict[str, Any]:
    benchmark = result.benchmark
    size = benchmark.size_bytes
    speed_bytes = size if benchmark.reads_all else None
    best = result.ours.timing.best if result.ours.timing else None
    peers = [
        {"name": peer.who, "ratio": _get_ratio(peer, best), **_describe_outcome(peer, size)} for peer in result.peers
    ]
    return {
        "group": benchmark.group,
        "name": benchmark.name,
        "size_bytes": size,
        "note": benchmark.note,
        "forebay": _describe_outcome(result.ours, speed_bytes),
        "peers": peers,
    }


def _describe_outcome(outcome: Outcome, size: int | None) -> dict[str, Any]:
    timing = outcome.timing
    return {
        "best_seconds": None if timing is None else timing.best,
        "median_seconds": None if timing is None else timing.median,
        "rounds": 0 if timing is None else timing.rounds,
        "bytes_per_second": None if timing is None or size is None else round(size / timing.best),
        "result": outcome.note or None,
        "problem": outcome.problem or None,
    }


def _get_ratio(peer: Outcome, best: float | None) -> float | None:
    """Return how many times as long as forebay a peer takes."""
    return None if peer.timing is None or not best else round(peer.timing.best / best, 4)


class Change(NamedTuple):
    """How forebay's time on a benchmark differs from that of an earlier run."""

    group: str
    name: str
    old_seconds: float
    new_seconds: float
    noise: float
    """Change of speed that is not more than chance."""

    @property
    def speed(self) -> float:
        """The speed, relative to the earlier one."""
        return self.old_seconds / self.new_seconds

    @property
    def verdict(self) -> str:
        """`better` or `worse` if the change is larger than the noise, else `same`."""
        if self.speed > 1 + self.noise:
            return "better"
        return "worse" if self.speed < 1 / (1 + self.noise) else "same"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the verdict."""
        return {**self._asdict(), "speed": round(self.speed, 4), "verdict": self.verdict}


def check_comparable(old: Any, name: str, payload: Payload) -> None:
    """Raise `InvalidArgument` unless a value is a report on the same payload."""
    measured = old.get("payload") if isinstance(old, dict) else None
    rows = old.get("benchmarks") if isinstance(old, dict) else None
    if not isinstance(measured, dict) or not isinstance(rows, list) or not all(map(_is_row, rows)):
        raise InvalidArgument(f"{name} is no report of forebay bench; write one with forebay bench --json > {name}")
    if measured.get("sha256") != payload.to_dict()["sha256"]:
        raise InvalidArgument(
            f"{name} measured another payload, {measured.get('name')} of {measured.get('size_bytes')} bytes; "
            "measure the same file, or the same --shape, --size and --seed"
        )


def _is_row(row: Any) -> bool:
    """Return whether a value is a benchmark of a report, as far as a comparison needs it."""
    if not isinstance(row, dict) or not isinstance(row.get("forebay"), dict):
        return False
    times = [row["forebay"].get(name) for name in ("best_seconds", "median_seconds")]
    are_times = all(isinstance(time, float) and time > 0 for time in times)
    return {"group", "name"} <= row.keys() and (are_times or times == [None, None])


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """Return the changes of forebay's times, for benchmarks that both reports have.

    The noise is how much longer the medians took than the fastest samples, of both reports together.
    """
    before = {(row["group"], row["name"]): row["forebay"] for row in old["benchmarks"]}
    changes = []
    for row in new["benchmarks"]:
        ours, theirs = row["forebay"], before.get((row["group"], row["name"]))
        if theirs and theirs["best_seconds"] and ours["best_seconds"]:
            noise = max(_MIN_NOISE, _get_noise(theirs) + _get_noise(ours))
            changes.append(Change(row["group"], row["name"], theirs["best_seconds"], ours["best_seconds"], noise))
    return changes


def _get_noise(times: Mapping[str, Any]) -> float:
    return float(times["median_seconds"] / times["best_seconds"] - 1)
