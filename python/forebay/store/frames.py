"""The stored file: independent zstd frames, what is known of them, and a table to find each by.

    [zstd frame]…  of FRAME_BYTES bytes of the payload each, with zstd's own checksum
    [skippable frame]  metadata, item index, line index, and a checksum of these and of the table
    [skippable frame]  the seek table of the zstd seekable format, with the checksum of every frame

`zstd -dc` skips what is skippable and gives the payload back. The metadata frame stands in the seek table as a frame of
no bytes, so that other readers of the format stay right.
"""

import dataclasses
import itertools
import struct
import threading
from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import orjson
import zstandard
from typing_extensions import Buffer

from forebay._core import ItemIndex, checksum
from forebay.errors import CorruptIndex, HandleCorrupt
from forebay.store.times import is_valid_time

__all__ = [
    "FRAME_BYTES",
    "TAIL_BYTES",
    "Footer",
    "Frame",
    "SeekEntry",
    "build_compressed_frame",
    "build_footer",
    "build_raw_frame",
    "read_footer",
]

FRAME_BYTES = 128 * 1024
"""How much of the payload a frame holds: what a page reads at least, and the most that one block of zstd's holds.

Measured on 100 MB of records at level 1: frames of 64, 128, 256, 512 KB shrink it to 1/6.14, 1/6.30, 1/6.36, 1/6.45 in
about the same time, and take 68, 125, 230, 495 µs each to read.
"""

TAIL_BYTES = 64 * 1024
"""How much of a file's end is read at once: as good as always all that is known of it."""

_META_MAGIC = 0x184D2A57
_SEEK_TABLE_MAGIC = 0x184D2A5E
_SEEKABLE_MAGIC = 0x8F92EAB1
_SKIPPABLE_HEADER = struct.Struct("<II")
_SEEK_ENTRY = struct.Struct("<III")
"""The stored and the plain size of a frame, and the checksum that it ends with."""
_SEEK_TABLE_FOOTER = struct.Struct("<IBI")
_HAS_CHECKSUMS = 0x80
_EMPTY_CHECKSUM = checksum(b"") & 0xFFFFFFFF
_META_FOOTER = struct.Struct("<IIIQ")
"""Of metadata, item index and line index; then the checksum."""

_RAW_FRAME_HEADER = struct.Struct("<IBII")
_RAW_FRAME_DESCRIPTOR = 0b1010_0100
"""A content size of four bytes, a single segment, a checksum."""
_CHECKSUM = struct.Struct("<I")

Frame: TypeAlias = "tuple[list[Buffer], SeekEntry]"
"""The parts of a frame, and what the seek table says of it."""


_local = threading.local()


class SeekEntry(NamedTuple):
    """What the seek table says of a frame: if two were exchanged, only this tells."""

    stored_bytes: int
    plain_bytes: int
    checksum: int

    @classmethod
    def from_last_part(cls, stored: int, plain: int, last: Buffer) -> Self:
        """`last` is the frame's last part."""
        return cls(stored, plain, int(_CHECKSUM.unpack(memoryview(last)[-_CHECKSUM.size :])[0]))


class ByteSource(Protocol):
    """What can be read in ranges."""

    @property
    def size(self) -> int: ...
    def read(self, start: int, length: int) -> bytes: ...


def build_raw_frame(piece: Buffer) -> Frame:
    """At most `FRAME_BYTES` bytes as a frame that holds them as they are, in one block: nothing is copied."""
    size = len(memoryview(piece))
    # The header of the block takes three bytes: how long it is, that it is raw, and that it is the last.
    header = _RAW_FRAME_HEADER.pack(zstandard.MAGIC_NUMBER, _RAW_FRAME_DESCRIPTOR, size, size << 3 | 1)[:-1]
    footer = _CHECKSUM.pack(checksum(piece) & 0xFFFFFFFF)
    return [header, piece, footer], SeekEntry.from_last_part(len(header) + size + len(footer), size, footer)


def build_compressed_frame(compressor: zstandard.ZstdCompressor, piece: Buffer) -> Frame:
    """At most `FRAME_BYTES` bytes as a frame; the compressor is one that writes checksums."""
    frame = compressor.compress(memoryview(piece))
    return [frame], SeekEntry.from_last_part(len(frame), len(memoryview(piece)), frame)


