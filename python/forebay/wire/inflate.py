"""Incremental decompression of HTTP bodies; a truncated body is an error."""

import re
import zlib
from collections.abc import Iterator

__all__ = ["ACCEPT_ENCODING", "Inflater", "is_compression"]

ACCEPT_ENCODING = "gzip, deflate"

_IDENTITY_CODING_PATTERN = re.compile(
    r"|identity|none|binary|[78]bit|utf-?(8|16|32)([bl]e)?|(us-)?ascii|iso-8859-\d+|windows-\d+|shift[_-]jis|gb\w+|euc-\w+"
)
"""Values of `Content-Encoding` that servers send for uncompressed bodies: mail encodings and charsets.

Any other unknown name is an error, since it may be an unknown compression.
"""

_GZIP_FIRST_BYTE = 0x1F

_MAX_CHUNK_BYTES = 1024 * 1024
"""Maximum bytes of a decompressed chunk: a few compressed bytes can expand to very many."""


def is_compression(name: str) -> bool:
    """Return whether a `Content-Encoding` names a compression."""
    return not _IDENTITY_CODING_PATTERN.fullmatch(name)


class Inflater:
    """Decompressor for one `Content-Encoding`.

    Raises `ValueError` for broken data, with a message that continues a sentence such as "the request …".
    """

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._decompressor: zlib._Decompress | None = None
        self._problem = f"what is not {coding}, as it says"

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield what a chunk decompresses to."""
        remaining = chunk
        while remaining:
            if self._decompressor is None:
                self._decompressor = self._new_decompressor(remaining)
            elif self._decompressor.eof:
                # Zero padding or another gzip member may follow the end; anything else is an error.
                remaining = remaining.lstrip(b"\0")
                if not remaining:
                    return
                self._problem = f"{self._coding} with something else behind its end; it may have been carried out"
                if self._coding == "deflate" or remaining[0] != _GZIP_FIRST_BYTE:
                    raise ValueError(f"was answered {self._problem}")
                self._decompressor = self._new_decompressor(remaining)
            try:
                data = self._decompressor.decompress(remaining, _MAX_CHUNK_BYTES)
            except zlib.error as error:
                raise ValueError(f"was answered {self._problem}: {error}") from None
            remaining = self._decompressor.unused_data if self._decompressor.eof else self._decompressor.unconsumed_tail
            if data:
                yield data

    def finish(self) -> bytes:
        """Return the remaining bytes; raise `ValueError` if the body is truncated."""
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
            # The standard requires a zlib header, whose low four bits are 8; many servers omit it.
            return zlib.decompressobj(zlib.MAX_WBITS if start[0] & 0x0F == 8 else -zlib.MAX_WBITS)
        raise ValueError(
            f"was answered in the encoding {self._coding[:64]!r}, which was not asked for and cannot be read"
        )
