"""What happens rarely: short writes and reads, leftovers of killed writers, odd arguments, names and times."""

import asyncio
import datetime
import io
import json
import logging
import os
import struct
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from pathlib import Path

import forebay
import pytest
from forebay import OPERATOR, ForebayError, HandleNotFound, InvalidArgument, InvalidFormat, Store, StoreUnavailable
from forebay.errors import FileRefTooLarge
from forebay.store import entries, frames
from forebay.store.async_methods import _BlockingChunks
from forebay.store.backends import TOTAL_ACCOUNT
from forebay.store.entries import Entry, EntryTable
from forebay.store.export import rows_to_csv, rows_to_objects
from forebay.store.handles import get_sidecar_handle, make_subject_principal
from forebay.store.threads import call_in_threads, start_in_thread
from forebay.system import files
from stores import Clock, noise, store_at, whole
from waiting import wait_until


@pytest.mark.posix
def test_a_store_that_is_no_folder_does_not_answer(tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store:
        store.check()
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        (tmp_path / "store").write_bytes(b"no folder")
        with pytest.raises(StoreUnavailable):
            store.check()


@pytest.mark.parametrize("is_locked", [False, True])
@pytest.mark.posix
def test_a_sidecar_is_written_over_what_a_killed_writer_left(is_locked: bool, tmp_path: Path) -> None:
    with store_at(tmp_path) as store:
        handle = store.put([1]).output_handle
        leftover = tmp_path / ".partial" / get_sidecar_handle(handle)
        leftover.write_bytes(b"cut")
        fd = os.open(leftover, os.O_RDONLY)
        try:
            if is_locked:
                # Its writer is alive.
                files.lock(fd, wait=False)
            with store.open_view(handle) as view:
                written = store.sidecars.write(view.footer.meta, {}, io.BytesIO(b"content"))  # type: ignore[attr-defined]
                assert written == (not is_locked)
        finally:
            os.close(fd)


def test_the_sidecar_of_a_payload_that_is_gone_does_not_stay(tmp_path: Path) -> None:
    with store_at(tmp_path) as store:
        handle = store.put([1]).output_handle
        with store.open_view(handle) as view:
            meta = view.footer.meta  # type: ignore[attr-defined]
        assert store.sidecars.write(meta, {}, io.BytesIO(b"content"))
        assert len([*store._backend.list()]) == 2
        store.sidecars.delete(meta)
        assert len([*store._backend.list()]) == 1
        store.delete(handle)
        assert not store.sidecars.write(meta, {}, io.BytesIO(b"content"))
        assert [*store._backend.list()] == []
        assert store._backend.usage([TOTAL_ACCOUNT]) == {TOTAL_ACCOUNT: 0}


@pytest.mark.posix
def test_reads_that_return_less_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, pread = noise(300_000), os.pread
    with store_at(tmp_path) as store:
        handle = store.put(data).output_handle
        monkeypatch.setattr(os, "pread", lambda fd, length, offset: pread(fd, min(length, 1000), offset))
        assert whole(store, handle) == data
        blob = store._backend.open(handle)
        with blob:
            # Beyond the end of a file that somebody has cut.
            assert len(blob.read(blob.size - 10, 5000)) == 10


@pytest.mark.posix
@pytest.mark.parametrize(("size", "count"), [(2000, 1), (300_000, 2)])
def test_a_small_file_is_read_with_its_footer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, count: int
) -> None:
    reads: list[int] = []
    pread = os.pread
    with store_at(tmp_path) as store:
        handle = store.put(noise(size)).output_handle

        def record(fd: int, length: int, offset: int) -> bytes:
            reads.append(length)
            return pread(fd, length, offset)

    with store_at(tmp_path) as store:
        monkeypatch.setattr(os, "pread", record)
        page = store.fetch(handle, format="bytes", max_bytes=10_000)
        assert page.returned > 1000
        # The journal reads one byte.
        assert len([length for length in reads if length > 1]) == count


@pytest.mark.posix
def test_a_folder_whose_inode_number_has_changed_is_still_used(tmp_path: Path) -> None:
    """An overlay file system may change the inode number of an open folder."""
    with store_at(tmp_path) as store:
        store.put([1])
        identities = store._backend.folders._identities  # type: ignore[attr-defined]
        assert identities
        identities.update(dict.fromkeys(identities, (0, 0)))
        assert whole(store, store.put(b"next").output_handle) == b"next"


