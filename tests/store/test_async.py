"""The async methods of a store, and the threads they run in."""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import forebay
import pytest
from forebay import InvalidArgument, Store
from forebay.store.backends.local import LocalUpload
from forebay.store.entries import Entry
from forebay.store.threads import run_in_thread, start_in_thread
from stores import payload_files, store_at, whole
from waiting import wait_until


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with store_at(tmp_path / "store") as store:
        yield store


def test_every_blocking_method_has_an_async_version(store: Store) -> None:
    async def run_calls() -> None:
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

    asyncio.run(run_calls())


@pytest.mark.slow
def test_concurrent_puts_do_not_mix_payloads(store: Store) -> None:
    async def run_calls() -> None:
        payloads = [b"%d" % size * size for size in range(0, 400_000, 12_347)]
        descriptors = await asyncio.gather(*(store.put_async(payload) for payload in payloads))
        assert [whole(store, descriptor.output_handle) for descriptor in descriptors] == payloads

    asyncio.run(run_calls())


def test_put_async_takes_an_async_iterator(store: Store) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for number in range(5):
            await asyncio.sleep(0)
            yield b"%d" % number * 500_000

    async def run_calls() -> str:
        return (await store.put_async(chunks())).output_handle

    assert whole(store, asyncio.run(run_calls())) == b"".join(b"%d" % number * 500_000 for number in range(5))


def test_an_error_in_awaited_chunks_is_raised_in_the_caller(store: Store, tmp_path: Path) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"first"
        raise LookupError("no second")

    async def run_calls() -> None:
        with pytest.raises(LookupError, match="no second"):
            await store.put_async(chunks())

    asyncio.run(run_calls())
    assert payload_files(tmp_path / "store") == []


def test_put_refuses_an_async_iterator(store: Store) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b""

    with pytest.raises(InvalidArgument, match="put_async"):
        store.put(chunks())


def test_a_cancelled_put_stores_nothing(store: Store, tmp_path: Path) -> None:
    async def endless(is_reading: asyncio.Event) -> AsyncIterator[bytes]:
        while True:
            yield b"chunk" * 100_000
            is_reading.set()
            await asyncio.sleep(0)

    async def never(is_reading: asyncio.Event) -> AsyncIterator[bytes]:
        yield b"first"
        is_reading.set()
        await asyncio.Event().wait()

    def slow() -> Iterator[bytes]:
        yield b"first"
        entered.set()
        leave.wait()
        yield b"last"

    entered, leave = threading.Event(), threading.Event()

    async def run_calls() -> None:
        for chunks in (endless, never):
            is_reading = asyncio.Event()
            putting = asyncio.create_task(store.put_async(chunks(is_reading)))
            await is_reading.wait()
            putting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await putting
        putting = asyncio.create_task(store.put_async(slow()))
        await asyncio.to_thread(entered.wait)
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting
        leave.set()

    asyncio.run(run_calls())
    wait_until_empty(tmp_path / "store")


def wait_until_empty(root: Path) -> None:
    """Wait for the thread of a cancelled put to remove what it has written."""
    wait_until(lambda: not payload_files(root), 30)


def is_thread_running() -> bool:
    return any(thread.name == "forebay-call" for thread in threading.enumerate())


def test_a_put_that_was_done_before_it_was_cancelled_is_undone(store: Store, tmp_path: Path) -> None:
    async def run_calls() -> None:
        putting = asyncio.create_task(store.put_async(b"payload"))
        await asyncio.sleep(0)
        # These block the loop, so that it does not see the result before the cancellation.
        wait_until(lambda: list(store.list()), 30)
        wait_until(lambda: not is_thread_running(), 30)
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting

    asyncio.run(run_calls())
    wait_until_empty(tmp_path / "store")


def test_awaited_chunks_may_need_threads_themselves(store: Store) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield await asyncio.to_thread(bytes, 1000)

    async def run_calls() -> list[int]:
        puts = [store.put_async(chunks()) for _ in range(40)]
        return [descriptor.size_bytes for descriptor in await asyncio.wait_for(asyncio.gather(*puts), 60)]

    assert asyncio.run(run_calls()) == [3000] * 40


