"""The journal: its events, and its bounds."""

import logging
import subprocess
import sys
from pathlib import Path

import forebay
import pytest
from forebay.outputs.contract import store_artifact
from forebay.store.backends.filesystem import Folders
from forebay.store.backends.local_log import LocalLog
from forebay.store.journal import Journal
from on_wine import IS_WINE
from stores import Clock, events, store_at, whole


def test_the_journal_records_events(tmp_path: Path, clock: Clock) -> None:
    with store_at(tmp_path / "store", clock=clock) as store:
        descriptor = store.put([1, 2, 3], source_tool="numbers")
        mine = descriptor.output_handle
        anns = store.put("x" * 1000, source_tool="letters", principal="ann").output_handle
        store.fetch(mine)
        store.fetch(anns, principal="ann", limit=10)
        store.delete(mine)
        recorded = store.journal.recent()
        assert [event["event"] for event in recorded] == [
            "output_handle_deleted",
            "output_handle_fetched",
            "output_handle_fetched",
            "output_handle_created",
            "output_handle_created",
        ]
        assert recorded[-1] == {
            "event": "output_handle_created", "handle": mine, "source_tool": "numbers", "size_bytes": 7,
            "mime_type": "application/json", "principal": None, "ts": "2027-01-15T08:00:00Z",
            "shown_bytes": len(descriptor.to_json()),
        }  # fmt: skip
        assert len(store.journal.recent(2)) == 2
        assert {event["handle"] for event in store.journal.recent(principal="ann", is_operator=False)} == {anns}
        assert {event["handle"] for event in store.journal.recent(principal=None, is_operator=False)} == {mine}
        assert store.journal.recent(principal="bob", is_operator=False) == []


