"""The report, the comparison of two of them, and the chart."""

import copy
import xml.etree.ElementTree as ET
from typing import Any

import orjson
import pytest
from forebay.bench.chart import draw_chart
from forebay.bench.payloads import generate_payload, make_payload
from forebay.bench.peers import Peer, find_peers
from forebay.bench.report import check_comparable, compare, describe_machine, make_report
from forebay.bench.run import run_groups
from forebay.bench.units import format_duration, format_ratio
from forebay.errors import InvalidArgument


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    peers = find_peers()
    payload = generate_payload("orders", 50_000, 1)
    run = run_groups(payload, peers, ["truncate", "index", "page"], 0.05)
    made = make_report(payload, describe_machine(), {**peers, "none": Peer("none", None, "pip install none")}, run)
    return dict(orjson.loads(orjson.dumps(made)))


def test_a_report_has_everything(report: dict[str, Any]) -> None:
    assert report["payload"]["size_bytes"] > 40_000
    assert (report["payload"]["items_path"], report["payload"]["memory"]) == ("/orders", "in memory")
    assert report["machine"]["cores"] >= 1
    assert "orjson" in report["versions"]
    assert {"name": "none", "install": "pip install none"} in report["missing"]
    assert {row["group"] for row in report["benchmarks"]} == {"truncate", "index", "page"}
    for row in report["benchmarks"]:
        ours = row["forebay"]
        assert 0 < ours["best_seconds"] <= ours["median_seconds"]
        for peer in row["peers"]:
            assert peer["ratio"] == pytest.approx(peer["best_seconds"] / ours["best_seconds"], abs=1e-4)
        if row["group"] == "page" and "at hand" in row["name"]:
            # It reads a page, not the payload.
            assert ours["bytes_per_second"] is None


def change_times(report: dict[str, Any], factor: float, spread: float = 0.0) -> dict[str, Any]:
    """Return a report in which forebay takes `factor` of the time, with so much noise."""
    changed = copy.deepcopy(report)
    for row in changed["benchmarks"]:
        best = row["forebay"]["best_seconds"] * factor
        row["forebay"].update(best_seconds=best, median_seconds=best * (1 + spread))
    return changed


@pytest.mark.parametrize(
    ("factor", "spread", "verdict"),
    [
        (1.0, 0.0, "same"),
        (1.03, 0.0, "same"),
        (0.97, 0.0, "same"),
        (1.5, 0.0, "worse"),
        (0.5, 0.0, "better"),
        (1.5, 0.6, "same"),
        (0.7, 0.6, "same"),
        (3.0, 0.6, "worse"),
    ],
)
def test_a_change_counts_beyond_the_noise(report: dict[str, Any], factor: float, spread: float, verdict: str) -> None:
    old, new = change_times(report, 1.0), change_times(report, factor, spread)
    changes = compare(old, new)
    assert len(changes) == len(report["benchmarks"])
    assert {change.verdict for change in changes} == {verdict}
    assert all(change.speed == pytest.approx(1 / factor) for change in changes)


def test_only_benchmarks_of_both_reports_are_compared(report: dict[str, Any]) -> None:
    old = copy.deepcopy(report)
    old["benchmarks"] = [row for row in old["benchmarks"] if row["group"] == "page"]
    assert {change.group for change in compare(old, report)} == {"page"}


def test_reports_on_other_payloads_are_not_compared(report: dict[str, Any]) -> None:
    check_comparable(report, "old.json", generate_payload("orders", 50_000, 1))
    with pytest.raises(InvalidArgument, match=r"old.json measured another payload, generated orders, seed 1"):
        check_comparable(report, "old.json", generate_payload("orders", 50_000, 2))
    others: list[Any] = [[], {}, {"payload": {}}, "x"]
    wrong_rows: list[Any] = [{}, [1], [{"group": "page", "name": "x", "forebay": {"best_seconds": 1.0}}]]
    others += [{**report, "benchmarks": rows} for rows in wrong_rows]
    for other in others:
        with pytest.raises(InvalidArgument, match="no report of forebay bench"):
            check_comparable(other, "old.json", make_payload(b"[]", "a"))


def test_the_chart_is_well_formed_and_shows_every_side(report: dict[str, Any]) -> None:
    hostile = copy.deepcopy(report)
    hostile["payload"]["name"] = '<script>"&'
    root = ET.fromstring(draw_chart(hostile))  # noqa: S314 - our own document
    space = "{http://www.w3.org/2000/svg}"
    bars = [rect for rect in root.iter(f"{space}rect") if rect.get("class") != "page"]
    sides = [side for row in report["benchmarks"] for side in (row["forebay"], *row["peers"]) if side["best_seconds"]]
    assert len(bars) == len(sides)
    assert all(float(rect.get("width", "")) > 0 for rect in bars)
    width = float(root.get("width", ""))
    assert all(float(rect.get("x", "")) + float(rect.get("width", "")) < width for rect in bars)
    style = root.findtext(f"{space}style") or ""
    assert "prefers-color-scheme: dark" in style
    text = "".join(root.itertext())
    assert '<script>"&' in text
    assert "orjson" in text
    # A longer time has a longer bar.
    by_time = sorted(
        zip([side["best_seconds"] for side in _list_in_order(report)], bars, strict=True), key=lambda x: x[0]
    )
    lengths = [float(rect.get("width", "")) for _, rect in by_time]
    assert lengths == sorted(lengths)


def _list_in_order(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the sides as the chart draws them: forebay first, then the fastest peer."""
    sides = []
    for row in report["benchmarks"]:
        peers = [peer for peer in row["peers"] if peer["best_seconds"]]
        sides += [row["forebay"], *sorted(peers, key=lambda peer: peer["best_seconds"])]
    return sides


def test_a_chart_of_nothing_is_a_chart(report: dict[str, Any]) -> None:
    ET.fromstring(draw_chart({**report, "benchmarks": []}))  # noqa: S314 - our own document


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.5, "1.5 s"), (0.9999, "1 s"), (0.0123, "12.3 ms"), (1e-6, "1 µs"), (4.2e-8, "42 ns"), (12345.0, "12,345 s")],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(("ratio", "text"), [(0.5, "0.5 ×"), (12.345, "12.3 ×"), (1234.5, "1,234 ×")])
def test_ratios(ratio: float, text: str) -> None:
    assert format_ratio(ratio) == text
