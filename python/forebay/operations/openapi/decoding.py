"""Compressed bodies: the client takes one that ends too early for a whole one, so it is not asked."""

from collections.abc import AsyncIterator

import httpx2

from forebay.inflate import ACCEPTED_CODINGS, Inflating, is_coding
from forebay.operations.errors import CallError

__all__ = ["ACCEPTED_CODINGS", "decoded"]


async def decoded(response: httpx2.Response, what: str) -> AsyncIterator[bytes]:
    """The body as it was before it was compressed. Raises `CallError` for one that is broken, or ends too early."""
    if response.is_stream_consumed:
        # A hook of the client has read it, or a transport had it whole: it is decoded already.
        yield response.content
        return
    chunks: AsyncIterator[bytes] = response.aiter_raw()
    for coding in reversed(response.headers.get_list("Content-Encoding", split_commas=True)):
        name = coding.strip().lower()
        if is_coding(name):
            chunks = _inflated(chunks, Inflating(name), what)
    async for chunk in chunks:
        yield chunk


async def _inflated(chunks: AsyncIterator[bytes], inflating: Inflating, what: str) -> AsyncIterator[bytes]:
    try:
        async for chunk in chunks:
            for piece in inflating.feed(chunk):
                yield piece
        if last := inflating.finish():
            yield last
    except ValueError as error:
        raise CallError("EXECUTION_ERROR", f"{what} {error}") from None
