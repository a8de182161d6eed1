"""Between code that waits and code that is awaited."""

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Self

from typing_extensions import Buffer

__all__ = ["Pulled"]


class Pulled(Iterator[Buffer]):
    """Chunks that are awaited on the loop this is made on, for another thread to iterate over."""

    def __init__(self, chunks: AsyncIterator[Buffer]) -> None:
        self._chunks = chunks
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._waiting: concurrent.futures.Future[Buffer | None] | None = None
        self._is_abandoned = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Buffer:
        with self._lock:
            if self._is_abandoned:
                raise concurrent.futures.CancelledError
            self._waiting = asyncio.run_coroutine_threadsafe(self._pull(), self._loop)
        chunk = self._waiting.result()
        if chunk is None:
            raise StopIteration
        return chunk

    async def _pull(self) -> Buffer | None:
        return await anext(self._chunks, None)

    def abandon(self) -> None:
        """Ends the thread's waiting: the next chunk may never come."""
        with self._lock:
            self._is_abandoned = True
            if self._waiting is not None:
                self._waiting.cancel()
