"""A reader of stored files that was written from docs/format.md alone. It uses nothing of forebay.

It reads the whole file at once, and refuses what the specification says must be refused.
"""

import csv
import io
import json
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import zstandard

__all__ = ["Index", "Refused", "StoredFile", "read_stored_file", "xxh64"]

TEXT_FRAME_BYTES = 131_072
BLOCK_BYTES = 65_536
MAX_FRAME_BYTES = 64 * 1024 * 1024
YEAR_10000 = 253_402_300_800

SEEK_TABLE_MAGIC = 0x184D2A5E
SEEKABLE_MAGIC = 0x8F92EAB1
META_MAGIC = 0x184D2A57
TEXT_MAGIC = 0x184D2A58
EMPTY_CHECKSUM = 0x51D8E999

KINDS = ["none", "array", "ndjson", "lines", "csv", "tsv", "map"]
REQUIRED: dict[str, tuple[type | None, ...]] = {
    "handle": (str,),
    "mime_type": (str,),
    "size_bytes": (int,),
    "nature": (str,),
    "item_count": (int, None),
    "items_path": (str, None),
    "outline": (str, None),
    "created_at": (int, float),
    "expires_at": (int, float),
    "principal": (str, None),
    "source_tool": (str, None),
}
OPTIONAL = {"decoded_from": str, "text_bytes": int, "note": str}


class Refused(Exception):
    """The file is damaged, or is none of this format."""


class Entry(NamedTuple):
    stored_bytes: int
    plain_bytes: int
    checksum: int


class Index(NamedTuple):
    kind: str
    path: str | None
    start: int
    end: int
    item_count: int
    entries: list[tuple[int, int]]
    """Offset and number of the first item of each block."""
    header: bytes


class StoredFile(NamedTuple):
    meta: dict[str, Any]
    payload: bytes
    text: bytes | None
    items: Index | None
    lines: Index | None

    @property
    def content(self) -> bytes:
        """What the indexes are of."""
        return self.payload if self.text is None else self.text

    def read_item(self, number: int) -> Any:
        """Return an item; it is found from the entry of its block. A map's is a pair of key and value, a row a list."""
        assert self.items is not None
        return _read_from(self.content, self.items, number)

    def read_line(self, number: int) -> bytes:
        assert self.lines is not None
        line: bytes = _read_from(self.content, self.lines, number)
        return line