@dataclasses.dataclass(frozen=True, slots=True)
class Footer:
    """All that a file says of itself."""

    meta: dict[str, Any]
    items: ItemIndex | None
    lines: ItemIndex | None
    frames: Sequence[SeekEntry]
    frame_offsets: Sequence[int]
    """Where each frame starts in the file; one more for where the last ends."""

    @property
    def size(self) -> int:
        """The payload's."""
        return int(self.meta["size_bytes"])

    def find_frame(self, offset: int) -> int:
        """The frame that holds a byte of the payload: all frames but the last are of one size."""
        return offset // self.frames[0].plain_bytes if self.frames else 0

    def read_frames(self, source: ByteSource, start: int, end: int) -> tuple[int, bytes]:
        """The frames that hold the bytes from `start` to `end`, and where they begin in the payload.

        One range of the file is read, and it is all that is.
        """
        end = min(end, self.size)
        if start >= end:
            return start, b""
        first, last = self.find_frame(start), self.find_frame(end - 1)
        stored = source.read(self.frame_offsets[first], self.frame_offsets[last + 1] - self.frame_offsets[first])
        plain = [
            _decompress(
                memoryview(stored)[
                    self.frame_offsets[i] - self.frame_offsets[first] : self.frame_offsets[i + 1]
                    - self.frame_offsets[first]
                ],
                self.frames[i],
            )
            for i in range(first, last + 1)
        ]
        return first * self.frames[0].plain_bytes, plain[0] if len(plain) == 1 else b"".join(plain)

    def iter_chunks(self, source: ByteSource) -> Iterator[bytes]:
        """The payload, frame by frame."""
        for start, frame in zip(self.frame_offsets, self.frames, strict=False):
            yield _decompress(source.read(start, frame.stored_bytes), frame)


