"""Bodies that are compressed, or whose compression is damaged."""

import gzip
import zlib
from collections.abc import Callable

import pytest
from forebay.wire.http_bodies import Inflater, is_compression

TEXT = bytes(range(256)) * 40
# Much larger than the chunks that it is decompressed in.
ZEROS = bytes(3_500_000)


def _inflate(coding: str, body: bytes, step: int) -> bytes:
    inflater = Inflater(coding)
    parts = [part for start in range(0, len(body), step) for part in inflater.feed(body[start : start + step])]
    return b"".join((*parts, inflater.finish()))


def _deflate_raw(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
@pytest.mark.parametrize("text", [b"", TEXT, ZEROS], ids=["empty", "text", "zeros"])
@pytest.mark.parametrize(
    ("coding", "compress"),
    [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", _deflate_raw)],
)
def test_a_body_is_read_wherever_its_chunks_end(
    coding: str, compress: Callable[[bytes], bytes], text: bytes, step: int
) -> None:
    assert _inflate(coding, compress(text), step) == text


@pytest.mark.parametrize("more", [1, 5, 100, 257, 258])
def test_the_last_bytes_may_come_after_all_compressed_ones(more: int) -> None:
    """A body without a checksum may be read to its end before all of its text fits into a chunk."""
    text = bytes((1 << 20) + more)
    assert _inflate("deflate", _deflate_raw(text), 1 << 20) == text


@pytest.mark.parametrize("step", [1, 1 << 20])
def test_gzip_may_have_several_members_and_padding(step: int) -> None:
    body = gzip.compress(TEXT) + bytes(10) + gzip.compress(b"more") + bytes(1000)
    assert _inflate("gzip", body, step) == TEXT + b"more"


@pytest.mark.parametrize(
    ("coding", "body", "reason"),
    [
        ("gzip", gzip.compress(TEXT) + b"x", "was answered gzip with something else behind its end"),
        ("gzip", gzip.compress(TEXT) + b"\x1fx" * 20, "gzip with something else behind its end; .*: Error"),
        ("deflate", zlib.compress(TEXT) + zlib.compress(TEXT), "deflate with something else behind its end"),
        ("gzip", b"not compressed", "was answered what is not gzip, as it says: Error"),
        ("deflate", b"\x78not compressed", "was answered what is not deflate, as it says: Error"),
        ("gzip", gzip.compress(TEXT)[:-9], "was answered gzip that ends too early"),
        ("br", b"x", "the encoding 'br', which was not asked for"),
    ],
)
def test_a_damaged_body_is_an_error(coding: str, body: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        _inflate(coding, body, 5)


def test_only_unknown_codings_are_compressions() -> None:
    assert not any(map(is_compression, ["", "identity", "utf-8", "8bit"]))
    assert all(map(is_compression, ["gzip", "br", "unknown"]))
