"""Answers of an HTTP API that fail: refused, broken off, too late, or an error of the server's own."""

import asyncio
import gzip
import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import forebay
import httpx2
import pytest
from forebay.operations import CallContext, CallError, OperationRegistry, from_openapi
from http_api import API, Answer, document, http_api, one
from openapi_calls import failed


@pytest.fixture
def api() -> Iterator[API]:
    with http_api() as started:
        yield started


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_nowhere_is_an_error(api: API, status: int) -> None:
    api.usual = Answer(status=status)
    error = failed(api)
    assert "without a Location" in str(error)
    assert error.details["status"] == status


def test_a_connection_that_is_refused_says_to_where(api: API) -> None:
    assert "failed at 127.0.0.1:1: ConnectError" in str(failed(api, base_url="http://127.0.0.1:1"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[forebay.Store]:
    with forebay.open_store(tmp_path / "store") as opened:
        yield opened


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


def test_a_body_that_breaks_off_is_not_stored(api: API, store: forebay.Store) -> None:
    api.answers["/x"] = dropped
    assert failed(api, store=store).code == "EXECUTION_ERROR"
    assert [*store.list()] == []


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_time_of_a_client_that_is_given(api: API) -> None:
    api.answers["/x"] = slow(api)

    async def run() -> None:
        async with httpx2.AsyncClient(timeout=0.3) as client:
            operations = await from_openapi(document(one("/x"), api.url), client)
            await operations.register_into(OperationRegistry()).execute("api.op", {})

    with pytest.raises(CallError) as caught:
        asyncio.run(run())
    assert caught.value.code == "TIMEOUT"


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


@pytest.mark.parametrize(
    "answer",
    [
        Answer(b" " * 3_000_000, status=500),
        Answer(b" " * 3_000_000),
        Answer(b" " * 3_000_000, status=302),
        Answer(b" " * 3_000_000, status=302, headers=[("Location", "/x")]),
    ],
    ids=["an error", "too much", "a redirect to nowhere", "redirects without end"],
)
def test_an_answer_that_is_not_read_to_its_end_holds_no_connection(api: API, answer: Answer) -> None:
    api.usual = answer

    async def run() -> None:
        client = httpx2.AsyncClient(limits=httpx2.Limits(max_connections=1))
        options: dict[str, Any] = {"namespace": "api", "timeout": 20, "max_body_bytes": 1000}
        async with client, await from_openapi(document(one("/x"), api.url), client, **options) as operations:
            registry = operations.register_into(OperationRegistry())
            for _ in range(2):
                with pytest.raises(CallError) as caught:
                    await registry.execute("api.op", {})
                assert caught.value.code == "EXECUTION_ERROR"

    asyncio.run(run())
