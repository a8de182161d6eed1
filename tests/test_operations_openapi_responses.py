"""What an HTTP API answers, and all the ways in which it does not."""

import asyncio
import gzip
import json
import time
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import headgate
import httpx2
import orjson
import pytest
from headgate.envelope import Body, HTTPResponseMeta, ResponseEnvelope
from headgate.operations import CallContext, CallError, Identity, OperationRegistry, from_openapi
from headgate.operations.serving import to_http_response
from http_api import API, Answer, document, http_api, one


@pytest.fixture
def api() -> Iterator[API]:
    with http_api() as started:
        yield started


OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
WITH_OUTPUT: dict[str, Any] = {"responses": {"200": {"content": {"application/json": {"schema": OBJECT}}}}}


def call(
    api: API,
    operation: dict[str, Any] | None = None,
    *,
    method: str = "get",
    context: CallContext | None = None,
    **options: Any,
) -> ResponseEnvelope[Any]:
    async def run() -> ResponseEnvelope[Any]:
        paths = one("/x", method, **(operation or {}))
        async with await from_openapi(document(paths, api.url), namespace="api", **options) as operations:
            return await operations.register_into(OperationRegistry()).execute("api.op", {}, context)

    return asyncio.run(run())


def failed(api: API, **options: Any) -> CallError:
    with pytest.raises(CallError) as caught:
        call(api, **options)
    return caught.value


def test_an_answer_is_an_envelope_with_all_that_http_says(api: API) -> None:
    api.usual = Answer(b"[1]", status=201, headers=[("X-Many", "a"), ("X-Many", "b"), ("X-One", "c")])
    envelope = call(api)
    assert isinstance(envelope.meta, HTTPResponseMeta)
    assert envelope.meta.status_code == 201
    assert envelope.meta.content_type == "application/json"
    assert envelope.meta.headers["x-many"] == "a, b"
    assert envelope.meta.headers["x-one"] == "c"


@pytest.mark.parametrize("content_type", ["application/json", "application/problem+json; charset=utf-8"])
def test_json_stays_bytes(api: API, content_type: str) -> None:
    api.usual = Answer(b' {"n": 1.0} ', content_type)
    assert call(api).data == Body(b' {"n": 1.0} ', content_type)


def test_json_is_parsed_where_a_schema_asks_for_it(api: API) -> None:
    api.usual = Answer(b'{"n": 1}')
    assert call(api, WITH_OUTPUT).data == {"n": 1}


def test_an_answer_is_not_made_to_fit_what_another_status_answers(api: API) -> None:
    job = {"type": "object", "properties": {"job": {"type": "string"}}, "required": ["job"]}
    accepted = {"202": {"content": {"application/json": {"schema": job}}}}
    operation = {"responses": {"200": {"content": {"application/json": {"schema": {**OBJECT, "required": []}}}}}}
    operation["responses"] |= accepted
    api.usual = Answer(b'{"job": "j-77"}', status=202)
    assert call(api, operation).data == {"job": "j-77"}


@pytest.mark.parametrize("operation", [{}, WITH_OUTPUT])
def test_json_that_is_none_stays_what_it_is(api: API, operation: dict[str, Any]) -> None:
    api.usual = Answer(b'{"n": 1')
    assert call(api, operation).data == Body(b'{"n": 1', "application/json")


@pytest.mark.parametrize("operation", [{}, WITH_OUTPUT])
@pytest.mark.parametrize(
    ("answer", "data"),
    [
        (Answer(b"<p>", "text/html"), "<p>"),
        (Answer("é".encode("latin-1"), "text/plain; charset=iso-8859-1"), "é"),
        (Answer("é".encode(), "text/plain"), "é"),
        (Answer("é".encode("latin-1"), "text/csv"), "é".encode("latin-1")),
        (Answer(b"a\xff", "text/plain; charset=nonsense"), b"a\xff"),
        *((Answer(b"hello", f"text/plain; charset={name}"), "hello") for name in ("hex", "zlib", "rot13", "undefined")),
        (Answer(b"h\xffe", "text/plain; charset=idna"), b"h\xffe"),
        (Answer(rb"a\u0041\n", "text/plain; charset=unicode_escape"), r"a\u0041\n"),
        (Answer(b"hello", "text/plain; charset=utf-16"), "hello"),
        (Answer("hé".encode("utf-16"), "text/plain; charset=utf-16"), "hé"),
        (Answer(b"\x00\xff", "image/png"), b"\x00\xff"),
        (Answer(b'{"n": 1}', None), b'{"n": 1}'),
        (Answer(b"", "application/json"), None),
        (Answer(b"", None, 204), None),
    ],
)
def test_other_content_types(api: API, answer: Answer, data: Any, operation: dict[str, Any]) -> None:
    api.usual = answer
    assert call(api, operation).data == data


