"""The format of a stored file: independent zstd frames, then metadata, indexes and a seek table.

    [zstd frame]…      FRAME_BYTES of the payload each, with zstd's checksum
    [skippable frame]… of a payload that was decoded: a zstd frame of its text each
    [skippable frame]  metadata, item index, line index, and a checksum of these and of the seek table
    [skippable frame]  the seek table of the zstd seekable format, with the checksum of every frame

`zstd -dc` ignores skippable frames and returns the payload. The seek table lists the metadata frame with a
payload of 0 bytes, so that other readers of the seekable format compute the right offsets.
"""

import collections
import dataclasses
import itertools
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import NoneType
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import orjson
import zstandard
from typing_extensions import Buffer

from forebay import _core
from forebay._core import Findings, ItemIndex, Survey, checksum
from forebay.errors import CorruptIndex, HandleCorrupt
from forebay.store.backends import Upload
from forebay.store.handles import is_valid_time
from forebay.store.payload import is_compressed

__all__ = [
    "FRAME_BYTES",
    "TAIL_BYTES",
    "Footer",
    "Frame",
    "SeekEntry",
    "WriteProgress",
    "build_compressed_frame",
    "build_footer",
    "build_raw_frame",
    "read_footer",
    "read_verified",
    "read_written",
    "read_written_range",
    "write_frames",
]

FRAME_BYTES = 128 * 1024
"""Payload bytes in a frame: the minimum that a page reads, and the maximum of a zstd block.

Measured on 100 MB of records at level 1: frames of 64, 128, 256, 512 KB compress it to 1/6.14, 1/6.30, 1/6.36, 1/6.45
in about the same time, and take 68, 125, 230, 495 µs each to read.
"""

TAIL_BYTES = 64 * 1024
"""Size of the first read, from the end of a file. Nearly every footer fits into it."""

_TEXT_MAGIC = 0x184D2A58
_SKIPPABLE_HEADER = struct.Struct("<II")

_FRAME_MAGIC = 0xFD2FB528
_RAW_FRAME_HEADER = struct.Struct("<IBII")
_RAW_FRAME_DESCRIPTOR = 0b1010_0100
"""Frame header flags: a content size of four bytes, a single segment, a checksum."""
_CHECKSUM = struct.Struct("<I")

Frame: TypeAlias = "tuple[list[Buffer], SeekEntry]"
"""The parts of a frame, to be written one after the other, and its entry in the seek table."""

_decompressors = threading.local()


class SeekEntry(NamedTuple):
    """An entry of the seek table. Its checksum reveals frames that were swapped."""

    stored_bytes: int
    plain_bytes: int
    checksum: int

    @classmethod
    def from_last_part(cls, stored_bytes: int, plain_bytes: int, last_part: bytes | memoryview) -> Self:
        """Return the entry of a frame, with the checksum from the end of the frame's last part."""
        return cls(stored_bytes, plain_bytes, _CHECKSUM.unpack_from(last_part, len(last_part) - _CHECKSUM.size)[0])


class ByteSource(Protocol):
    """Bytes that can be read in ranges, such as a stored file."""

    @property
    def size(self) -> int: ...
    def read(self, start: int, length: int) -> bytes: ...
    def read_ahead(self) -> None:
        """Expect that all bytes will be read in order."""


def build_raw_frame(chunk: Buffer) -> Frame:
    """Build a frame that stores at most `FRAME_BYTES` uncompressed in one block, without a copy."""
    size = len(memoryview(chunk))
    # The block header takes three bytes: the size, the type (raw), and the flag of the last block.
    header = _RAW_FRAME_HEADER.pack(_FRAME_MAGIC, _RAW_FRAME_DESCRIPTOR, size, size << 3 | 1)[:-1]
    frame_checksum = checksum(chunk) & 0xFFFFFFFF
    footer = _CHECKSUM.pack(frame_checksum)
    return [header, chunk, footer], SeekEntry(len(header) + size + len(footer), size, frame_checksum)


def build_compressed_frame(compressor: zstandard.ZstdCompressor, chunk: Buffer) -> Frame:
    """Build a frame of at most `FRAME_BYTES`. The compressor must write checksums."""
    frame = compressor.compress(memoryview(chunk))
    return [frame], SeekEntry.from_last_part(len(frame), len(memoryview(chunk)), frame)


