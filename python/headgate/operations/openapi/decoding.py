"""Compressed bodies: the client takes one that ends too early for a whole one, so it is not asked."""

import zlib
from collections.abc import AsyncIterator

import httpx2

from headgate.operations.errors import CallError

__all__ = ["ACCEPTED_CODINGS", "decoded"]

ACCEPTED_CODINGS = "gzip, deflate"

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
        if name not in ("", "identity"):
            chunks = _inflated(chunks, name, what)
    async for chunk in chunks:
        yield chunk


async def _inflated(chunks: AsyncIterator[bytes], coding: str, what: str) -> AsyncIterator[bytes]:
    stream = None
    async for chunk in chunks:
        rest = chunk
        while rest:
            if stream is None or stream.eof:
                # After the end there may be another member of the file, or zeros up to a full block.
                rest = rest if stream is None else rest.lstrip(b"\0")
                if not rest:
                    break
                stream = _decompressor(coding, rest, what)
            try:
                piece = stream.decompress(rest, _PIECE)
            except zlib.error as error:
                raise CallError(
                    "EXECUTION_ERROR", f"{what} was answered what is not {coding}, as it says: {error}"
                ) from None
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
