"""The async versions of methods that block: they run in threads, and a cancelled put leaves nothing stored."""

import threading
from collections.abc import AsyncIterable, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from typing_extensions import Buffer

from forebay.store.payload import Payload
from forebay.store.threads import start_in_thread

__all__ = ["make_async", "put_in_thread"]

# asyncio is imported inside functions, because `forebay wrap` starts without it.

_END_OF_CHUNKS: Final = object()

_P = ParamSpec("_P")
_S = TypeVar("_S")
_T = TypeVar("_T")


def make_async(method: Callable[Concatenate[_S, _P], _T]) -> Callable[Concatenate[_S, _P], Coroutine[Any, Any, _T]]:
    """Return an async version of a method: it runs the method, or its override in a subclass, in a thread."""

    async def run_method(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        import asyncio

        bound_method: Callable[_P, _T] = getattr(self, method.__name__)
        return await asyncio.to_thread(bound_method, *args, **kwargs)

    run_method.__name__, run_method.__doc__ = f"{method.__name__}_async", f"Run `{method.__name__}` in a thread."
    return run_method


async def put_in_thread(
    payload: "Payload | AsyncIterable[Buffer]",
    put: Callable[[Payload, Callable[[int], None]], _T],
    delete: Callable[[_T], None],
    progress: Callable[[int], None] | None,
) -> _T:
    """Call `put` in a thread with a payload and a function that reports progress, and return its result.

    If the caller is cancelled, the put stops at its next report or chunk. If that is too late, `delete` is called with
    the result.
    """
    import asyncio

    is_cancelled = False
    chunks = _BlockingChunks(payload) if isinstance(payload, AsyncIterable) else None

    def report_progress(stored_bytes: int) -> None:
        if is_cancelled:
            raise CancelledError
        if progress is not None:
            progress(stored_bytes)

    def delete_stored(future: "Future[_T]") -> None:
        if not future.cancelled() and future.exception() is None:
            delete(future.result())

    # Not in a pool: `put` waits for chunks, which may be produced by threads of the same pool.
    future = start_in_thread(lambda: put(payload if chunks is None else chunks, report_progress))
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        # The thread continues: stop it at the next chunk, or delete the payload that it has stored.
        is_cancelled = True
        if chunks is not None:
            chunks.cancel()
        future.add_done_callback(delete_stored)
        raise


class _BlockingChunks(Iterator[Buffer]):
    """Blocking iterator, used in a thread, over the chunks that an async iterable produces in the event loop."""

    def __init__(self, chunks: AsyncIterable[Buffer]) -> None:
        import asyncio

        self._chunks = aiter(chunks)
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._pending: Future[object] | None = None
        self._is_cancelled = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Buffer:
        import asyncio

        with self._lock:
            if self._is_cancelled:
                raise CancelledError
            self._pending = asyncio.run_coroutine_threadsafe(self._next_chunk(), self._loop)
        chunk = self._pending.result()
        if chunk is _END_OF_CHUNKS:
            raise StopIteration
        return chunk  # type: ignore[return-value]

    async def _next_chunk(self) -> object:
        return await anext(self._chunks, _END_OF_CHUNKS)

    def cancel(self) -> None:
        """Raise `CancelledError` in the iterating thread, even while it waits for a chunk."""
        with self._lock:
            self._is_cancelled = True
            if self._pending is not None:
                self._pending.cancel()