@pytest.mark.posix
def test_accounts_that_are_removed_during_a_recount_stay_unknown(tmp_path: Path) -> None:
    with store_at(tmp_path) as store:
        store.put([1], principal="ann")
        recount = store._backend.begin_recount()
        for path in (tmp_path / ".usage").iterdir():
            path.unlink()
        assert [*recount.apply()] == []
        assert store._backend.usage([TOTAL_ACCOUNT]) == {}
        store.sweep()
        assert store._backend.usage([TOTAL_ACCOUNT])[TOTAL_ACCOUNT] > 0


@pytest.mark.posix
def test_what_is_written_in_part_is_not_counted_and_the_journal_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    with store_at(tmp_path) as store:
        store.put([1])
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[: len(data) // 2]))
            store.journal.record("output_handle_created", principal=None, handle="oh_AAAAAAAAAAAA")
            with pytest.raises(ForebayError):
                store._backend.call_counts.add("2027-01-15", {("ann", "tool"): [1, 2, 3, 4]})
        assert [*store._backend.call_counts.read()] == []
        store.journal.record("output_handle_expired", principal=None, handle="oh_BBBBBBBBBBBB")
        assert [event["event"] for event in store.journal.recent(2)][:1] == ["output_handle_expired"]


@pytest.mark.posix
def test_counts_wait_for_another_writer_only_for_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.store.backends.local_counts._LOCK_TIMEOUT_SECONDS", 0.02)
    with store_at(tmp_path) as store:
        store._backend.call_counts.add("2027-01-15", {("ann", "tool"): [1, 2, 3, 4]})
        folder_fd = os.open(tmp_path / "calls", os.O_RDONLY)
        fd = files.open_lock(folder_fd)
        files.lock(fd, wait=True)
        with pytest.raises(ForebayError):
            store._backend.call_counts.add("2027-01-15", {("ann", "tool"): [1, 2, 3, 4]})
        os.close(fd)
        os.close(folder_fd)


def test_a_clock_is_a_function(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="clock is a function that returns seconds"):
        store_at(tmp_path, clock=5)


@pytest.mark.posix
def test_a_home_of_a_user_that_is_none_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FOREBAY_STORE", raising=False)
    monkeypatch.setenv("FOREBAY_HOME", "~no-such-user/store")
    with pytest.raises(StoreUnavailable, match="leads nowhere"):
        forebay.open_store()


def test_an_asynchronous_put_reports_its_progress(tmp_path: Path) -> None:
    async def run(store: Store) -> list[int]:
        steps: list[int] = []
        await store.put_async(noise(3_000_000), progress=steps.append)
        return steps

    with store_at(tmp_path) as store:
        steps = asyncio.run(run(store))
    assert steps == sorted(steps)
    assert steps[-1] == 3_000_000


def test_chunks_are_not_asked_for_after_the_end_of_a_cancelled_put() -> None:
    async def produce() -> AsyncIterator[bytes]:
        yield b"one"
        raise AssertionError

    async def run() -> None:
        chunks = _BlockingChunks(produce())
        assert await asyncio.wrap_future(start_in_thread(lambda: next(chunks))) == b"one"
        chunks.cancel()
        with pytest.raises(CancelledError):
            next(chunks)

    asyncio.run(run())


def test_a_charset_that_is_none_is_found_out(tmp_path: Path) -> None:
    text = "Grüße und Küsse, und noch mehr Wörter. " * 200
    with store_at(tmp_path) as store:
        put = store.put(text.encode("windows-1252"), mime_type="text/plain; charset=no-such-charset")
        assert put.decoded_from == "windows-1252"
        assert whole(store, put.output_handle) == text.encode("windows-1252")


def test_entries_keep_their_principals_when_others_are_gone() -> None:
    table = EntryTable()
    handles = [
        f"oh_{number:012d}".replace("0", "A").replace("1", "B").replace("8", "C").replace("9", "D")
        for number in range(100)
    ]
    first = table.begin_sweep()
    for number, handle in enumerate(handles):
        table.add(handle, Entry(1, 2, number, f"p{number}"), first)
    second = table.begin_sweep()
    for handle in handles[::7]:
        table.see(handle, second)
    table.remove_unseen(second)
    assert {handle: (entry.size, entry.principal) for handle, entry in table} == {
        handle: (number, f"p{number}") for number, handle in [*enumerate(handles)][::7]
    }
    assert len(table._principals) == len(table) == 15


def test_the_bytes_of_a_handle_are_found_in_its_own_record_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "_BUCKETS", 1)
    table, handle, other = EntryTable(), "oh_ABCDEFGHIJKL", "oh_ZZZZZZZZZZZZ"
    # These times have the bytes of the handle.
    created_at, expires_at = struct.unpack("<dd", entries._pack_handle(handle).ljust(16, b"\0"))
    sweep = table.begin_sweep()
    table.add(other, Entry(created_at, expires_at, 1, None), sweep)
    assert table.see(handle, sweep) == (None, False)
    table.add(handle, Entry(3, 4, 5, "ann"), sweep)
    assert table.see(handle, sweep) == (Entry(3, 4, 5, "ann"), True)
    assert len(table) == 2


