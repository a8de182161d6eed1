"""The journal and the counts of calls in a bucket, of several replicas."""

import pytest
from forebay import Store, open_store
from forebay.store.backends import object_counts, object_log, object_segments
from s3_server import S3Server


def opened(address: str) -> Store:
    return open_store(address, sweep_interval=0)


def flush(store: Store) -> None:
    """Write the events that are in memory."""
    log = store._backend.log
    assert isinstance(log, object_log.ObjectLog)
    log.flush()


def test_lines_of_replicas_are_merged_by_time(address: str) -> None:
    with opened(address) as first, opened(address) as second:
        expected = []
        for number in range(40):
            store = (first, second)[number % 2]
            store.journal.record("event", number=number)
            expected.append(number)
            if number % 7 == 0:
                flush(store)
        flush(second)
        assert [event["number"] for event in first.journal.recent(100)] == expected[::-1]
    with opened(address) as store:
        assert [event["number"] for event in store.journal.recent(3)] == expected[:-4:-1]


def test_old_segments_are_removed(server: S3Server, prefix: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_segments, "_MAX_SEGMENT_BYTES", 1000)
    monkeypatch.setattr(object_log, "_MAX_LOG_BYTES", 20_000)
    with opened(address) as store:
        for number in range(200):
            store.journal.record("event", number=number, text="x" * 200)
            if number % 4 == 3:
                flush(store)
        store.sweep()
        numbers = [event["number"] for event in store.journal.recent(1000)]
        assert numbers == list(range(199, 199 - len(numbers), -1))
        assert 50 < len(numbers) < 100
        assert len([key for key in server.keys(prefix) if key.startswith("journal/")]) <= 25


def test_counts_of_replicas_are_added_and_old_days_removed(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key = ("ann", "tool")
    with opened(address) as first, opened(address) as second:
        for day in ("2026-01-03", "2026-01-01", "2026-01-02", "2026-01-01"):
            first._backend.call_counts.add(day, {key: [1, 0, 10, 1]})
            second._backend.call_counts.add(day, {key: [2, 0, 20, 2]})
        expected = [("2026-01-03", [3, 0, 30, 3]), ("2026-01-02", [3, 0, 30, 3]), ("2026-01-01", [6, 0, 60, 6])]
        assert [(day, rows[key]) for day, rows in first._backend.call_counts.read()] == expected
        monkeypatch.setattr(object_counts, "_MAX_DAYS", 2)
        first.sweep()
        assert [(day, rows[key]) for day, rows in second._backend.call_counts.read()] == expected[:2]
