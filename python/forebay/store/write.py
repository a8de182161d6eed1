"""From pieces of a payload to frames in a file: compressing, surveying and writing at the same time."""

import collections
import dataclasses
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import zstandard
from typing_extensions import Buffer

from forebay._core import Findings, Survey
from forebay.store.backends import Upload
from forebay.store.frames import FRAME, Entry, Frame, compressed_frame, raw_frame
from forebay.store.payload import is_compressed

__all__ = ["Written", "write_frames"]

_AHEAD = 8
"""How many pieces may be on their way at once: what bounds the memory."""

_SHORT = 3072
"""Payloads up to this size are written as they are: with what is said of them they fill a block of a disk anyway."""

_WORTHWHILE = 0.97
"""If the first frame shrinks by less than this, the others are written as they are."""

LEVEL = 1
"""Measured on 100 MB of records: levels -5, -1, 1, 2, 3 shrink it to 1/4.3, 1/4.9, 1/6.4, 1/6.4, 1/6.2 in 230, 269,
252, 272, 306 ms. In two threads a pool takes 126 ms for it, and zstandard's own (`multi_compress_to_buffer`) 244 ms by
pieces of 1 MB and 158 ms by 16 MB: they make their contexts anew for every call."""

_local = threading.local()


@dataclasses.dataclass(slots=True)
class Written:
    """What was written of a payload so far."""

    size: int = 0
    stored: int = 0
    frames: list[Entry] = dataclasses.field(default_factory=list)
    head: Buffer = b""
    """The first piece."""

    def add(self, frames: list[Frame]) -> list[Buffer]:
        """Counts these frames in; their parts, to be written one after the other."""
        parts: list[Buffer] = []
        for framed, entry in frames:
            parts += framed
            self.frames.append(entry)
            self.stored += entry.stored
            self.size += entry.plain
        return parts


def write_frames(
    pieces: Iterator[Buffer],
    survey: Survey,
    upload: Upload,
    *,
    compress: bool,
    pool: Callable[[], ThreadPoolExecutor],
    watch: Callable[[Written], None],
) -> tuple[Written, Findings, list[Buffer]]:
    """Writes all pieces but what is returned of the last, which is to be written together with what follows.

    `watch` is told after each piece that was written, and may raise to end it.
    """
    written = Written()
    first = next(pieces, None)
    if first is None:
        return written, survey.finish(), []
    written.head = first
    size = len(memoryview(first))
    compress = compress and size > _SHORT and not is_compressed(bytes(memoryview(first)[:16]))
    if size <= FRAME:
        # As short as this, it is also the last.
        survey.feed(first)
        parts = written.add([_frame(first, compress)])
        return written, survey.finish(), parts
    compress = compress and _shrinks(memoryview(first)[:FRAME])

    window: collections.deque[tuple[Future[list[Frame]], Future[None]]] = collections.deque()

    def drain() -> None:
        framed, surveyed = window.popleft()
        upload.write(written.add(framed.result()))
        surveyed.result()
        watch(written)

    # One thread, so that pieces are surveyed in order.
    with ThreadPoolExecutor(1, "forebay-survey") as surveyor:
        try:
            for piece in _chain(first, pieces):
                window.append((pool().submit(_frames, piece, compress), surveyor.submit(survey.feed, piece)))
                if len(window) > _AHEAD:
                    drain()
            while window:
                drain()
        finally:
            for framed, surveyed in window:
                framed.cancel()
                surveyed.cancel()
    return written, survey.finish(), []


def _chain(first: Buffer, rest: Iterator[Buffer]) -> Iterator[Buffer]:
    yield first
    yield from rest


def _frames(piece: Buffer, compress: bool) -> list[Frame]:
    view = memoryview(piece)
    return [_frame(view[start : start + FRAME], compress) for start in range(0, len(view), FRAME)]


def _frame(piece: Buffer, compress: bool) -> Frame:
    return compressed_frame(_zstd(), piece) if compress else raw_frame(piece)


def _shrinks(sample: memoryview) -> bool:
    return len(_zstd().compress(sample)) < len(sample) * _WORTHWHILE


def _zstd() -> zstandard.ZstdCompressor:
    """One a thread: they are not to be shared, and making one costs more than compressing little."""
    compressor: zstandard.ZstdCompressor | None = getattr(_local, "compressor", None)
    if compressor is None:
        compressor = _local.compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
    return compressor