@dataclasses.dataclass(slots=True)
class Footer:
    """The metadata, indexes and seek table of a stored file."""

    meta: dict[str, Any]
    items: ItemIndex | None
    lines: ItemIndex | None
    frames: Sequence[SeekEntry]
    frame_offsets: Sequence[int]
    """Offset of each frame in the file, and of the end of the last one."""
    size: int
    """The size of the payload, or of its text."""
    text: "Footer | None" = None
    """The text of a payload that was decoded, in frames of its own. The indexes are those of the text."""
    header_bytes: int = 0
    """Bytes before each frame."""

    @property
    def start(self) -> int:
        """The offset of the footer in the file."""
        return (self.text or self).frame_offsets[-1]

    @property
    def frame_bytes(self) -> int:
        """Payload bytes in a frame: only the last one may have fewer."""
        return self.frames[0].plain_bytes if self.frames else FRAME_BYTES

    def find_frame(self, offset: int) -> int:
        """Return the number of the frame that holds a byte of the payload."""
        return offset // self.frame_bytes

    def read_frames(self, source: ByteSource, start: int, end: int) -> tuple[int, bytes]:
        """Read the frames that hold the bytes from `start` to `end`, and return their content.

        The returned number is the payload offset of that content. The file is read as a single range.
        """
        end = min(end, self.size)
        if start >= end:
            return start, b""
        first, last = self.find_frame(start), self.find_frame(end - 1)
        first_offset = self.frame_offsets[first]
        stored = memoryview(source.read(first_offset, self.frame_offsets[last + 1] - first_offset))
        # The offsets are those of the headers before the frames.
        base = first_offset - self.header_bytes
        plain = [
            _decompress(stored[offset - base : offset - base + entry.stored_bytes], entry)
            for offset, entry in zip(self.frame_offsets[first : last + 1], self.frames[first : last + 1], strict=True)
        ]
        return first * self.frame_bytes, plain[0] if len(plain) == 1 else b"".join(plain)

    def iter_chunks(self, source: ByteSource) -> Iterator[bytes]:
        """Read the payload frame by frame."""
        source.read_ahead()
        for offset, entry in zip(self.frame_offsets, self.frames, strict=False):
            yield _decompress(source.read(offset + self.header_bytes, entry.stored_bytes), entry)


