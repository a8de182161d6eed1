"""Counts of calls: kept for all processes, by day, principal and tool, without a cost for the calls."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import forebay
import pytest
from forebay.store.backends import count_rows, local_counts
from forebay.store.call_counts import summarize_calls
from hypothesis import given
from hypothesis import strategies as st
from stores import Clock
from waiting import wait_until

DAY_SECONDS = 86400


def read(path: Path, **arguments: Any) -> list[dict[str, Any]]:
    with forebay.open_store(path, sweep_interval=0) as store:
        return [*store.call_counts.read(**arguments)]


def test_counts_are_added_up_by_day_principal_and_tool(tmp_path: Path, clock: Clock) -> None:
    for _ in range(2):
        with forebay.open_store(tmp_path / "store", sweep_interval=0, clock=clock) as store:
            store.call_counts.add("crawl", "ann", calls=1)
            store.call_counts.add("crawl", "ann", handles=1, stored_bytes=5000, shown_bytes=1000)
            store.call_counts.add("crawl", "bob", calls=1)
            clock.now += DAY_SECONDS
            store.call_counts.add("output_fetch", "ann", calls=1, shown_bytes=400)
            clock.now -= DAY_SECONDS
    rows = read(tmp_path / "store")
    assert [(row["principal"], row["tool"], row["calls"]) for row in rows] == [
        ("ann", "output_fetch", 2),
        ("ann", "crawl", 2),
        ("bob", "crawl", 2),
    ]
    assert rows[0]["day"] > rows[1]["day"]
    assert [row["tool"] for row in read(tmp_path / "store", principals=["bob"])] == ["crawl"]
    summary = summarize_calls(rows)
    assert (summary["calls"], summary["handles"], summary["saved_bytes"], summary["saved_tokens"]) == (6, 2, 7200, 1800)
    assert summary["by_tool"]["output_fetch"]["saved_bytes"] == -800
    assert [*summary["by_tool"]] == ["crawl", "output_fetch"]
    assert [*summary["by_day"].values()][1]["saved_bytes"] == 8000


SCRIPT = """
import sys, forebay
store = forebay.open_store(sys.argv[1], sweep_interval=0)
for number in range(200):
    store.call_counts.add("crawl", calls=1)
    if number % 50 == 0:
        store.call_counts.flush()
