"""Between code that waits and code that is awaited."""

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterable, Callable, Iterator
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Final, Self, TypeVar

from typing_extensions import Buffer

__all__ = ["BlockingChunks", "ForkSafeLock", "start_in_thread"]

_T = TypeVar("_T")

_END: Final = object()


def start_in_thread(work: Callable[[], _T]) -> "Future[_T]":
    """What `work` answers, in a thread of its own: it may wait for something that needs one of a pool's."""
    working: Future[_T] = Future()

    def run() -> None:
        if not working.set_running_or_notify_cancel():
            return
        try:
            working.set_result(work())
        except BaseException as error:
            working.set_exception(error)

    threading.Thread(target=run, name="forebay-put").start()
    return working


class BlockingChunks(Iterator[Buffer]):
    """Chunks that are awaited on the loop this is made on, for another thread to iterate over."""

    def __init__(self, chunks: AsyncIterable[Buffer]) -> None:
        self._chunks = aiter(chunks)
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._pending: Future[object] | None = None
        self._is_cancelled = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Buffer:
        with self._lock:
            if self._is_cancelled:
                raise CancelledError
            self._pending = asyncio.run_coroutine_threadsafe(self._next_chunk(), self._loop)
        chunk = self._pending.result()
        if chunk is _END:
            raise StopIteration
        return chunk  # type: ignore[return-value]

    async def _next_chunk(self) -> object:
        return await anext(self._chunks, _END)

    def cancel(self) -> None:
        """Ends the thread's waiting: the next chunk may never come."""
        with self._lock:
            self._is_cancelled = True
            if self._pending is not None:
                self._pending.cancel()


class ForkSafeLock:
    """A lock between threads, which the thread that holds it may take again."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def reset(self) -> None:
        self._lock = threading.RLock()


_locks: "weakref.WeakSet[ForkSafeLock]" = weakref.WeakSet()


def _reset_locks() -> None:
    for lock in list(_locks):
        lock.reset()


os.register_at_fork(after_in_child=_reset_locks)
