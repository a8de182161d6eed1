"""Between code that waits and code that is awaited."""

import asyncio
import threading
from collections.abc import AsyncIterable, Callable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Final, Self, TypeVar

from typing_extensions import Buffer

__all__ = ["Pulled", "in_thread"]

_T = TypeVar("_T")

_END: Final = object()


def in_thread(work: Callable[[], _T]) -> "Future[_T]":
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


class Pulled(Iterator[Buffer]):
    """Chunks that are awaited on the loop this is made on, for another thread to iterate over."""

    def __init__(self, chunks: AsyncIterable[Buffer]) -> None:
        self._chunks = aiter(chunks)
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._waiting: Future[object] | None = None
        self._is_abandoned = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Buffer:
        with self._lock:
            if self._is_abandoned:
                raise CancelledError
            self._waiting = asyncio.run_coroutine_threadsafe(self._pull(), self._loop)
        chunk = self._waiting.result()
        if chunk is _END:
            raise StopIteration
        return chunk  # type: ignore[return-value]

    async def _pull(self) -> object:
        return await anext(self._chunks, _END)

    def abandon(self) -> None:
        """Ends the thread's waiting: the next chunk may never come."""
        with self._lock:
            self._is_abandoned = True
            if self._waiting is not None:
                self._waiting.cancel()
