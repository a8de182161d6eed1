"""Find the items of a stored payload that fulfil three conditions: beside parsing all of it and a loop."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import corpus
import forebay
import orjson
import pytest
from conftest import MeasureRounds

SIZE = 100 * corpus.MB
LIMIT = 50
WHERE = {"owner.email": "retry@example.org", "active": True, "score": {">": 50}}


class StoredRecords(NamedTuple):
    root: Path
    handle: str


@pytest.fixture(scope="module")
def records(folder: Path) -> Iterator[StoredRecords]:
    root = folder / "where"
    with forebay.open_store(root.as_uri()) as store:
        yield StoredRecords(root, store.put(corpus.records(SIZE)).output_handle)


def find_matches(records: StoredRecords) -> tuple[int, list[Any]]:
    """Return the number of matches and the first of them. The store is new, so it has no counts to reuse."""
    with forebay.open_store(records.root.as_uri()) as store:
        page = store.fetch(records.handle, where=WHERE, limit=LIMIT)
    return page.total, orjson.loads(page.content)


def parse_and_loop(records: StoredRecords) -> tuple[int, list[Any]]:
    with forebay.open_store(records.root.as_uri()) as store, store.open(records.handle) as file:
        items = orjson.loads(file.read())
    found = [
        item
        for item in items
        if item["owner"]["email"] == "retry@example.org" and item["active"] is True and item["score"] > 50
    ]
    return len(found), found[:LIMIT]


def measure_memory(records: StoredRecords, function: str) -> str:
    """Return by how much the peak memory of a new process grows after a first call on a small payload; on Linux."""
    script = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
import forebay
from bench_store_where import StoredRecords, find_matches, parse_and_loop
root = Path(sys.argv[1])
with forebay.open_store(root.as_uri()) as store:
    small = store.put([{{"owner": {{"email": ""}}, "active": True, "score": 1}}]).output_handle
{function}(StoredRecords(root, small))

def get_peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024

before = get_peak()
{function}(StoredRecords(root, sys.argv[2]))
print(get_peak() - before)
"""
    command = [sys.executable, "-c", script, str(records.root), records.handle]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return f"{grown / corpus.MB:.0f} MB of memory"


@pytest.mark.parametrize("who", ["forebay", "orjson and a loop"])
def bench_where(measure_rounds: MeasureRounds, records: StoredRecords, who: str) -> None:
    total, first = find_matches(records)
    assert total > 1000
    assert (total, first) == parse_and_loop(records)
    find = find_matches if who == "forebay" else parse_and_loop
    note = measure_memory(records, find.__name__)
    measure_rounds("where, three conditions", "records 100 MB", who, SIZE, lambda: find(records), note=note)
