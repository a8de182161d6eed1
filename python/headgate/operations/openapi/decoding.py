"""Compressed bodies: the client takes one that ends too early for a whole one, so it is not asked."""

import re
import zlib
from collections.abc import AsyncIterator

import httpx2

from headgate.operations.errors import CallError

__all__ = ["ACCEPTED_CODINGS", "decoded"]

ACCEPTED_CODINGS = "gzip, deflate"

_NO_CODING = re.compile(
    r"|identity|none|binary|[78]bit|utf-?(8|16|32)([bl]e)?|(us-)?ascii|iso-8859-\d+|windows-\d+|shift[_-]jis|gb\w+|euc-\w+"
)
"""What servers say of bytes that are as they are: words of mail, and charsets.

Only what is known to be no coding is passed over. A name that nobody knows may be a coding that nobody knows.
"""

_FIRST_OF_GZIP = 0x1F

_PIECE = 1024 * 1024
"""At most so much at once: a few bytes can stand for very many."""


async def decoded(response: httpx2.Response, what: str) -> AsyncIterator[bytes]:
    """The body as it was before it was compressed. Raises `CallError` for one that is broken, or ends too early."""
    if response.is_stream_consumed:
        # A hook of the client has read it, or a transport had it whole: it is decoded already.
        yield response.content
        return
    chunks: AsyncIterator[bytes] = response.aiter_raw()
    for coding in reversed(response.headers.get_list("Content-Encoding", split_commas=True)):
        name = coding.strip().lower()
        if not _NO_CODING.fullmatch(name):
            chunks = _inflated(chunks, name, what)
    async for chunk in chunks:
        yield chunk


async def _inflated(chunks: AsyncIterator[bytes], coding: str, what: str) -> AsyncIterator[bytes]:
    stream, told = None, f"what is not {coding}, as it says"
    async for chunk in chunks:
        rest = chunk
        while rest:
            if stream is None:
                stream = _decompressor(coding, rest, what)
            elif stream.eof:
                # After the end there may be zeros up to a full block, or another member of a gzip file. Anything else
                # is no part of the answer by the book, but it was sent: it is not dropped unseen.
                rest = rest.lstrip(b"\0")
                if not rest:
                    break
                told = f"{coding} with something else behind its end; it may have been carried out"
                if coding == "deflate" or rest[0] != _FIRST_OF_GZIP:
                    raise CallError("EXECUTION_ERROR", f"{what} was answered {told}")
                stream = _decompressor(coding, rest, what)
            try:
                piece = stream.decompress(rest, _PIECE)
            except zlib.error as error:
                raise CallError("EXECUTION_ERROR", f"{what} was answered {told}: {error}") from None
            rest = stream.unused_data if stream.eof else stream.unconsumed_tail
            if piece:
                yield piece
    if stream is None or stream.eof:
        return
    last = stream.flush()
    if last:
        yield last
    if not stream.eof:
        raise CallError(
            "EXECUTION_ERROR", f"{what} was answered {coding} that ends too early; it may have been carried out"
        )


def _decompressor(coding: str, start: bytes, what: str) -> "zlib._Decompress":
    if coding in ("gzip", "x-gzip"):
        return zlib.decompressobj(16 + zlib.MAX_WBITS)
    if coding == "deflate":
        # By the book it has a header, of which the first four bits are 8; many servers leave it away.
        return zlib.decompressobj(zlib.MAX_WBITS if start[0] & 0x0F == 8 else -zlib.MAX_WBITS)
    raise CallError(
        "EXECUTION_ERROR",
        f"{what} was answered in the encoding {coding[:64]!r}, which was not asked for and cannot be read",
    )