def _decompress(frame: bytes | memoryview, entry: SeekEntry) -> bytes:
    try:
        # Size and checksum are checked first, so that a damaged header cannot make us allocate too much.
        if (
            zstandard.frame_content_size(frame) != entry.plain_bytes
            or SeekEntry.from_last_part(len(frame), entry.plain_bytes, frame) != entry
        ):
            raise _make_corrupt_error()
        plain = _get_decompressor().decompress(frame, max_output_size=entry.plain_bytes, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise HandleCorrupt(f"a frame of the stored file is damaged ({error}); call the tool again") from None
    if len(plain) != entry.plain_bytes:
        raise HandleCorrupt("a frame of the stored file is damaged (wrong size); call the tool again")
    return plain


def _get_decompressor() -> zstandard.ZstdDecompressor:
    """Return this thread's decompressor. Threads cannot share one, and creating one costs as much as a short frame."""
    decompressor: zstandard.ZstdDecompressor | None = getattr(_decompressors, "decompressor", None)
    if decompressor is None:
        decompressor = _decompressors.decompressor = zstandard.ZstdDecompressor()
    return decompressor


def read_written(frames: Sequence[SeekEntry], upload: Upload) -> Iterator[bytes]:
    """Read the frames at the start of an upload."""
    for offset, entry in zip(itertools.accumulate((entry.stored_bytes for entry in frames), initial=0), frames):  # noqa: B905
        yield _decompress(upload.read(offset, entry.stored_bytes), entry)


def read_written_range(progress: "WriteProgress", upload: Upload, start: int, end: int, base: int = 0) -> bytes:
    """Read the bytes from `start` to `end` of a payload whose frames begin at `base` in an upload."""
    header = _SKIPPABLE_HEADER.size if progress.is_text else 0
    first = start // FRAME_BYTES
    parts: list[bytes] = []
    offsets = itertools.accumulate((entry.stored_bytes for entry in progress.frames), initial=base)
    for number, (offset, entry) in enumerate(zip(offsets, progress.frames)):  # noqa: B905
        if first <= number and number * FRAME_BYTES < end:
            size = min(FRAME_BYTES, progress.payload_bytes - number * FRAME_BYTES)
            plain = SeekEntry(entry.stored_bytes - header, size, entry.checksum)
            parts.append(_decompress(upload.read(offset + header, plain.stored_bytes), plain))
    return b"".join(parts)[start - first * FRAME_BYTES : end - first * FRAME_BYTES]


def build_footer(
    meta: dict[str, Any], items: ItemIndex | None, lines: ItemIndex | None, frames: Sequence[SeekEntry]
) -> bytes:
    """Build the part of a file that follows the frames of the payload."""
    return _core.build_footer(orjson.dumps(meta), items, lines, frames)


def read_verified(source: ByteSource, footer: Footer) -> Iterator[bytes]:
    """Read a whole file frame by frame, as it is stored. Raises `HandleCorrupt` if a frame is damaged."""
    source.read_ahead()
    for part in [footer] if footer.text is None else [footer, footer.text]:
        for offset, entry in zip(part.frame_offsets, part.frames):  # noqa: B905
            header = _SKIPPABLE_HEADER.pack(_TEXT_MAGIC, entry.stored_bytes)[: part.header_bytes]
            stored = source.read(offset, len(header) + entry.stored_bytes)
            if not stored.startswith(header):
                raise _make_corrupt_error()
            _decompress(memoryview(stored)[len(header) :], entry)
            yield stored
    yield source.read(footer.start, source.size - footer.start)


def read_footer(source: ByteSource) -> Footer:
    """Read the footer of a file. Raises `HandleCorrupt` if it is damaged."""
    try:
        return _read_footer(source)
    except (struct.error, CorruptIndex, orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, HandleCorrupt):
            raise
        raise _make_corrupt_error() from None


def _read_footer(source: ByteSource) -> Footer:
    found = _parse_tail(source, TAIL_BYTES)
    if isinstance(found, int):
        found = _parse_tail(source, found)
    if isinstance(found, int):
        # The file was shortened meanwhile.
        raise _make_corrupt_error()
    meta_json, items, lines, entries = found
    frames, meta = [SeekEntry(*entry) for entry in entries], orjson.loads(meta_json)
    frame_offsets = [0, *itertools.accumulate([frame.stored_bytes for frame in frames])]
    if not _is_valid_meta(meta):
        raise _make_corrupt_error()
    text_count = -(-meta.get("text_bytes", 0) // FRAME_BYTES)
    count = len(frames) - text_count
    if count < 0 or not _are_valid_frame_sizes([frame.plain_bytes for frame in frames[:count]], meta["size_bytes"]):
        raise _make_corrupt_error()
    footer = Footer(
        meta=meta,
        items=items,
        lines=lines,
        frames=frames[:count],
        frame_offsets=frame_offsets[: count + 1],
        size=meta["size_bytes"],
    )
    if "text_bytes" not in meta:
        return footer
    sizes = [min(FRAME_BYTES, meta["text_bytes"] - i * FRAME_BYTES) for i in range(text_count)]
    text_frames = [
        SeekEntry(entry.stored_bytes - _SKIPPABLE_HEADER.size, size, entry.checksum)
        for entry, size in zip(frames[count:], sizes, strict=True)
    ]
    text = dataclasses.replace(
        footer,
        frames=text_frames,
        frame_offsets=frame_offsets[count:],
        size=meta["text_bytes"],
        header_bytes=_SKIPPABLE_HEADER.size,
    )
    return dataclasses.replace(footer, text=text)


def _parse_tail(source: ByteSource, length: int) -> Any:
    start = max(0, source.size - length)
    return _core.parse_footer(source.read(start, source.size - start), source.size)


_META_TYPES: dict[str, set[type]] = {
    "handle": {str},
    "mime_type": {str},
    "size_bytes": {int},
    "nature": {str},
    "item_count": {int, NoneType},
    "items_path": {str, NoneType},
    "outline": {str, NoneType},
    "created_at": {float, int},
    "expires_at": {float, int},
    "principal": {str, NoneType},
    "source_tool": {str, NoneType},
}
_OPTIONAL_META_TYPES: dict[str, set[type]] = {"decoded_from": {str}, "text_bytes": {int}, "note": {str}}
"""Keys that only payloads have that were decoded, or could not be."""

_NATURES = {"json", "ndjson", "text", "binary"}
_MAX_FRAME_BYTES = 64 << 20
"""Maximum payload bytes in a frame. A file that claims more is damaged, and must not exhaust memory."""


def _is_valid_meta(meta: object) -> bool:
    """Return whether metadata has all keys with the right types, which a matching checksum does not prove."""
    if not isinstance(meta, dict):
        return False
    # Types are compared, because to `isinstance` a bool is an int.
    for name, types in _META_TYPES.items():
        # A missing key has the type of the default.
        if type(meta.get(name, _META_TYPES)) not in types:
            return False
    for name, types in _OPTIONAL_META_TYPES.items():
        if name in meta and type(meta[name]) not in types:
            return False
    return (
        meta.get("text_bytes", 0) >= 0
        and meta["nature"] in _NATURES
        and is_valid_time(meta["created_at"])
        and is_valid_time(meta["expires_at"])
    )


def _are_valid_frame_sizes(sizes: list[int], size_bytes: int) -> bool:
    """Return whether frames of these sizes make up the payload: all equal, but the last may be shorter."""
    if not sizes:
        return size_bytes == 0
    first, *others, last = sizes[0], *sizes
    is_even = others.count(first) == len(others) and 0 < last <= first <= _MAX_FRAME_BYTES
    return is_even and sum(sizes) == size_bytes


def _make_corrupt_error() -> HandleCorrupt:
    return HandleCorrupt("the stored file is torn or was changed; call the tool again")


_MAX_CHUNKS_IN_FLIGHT = 8
"""Maximum number of chunks in memory that are not written yet."""

_MAX_RAW_BYTES = 3072
"""Payloads up to this size are not compressed, because the file would not take fewer blocks of the disk."""

_MAX_COMPRESSED_RATIO = 0.97
"""If the first frame compresses to more than this share of its size, no frame is compressed."""

COMPRESSION_LEVEL = 1
"""Compression level of zstd.

Measured on 100 MB of records: levels -5, -1, 1, 2, 3 compress it to 1/4.3, 1/4.9, 1/6.4, 1/6.4, 1/6.2 in 230, 269,
252, 272, 306 ms. A pool of two threads takes 126 ms; zstandard's own pool (`multi_compress_to_buffer`) takes
244 ms with chunks of 1 MB and 158 ms with 16 MB, because each call creates its compression contexts again.
"""

_compressors = threading.local()


@dataclasses.dataclass(slots=True)
class WriteProgress:
    """Totals and seek entries of the frames written so far."""

    payload_bytes: int = 0
    stored_bytes: int = 0
    frames: list[SeekEntry] = dataclasses.field(default_factory=list)
    first_chunk: Buffer = b""
    is_text: bool = False
    """Whether the frames are the text of a payload that was decoded. Other readers of zstd skip such frames."""

    def add_frames(self, frames: list[Frame]) -> list[Buffer]:
        """Count frames and return their parts, to be written one after the other."""
        parts: list[Buffer] = []
        for frame_parts, entry in frames:
            self.payload_bytes += entry.plain_bytes
            if self.is_text:
                parts.append(_SKIPPABLE_HEADER.pack(_TEXT_MAGIC, entry.stored_bytes))
                entry = SeekEntry(entry.stored_bytes + _SKIPPABLE_HEADER.size, 0, entry.checksum)
            parts += frame_parts
            self.frames.append(entry)
            self.stored_bytes += entry.stored_bytes
        return parts


def write_frames(
    chunks: Iterator[Buffer],
    survey: Survey,
    upload: Upload,
    *,
    compress: bool,
    get_pool: Callable[[], ThreadPoolExecutor],
    on_progress: Callable[[WriteProgress], None],
    is_text: bool = False,
) -> tuple[WriteProgress, Findings, list[Buffer]]:
    """Write chunks as frames. Return the totals, what the survey of the payload found, and the parts not yet written.

    A payload of one short chunk is not written but returned, so that it goes to disk in one write with the footer.
    `on_progress` is called after each chunk that was written, and may raise to stop.
    """
    progress = WriteProgress(is_text=is_text)
    first = next(chunks, None)
    if first is None:
        return progress, survey.finish(), []
    progress.first_chunk = first
    size = len(memoryview(first))
    compress = compress and size > _MAX_RAW_BYTES and not is_compressed(bytes(memoryview(first)[:16]))
    if size <= FRAME_BYTES:
        # Only a last chunk is this short, so the first chunk is the whole payload.
        survey.feed(first)
        parts = progress.add_frames([_build_frame(first, compress)])
        return progress, survey.finish(), parts
    compress = compress and _is_compressible(memoryview(first)[:FRAME_BYTES])

    window: collections.deque[tuple[Future[list[Frame]] | Buffer, Future[None]]] = collections.deque()

    def write_next() -> None:
        framed, surveyed = window.popleft()
        frames = framed.result() if isinstance(framed, Future) else _build_frames(framed, False)
        upload.write(progress.add_frames(frames))
        surveyed.result()
        on_progress(progress)

    # A single thread, so that chunks are surveyed in order.
    with ThreadPoolExecutor(1, "forebay-survey") as surveyor:
        try:
            for chunk in itertools.chain([first], chunks):
                # Without compression a frame costs only its checksum, less than waiting for another thread.
                framed = get_pool().submit(_build_frames, chunk, True) if compress else chunk
                window.append((framed, surveyor.submit(survey.feed, chunk)))
                if len(window) > _MAX_CHUNKS_IN_FLIGHT:
                    write_next()
            while window:
                write_next()
        finally:
            for framed, surveyed in window:
                if isinstance(framed, Future):
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
    """Return this thread's compressor. Threads cannot share one, and creating one costs more than a short frame."""
    compressor: zstandard.ZstdCompressor | None = getattr(_compressors, "compressor", None)
    if compressor is None:
        compressor = _compressors.compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, write_checksum=True)
    return compressor
