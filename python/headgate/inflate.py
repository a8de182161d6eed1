"""Compressed bodies, undone piece by piece: one that ends too early is not taken for a whole one."""

import zlib
from collections.abc import Iterator

__all__ = ["ACCEPTED_CODINGS", "Inflating"]

ACCEPTED_CODINGS = "gzip, deflate"

_PIECE = 1024 * 1024
"""At most so much at once: a few bytes can stand for very many."""


class Inflating:
    """What was compressed by one coding of HTTP. Raises `ValueError` for what is broken; the message follows a name."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._stream: zlib._Decompress | None = None

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """More of it."""
        rest = chunk
        while rest:
            if self._stream is None or self._stream.eof:
                # After the end there may be another member of the file, or zeros up to a full block.
                rest = rest if self._stream is None else rest.lstrip(b"\0")
                if not rest:
                    return
                self._stream = self._decompressor(rest)
            try:
                piece = self._stream.decompress(rest, _PIECE)
            except zlib.error as error:
                raise ValueError(f"was answered what is not {self._coding}, as it says: {error}") from None
            rest = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            if piece:
                yield piece

    def finish(self) -> bytes:
        """The last of it."""
        if self._stream is None or self._stream.eof:
            return b""
        last = self._stream.flush()
        if not self._stream.eof:
            raise ValueError(f"was answered {self._coding} that ends too early; it may have been carried out")
        return last

    def _decompressor(self, start: bytes) -> "zlib._Decompress":
        if self._coding in ("gzip", "x-gzip"):
            return zlib.decompressobj(16 + zlib.MAX_WBITS)
        if self._coding == "deflate":
            # By the book it has a header, of which the first four bits are 8; many servers leave it away.
            return zlib.decompressobj(zlib.MAX_WBITS if start[0] & 0x0F == 8 else -zlib.MAX_WBITS)
        raise ValueError(
            f"was answered in the encoding {self._coding[:64]!r}, which was not asked for and cannot be read"
        )
