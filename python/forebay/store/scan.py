"""Reading all items of a view in chunks, decompressed by threads, in bounded memory."""

import collections
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from forebay._core import Chunk, ItemIndex
from forebay.store.reader import View

__all__ = ["CHUNK_BYTES", "iter_chunks", "map_chunks", "read_chunk"]

CHUNK_BYTES = 1 << 20
"""Target size of a chunk. A larger item makes its chunk larger."""

_THREADS = 2
"""Number of threads that read and process chunks."""

_T = TypeVar("_T")


def iter_chunks(index: ItemIndex, first_block: int = 0) -> Iterator[Chunk]:
    """Return the chunks that the items are in, in order, from a block on."""
    while (chunk := index.chunk(first_block, CHUNK_BYTES)) is not None:
        yield chunk
        first_block += chunk.block_count


def read_chunk(view: View, chunk: Chunk) -> memoryview:
    """Read the bytes of a chunk."""
    return view.read(chunk.start - view.origin, chunk.end - view.origin)


def map_chunks(view: View, index: ItemIndex, process: Callable[[memoryview, Chunk], _T]) -> Iterator[_T]:
    """Apply a function to the bytes of every chunk, in threads, and return the results in order.

    At most one chunk more than there are threads is in memory. Close the iterator before the view is closed.
    """

    def read_and_process(chunk: Chunk) -> _T:
        return process(read_chunk(view, chunk), chunk)

    chunks = iter_chunks(index)
    if index.end - index.start <= CHUNK_BYTES:
        yield from map(read_and_process, chunks)
        return
    window: collections.deque[Future[_T]] = collections.deque()
    with ThreadPoolExecutor(_THREADS, "forebay-scan") as pool:
        try:
            for chunk in chunks:
                window.append(pool.submit(read_and_process, chunk))
                if len(window) > _THREADS:
                    yield window.popleft().result()
            while window:
                yield window.popleft().result()
        finally:
            for future in window:
                future.cancel()
