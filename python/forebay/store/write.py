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
from forebay.store.frames import FRAME_BYTES, Frame, SeekEntry, build_compressed_frame, build_raw_frame
from forebay.store.payload import is_compressed

__all__ = ["WriteProgress", "write_frames"]

_MAX_CHUNKS_IN_FLIGHT = 8
"""How many pieces may be on their way at once: what bounds the memory."""

_MAX_RAW_BYTES = 3072
"""Payloads up to this size are written as they are: with what is said of them they fill a block of a disk anyway."""

_MAX_COMPRESSED_RATIO = 0.97
"""If the first frame shrinks by less than this, the others are written as they are."""

COMPRESSION_LEVEL = 1
"""Measured on 100 MB of records: levels -5, -1, 1, 2, 3 shrink it to 1/4.3, 1/4.9, 1/6.4, 1/6.4, 1/6.2 in 230, 269,
252, 272, 306 ms. In two threads a pool takes 126 ms for it, and zstandard's own (`multi_compress_to_buffer`) 244 ms by
pieces of 1 MB and 158 ms by 16 MB: they make their contexts anew for every call."""

_local = threading.local()


@dataclasses.dataclass(slots=True)
class WriteProgress:
    """What was written of a payload so far."""

    payload_bytes: int = 0
    stored_bytes: int = 0
    frames: list[SeekEntry] = dataclasses.field(default_factory=list)
    first_chunk: Buffer = b""
    """The first piece."""

    def add_frames(self, frames: list[Frame]) -> list[Buffer]:
        """Counts these frames in; their parts, to be written one after the other."""
        parts: list[Buffer] = []
        for framed, entry in frames:
            parts += framed
            self.frames.append(entry)
            self.stored_bytes += entry.stored_bytes
            self.payload_bytes += entry.plain_bytes
        return parts


def write_frames(
    chunks: Iterator[Buffer],
    survey: Survey,
    upload: Upload,
    *,
    compress: bool,
    get_pool: Callable[[], ThreadPoolExecutor],
    on_progress: Callable[[WriteProgress], None],
) -> tuple[WriteProgress, Findings, list[Buffer]]:
    """Writes all pieces but what is returned of the last, which is to be written together with what follows.

    `watch` is told after each piece that was written, and may raise to end it.
    """
    written = WriteProgress()
    first = next(chunks, None)
    if first is None:
        return written, survey.finish(), []
    written.first_chunk = first
    size = len(memoryview(first))
    compress = compress and size > _MAX_RAW_BYTES and not is_compressed(bytes(memoryview(first)[:16]))
    if size <= FRAME_BYTES:
        # As short as this, it is also the last.
        survey.feed(first)
        parts = written.add_frames([_build_frame(first, compress)])
        return written, survey.finish(), parts
    compress = compress and _is_compressible(memoryview(first)[:FRAME_BYTES])

    window: collections.deque[tuple[Future[list[Frame]], Future[None]]] = collections.deque()

    def drain() -> None:
        framed, surveyed = window.popleft()
        upload.write(written.add_frames(framed.result()))
        surveyed.result()
        on_progress(written)

    # One thread, so that pieces are surveyed in order.
    with ThreadPoolExecutor(1, "forebay-survey") as surveyor:
        try:
            for piece in _chain(first, chunks):
                window.append((get_pool().submit(_build_frames, piece, compress), surveyor.submit(survey.feed, piece)))
                if len(window) > _MAX_CHUNKS_IN_FLIGHT:
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


def _build_frames(piece: Buffer, compress: bool) -> list[Frame]:
    view = memoryview(piece)
    return [_build_frame(view[start : start + FRAME_BYTES], compress) for start in range(0, len(view), FRAME_BYTES)]


def _build_frame(piece: Buffer, compress: bool) -> Frame:
    return build_compressed_frame(_get_compressor(), piece) if compress else build_raw_frame(piece)


def _is_compressible(sample: memoryview) -> bool:
    return len(_get_compressor().compress(sample)) < len(sample) * _MAX_COMPRESSED_RATIO


def _get_compressor() -> zstandard.ZstdCompressor:
    """One a thread: they are not to be shared, and making one costs more than compressing little."""
    compressor: zstandard.ZstdCompressor | None = getattr(_local, "compressor", None)
    if compressor is None:
        compressor = _local.compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, write_checksum=True)
    return compressor
