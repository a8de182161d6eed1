"""Compressed responses of an HTTP API."""

import gzip
import zlib
from typing import Any

import pytest
from http_api import API, Answer
from openapi_calls import call, call_error


@pytest.mark.parametrize(("coding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_compressed_responses(api: API, coding: str, compress: Any) -> None:
    api.default_answer = Answer(compress(b"[1, 2]"), headers=[("Content-Encoding", coding)])
    assert call(api).data.content == b"[1, 2]"


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


TEXT = b"a line of a log\n" * 200_000

COMPRESSED = {
    "gzip": gzip.compress(TEXT),
    "x-gzip": gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:]) + b"\0" * 512,
    "deflate": zlib.compress(TEXT),
    "Deflate": raw_deflate(TEXT),
    "deflate, gzip": gzip.compress(zlib.compress(TEXT)),
    "identity": TEXT,
    "gzip, identity, utf-8": gzip.compress(TEXT),
}


@pytest.mark.parametrize("coding", COMPRESSED)
def test_every_content_encoding_is_decoded(api: API, coding: str) -> None:
    api.default_answer = Answer(COMPRESSED[coding], "text/plain", headers=[("Content-Encoding", coding)])
    assert call(api).data == TEXT.decode()
    assert api.last.header("Accept-Encoding") == "gzip, deflate"


def test_output_that_follows_a_full_chunk_without_more_input_is_returned(api: API) -> None:
    # The last bytes of the compressed body stand for more than one chunk, and nothing follows them.
    data = b"a" * ((1 << 20) + 20)
    api.default_answer = Answer(raw_deflate(data), "text/plain", headers=[("Content-Encoding", "deflate")])
    assert call(api).data == data.decode()


@pytest.mark.slow
@pytest.mark.parametrize("coding", ["gzip", "deflate", "Deflate", "deflate, gzip"])
@pytest.mark.parametrize("missing", [1, 5, 40])
def test_truncated_compressed_body_is_an_error(api: API, coding: str, missing: int) -> None:
    api.default_answer = Answer(COMPRESSED[coding][:-missing], "text/plain", headers=[("Content-Encoding", coding)])
    assert "that ends too early" in str(call_error(api))


@pytest.mark.parametrize("encoding", ["", "none", "UTF-8", "utf8", "iso-8859-1", "binary", "8bit", "identity"])
def test_encodings_that_do_not_compress_are_ignored(api: API, encoding: str) -> None:
    api.default_answer = Answer(b"[1, 2]", headers=[("Content-Encoding", encoding)])
    assert call(api).data.content == b"[1, 2]"


@pytest.mark.slow
@pytest.mark.parametrize("coding", ["gzip", "deflate", "Deflate"])
@pytest.mark.parametrize("trailing", [b"x", b"\0\0<p>Warning</p>", b"\x1f\x8b not another member", b"\x03\x00"])
def test_trailing_data_after_compressed_body_is_an_error(api: API, coding: str, trailing: bytes) -> None:
    api.default_answer = Answer(COMPRESSED[coding] + trailing, "text/plain", headers=[("Content-Encoding", coding)])
    assert f"{coding.lower()} with something else behind its end" in str(call_error(api))


@pytest.mark.parametrize("coding", ["deflate", "Deflate"])
def test_trailing_zeros_after_compressed_body_are_ignored(api: API, coding: str) -> None:
    api.default_answer = Answer(COMPRESSED[coding] + bytes(512), "text/plain", headers=[("Content-Encoding", coding)])
    assert call(api).data == TEXT.decode()


@pytest.mark.parametrize(
    ("coding", "message"),
    [("br", "in the encoding 'br'"), ("x-own", "in the encoding 'x-own'"), ("gzip", "what is not gzip")],
)
def test_undecodable_body_is_an_error(api: API, coding: str, message: str) -> None:
    api.default_answer = Answer(b"\x1b\x03\xf8garbage", headers=[("Content-Encoding", coding)])
    assert message in str(call_error(api))
    api.default_answer.status = 404
    assert call_error(api).details["status"] == 404


@pytest.mark.slow
def test_body_limit_counts_decompressed_bytes(api: API) -> None:
    api.default_answer = Answer(gzip.compress(bytes(50_000_000)), headers=[("Content-Encoding", "gzip")])
    assert "more than 1000 bytes" in str(call_error(api, max_body_bytes=1000))


def test_wrong_content_encoding_is_an_error(api: API) -> None:
    api.default_answer = Answer(b"not gzip", headers=[("Content-Encoding", "gzip")])
    assert call_error(api).code == "EXECUTION_ERROR"