def test_a_footer_that_is_larger_than_the_first_read_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"id": number, "name": "x" * (number % 90)} for number in range(20_000)]
    with store_at(tmp_path) as store:
        handle = store.put(rows, source_tool="x" * 1000).output_handle
    expected = None
    for tail_bytes in (frames.TAIL_BYTES, 5000, 200, 40, 21):
        monkeypatch.setattr(frames, "TAIL_BYTES", tail_bytes)
        with store_at(tmp_path) as store:
            found = store.stat(handle), store.fetch(handle, offset=15_000, limit=3).content
            expected = expected or found
            assert found == expected


def test_odd_names_and_arguments(tmp_path: Path) -> None:
    assert repr(OPERATOR) == "OPERATOR"
    assert make_subject_principal("https://a", "ann") == '["subject", "https://a", "ann"]'
    long = make_subject_principal("https://a", "x" * 2000)
    assert (len(long), long.startswith("sha256:")) == (71, True)
    assert long != make_subject_principal("https://b", "x" * 2000)
    with store_at(tmp_path, clock=Clock(253_402_300_000.0)) as store:
        with pytest.raises(InvalidArgument, match="mime_type must be a text"):
            store.put(b"x", mime_type=5)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="after the year 9999"):
            store.put(b"x", ttl=1e6)


@pytest.mark.parametrize("value", [1, 2**70])
def test_keys_of_objects_may_be_dates(value: int, tmp_path: Path) -> None:
    with store_at(tmp_path) as store:
        handle = store.put({datetime.date(2027, 1, 15): value, 5: 1, None: 2}).output_handle
        assert json.loads(whole(store, handle)) == {"2027-01-15": value, "5": 1, "null": 2}


def test_objects_need_pydantic_only_if_they_are_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_core", None)
    with store_at(tmp_path) as store, pytest.raises(ForebayError, match="object"):
        store.put({"x": object()})


def test_a_search_needs_room_for_a_match(tmp_path: Path) -> None:
    with store_at(tmp_path) as store:
        handle = store.put(f"{'x' * 100_000}\nneedle {'y' * 100_000}\n").output_handle
        with pytest.raises(InvalidArgument):
            store.search(handle, "needle", max_bytes=1)
        with pytest.raises((InvalidFormat, InvalidArgument)):
            store.search(handle, "needle", fields=["a"])


def test_an_outline_needs_room_for_a_row(tmp_path: Path) -> None:
    with store_at(tmp_path) as store:
        handle = store.put("name,size\na,1\n" * 50, mime_type="text/csv").output_handle
        with pytest.raises(InvalidFormat, match="no row has an outline within max_bytes=30"):
            store.outline(handle, 30)


def test_items_with_very_many_fields_are_no_csv(tmp_path: Path) -> None:
    with store_at(tmp_path) as store:
        handle = store.put([{f"field {number}": number for number in range(5000)}]).output_handle
        with (
            store.open_export(handle, format="csv") as export,
            pytest.raises(InvalidArgument, match="too many for CSV"),
        ):
            b"".join(bytes(chunk) for chunk in export.chunks)


def test_items_with_many_fields_in_different_parts_are_no_csv(tmp_path: Path) -> None:
    items = [
        {**{f"{name} {number}": number for number in range(3000)}, "padding": "x" * 3_000_000} for name in ("a", "b")
    ]
    with store_at(tmp_path) as store:
        handle = store.put(items).output_handle
        with (
            store.open_export(handle, format="csv") as export,
            pytest.raises(InvalidArgument, match="too many for CSV"),
        ):
            b"".join(bytes(chunk) for chunk in export.chunks)


def test_a_binary_payload_has_no_text_to_redact(tmp_path: Path) -> None:
    data = noise(5000)
    with store_at(tmp_path, redact=["secret"]) as store:
        assert whole(store, store.put(data).output_handle) == data


