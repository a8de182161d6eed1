"""Large payloads without compression: one thread surveys a chunk while the caller writes another."""

import errno
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from failing_os import FailingCall
from faults import assert_tidy, opened, redeem
from forebay import OPERATOR, Store, StoreFull
from forebay.store.frames import FRAME_BYTES
from forebay.store.payload import CHUNK_BYTES

RECORD = b'{"number": %7d, "text": "some text"}'
COUNT = 300_000
RECORDS = b"[" + b",".join(RECORD % number for number in range(COUNT)) + b"]"
"""A payload of more chunks than are in memory at a time."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    with opened(root, compression="none") as store:
        yield store


def is_surveying() -> bool:
    return any(thread.name.startswith("forebay-survey") for thread in threading.enumerate())


@pytest.mark.parametrize("is_stream", [False, True])
def test_chunks_are_written_and_indexed_in_order(store: Store, *, is_stream: bool) -> None:
    descriptor = store.put(iter([RECORDS]) if is_stream else RECORDS)
    assert redeem(store, descriptor.output_handle) == RECORDS
    assert descriptor.item_count == COUNT
    page = store.fetch(descriptor.output_handle, offset=COUNT - 2, limit=2)
    assert page.content == b"[%s,%s]" % (RECORD % (COUNT - 2), RECORD % (COUNT - 1))


@pytest.mark.posix
def test_a_disk_that_is_full_at_any_write_keeps_nothing_of_the_payload(root: Path, store: Store) -> None:
    kept = store.put(b"kept").output_handle
    for number in itertools.count(1):
        failing = FailingCall("writev", number, error_number=errno.ENOSPC)
        with failing.inject():
            if number > len(RECORDS) // CHUNK_BYTES + 2:
                store.put(RECORDS)
                assert not failing.has_failed
                break
            with pytest.raises(StoreFull):
                store.put(RECORDS)
        assert not is_surveying()
        assert list((root / ".partial").iterdir()) == []
        assert [stored.output_handle for stored in store.list(principal=OPERATOR)] == [kept]
    assert number > 10
    store.close()
    assert_tidy(root)


@pytest.mark.parametrize("stops_at", [1, 5 * CHUNK_BYTES])
def test_a_put_that_is_stopped_leaves_no_thread_and_no_file(stops_at: int, root: Path, store: Store) -> None:
    def stop(done: int) -> None:
        if done >= stops_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.put(RECORDS, progress=stop)
    assert not is_surveying()
    assert list((root / ".partial").iterdir()) == []
    assert list(store.list(principal=OPERATOR)) == []


def test_only_a_payload_of_several_frames_starts_a_thread(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    start = threading.Thread.start

    def record(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", record)
    store.put(RECORDS[:FRAME_BYTES])
    assert started == []
    store.put(RECORDS)
    assert len(started) == 1
    assert started[0].startswith("forebay-survey")
