"""Compressed bodies, undone piece by piece: one that ends too early is not taken for a whole one."""

import re
import zlib
from collections.abc import Iterator

__all__ = ["ACCEPT_ENCODING", "Inflater", "is_compression"]

ACCEPT_ENCODING = "gzip, deflate"

_IDENTITY_CODINGS = re.compile(
    r"|identity|none|binary|[78]bit|utf-?(8|16|32)([bl]e)?|(us-)?ascii|iso-8859-\d+|windows-\d+|shift[_-]jis|gb\w+|euc-\w+"
)
"""What servers say of bytes that are as they are: words of mail, and charsets.

Only what is known to be no coding is passed over. A name that nobody knows may be a coding that nobody knows.
"""

_GZIP_FIRST_BYTE = 0x1F

_MAX_CHUNK_BYTES = 1024 * 1024
"""At most so much at once: a few bytes can stand for very many."""


def is_compression(name: str) -> bool:
    """Whether bytes of which this is said are to be undone."""
    return not _IDENTITY_CODINGS.fullmatch(name)


class Inflater:
    """What was compressed by one coding of HTTP. Raises `ValueError` for what is broken; the message follows a name."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._decompressor: zlib._Decompress | None = None
        self._problem = f"what is not {coding}, as it says"

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """More of it."""
        rest = chunk
        while rest:
            if self._decompressor is None:
                self._decompressor = self._new_decompressor(rest)
            elif self._decompressor.eof:
                # After the end there may be zeros up to a full block, or another member of a gzip file. Anything else
                # is no part of the answer by the book, but it was sent: it is not dropped unseen.
                rest = rest.lstrip(b"\0")
                if not rest:
                    return
                self._problem = f"{self._coding} with something else behind its end; it may have been carried out"
                if self._coding == "deflate" or rest[0] != _GZIP_FIRST_BYTE:
                    raise ValueError(f"was answered {self._problem}")
                self._decompressor = self._new_decompressor(rest)
            try:
                piece = self._decompressor.decompress(rest, _MAX_CHUNK_BYTES)
            except zlib.error as error:
                raise ValueError(f"was answered {self._problem}: {error}") from None
            rest = self._decompressor.unused_data if self._decompressor.eof else self._decompressor.unconsumed_tail
            if piece:
                yield piece

    def finish(self) -> bytes:
        """The last of it."""
        if self._decompressor is None or self._decompressor.eof:
            return b""
        last = self._decompressor.flush()
        if not self._decompressor.eof:
            raise ValueError(f"was answered {self._coding} that ends too early; it may have been carried out")
        return last

    def _new_decompressor(self, start: bytes) -> "zlib._Decompress":
        if self._coding in ("gzip", "x-gzip"):
            return zlib.decompressobj(16 + zlib.MAX_WBITS)
        if self._coding == "deflate":
            # By the book it has a header, of which the first four bits are 8; many servers leave it away.
            return zlib.decompressobj(zlib.MAX_WBITS if start[0] & 0x0F == 8 else -zlib.MAX_WBITS)
        raise ValueError(
            f"was answered in the encoding {self._coding[:64]!r}, which was not asked for and cannot be read"
        )