def read_stored_file(data: bytes) -> StoredFile:
    """Read a stored file whole. Raises `Refused`."""
    entries, table_start = _read_seek_table(data)
    meta_start = table_start - entries[-1].stored_bytes
    _require(meta_start >= 0 and entries[-1].plain_bytes == 0, "the metadata frame begins before the file")
    _require(entries[-1].checksum == EMPTY_CHECKSUM, "the entry of the metadata frame has a wrong checksum")
    meta, items, lines = _read_meta_frame(data[meta_start:table_start], data[table_start:])
    frames = entries[:-1]
    _require(sum(entry.stored_bytes for entry in frames) == meta_start, "the sizes do not add up to that of the file")
    _check_meta(meta)
    text_bytes = meta.get("text_bytes", 0)
    text_count = -(-text_bytes // TEXT_FRAME_BYTES)
    _require(text_count <= len(frames), "there are too few frames for the text")
    payload_frames, text_frames = frames[: len(frames) - text_count], frames[len(frames) - text_count :]
    _check_frame_sizes([entry.plain_bytes for entry in payload_frames], meta["size_bytes"])
    _require(all(entry.plain_bytes == 0 for entry in text_frames), "a text frame claims bytes of the payload")

    offset, payload, text = 0, [], []
    for entry in payload_frames:
        payload.append(_decompress(data[offset : offset + entry.stored_bytes], entry.plain_bytes, entry.checksum))
        offset += entry.stored_bytes
    for number, entry in enumerate(text_frames):
        frame = data[offset : offset + entry.stored_bytes]
        _require(len(frame) >= 8, "a text frame is too short")
        _require(struct.unpack_from("<II", frame) == (TEXT_MAGIC, len(frame) - 8), "a text frame has a wrong header")
        size = min(TEXT_FRAME_BYTES, text_bytes - number * TEXT_FRAME_BYTES)
        text.append(_decompress(frame[8:], size, entry.checksum))
        offset += entry.stored_bytes
    is_decoded = "text_bytes" in meta
    return StoredFile(meta, b"".join(payload), b"".join(text) if is_decoded else None, items, lines)


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise Refused(reason)


def _read_seek_table(data: bytes) -> tuple[list[Entry], int]:
    _require(len(data) >= 17, "the file is too short")
    count, descriptor, magic = struct.unpack("<IBI", data[-9:])
    _require(magic == SEEKABLE_MAGIC and descriptor == 0x80 and count >= 1, "the file does not end with a seek table")
    start = len(data) - (8 + 12 * count + 9)
    _require(start >= 0, "the file is shorter than its seek table")
    header = struct.unpack_from("<II", data, start)
    _require(header == (SEEK_TABLE_MAGIC, 12 * count + 9), "the seek table has a wrong header")
    return [Entry(*entry) for entry in struct.iter_unpack("<III", data[start + 8 : -9])], start


def _read_meta_frame(frame: bytes, table: bytes) -> tuple[dict[str, Any], Index | None, Index | None]:
    _require(len(frame) >= 28, "the metadata frame is too short")
    _require(struct.unpack_from("<II", frame) == (META_MAGIC, len(frame) - 8), "the metadata frame has a wrong header")
    meta_size, items_size, lines_size, seal = struct.unpack("<IIIQ", frame[-20:])
    _require(meta_size + items_size + lines_size + 28 == len(frame), "the parts of the metadata do not fill its frame")
    _require(xxh64(frame[8:-8] + bytes(8) + table) == seal, "the seal is wrong")
    items_start, lines_start = 8 + meta_size, 8 + meta_size + items_size
    try:
        meta = json.loads(frame[8:items_start])
    except ValueError:
        raise Refused("the metadata is no JSON") from None
    _require(isinstance(meta, dict), "the metadata is no object")
    integers = (value for value in meta.values() if isinstance(value, int))
    _require(all(-(1 << 63) <= value < 1 << 64 for value in integers), "an integer takes more than 64 bits")
    items, lines = frame[items_start:lines_start], frame[lines_start : lines_start + lines_size]
    return meta, _read_index(items) if items else None, _read_index(lines) if lines else None


def _check_meta(meta: dict[str, Any]) -> None:
    for key, kinds in REQUIRED.items():
        _require(key in meta, f"the metadata lacks {key}")
        _require(_is_one_of(meta[key], kinds), f"{key} has a wrong type")
    for key, kind in OPTIONAL.items():
        _require(key not in meta or _is_one_of(meta[key], (kind,)), f"{key} has a wrong type")
    _require(meta["nature"] in ("json", "ndjson", "text", "binary"), "the nature is unknown")
    _require(meta.get("text_bytes", 0) >= 0 and meta["size_bytes"] >= 0, "a size is negative")
    for key in ("created_at", "expires_at"):
        _require(0 <= meta[key] < YEAR_10000, f"{key} is not a time before the year 10000")


def _is_one_of(value: object, kinds: tuple[type | None, ...]) -> bool:
    if value is None or isinstance(value, bool):
        return value is None and None in kinds
    return any(kind is not None and isinstance(value, kind) for kind in kinds)


def _check_frame_sizes(sizes: list[int], size_bytes: int) -> None:
    _require(sum(sizes) == size_bytes, "the frames do not add up to size_bytes")
    for size in sizes[:-1]:
        _require(size == sizes[0], "the frames have different sizes")
    if sizes:
        _require(0 < sizes[-1] <= sizes[0] <= MAX_FRAME_BYTES, "a frame has a wrong size")


def _decompress(frame: bytes, size: int, checksum: int) -> bytes:
    try:
        # zstd itself compares the checksum with that of the content.
        _require(zstandard.frame_content_size(frame) == size, "a frame has another size than the seek table says")
        _require(
            struct.unpack("<I", frame[-4:])[0] == checksum, "a frame has another checksum than the seek table says"
        )
        content = zstandard.ZstdDecompressor().decompress(frame, max_output_size=size, allow_extra_data=False)
    except (zstandard.ZstdError, struct.error) as error:
        raise Refused(f"a frame is damaged: {error}") from None
    return content


class _Bytes:
    """Bytes to be read from their start."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        _require(self.at + count <= len(self.data), "an index ends too early")
        self.at += count
        return self.data[self.at - count : self.at]

    def take_varint(self) -> int:
        number, shift = 0, 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                _require(byte != 0 or shift == 0, "a varint is longer than it needs to be")
                _require(number < 1 << 64, "a varint is too large")
                return number
            shift += 7
            _require(shift < 70, "a varint is too long")


def _read_index(data: bytes) -> Index:
    source = _Bytes(data)
    _require(source.take(4) == b"hgi1", "an index has an unknown version")
    number = source.take(1)[0]
    _require(number < len(KINDS), "an index has an unknown kind")
    kind = KINDS[number]
    path_size = source.take_varint()
    try:
        path = None if path_size == 0 else source.take(path_size - 1).decode()
    except UnicodeDecodeError:
        raise Refused("the path of an index is not UTF-8") from None
    start = source.take_varint()
    end = start + source.take_varint()
    count = source.take_varint()
    entries: list[tuple[int, int]] = []
    block, item = start // BLOCK_BYTES, 0
    for position in range(source.take_varint()):
        step = source.take_varint()
        offset_in_block = source.take_varint()
        more = source.take_varint()
        _require(offset_in_block < BLOCK_BYTES, "an entry lies outside of its block")
        _require(position == 0 or (step > 0 and more > 0), "the entries are not in ascending order")
        block, item = block + step, item + more
        entries.append((block * BLOCK_BYTES + offset_in_block, item))
    header = source.data[source.at :]
    _require(not header or kind in ("csv", "tsv"), "an index has bytes left over")
    _require(not entries or entries[0][1] == 0, "the first entry is not that of item 0")
    _require(bool(entries) == (count > 0), "there are entries without items, or items without entries")
    _require(all(start <= offset < end and number < count for offset, number in entries), "an entry lies outside")
    if kind == "none":
        _require(path is None and end == 0 and count == 0, "an index of no items has some")
    elif kind == "lines":
        _require(path is None, "lines have no path")
    elif kind in ("ndjson", "csv", "tsv"):
        _require(path == "", "NDJSON and rows have an empty path")
    else:
        _require(path is not None, "an array or a map has a path")
    return Index(kind, path, start, end, count, entries, header)


def _read_from(content: bytes, index: Index, number: int) -> Any:
    assert 0 <= number < index.item_count
    offset, first = next(entry for entry in reversed(index.entries) if entry[1] <= number)
    for found, item in enumerate(_iter_items(content[offset : index.end], index), first):
        if found == number:
            return item
    raise AssertionError("the index promises more items than there are")


def _iter_items(content: bytes, index: Index) -> Iterator[Any]:
    """Return the items from the start of one of them on."""
    if index.kind == "lines":
        yield from io.BytesIO(content)
    elif index.kind in ("csv", "tsv"):
        rows = csv.reader(io.StringIO(content.decode(), newline=""), delimiter="," if index.kind == "csv" else "\t")
        yield from filter(None, rows)
    else:
        yield from _iter_values(content.decode(), has_keys=index.kind == "map", is_in_brackets=index.kind != "ndjson")


def _iter_values(text: str, *, has_keys: bool, is_in_brackets: bool) -> Iterator[Any]:
    decoder, at = json.JSONDecoder(), 0

    def skip(characters: str) -> None:
        nonlocal at
        while at < len(text) and text[at] in characters:
            at += 1

    while True:
        skip(" \t\r\n")
        if at == len(text) or (is_in_brackets and text[at] in "]}"):
            return
        key = None
        if has_keys:
            key, at = decoder.raw_decode(text, at)
            skip(" \t\r\n:")
        value, at = decoder.raw_decode(text, at)
        yield (key, value) if has_keys else value
        skip(" \t\r\n")
        if is_in_brackets:
            skip(",")


_PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_MASK = (1 << 64) - 1


def xxh64(data: bytes) -> int:
    """Return the XXH64 of bytes, with seed 0."""
    one, two, three, four, five = _PRIMES

    def rotate(value: int, bits: int) -> int:
        return (value << bits | value >> (64 - bits)) & _MASK

    def mix(lane: int, word: int) -> int:
        return rotate((lane + word * two) & _MASK, 31) * one & _MASK

    at = 0
    if len(data) >= 32:
        lanes = [(one + two) & _MASK, two, 0, -one & _MASK]
        while at + 32 <= len(data):
            lanes = [mix(lane, word) for lane, word in zip(lanes, struct.unpack_from("<4Q", data, at), strict=True)]
            at += 32
        result = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            result = ((result ^ mix(0, lane)) * one + four) & _MASK
    else:
        result = five
    result = (result + len(data)) & _MASK
    while at + 8 <= len(data):
        result ^= mix(0, struct.unpack_from("<Q", data, at)[0])
        result = (rotate(result, 27) * one + four) & _MASK
        at += 8
    if at + 4 <= len(data):
        result ^= struct.unpack_from("<I", data, at)[0] * one & _MASK
        result = (rotate(result, 23) * two + three) & _MASK
        at += 4
    for byte in data[at:]:
        result ^= byte * five & _MASK
        result = rotate(result, 11) * one & _MASK
    result = (result ^ result >> 33) * two & _MASK
    result = (result ^ result >> 29) * three & _MASK
    return result ^ result >> 32