def test_names_beside_the_items_that_are_no_text_have_no_paths(tmp_path: Path) -> None:
    raw = b'{"\\ud800":"%s","items":[%s]}' % (b"x" * 500, b",".join([b"1"] * 20_000))
    with store_at(tmp_path) as store:
        handle = store.put(raw, mime_type="application/json").output_handle
        page = store.fetch(handle, format="items", limit=2)
        assert (page.returned, page.total) == (2, 20_000)


def test_items_that_are_nested_too_deeply_are_not_searched_for_fields(tmp_path: Path) -> None:
    deep = b"[" * 1500 + b"]" * 1500
    with store_at(tmp_path) as store:
        handle = store.put(b'[{"x":%s},{"x":%s}]' % (deep, deep), mime_type="application/json").output_handle
        assert store.fetch(handle, where={"y": 1}).total == 0


@pytest.mark.parametrize(
    "payload",
    [
        {"data": {"rows": [{"id": number, "text": "y" * 100} for number in range(30_000)]}},
        {"data": {f"key {number}": {"id": number, "text": "y" * 100} for number in range(30_000)}},
        {f"key {number}": {"id": number, "text": "y" * 1_200_000} for number in range(3)},
        {f"key {number}": {"id": number, "text": "y" * 300_000} for number in range(9)},
    ],
    ids=["rows", "map", "very large entries", "large entries"],
)
def test_a_large_payload_is_outlined_by_its_first_items(payload: object, tmp_path: Path) -> None:
    with store_at(tmp_path) as store:
        outline = store.put(payload).outline
    assert outline is not None
    assert outline.startswith("{")


def test_a_function_is_called_with_each_argument_until_one_fails() -> None:
    called: list[int] = []
    call_in_threads(called.append, range(100), 4)
    assert sorted(called) == [*range(100)]
    call_in_threads(called.append, [], 4)

    def fail(number: int) -> None:
        called.append(number)
        raise LookupError(number)

    called.clear()
    with pytest.raises(LookupError):
        call_in_threads(fail, range(100), 4)
    assert len(called) <= 4


def test_a_function_whose_caller_is_gone_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: threads.append(thread))
    called: list[int] = []
    future = start_in_thread(lambda: called.append(1))
    assert future.cancel()
    threads[0].run()
    assert called == []


@pytest.mark.posix
def test_a_sweep_that_fails_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with forebay.open_store((tmp_path / "store").as_uri(), sweep_interval=0.01) as store:
        handle = store.put([1]).output_handle
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        (tmp_path / "store").write_bytes(b"no folder")
        wait_until(lambda: "a sweep failed" in caplog.text)
        thread = store._sweeper._thread
        assert thread is not None
        assert thread.is_alive()
        (tmp_path / "store").unlink()
        (tmp_path / "elsewhere").rename(tmp_path / "store")
        assert whole(store, handle) == b"[1]"
    assert caplog.text.count("a sweep failed") <= 2


def test_a_payload_that_another_process_deleted_is_evicted_once(tmp_path: Path) -> None:
    with store_at(tmp_path, quota_bytes=400_000, on_full="evict") as store, store_at(tmp_path) as other:
        handles = [store.put(noise(100_000, number)).output_handle for number in range(3)]
        other.delete(handles[0])
        store.put(noise(150_000, 4))
        store.put(noise(150_000, 5))
        kept = {output.output_handle for output in store.list()}
        assert handles[0] not in kept
        with pytest.raises(HandleNotFound):
            store.stat(handles[0])


@pytest.mark.slow
def test_the_rows_of_a_query_are_exported_in_each_format(tmp_path: Path) -> None:
    sql = "SELECT id, name AS id FROM items ORDER BY 1"
    with store_at(tmp_path) as store:
        handle = store.put([{"id": 1, "name": "a,b"}, {"id": 2, "name": None}]).output_handle
        expected = {
            "json": b'[{"id":1,"id_2":"a,b"},{"id":2,"id_2":null}]',
            "ndjson": b'{"id":1,"id_2":"a,b"}\n{"id":2,"id_2":null}\n',
            "csv": b'id,id_2\n1,"a,b"\n2,\n',
        }
        for name, content in expected.items():
            with store.open_export(handle, format=name, sql=sql) as export:
                assert b"".join(bytes(chunk) for chunk in export.chunks) == content
        assert rows_to_csv(store.query(handle, sql)) == expected["csv"]
        with pytest.raises(FileRefTooLarge, match="more than 10 bytes"):
            rows_to_objects(store.query(handle, sql), 10)
