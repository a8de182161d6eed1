"""Writing a payload as frames: compressing, surveying and writing run at the same time."""

import collections
import dataclasses
import itertools
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
"""Chunks that may be in flight at once; this bounds the memory."""

_MAX_RAW_BYTES = 3072
"""Payloads up to this size are not compressed: with its footer, the file fills a block of the disk anyway."""

_MAX_COMPRESSED_RATIO = 0.97
"""If the first frame compresses to more than this share of its size, no frame is compressed."""

COMPRESSION_LEVEL = 1
"""Measured on 100 MB of records: levels -5, -1, 1, 2, 3 compress it to 1/4.3, 1/4.9, 1/6.4, 1/6.4, 1/6.2 in 230, 269,
252, 272, 306 ms. A pool of two threads takes 126 ms; zstandard's own (`multi_compress_to_buffer`) takes 244 ms by
chunks of 1 MB and 158 ms by 16 MB, because it creates its contexts again for every call."""

_local = threading.local()


@dataclasses.dataclass(slots=True)
class WriteProgress:
    """The frames of a payload written so far."""

    payload_bytes: int = 0
    stored_bytes: int = 0
    frames: list[SeekEntry] = dataclasses.field(default_factory=list)
    first_chunk: Buffer = b""

    def add_frames(self, frames: list[Frame]) -> list[Buffer]:
        """Count frames and return their parts, to be written one after the other."""
        parts: list[Buffer] = []
        for frame_parts, entry in frames:
            parts += frame_parts
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
    """Write chunks as frames, and return the totals, the survey's findings and the parts not yet written.

    A payload of one short chunk is not written but returned, so that it goes to disk in one write with the footer.
    `on_progress` is called after each chunk that was written, and may raise to stop.
    """
    progress = WriteProgress()
    first = next(chunks, None)
    if first is None:
        return progress, survey.finish(), []
    progress.first_chunk = first
    size = len(memoryview(first))
    compress = compress and size > _MAX_RAW_BYTES and not is_compressed(bytes(memoryview(first)[:16]))
    if size <= FRAME_BYTES:
        # Only the last chunk is this short.
        survey.feed(first)
        parts = progress.add_frames([_build_frame(first, compress)])
        return progress, survey.finish(), parts
    compress = compress and _is_compressible(memoryview(first)[:FRAME_BYTES])

    window: collections.deque[tuple[Future[list[Frame]], Future[None]]] = collections.deque()

    def write_next() -> None:
        framed, surveyed = window.popleft()
        upload.write(progress.add_frames(framed.result()))
        surveyed.result()
        on_progress(progress)

    # A single thread, so that chunks are surveyed in order.
    with ThreadPoolExecutor(1, "forebay-survey") as surveyor:
        try:
            for chunk in itertools.chain([first], chunks):
                window.append((get_pool().submit(_build_frames, chunk, compress), surveyor.submit(survey.feed, chunk)))
                if len(window) > _MAX_CHUNKS_IN_FLIGHT:
                    write_next()
            while window:
                write_next()
        finally:
            for framed, surveyed in window:
                framed.cancel()
                surveyed.cancel()
    return progress, survey.finish(), []


def _build_frames(chunk: Buffer, compress: bool) -> list[Frame]:
    view = memoryview(chunk)
    return [_build_frame(view[start : start + FRAME_BYTES], compress) for start in range(0, len(view), FRAME_BYTES)]


def _build_frame(chunk: Buffer, compress: bool) -> Frame:
    return build_compressed_frame(_get_compressor(), chunk) if compress else build_raw_frame(chunk)


def _is_compressible(sample: memoryview) -> bool:
    return len(_get_compressor().compress(sample)) < len(sample) * _MAX_COMPRESSED_RATIO


def _get_compressor() -> zstandard.ZstdCompressor:
    """Return this thread's compressor: they cannot be shared, and creating one costs more than a short frame."""
    compressor: zstandard.ZstdCompressor | None = getattr(_local, "compressor", None)
    if compressor is None:
        compressor = _local.compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, write_checksum=True)
    return compressor