def _decompress(frame: bytes | memoryview, entry: SeekEntry) -> bytes:
    try:
        # What a damaged header claims is not made room for.
        if (
            zstandard.frame_content_size(frame) != entry.plain_bytes
            or SeekEntry.from_last_part(len(frame), entry.plain_bytes, frame) != entry
        ):
            raise _corrupt_error()
        plain = _get_decompressor().decompress(frame, max_output_size=entry.plain_bytes, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise HandleCorrupt(f"a frame of the stored file is damaged ({error}); call the tool again") from None
    if len(plain) != entry.plain_bytes:
        raise HandleCorrupt("a frame of the stored file is damaged (wrong size); call the tool again")
    return plain


def _get_decompressor() -> zstandard.ZstdDecompressor:
    """One a thread: they are not to be shared, and making one costs as much as reading a short frame."""
    decompressor: zstandard.ZstdDecompressor | None = getattr(_local, "decompressor", None)
    if decompressor is None:
        decompressor = _local.decompressor = zstandard.ZstdDecompressor()
    return decompressor


def build_footer(
    meta: dict[str, Any], items: ItemIndex | None, lines: ItemIndex | None, frames: Sequence[SeekEntry]
) -> bytes:
    """What stands behind the frames of the payload."""
    # An index of no items is one, too.
    indexes = [b"" if index is None else index.to_bytes() for index in (items, lines)]
    parts = [orjson.dumps(meta), *indexes]
    meta_size = sum(map(len, parts)) + _META_FOOTER.size
    entries = [*frames, SeekEntry(_SKIPPABLE_HEADER.size + meta_size, 0, _EMPTY_CHECKSUM)]
    table = b"".join(
        (
            _SKIPPABLE_HEADER.pack(_SEEK_TABLE_MAGIC, len(entries) * _SEEK_ENTRY.size + _SEEK_TABLE_FOOTER.size),
            struct.pack(f"<{3 * len(entries)}I", *itertools.chain.from_iterable(entries)),
            _SEEK_TABLE_FOOTER.pack(len(entries), _HAS_CHECKSUMS, _SEEKABLE_MAGIC),
        )
    )
    known = b"".join((*parts, _META_FOOTER.pack(*map(len, parts), 0)))
    sealed = checksum(known + table).to_bytes(8, "little")
    return b"".join((_SKIPPABLE_HEADER.pack(_META_MAGIC, meta_size), known[:-8], sealed, table))


def read_footer(source: ByteSource) -> Footer:
    """Reads the end of a file, where all that is known of it stands; raises `HandleCorrupt` if it is not whole."""
    try:
        return _read_footer(source)
    except (struct.error, CorruptIndex, orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, HandleCorrupt):
            raise
        raise _corrupt_error() from None


def _read_footer(source: ByteSource) -> Footer:
    size = source.size
    start = max(0, size - TAIL_BYTES)
    tail = source.read(start, size - start)
    count, descriptor, magic = _SEEK_TABLE_FOOTER.unpack_from(tail, len(tail) - _SEEK_TABLE_FOOTER.size)
    table_size = _SKIPPABLE_HEADER.size + count * _SEEK_ENTRY.size + _SEEK_TABLE_FOOTER.size
    if magic != _SEEKABLE_MAGIC or descriptor != _HAS_CHECKSUMS or count == 0 or table_size > size:
        raise _corrupt_error()
    if table_size > len(tail):
        start = max(0, size - table_size - TAIL_BYTES)
        tail = source.read(start, size - start)
    table_at = len(tail) - table_size
    entries = [
        SeekEntry(*entry)
        for entry in _SEEK_ENTRY.iter_unpack(tail[table_at + _SKIPPABLE_HEADER.size : -_SEEK_TABLE_FOOTER.size])
    ]
    meta_size = entries[-1].stored_bytes
    meta_at = table_at - meta_size
    if meta_at < 0:
        if meta_size + table_size > size:
            raise _corrupt_error()
        start = size - table_size - meta_size
        tail = source.read(start, size - start)
        table_at, meta_at = meta_size, 0
    known = tail[meta_at + _SKIPPABLE_HEADER.size : table_at]
    *lengths, sealed = _META_FOOTER.unpack_from(known, len(known) - _META_FOOTER.size)
    if (
        _SKIPPABLE_HEADER.unpack_from(tail, meta_at) != (_META_MAGIC, len(known))
        or sum(lengths) != len(known) - _META_FOOTER.size
        or checksum(known[:-8] + bytes(8) + tail[table_at:]) != sealed
    ):
        raise _corrupt_error()
    meta_end, items_end = lengths[0], lengths[0] + lengths[1]
    items, lines = known[meta_end:items_end], known[items_end : items_end + lengths[2]]
    frames, meta = entries[:-1], orjson.loads(known[:meta_end])
    starts = [0]
    for frame in frames:
        starts.append(starts[-1] + frame.stored_bytes)
    if starts[-1] != start + meta_at or not _is_valid_meta(meta):
        raise _corrupt_error()
    if not _are_valid_frame_sizes([frame.plain_bytes for frame in frames], meta["size_bytes"]):
        raise _corrupt_error()
    return Footer(
        meta=meta,
        items=ItemIndex.from_bytes(items) if items else None,
        lines=ItemIndex.from_bytes(lines) if lines else None,
        frames=frames,
        frame_offsets=starts,
    )


_META_TYPES: dict[str, type | UnionType] = {
    "handle": str,
    "mime_type": str,
    "size_bytes": int,
    "nature": str,
    "item_count": int | None,
    "items_path": str | None,
    "outline": str | None,
    "created_at": float | int,
    "expires_at": float | int,
    "principal": str | None,
    "source_tool": str | None,
}
_NATURES = {"json", "ndjson", "text", "binary"}
_MAX_FRAME_BYTES = 64 << 20
"""What no frame is larger than, so that there is room for whatever a file claims."""


def _is_valid_meta(meta: object) -> bool:
    """Whether it is all that is needed: the checksum only tells that it was written so."""
    return (
        isinstance(meta, dict)
        and all(isinstance(meta.get(name, _META_TYPES), kind) for name, kind in _META_TYPES.items())
        and meta["nature"] in _NATURES
        and is_valid_time(meta["created_at"])
        and is_valid_time(meta["expires_at"])
    )


def _are_valid_frame_sizes(sizes: list[int], size_bytes: int) -> bool:
    """Whether frames of these sizes are the payload: all of one size, but the last may be shorter."""
    if not sizes:
        return size_bytes == 0
    first, *others, last = sizes[0], *sizes
    is_even = others.count(first) == len(others) and 0 < last <= first <= _MAX_FRAME_BYTES
    return is_even and sum(sizes) == size_bytes


def _corrupt_error() -> HandleCorrupt:
    return HandleCorrupt("the stored file is torn or was changed; call the tool again")
