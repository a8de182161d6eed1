"""The part of a file or of a stored output that a reference asks for, within what may be read."""

from typing import Protocol

from typing_extensions import Buffer

from forebay.errors import FileRefTooLarge
from forebay.outputs.references.reference import Bytes, Lines, Part

__all__ = ["Source", "bytes_of"]

_PIECE = 1 << 20


class Source(Protocol):
    """What a part is read of."""

    @property
    def size(self) -> int:
        """Of what is there to be read: what a file grows by later is not."""

    def read(self, start: int, end: int) -> Buffer:
        """These bytes; fewer if a file shrank."""


def bytes_of(source: Source, part: Part, most: int, piece: int = _PIECE) -> bytes:
    """A part of it, of at most `most` bytes. Lines are looked for within the first `most` bytes only."""
    return _lines_of(source, part, most, piece) if isinstance(part, Lines) else _range_of(source, part, most)


def _range_of(source: Source, part: Bytes, most: int) -> bytes:
    start = min(part.offset, source.size)
    end = source.size if part.length is None else min(start + part.length, source.size)
    if end - start > most:
        raise _too_large(most)
    return bytes(source.read(start, end))


def _lines_of(source: Source, part: Lines, most: int, piece: int) -> bytes:
    kept: list[bytes] = []
    at = line = 0
    while line < part.end and at < source.size:
        if at >= most:
            raise _too_large(most)
        data = bytes(source.read(at, min(at + piece, most, source.size)))
        if not data:
            break
        at += len(data)
        start, end = _after(data, part.first - line), _after(data, part.end - line)
        kept.append(data[start:end])
        line += data.count(b"\n")
    return b"".join(kept)


def _after(data: bytes, newlines: int) -> int:
    """Where that many newlines have passed; the end, if they are not all there."""
    if newlines > data.count(b"\n"):
        return len(data)
    at = 0
    for _ in range(newlines):
        at = data.index(b"\n", at) + 1
    return at


def _too_large(most: int) -> FileRefTooLarge:
    return FileRefTooLarge(
        f"this is more than the {most} bytes that a call may still take in by reference; "
        "name a part of it with offset and length, or refer to less in one call"
    )
