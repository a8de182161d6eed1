"""Failed calls: refused and broken connections, timeouts and error responses."""

import asyncio
import gzip
import json
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

import forebay
import httpx2
import pytest
from forebay.operations import CallContext, CallError, OperationRegistry, from_openapi
from http_api import API, Answer, document, single_operation
from openapi_calls import call_error


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_without_location_is_an_error(api: API, status: int) -> None:
    api.default_answer = Answer(status=status)
    error = call_error(api)
    assert "without a Location" in str(error)
    assert error.details["status"] == status


def test_refused_connection_error_names_the_address(api: API) -> None:
    message = str(call_error(api, base_url="http://127.0.0.1:1"))
    assert "failed at 127.0.0.1:1: ConnectError" in message
    assert message.endswith("; check base_url, or try again when it is back")


def drop_in_body(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "3000000")
    handler.end_headers()
    handler.wfile.write(b" " * 1_500_000)
    handler.close_connection = True


def close_connection(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


def send_nonsense(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"SMTP ready\r\n\r\n")
    handler.close_connection = True


@pytest.mark.parametrize("answer", [drop_in_body, close_connection, send_nonsense])
def test_broken_connection_is_an_error(api: API, answer: Any) -> None:
    api.answers["/x"] = answer
    error = call_error(api)
    assert error.code == "EXECUTION_ERROR"
    assert "RemoteProtocolError" in str(error)


def test_incomplete_body_is_not_stored(api: API, store: forebay.Store) -> None:
    api.answers["/x"] = drop_in_body
    assert call_error(api, store=store).code == "EXECUTION_ERROR"
    assert [*store.list()] == []


def test_unreachable_server_is_an_error(api: API) -> None:
    error = call_error(api, base_url="http://127.0.0.1:1")
    assert error.code == "EXECUTION_ERROR"
    assert "ConnectError" in str(error)


def hang(api: API) -> Any:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        api.released.wait(20)
        handler.close_connection = True

    return answer


def hang_in_body(api: API) -> Any:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "10")
        handler.end_headers()
        handler.wfile.write(b"[")
        api.released.wait(20)
        handler.close_connection = True

    return answer


@pytest.mark.slow
@pytest.mark.parametrize("make_answer", [hang, hang_in_body])
def test_timeout_and_deadline(api: API, make_answer: Any) -> None:
    api.answers["/x"] = make_answer(api)
    by_timeout = call_error(api, timeout=0.3)
    by_deadline = call_error(api, context=CallContext(deadline=time.monotonic() + 0.3))
    for error in (by_timeout, by_deadline):
        assert error.code == "TIMEOUT"
        assert "may have been carried out" in str(error)
    before = len(api.requests)
    error = call_error(api, context=CallContext(deadline=time.monotonic() - 1))
    assert (error.code, len(api.requests)) == ("TIMEOUT", before)
    assert "was not begun" in str(error)


@pytest.mark.slow
def test_timeout_of_the_users_client(api: API) -> None:
    api.answers["/x"] = hang(api)

    async def run() -> None:
        async with httpx2.AsyncClient(timeout=0.3) as client:
            operations = await from_openapi(document(single_operation("/x"), api.url), client)
            await operations.register_into(OperationRegistry()).execute("api.op", {})

    with pytest.raises(CallError) as caught:
        asyncio.run(run())
    assert caught.value.code == "TIMEOUT"


@pytest.mark.parametrize("status", [400, 404, 500, 599])
def test_status_of_400_or_more_is_an_error(api: API, status: int) -> None:
    headers = [("Retry-After", "7"), ("X-RateLimit-Left", "0"), ("Set-Cookie", "a=b"), ("X-Other", "c")]
    api.default_answer = Answer(b'{"why": "no"}', status=status, headers=headers)
    error = call_error(api)
    assert error.code == "EXECUTION_ERROR"
    assert str(status) in str(error)
    assert error.details == {
        "status": status,
        "headers": {"retry-after": "7", "x-ratelimit-left": "0", "content-type": "application/json"},
        "body": '{"why": "no"}',
    }
    json.dumps(error.to_dict())


@pytest.mark.parametrize("limit", range(1, 12))
def test_error_body_is_cut_between_characters(api: API, limit: int) -> None:
    api.default_answer = Answer("aé😀é".encode() * 100_000, "text/plain", 500)
    details = call_error(api, max_error_bytes=limit).details
    assert ("aé😀é" * 2).startswith(details["body"])
    assert limit - 3 <= len(details["body"].encode()) <= limit
    assert details["body_cut"] == f"the first {len(details['body'].encode())} of {len(api.default_answer.body)} bytes"


def test_short_error_body_is_not_cut(api: API) -> None:
    api.default_answer = Answer("é".encode() * 5, "text/plain", 500)
    assert call_error(api, max_error_bytes=10).details["body"] == "é" * 5
    assert "body_cut" not in call_error(api, max_error_bytes=10).details
    assert call_error(api, max_error_bytes=9).details["body_cut"] == "the first 8 of 10 bytes"


def test_oversized_body_is_not_read_to_the_end(api: API) -> None:
    api.default_answer = Answer(gzip.compress(b" " * 50_000_000), headers=[("Content-Encoding", "gzip")])
    error = call_error(api, max_body_bytes=1_000_000)
    assert error.code == "EXECUTION_ERROR"
    assert "max_body_bytes" in str(error)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(b" " * 3_000_000, status=500),
        Answer(b" " * 3_000_000),
        Answer(b" " * 3_000_000, status=302),
        Answer(b" " * 3_000_000, status=302, headers=[("Location", "/x")]),
    ],
    ids=["error", "too large", "redirect without location", "endless redirects"],
)
def test_unread_body_releases_its_connection(api: API, answer: Answer) -> None:
    api.default_answer = answer

    async def run() -> None:
        client = httpx2.AsyncClient(limits=httpx2.Limits(max_connections=1))
        options: dict[str, Any] = {"namespace": "api", "timeout": 20, "max_body_bytes": 1000}
        async with (
            client,
            await from_openapi(document(single_operation("/x"), api.url), client, **options) as operations,
        ):
            registry = operations.register_into(OperationRegistry())
            for _ in range(2):
                with pytest.raises(CallError) as caught:
                    await registry.execute("api.op", {})
                assert caught.value.code == "EXECUTION_ERROR"

    asyncio.run(run())
