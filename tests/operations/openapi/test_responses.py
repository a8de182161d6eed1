"""Successful responses of an HTTP API: envelopes, content types and stored bodies."""

import asyncio
import gzip
import json
from http.server import BaseHTTPRequestHandler
from typing import Any

import forebay
import httpx2
import orjson
import pytest
from forebay.envelope import Body, HTTPResponseMeta, ResponseEnvelope
from forebay.operations import CallContext, CallError, Identity, OperationRegistry, from_openapi
from forebay.operations.responses import to_http_response
from http_api import API, Answer, document, single_operation
from openapi_calls import call, call_error

OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

WITH_OUTPUT: dict[str, Any] = {"responses": {"200": {"content": {"application/json": {"schema": OBJECT}}}}}


def test_envelope_has_status_and_headers(api: API) -> None:
    api.default_answer = Answer(b"[1]", status=201, headers=[("X-Many", "a"), ("X-Many", "b"), ("X-One", "c")])
    envelope = call(api)
    assert isinstance(envelope.meta, HTTPResponseMeta)
    assert envelope.meta.status_code == 201
    assert envelope.meta.content_type == "application/json"
    assert envelope.meta.headers["x-many"] == "a, b"
    assert envelope.meta.headers["x-one"] == "c"


@pytest.mark.parametrize("content_type", ["application/json", "application/problem+json; charset=utf-8"])
def test_json_stays_bytes(api: API, content_type: str) -> None:
    api.default_answer = Answer(b' {"n": 1.0} ', content_type)
    assert call(api).data == Body(b' {"n": 1.0} ', content_type)


def test_json_with_an_output_schema_is_parsed(api: API) -> None:
    api.default_answer = Answer(b'{"n": 1}')
    assert call(api, WITH_OUTPUT).data == {"n": 1}


def test_response_is_not_cast_to_the_schema_of_another_status(api: API) -> None:
    job = {"type": "object", "properties": {"job": {"type": "string"}}, "required": ["job"]}
    accepted = {"202": {"content": {"application/json": {"schema": job}}}}
    operation = {"responses": {"200": {"content": {"application/json": {"schema": {**OBJECT, "required": []}}}}}}
    operation["responses"] |= accepted
    api.default_answer = Answer(b'{"job": "j-77"}', status=202)
    assert call(api, operation).data == {"job": "j-77"}


@pytest.mark.parametrize("operation", [{}, WITH_OUTPUT])
def test_invalid_json_stays_bytes(api: API, operation: dict[str, Any]) -> None:
    api.default_answer = Answer(b'{"n": 1')
    assert call(api, operation).data == Body(b'{"n": 1', "application/json")


@pytest.mark.slow
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
    api.default_answer = answer
    assert call(api, operation).data == data


@pytest.mark.parametrize("charset", ["hex", "zlib", "idna", "undefined", "utf-16"])
def test_error_with_an_unusable_charset_keeps_its_status(api: API, charset: str) -> None:
    api.default_answer = Answer(b"h\xffello", f"text/plain; charset={charset}", 404)
    assert call_error(api).details["status"] == 404


def test_head_has_no_data(api: API) -> None:
    api.default_answer = Answer(b"[1]")
    envelope = call(api, method="head")
    assert envelope.data is None
    assert isinstance(envelope.meta, HTTPResponseMeta)
    assert envelope.meta.headers["content-length"] == "3"


def test_response_already_read_by_an_event_hook(api: API) -> None:
    async def read(response: httpx2.Response) -> None:
        await response.aread()

    api.default_answer = Answer(gzip.compress(b"[1]"), headers=[("Content-Encoding", "gzip")])

    async def run() -> Any:
        client = httpx2.AsyncClient(event_hooks={"response": [read]})
        async with client, await from_openapi(document(single_operation("/x"), api.url), client) as operations:
            return await operations.register_into(OperationRegistry()).execute("api.op", {})

    assert asyncio.run(run()).data.content == b"[1]"


def send_empty_chunked(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"0\r\n\r\n")


NULLABLE: dict[str, Any] = {"responses": {"200": {"content": {"application/json": {"schema": {"type": "null"}}}}}}


@pytest.mark.slow
@pytest.mark.parametrize("operation", [{}, NULLABLE])
@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (send_empty_chunked, b""),
        (Answer(b""), b""),
        (Answer(gzip.compress(b""), headers=[("Content-Encoding", "gzip")]), b""),
        (Answer(b"null"), b"null"),
    ],
)
def test_empty_body_differs_from_null(api: API, operation: dict[str, Any], answer: Any, body: bytes) -> None:
    api.answers["/x"] = answer
    envelope = call(api, operation)
    assert to_http_response(envelope).body == body
    assert to_http_response(ResponseEnvelope.from_json(envelope.to_json())).body == body


