"""Stores that are awaited."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import forebay
import pytest
from forebay import InvalidArgument, Store
from forebay.store.backends.local import LocalUpload
from stores import payload_files, store_at, whole


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with store_at(tmp_path / "store") as store:
        yield store


def test_every_method_that_waits_can_be_awaited(store: Store) -> None:
    async def all_of_it() -> None:
        handle = (await store.put_async([{"id": 1}, {"id": 2}])).output_handle
        assert (await store.fetch_async(handle, limit=1)).content == b'[{"id":1}]'
        assert len((await store.search_async(handle, "id")).matches) == 2
        assert await store.outline_async(handle) == "[{id: int}] ×2"
        assert await store.get_async(handle, "/1/id") == b"2"
        assert handle in {stored.output_handle for stored in await store.list_async()}
        with await store.open_async(handle) as file:
            assert file.read() == b'[{"id":1},{"id":2}]'
        assert (await store.stat_async(handle)).item_count == 2
        await store.delete_async(handle)
        with pytest.raises(forebay.HandleNotFound):
            await store.stat_async(handle)
        assert (await store.sweep_async()).corrupt == ()

    asyncio.run(all_of_it())


@pytest.mark.slow
def test_many_puts_at_once_do_not_cross(store: Store) -> None:
    async def all_of_it() -> None:
        payloads = [b"%d" % size * size for size in range(0, 400_000, 12_347)]
        made = await asyncio.gather(*(store.put_async(payload) for payload in payloads))
        assert [whole(store, descriptor.output_handle) for descriptor in made] == payloads

    asyncio.run(all_of_it())


def test_chunks_may_be_awaited(store: Store) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for number in range(5):
            await asyncio.sleep(0)
            yield b"%d" % number * 500_000

    async def all_of_it() -> str:
        return (await store.put_async(chunks())).output_handle

    assert whole(store, asyncio.run(all_of_it())) == b"".join(b"%d" % number * 500_000 for number in range(5))


def test_an_error_in_awaited_chunks_is_the_caller_s(store: Store, tmp_path: Path) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"first"
        raise LookupError("no second")

    async def all_of_it() -> None:
        with pytest.raises(LookupError, match="no second"):
            await store.put_async(chunks())

    asyncio.run(all_of_it())
    assert payload_files(tmp_path / "store") == []


def test_awaited_chunks_are_not_for_a_put_that_waits(store: Store) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b""

    with pytest.raises(InvalidArgument, match="put_async"):
        store.put(chunks())


def test_a_cancelled_put_stores_nothing(store: Store, tmp_path: Path) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"chunk" * 100_000
            await asyncio.sleep(0)

    async def never() -> AsyncIterator[bytes]:
        yield b"first"
        await asyncio.Event().wait()

    def slow() -> Iterator[bytes]:
        yield b"first"
        entered.set()
        leave.wait()
        yield b"last"

    entered, leave = threading.Event(), threading.Event()

    async def all_of_it() -> None:
        for chunks in (endless(), never()):
            putting = asyncio.create_task(store.put_async(chunks))
            await asyncio.sleep(0.05)
            putting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await putting
        putting = asyncio.create_task(store.put_async(slow()))
        await asyncio.to_thread(entered.wait)
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting
        leave.set()

    asyncio.run(all_of_it())
    wait_until_empty(tmp_path / "store")


def wait_until_empty(root: Path) -> None:
    """What was given up on ends in a thread of its own."""
    deadline = time.monotonic() + 30
    while payload_files(root) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert payload_files(root) == []


def test_a_put_that_was_done_before_it_was_cancelled_is_undone(store: Store, tmp_path: Path) -> None:
    async def all_of_it() -> None:
        putting = asyncio.create_task(store.put_async(b"payload"))
        await asyncio.sleep(0)
        deadline = time.monotonic() + 30
        # The loop is busy, and hears of nothing.
        while not list(store.list()) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting

    asyncio.run(all_of_it())
    wait_until_empty(tmp_path / "store")


def test_awaited_chunks_may_need_threads_themselves(store: Store) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield await asyncio.to_thread(bytes, 1000)

    async def all_of_it() -> list[int]:
        puts = [store.put_async(chunks()) for _ in range(40)]
        return [made.size_bytes for made in await asyncio.wait_for(asyncio.gather(*puts), 60)]

    assert asyncio.run(all_of_it()) == [3000] * 40


def test_an_awaited_chunk_of_nothing_is_no_end(store: Store, tmp_path: Path) -> None:
    async def chunks() -> AsyncIterator[Any]:
        yield b"first"
        yield None
        yield b"last"

    async def all_of_it() -> None:
        with pytest.raises(InvalidArgument, match="a chunk of a payload is bytes or text, not NoneType"):
            await store.put_async(chunks())

    asyncio.run(all_of_it())
    assert payload_files(tmp_path / "store") == []


def test_a_put_that_was_cancelled_too_late_is_undone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed, leave = threading.Event(), threading.Event()
    commit = LocalUpload.commit

    def committing(self: LocalUpload, extension: str) -> None:
        commit(self, extension)
        committed.set()
        leave.wait()

    monkeypatch.setattr(LocalUpload, "commit", committing)

    async def all_of_it() -> None:
        putting = asyncio.create_task(store.put_async(b"payload"))
        await asyncio.to_thread(committed.wait)
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting
        leave.set()

    asyncio.run(all_of_it())
    wait_until_empty(tmp_path / "store")
    monkeypatch.undo()
    assert store.put(b"payload").size_bytes == 7
