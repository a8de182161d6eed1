"""Answers of an HTTP API that are compressed: whole, or none."""

import gzip
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from http_api import API, Answer, http_api
from openapi_calls import call, failed


@pytest.fixture
def api() -> Iterator[API]:
    with http_api() as started:
        yield started


@pytest.mark.parametrize(("coding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_compressed_answers(api: API, coding: str, compress: Any) -> None:
    api.usual = Answer(compress(b"[1, 2]"), headers=[("Content-Encoding", coding)])
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
def test_compressed_text_of_every_coding(api: API, coding: str) -> None:
    api.usual = Answer(COMPRESSED[coding], "text/plain", headers=[("Content-Encoding", coding)])
    assert call(api).data == TEXT.decode()
    assert api.last.header("Accept-Encoding") == "gzip, deflate"


@pytest.mark.slow
@pytest.mark.parametrize("coding", ["gzip", "deflate", "Deflate", "deflate, gzip"])
@pytest.mark.parametrize("missing", [1, 5, 40])
def test_a_compressed_answer_that_ends_too_early_is_none(api: API, coding: str, missing: int) -> None:
    api.usual = Answer(COMPRESSED[coding][:-missing], "text/plain", headers=[("Content-Encoding", coding)])
    assert "that ends too early" in str(failed(api))


@pytest.mark.parametrize("word", ["", "none", "UTF-8", "utf8", "iso-8859-1", "binary", "8bit", "identity"])
def test_words_that_are_no_codings_change_nothing(api: API, word: str) -> None:
    api.usual = Answer(b"[1, 2]", headers=[("Content-Encoding", word)])
    assert call(api).data.content == b"[1, 2]"


@pytest.mark.slow
@pytest.mark.parametrize("coding", ["gzip", "deflate", "Deflate"])
@pytest.mark.parametrize("behind", [b"x", b"\0\0<p>Warning</p>", b"\x1f\x8b not another member", b"\x03\x00"])
def test_what_stands_behind_a_compressed_answer_is_not_dropped_unseen(api: API, coding: str, behind: bytes) -> None:
    api.usual = Answer(COMPRESSED[coding] + behind, "text/plain", headers=[("Content-Encoding", coding)])
    assert f"{coding.lower()} with something else behind its end" in str(failed(api))


@pytest.mark.parametrize("coding", ["deflate", "Deflate"])
def test_zeros_behind_a_compressed_answer_are_nothing(api: API, coding: str) -> None:
    api.usual = Answer(COMPRESSED[coding] + bytes(512), "text/plain", headers=[("Content-Encoding", coding)])
    assert call(api).data == TEXT.decode()


@pytest.mark.parametrize(
    ("coding", "told"),
    [("br", "in the encoding 'br'"), ("x-own", "in the encoding 'x-own'"), ("gzip", "what is not gzip")],
)
def test_an_answer_that_cannot_be_decoded_is_none(api: API, coding: str, told: str) -> None:
    api.usual = Answer(b"\x1b\x03\xf8garbage", headers=[("Content-Encoding", coding)])
    assert told in str(failed(api))
    api.usual.status = 404
    assert failed(api).details["status"] == 404


@pytest.mark.slow
def test_a_compressed_answer_counts_as_what_it_stands_for(api: API) -> None:
    api.usual = Answer(gzip.compress(bytes(50_000_000)), headers=[("Content-Encoding", "gzip")])
    assert "more than 1000 bytes" in str(failed(api, max_body_bytes=1000))


def test_a_body_that_is_not_compressed_as_it_says(api: API) -> None:
    api.usual = Answer(b"not gzip", headers=[("Content-Encoding", "gzip")])
    assert failed(api).code == "EXECUTION_ERROR"