@pytest.mark.parametrize("charset", ["hex", "zlib", "idna", "undefined", "utf-16"])
def test_an_error_in_a_charset_that_is_none_keeps_its_status(api: API, charset: str) -> None:
    api.usual = Answer(b"h\xffello", f"text/plain; charset={charset}", 404)
    assert failed(api).details["status"] == 404


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_nowhere_is_an_error(api: API, status: int) -> None:
    api.usual = Answer(status=status)
    error = failed(api)
    assert "without a Location" in str(error)
    assert error.details["status"] == status


def test_a_connection_that_is_refused_says_to_where(api: API) -> None:
    assert "failed at 127.0.0.1:1: ConnectError" in str(failed(api, base_url="http://127.0.0.1:1"))


def test_head_has_no_data(api: API) -> None:
    api.usual = Answer(b"[1]")
    envelope = call(api, method="head")
    assert envelope.data is None
    assert isinstance(envelope.meta, HTTPResponseMeta)
    assert envelope.meta.headers["content-length"] == "3"


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


@pytest.mark.parametrize("coding", ["gzip", "deflate", "Deflate", "deflate, gzip"])
@pytest.mark.parametrize("missing", [1, 5, 40])
def test_a_compressed_answer_that_ends_too_early_is_none(api: API, coding: str, missing: int) -> None:
    api.usual = Answer(COMPRESSED[coding][:-missing], "text/plain", headers=[("Content-Encoding", coding)])
    assert "that ends too early" in str(failed(api))


@pytest.mark.parametrize("word", ["", "none", "UTF-8", "utf8", "iso-8859-1", "binary", "8bit", "identity"])
def test_words_that_are_no_codings_change_nothing(api: API, word: str) -> None:
    api.usual = Answer(b"[1, 2]", headers=[("Content-Encoding", word)])
    assert call(api).data.content == b"[1, 2]"


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


def test_an_answer_that_a_hook_of_the_client_has_read(api: API) -> None:
    async def read(response: httpx2.Response) -> None:
        await response.aread()

    api.usual = Answer(gzip.compress(b"[1]"), headers=[("Content-Encoding", "gzip")])

    async def run() -> Any:
        client = httpx2.AsyncClient(event_hooks={"response": [read]})
        async with client, await from_openapi(document(one("/x"), api.url), client) as operations:
            return await operations.register_into(OperationRegistry()).execute("api.op", {})

    assert asyncio.run(run()).data.content == b"[1]"


def test_a_compressed_answer_counts_as_what_it_stands_for(api: API) -> None:
    api.usual = Answer(gzip.compress(bytes(50_000_000)), headers=[("Content-Encoding", "gzip")])
    assert "more than 1000 bytes" in str(failed(api, max_body_bytes=1000))


def without_bytes(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"0\r\n\r\n")


NULLABLE: dict[str, Any] = {"responses": {"200": {"content": {"application/json": {"schema": {"type": "null"}}}}}}


@pytest.mark.parametrize("operation", [{}, NULLABLE])
@pytest.mark.parametrize(
    ("answer", "served"),
    [
        (without_bytes, b""),
        (Answer(b""), b""),
        (Answer(gzip.compress(b""), headers=[("Content-Encoding", "gzip")]), b""),
        (Answer(b"null"), b"null"),
    ],
)
def test_no_body_is_not_null(api: API, operation: dict[str, Any], answer: Any, served: bytes) -> None:
    api.answers["/x"] = answer
    envelope = call(api, operation)
    assert to_http_response(envelope).body == served
    assert to_http_response(ResponseEnvelope.from_json(envelope.to_json())).body == served


def test_what_a_head_says_of_the_length_is_kept(api: API) -> None:
    api.usual = Answer(b"[1, 2]")
    meta = call(api, method="head").meta
    assert isinstance(meta, HTTPResponseMeta)
    assert meta.headers["content-length"] == "6"