def test_an_awaited_chunk_of_none_is_refused(store: Store, tmp_path: Path) -> None:
    async def chunks() -> AsyncIterator[Any]:
        yield b"first"
        yield None
        yield b"last"

    async def run_calls() -> None:
        with pytest.raises(InvalidArgument, match="a chunk of a payload is bytes or text, not NoneType"):
            await store.put_async(chunks())

    asyncio.run(run_calls())
    assert payload_files(tmp_path / "store") == []


def test_a_put_that_was_cancelled_too_late_is_undone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed, leave = threading.Event(), threading.Event()
    commit = LocalUpload.commit

    def committing(self: LocalUpload, extension: str, limits: Mapping[str, int | None], entry: Entry) -> None:
        commit(self, extension, limits, entry)
        committed.set()
        leave.wait()

    monkeypatch.setattr(LocalUpload, "commit", committing)

    async def run_calls() -> None:
        putting = asyncio.create_task(store.put_async(b"payload"))
        await asyncio.to_thread(committed.wait)
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting
        leave.set()

    asyncio.run(run_calls())
    wait_until_empty(tmp_path / "store")
    monkeypatch.undo()
    assert store.put(b"payload").size_bytes == 7


def test_put_async_has_the_parameters_of_put(store: Store) -> None:
    put, put_async = (inspect.signature(method).parameters for method in (Store.put, Store.put_async))
    assert list(put) == list(put_async)
    assert [put[name] for name in put if name != "payload"] == [put_async[name] for name in put if name != "payload"]

    async def run_calls() -> None:
        descriptor = await store.put_async(b"payload", handle_length=26, principal="ann", ttl=60)
        assert len(descriptor.output_handle) == len("oh_") + 26
        with pytest.raises(InvalidArgument, match="progress must be a function of the bytes done, not 3"):
            await store.put_async(b"payload", progress=3)  # type: ignore[arg-type]

    asyncio.run(run_calls())


def test_async_methods_call_the_overrides_of_a_subclass(store: Store) -> None:
    calls = []

    class RecordingStore(Store):
        def put(self, *args: Any, **options: Any) -> forebay.Descriptor:
            calls.append("put")
            return super().put(*args, **options)

        def fetch(self, *args: Any, **options: Any) -> forebay.Page:
            calls.append("fetch")
            return super().fetch(*args, **options)

    recording_store = RecordingStore(store._backend, store.options)

    async def put_and_fetch() -> bytes | str:
        handle = (await recording_store.put_async(b"payload")).output_handle
        return (await recording_store.fetch_async(handle)).content

    assert asyncio.run(put_and_fetch()) == "payload"
    assert calls == ["put", "fetch"]


def test_a_function_in_a_thread_has_the_caller_s_context_and_raises_its_own_errors() -> None:
    variable = contextvars.ContextVar[str]("variable")
    variable.set("of the caller")
    assert asyncio.run(run_in_thread(variable.get)) == "of the caller"

    def fail() -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        asyncio.run(run_in_thread(fail))


def test_a_stop_iteration_in_a_thread_does_not_leave_the_caller_waiting() -> None:
    def fail() -> None:
        raise StopIteration("the end")

    with pytest.raises(RuntimeError, match="StopIteration was raised: the end"):
        asyncio.run(run_in_thread(fail))


def test_a_cancelled_caller_leaves_the_thread_running() -> None:
    entered, leave, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        entered.set()
        leave.wait()
        done.set()

    async def run_calls() -> None:
        working = asyncio.create_task(run_in_thread(work, daemon=True))
        await asyncio.to_thread(entered.wait)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    asyncio.run(run_calls())
    leave.set()
    assert done.wait(30)


@pytest.mark.parametrize("daemon", [False, True])
def test_only_a_daemon_thread_is_not_waited_for_at_exit(daemon: bool) -> None:
    assert start_in_thread(lambda: threading.current_thread().daemon, daemon=daemon).result(30) is daemon