"""


def test_processes_count_together_and_lose_nothing_at_exit(tmp_path: Path) -> None:
    store = (tmp_path / "store").as_uri()
    # The store is not closed in these processes.
    processes = [subprocess.Popen([sys.executable, "-c", SCRIPT, store]) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    (row,) = read(tmp_path / "store")
    assert row["calls"] == 600


def test_counts_are_written_while_the_process_runs(tmp_path: Path) -> None:
    script = "import sys, time, forebay; s = forebay.open_store(sys.argv[1]); s.call_counts.add('crawl', calls=3)"
    store = tmp_path / "store"
    process = subprocess.Popen([sys.executable, "-c", f"{script}; time.sleep(600)", store.as_uri()])
    try:
        wait_until(lambda: any((store / "calls").glob("*.json")), 60)
    finally:
        process.kill()
        process.wait()
    (row,) = read(store)
    assert row["calls"] == 3


@pytest.mark.posix
def test_a_forked_child_does_not_count_again(tmp_path: Path) -> None:
    with forebay.open_store(tmp_path / "store", sweep_interval=0) as store:
        store.call_counts.add("crawl", calls=1)
        if (child := os.fork()) == 0:
            store.call_counts.add("crawl", calls=1)
            store.call_counts.flush()
            os._exit(0)
        os.waitpid(child, 0)
    (row,) = read(tmp_path / "store")
    assert row["calls"] == 2


def test_counts_that_cannot_be_written_are_kept(tmp_path: Path) -> None:
    with forebay.open_store(tmp_path / "store", sweep_interval=0) as store:
        (tmp_path / "store" / "calls").write_text("a file where the folder should be")
        store.call_counts.add("crawl", calls=1)
        store.call_counts.flush()
        (tmp_path / "store" / "calls").unlink()
        assert [row["calls"] for row in store.call_counts.read()] == [1]


@pytest.mark.posix
def test_the_files_are_bounded(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_rows, "MAX_ROWS", 3)
    monkeypatch.setattr(local_counts, "_MAX_DAYS", 2)
    with forebay.open_store(tmp_path / "store", sweep_interval=0, clock=clock) as store:
        for _ in range(4):
            for number in range(10):
                store.call_counts.add(f"tool{number}", f"user{number}", calls=1)
                store.call_counts.flush()
            clock.now += DAY_SECONDS
        rows = [*store.call_counts.read()]
    assert len({row["day"] for row in rows}) == 2
    # Other tools belong to no principal, so that nobody gets the counts of somebody else.
    assert [(row["principal"], row["tool"], row["calls"]) for row in rows[:4]] == [
        *((f"user{number}", f"tool{number}", 1) for number in range(3)),
        (None, "others", 7),
    ]
    folder = tmp_path / "store" / "calls"
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


@pytest.mark.parametrize("tool", ["\ud800", "x" * 100_000, "\x1b[2J"])
def test_any_name_can_be_counted(tool: str, tmp_path: Path) -> None:
    with forebay.open_store(tmp_path / "store", sweep_interval=0) as store:
        store.call_counts.add(tool, "\udcff", calls=1)
        store.call_counts.add(tool, calls=1)
        rows = [*store.call_counts.read()]
    assert sum(row["calls"] for row in rows) == 2
    assert {row["principal"] for row in rows} == {None}
    assert max(len(row["tool"]) for row in rows) <= 256


GOOD = {"principal": None, "tool": "a", "calls": 1, "handles": 0, "stored_bytes": 0, "shown_bytes": 0}


@pytest.mark.parametrize(
    "changes", [{"calls": 2**64 - 1}, {"calls": -1}, {"principal": 7}, {"tool": None}, {"handles": 0.5}, *GOOD]
)
def test_a_damaged_row_is_no_failure(changes: dict[str, Any] | str, tmp_path: Path) -> None:
    row = {**GOOD, **changes} if isinstance(changes, dict) else {key: GOOD[key] for key in GOOD if key != changes}
    test_a_damaged_file_is_no_failure(json.dumps([row]).encode(), tmp_path)


def test_counts_are_not_added_twice_if_an_old_file_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_counts, "_MAX_DAYS", 1)
    with forebay.open_store(tmp_path / "store", sweep_interval=0) as store:
        (tmp_path / "store" / "calls" / "2001-01-01.json").mkdir(parents=True)
        store.call_counts.add("crawl", calls=1)
        store.call_counts.flush()
        (row,) = store.call_counts.read()
    assert row["calls"] == 1


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"[{}]", b"{}", json.dumps([{**GOOD, "calls": "1"}]).encode()])
def test_a_damaged_file_is_no_failure(data: bytes, tmp_path: Path) -> None:
    with forebay.open_store(tmp_path / "store", sweep_interval=0) as store:
        store.call_counts.add("crawl", calls=1)
        store.call_counts.flush()
        (path,) = (tmp_path / "store" / "calls").glob("*.json")
        path.write_bytes(data)
        store.call_counts.add("crawl", calls=1)
        (row,) = store.call_counts.read()
    assert row["calls"] == 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["2026-01-01", "2026-01-02"]), st.integers(0, 99))))
def test_a_summary_adds_up(entries: list[tuple[str, str, int]]) -> None:
    rows = [
        {"tool": tool, "day": day, "principal": None, "calls": 1, "handles": 1, "stored_bytes": size, "shown_bytes": 50}
        for tool, day, size in entries
    ]
    summary = summarize_calls(rows)
    for groups in ("by_tool", "by_day"):
        for name in ("calls", "handles", "saved_bytes"):
            assert sum(group[name] for group in summary[groups].values()) == summary[name]
    assert summary["saved_bytes"] == sum(size - 50 for _, _, size in entries)