def test_content_length_of_head_is_kept(api: API) -> None:
    api.default_answer = Answer(b"[1, 2]")
    meta = call(api, method="head").meta
    assert isinstance(meta, HTTPResponseMeta)
    assert meta.headers["content-length"] == "6"


def send_chunked(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for chunk in (b"[1,", b" 2]", b""):
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))


def test_chunked_response(api: API) -> None:
    api.answers["/x"] = send_chunked
    assert call(api).data.content == b"[1, 2]"


def big_json(size: int = 20_000_000) -> bytes:
    item = b'{"id": 12345, "name": "somebody", "tags": ["a", "b"]}'
    return b"[" + b", ".join([item] * (size // (len(item) + 2))) + b"]"


@pytest.mark.slow
def test_large_body_is_not_parsed(api: API, monkeypatch: pytest.MonkeyPatch) -> None:
    api.default_answer = Answer(big_json())

    def fail(*_: Any, **__: Any) -> Any:
        raise AssertionError("parsed")

    async def run() -> Any:
        async with await from_openapi(document(single_operation("/x"), api.url)) as operations:
            registry = operations.register_into(OperationRegistry())
            monkeypatch.setattr(orjson, "loads", fail)
            monkeypatch.setattr(json, "loads", fail)
            return await registry.execute("api.op", {})

    assert asyncio.run(run()).data.content == api.default_answer.body


def test_body_with_an_output_schema_is_parsed_once(api: API, monkeypatch: pytest.MonkeyPatch) -> None:
    api.default_answer = Answer(b'{"n": 1}')
    inputs: list[bytes] = []
    original = orjson.loads

    def record(data: bytes) -> Any:
        inputs.append(data)
        return original(data)

    async def run() -> Any:
        async with await from_openapi(document(single_operation("/x", **WITH_OUTPUT), api.url)) as operations:
            registry = operations.register_into(OperationRegistry())
            monkeypatch.setattr(orjson, "loads", record)
            return await registry.execute("api.op", {})

    assert asyncio.run(run()).data == {"n": 1}
    assert inputs == [b'{"n": 1}']


def test_large_body_is_stored(api: API, store: forebay.Store) -> None:
    api.default_answer = Answer(big_json(3_000_000), "application/vnd.rows+json")
    context = CallContext(identity=Identity("ann"))
    data = call(api, WITH_OUTPUT, store=store, context=context).data
    assert data["mime_type"] == "application/json"
    assert data["size_bytes"] == len(api.default_answer.body)
    with store.open(data["output_handle"], principal="ann") as stored:
        assert stored.read() == api.default_answer.body
    with pytest.raises(forebay.HandleNotFound):
        store.open(data["output_handle"], principal="bob")


@pytest.mark.slow
def test_small_body_is_not_stored(api: API, store: forebay.Store) -> None:
    api.default_answer = Answer(b"[1]")
    for size in (3, 4):
        assert call(api, WITH_OUTPUT, store=store, store_over=size).data == Body(b"[1]", "application/json")
    assert call(api, store=store, store_over=2).data["size_bytes"] == 3
    assert len([*store.list()]) == 1


def test_users_client_is_used_and_left_open(api: API) -> None:
    async def run() -> None:
        async with httpx2.AsyncClient(base_url=api.url, headers={"X-Client": "mine"}) as client:
            async with await from_openapi(
                document(single_operation("/x"), "http://elsewhere.invalid"), client
            ) as operations:
                await operations.register_into(OperationRegistry()).execute("api.op", {})
            assert not client.is_closed
        operations = await from_openapi(document(single_operation("/x"), api.url))
        await operations.aclose()
        with pytest.raises(CallError):
            await operations.register_into(OperationRegistry()).execute("api.op", {})

    asyncio.run(run())
    assert api.last.header("x-client") == "mine"


def test_calls_do_not_share_cookies(api: API) -> None:
    api.default_answer = Answer(headers=[("Set-Cookie", "session=ann; Path=/")])

    async def run() -> None:
        async with await from_openapi(document(single_operation("/x"), api.url)) as operations:
            registry = operations.register_into(OperationRegistry())
            await registry.execute("api.op", {})
            await registry.execute("api.op", {})

    asyncio.run(run())
    assert api.last.header("cookie") is None