def test_the_journal_records_every_kind_of_read(tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store:
        handle = store.put([{"id": 1}], principal="ann").output_handle
        found = store.search(handle, "id", principal="ann")
        store.get(handle, "/0/id", principal="ann")
        shape = store.outline(handle, principal="ann")
        whole(store, handle)
        recorded = [event for event in store.journal.recent() if event["event"] != "output_handle_created"]
        assert {event["handle"] for event in recorded} == {handle}
        assert {event["principal"] for event in recorded} == {"ann"}
        assert [event["event"] for event in recorded] == ["output_handle_opened", *["output_handle_fetched"] * 3]
        assert [(event["format"], event["returned_bytes"]) for event in recorded[1:]] == [
            ("outline", len(shape.encode())), ("value", 1), ("search", len(found.to_json())),
        ]  # fmt: skip
        assert store.journal.summary()["pages_read"] == 3


def test_the_journal_records_refused_handles(tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store:
        anns = store.put("hers", principal="ann").output_handle
        for handle in (anns, "oh_AAAAAAAAAAAA", "../" * 100_000):
            with pytest.raises(forebay.HandleNotFound):
                store.fetch(handle, principal="bob")
        recorded = events(store, "output_handle_refused")
        assert [event["handle"] for event in recorded] == [None, "oh_AAAAAAAAAAAA", anns]
        assert {(event["principal"], event["code"]) for event in recorded} == {("bob", "output_handle_not_found")}


def test_many_refused_handles_do_not_push_other_events_out_of_the_journal(tmp_path: Path, clock: Clock) -> None:
    with store_at(tmp_path / "store", clock=clock) as store:
        for _ in range(500):
            with pytest.raises(forebay.HandleNotFound):
                store.fetch("oh_AAAAAAAAAAAA")
        assert len(events(store, "output_handle_refused")) == 20
        clock.now += 1
        with pytest.raises(forebay.HandleNotFound):
            store.fetch("oh_AAAAAAAAAAAA")
        assert len(events(store, "output_handle_refused")) == 21


@pytest.mark.parametrize("name", ["source_tool", "principal"])
def test_a_name_that_is_too_long_is_refused(name: str, tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store:
        assert store.put(b"", **{name: "n" * 1024}).size_bytes == 0  # type: ignore[arg-type]
        with pytest.raises(forebay.InvalidArgument, match=f"{name} is at most 1024 characters") as refused:
            store.put(b"", **{name: "n" * 1025})  # type: ignore[arg-type]
        assert len(str(refused.value)) < 200


def test_a_clock_set_back_does_not_lose_the_file_in_use(tmp_path: Path, clock: Clock) -> None:
    folders = Folders(tmp_path / "store")
    log = LocalLog(folders, clock, max_files=3)
    journal = Journal(log, clock)
    for _ in range(5):
        clock.now += 24 * 3600
        journal.record("before")
    clock.now -= 30 * 24 * 3600
    for number in range(3):
        journal.record("after", number=number)
    numbers = [event["number"] for event in journal.recent() if event["event"] == "after"]
    assert numbers == [2, 1, 0]
    log.close()
    folders.close()


def test_the_summary_adds_up(tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store:
        descriptors = [
            store.put("é" * 10_000, source_tool="a"),
            store.put("y" * 500, source_tool="a", principal="ann"),
            store.put("z" * 100, source_tool="b"),
        ]
        store.fetch(descriptors[0].output_handle, limit=400)
        summary = store.journal.summary()
        assert (summary["handles"], summary["bytes_stored"], summary["pages_read"]) == (3, 20_600, 1)
        # Descriptors are read too, not only pages.
        kept = 20_600 - 400 - sum(len(descriptor.to_json()) for descriptor in descriptors)
        assert (summary["bytes_kept_out"], summary["tokens_kept_out"]) == (kept, kept // 4)
        assert summary["by_tool"] == {"a": {"handles": 2, "bytes": 20_500}, "b": {"handles": 1, "bytes": 100}}
        summary = store.journal.summary(principal="ann", is_operator=False)
        assert (summary["handles"], summary["bytes_stored"], summary["pages_read"]) == (1, 500, 0)


def test_the_summary_groups_artifacts_by_their_domain(tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store:
        for number in range(3):
            store_artifact("trace", f"run {number}", "x" * 100, store=store)
        store.put("y" * 100, source_tool="ax://")
        groups = {"ax://": {"handles": 1, "bytes": 100}, "ax://trace": {"handles": 3, "bytes": 300}}
        assert store.journal.summary()["by_tool"] == groups


WRITE = """
import sys, forebay
with forebay.open_store(sys.argv[1], sweep_interval=0) as store:
    for number in range(400):
        store.journal.record("written", principal=sys.argv[2], number=number, padding="x" * number)
"""


@pytest.mark.slow
@pytest.mark.xfail(IS_WINE, reason="Wine looks for the end of a file before it appends, and others may write meanwhile")
def test_several_processes_write_one_journal(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    writers = [subprocess.Popen([sys.executable, "-c", WRITE, url, str(name)]) for name in range(4)]
    assert [writer.wait() for writer in writers] == [0] * 4
    with store_at(tmp_path / "store") as store:
        for name in range(4):
            recorded = store.journal.recent(1000, principal=str(name), is_operator=False)
            assert [event["number"] for event in recorded] == list(reversed(range(400)))


def test_a_journal_is_bounded_and_keeps_the_newest(tmp_path: Path, clock: Clock) -> None:
    folders = Folders(tmp_path / "store")
    log = LocalLog(folders, clock, max_file_bytes=2000, max_files=3)
    journal = Journal(log, clock)
    for number in range(1000):
        clock.now += 600 if number % 10 == 0 else 0
        journal.record("counted", number=number)
        assert len(list((tmp_path / "store" / "journal").iterdir())) <= 3
    sizes = [path.stat().st_size for path in (tmp_path / "store" / "journal").iterdir()]
    assert max(sizes) < 2000 + 200
    numbers = [event["number"] for event in journal.recent(1000)]
    assert numbers == list(range(999, 999 - len(numbers), -1))
    assert len(numbers) > 20
    log.close()
    folders.close()


def test_a_journal_has_a_file_a_day(tmp_path: Path, clock: Clock) -> None:
    with store_at(tmp_path / "store", clock=clock) as store:
        for _ in range(3):
            store.journal.record("day")
            clock.now += 24 * 3600
    names = sorted(path.name for path in (tmp_path / "store" / "journal").iterdir())
    assert names == ["2027-01-15.jsonl", "2027-01-16.jsonl", "2027-01-17.jsonl"]


def test_torn_lines_are_skipped(tmp_path: Path, clock: Clock) -> None:
    with store_at(tmp_path / "store", clock=clock) as store:
        store.journal.record("first")
        (path,) = (tmp_path / "store" / "journal").iterdir()
        for torn in (b'{"event": "half', b"\n\xff\xfe\n", b"[1,2]\n", b"null\n", b"\n"):
            with path.open("ab") as file:
                file.write(torn)
        store.journal.record("second")
        with path.open("ab") as file:
            file.write(
                b'{"event":"output_handle_created","size_bytes":"x","shown_bytes":"y"}\n{"event":"output_handle_f'
            )
        assert [event["event"] for event in store.journal.recent()][1:] == ["second", "first"]
        assert store.journal.summary()["bytes_stored"] == 0


def test_a_torn_last_line_does_not_damage_the_next_event(tmp_path: Path, clock: Clock) -> None:
    with store_at(tmp_path / "store", clock=clock) as store:
        store.journal.record("first")
    (path,) = (tmp_path / "store" / "journal").iterdir()
    with path.open("ab") as file:
        file.write(b'{"event": "half')
    with store_at(tmp_path / "store", clock=clock) as store:
        store.journal.record("second")
        assert [event["event"] for event in store.journal.recent()] == ["second", "first"]


def test_a_journal_that_cannot_be_written_does_not_fail_a_put(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o700)
    (tmp_path / "store" / "journal").write_text("a file where the folder should be")
    with store_at(tmp_path / "store") as store:
        assert whole(store, store.put(b"x").output_handle) == b"x"
        assert store.journal.recent() == []


def test_a_principal_that_stores_much_causes_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "forebay"), store_at(tmp_path / "store", warn_bytes=1000) as store:
        store.put(b"x" * 600, principal="ann")
        store.put(b"x" * 600, principal="bob")
        assert caplog.records == []
        for _ in range(3):
            store.put(b"x" * 600, principal="ann")
        assert [record.getMessage() for record in caplog.records] == [
            "forebay: principal 'ann' has stored 1,200 bytes, more than warn_bytes=1,000"
        ]
        assert [event["principal"] for event in events(store, "store_warning")] == ["ann"]
    assert forebay.Options().warn_bytes == 100_000_000