def chunked(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for chunk in (b"[1,", b" 2]", b""):
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))


def test_chunked_answers(api: API) -> None:
    api.answers["/x"] = chunked
    assert call(api).data.content == b"[1, 2]"


def big_json(size: int = 20_000_000) -> bytes:
    item = b'{"id": 12345, "name": "somebody", "tags": ["a", "b"]}'
    return b"[" + b", ".join([item] * (size // (len(item) + 2))) + b"]"


def test_a_large_body_is_not_parsed(api: API, monkeypatch: pytest.MonkeyPatch) -> None:
    api.usual = Answer(big_json())

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("parsed")

    async def run() -> Any:
        async with await from_openapi(document(one("/x"), api.url)) as operations:
            registry = operations.register_into(OperationRegistry())
            monkeypatch.setattr(orjson, "loads", refuse)
            monkeypatch.setattr(json, "loads", refuse)
            return await registry.execute("api.op", {})

    assert asyncio.run(run()).data.content == api.usual.body


def test_a_large_body_that_a_schema_asks_for_is_parsed_once(api: API, monkeypatch: pytest.MonkeyPatch) -> None:
    api.usual = Answer(b'{"n": 1}')
    parsed: list[bytes] = []
    real = orjson.loads

    def counted(data: bytes) -> Any:
        parsed.append(data)
        return real(data)

    async def run() -> Any:
        async with await from_openapi(document(one("/x", **WITH_OUTPUT), api.url)) as operations:
            registry = operations.register_into(OperationRegistry())
            monkeypatch.setattr(orjson, "loads", counted)
            return await registry.execute("api.op", {})

    assert asyncio.run(run()).data == {"n": 1}
    assert parsed == [b'{"n": 1}']


@pytest.fixture
def store(tmp_path: Path) -> Iterator[headgate.Store]:
    with headgate.open_store(tmp_path / "store") as opened:
        yield opened


def test_a_large_body_goes_straight_into_a_store(api: API, store: headgate.Store) -> None:
    api.usual = Answer(big_json(3_000_000), "application/vnd.rows+json")
    context = CallContext(identity=Identity("ann"))
    data = call(api, WITH_OUTPUT, store=store, context=context).data
    assert data["mime_type"] == "application/json"
    assert data["size_bytes"] == len(api.usual.body)
    with store.open(data["output_handle"], principal="ann") as stored:
        assert stored.read() == api.usual.body
    with pytest.raises(headgate.HandleNotFound):
        store.open(data["output_handle"], principal="bob")


def test_what_fits_is_not_stored(api: API, store: headgate.Store) -> None:
    api.usual = Answer(b"[1]")
    for size in (3, 4):
        assert call(api, WITH_OUTPUT, store=store, store_over=size).data == Body(b"[1]", "application/json")
    assert call(api, store=store, store_over=2).data["size_bytes"] == 3
    assert len([*store.list()]) == 1


def dropped(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "3000000")
    handler.end_headers()
    handler.wfile.write(b" " * 1_500_000)
    handler.close_connection = True


def reset(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


def nonsense(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"SMTP ready\r\n\r\n")
    handler.close_connection = True


@pytest.mark.parametrize("how", [dropped, reset, nonsense])
def test_connections_that_break(api: API, how: Any) -> None:
    api.answers["/x"] = how
    error = failed(api)
    assert error.code == "EXECUTION_ERROR"
    assert "RemoteProtocolError" in str(error)


def test_a_body_that_breaks_off_is_not_stored(api: API, store: headgate.Store) -> None:
    api.answers["/x"] = dropped
    assert failed(api, store=store).code == "EXECUTION_ERROR"
    assert [*store.list()] == []


def test_a_body_that_is_not_compressed_as_it_says(api: API) -> None:
    api.usual = Answer(b"not gzip", headers=[("Content-Encoding", "gzip")])
    assert failed(api).code == "EXECUTION_ERROR"


def test_nobody_listens(api: API) -> None:
    error = failed(api, base_url="http://127.0.0.1:1")
    assert error.code == "EXECUTION_ERROR"
    assert "ConnectError" in str(error)


def slow(api: API) -> Any:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        api.released.wait(20)
        handler.close_connection = True

    return answer


def slow_in_the_body(api: API) -> Any:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "10")
        handler.end_headers()
        handler.wfile.write(b"[")
        api.released.wait(20)
        handler.close_connection = True

    return answer


@pytest.mark.parametrize("how", [slow, slow_in_the_body])
def test_what_takes_too_long(api: API, how: Any) -> None:
    api.answers["/x"] = how(api)
    for late in (failed(api, timeout=0.3), failed(api, context=CallContext(deadline=time.monotonic() + 0.3))):
        assert late.code == "TIMEOUT"
        assert "may have been carried out" in str(late)
    before = len(api.arrived)
    error = failed(api, context=CallContext(deadline=time.monotonic() - 1))
    assert (error.code, len(api.arrived)) == ("TIMEOUT", before)
    assert "was not begun" in str(error)


def test_the_time_of_a_client_that_is_given(api: API) -> None:
    api.answers["/x"] = slow(api)

    async def run() -> None:
        async with httpx2.AsyncClient(timeout=0.3) as client:
            operations = await from_openapi(document(one("/x"), api.url), client)
            await operations.register_into(OperationRegistry()).execute("api.op", {})

    with pytest.raises(CallError) as caught:
        asyncio.run(run())
    assert caught.value.code == "TIMEOUT"


def test_a_client_that_is_given_is_used_and_left_open(api: API) -> None:
    async def run() -> None:
        async with httpx2.AsyncClient(base_url=api.url, headers={"X-Client": "mine"}) as client:
            async with await from_openapi(document(one("/x"), "http://elsewhere.invalid"), client) as operations:
                await operations.register_into(OperationRegistry()).execute("api.op", {})
            assert not client.is_closed
        operations = await from_openapi(document(one("/x"), api.url))
        await operations.aclose()
        with pytest.raises(CallError):
            await operations.register_into(OperationRegistry()).execute("api.op", {})

    asyncio.run(run())
    assert api.last.header("x-client") == "mine"


@pytest.mark.parametrize("status", [400, 404, 500, 599])
def test_a_status_of_400_or_more_is_an_error(api: API, status: int) -> None:
    headers = [("Retry-After", "7"), ("X-RateLimit-Left", "0"), ("Set-Cookie", "a=b"), ("X-Other", "c")]
    api.usual = Answer(b'{"why": "no"}', status=status, headers=headers)
    error = failed(api)
    assert error.code == "EXECUTION_ERROR"
    assert str(status) in str(error)
    assert error.details == {
        "status": status,
        "headers": {"retry-after": "7", "x-ratelimit-left": "0", "content-type": "application/json"},
        "body": '{"why": "no"}',
    }
    json.dumps(error.to_dict())


@pytest.mark.parametrize("limit", range(1, 12))
def test_the_body_of_an_error_is_cut_on_a_character(api: API, limit: int) -> None:
    api.usual = Answer("aé😀é".encode() * 100_000, "text/plain", 500)
    details = failed(api, max_error_bytes=limit).details
    whole = "aé😀é" * 2
    assert whole.startswith(details["body"])
    assert limit - 3 <= len(details["body"].encode()) <= limit
    assert details["body_cut"] == f"the first {len(details['body'].encode())} of {len(api.usual.body)} bytes"


def test_the_body_of_an_error_that_fits_is_whole(api: API) -> None:
    api.usual = Answer("é".encode() * 5, "text/plain", 500)
    assert failed(api, max_error_bytes=10).details["body"] == "é" * 5
    assert "body_cut" not in failed(api, max_error_bytes=10).details
    assert failed(api, max_error_bytes=9).details["body_cut"] == "the first 8 of 10 bytes"


def test_an_answer_without_end_is_not_read_to_its_end(api: API) -> None:
    api.usual = Answer(gzip.compress(b" " * 50_000_000), headers=[("Content-Encoding", "gzip")])
    error = failed(api, max_body_bytes=1_000_000)
    assert error.code == "EXECUTION_ERROR"
    assert "max_body_bytes" in str(error)


def test_cookies_of_one_call_are_not_sent_with_the_next(api: API) -> None:
    api.usual = Answer(headers=[("Set-Cookie", "session=ann; Path=/")])

    async def run() -> None:
        async with await from_openapi(document(one("/x"), api.url)) as operations:
            registry = operations.register_into(OperationRegistry())
            await registry.execute("api.op", {})
            await registry.execute("api.op", {})

    asyncio.run(run())
    assert api.last.header("cookie") is None
