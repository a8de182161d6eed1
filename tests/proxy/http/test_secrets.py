"""Credentials do not appear in errors, even if the server repeats them."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from faulty_server import EVENTS, JSON, faulty_server
from forebay.proxy.http.connection import Endpoint
from forebay.proxy.http.streams import redact_errors
from gateway_harness import Gateway, gateway_to
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.slow

TOKEN = 's3cr3t/"token"'  # noqa: S105 - not a real token
HEADERS = [f"Authorization: Bearer {TOKEN}"]


def _encode(**answer: Any) -> str:
    # Some servers escape every slash.
    return json.dumps({"jsonrpc": "2.0", "id": "ID", **answer}).replace("/", "\\/").replace('"ID"', "ID")


def _error(text: str) -> dict[str, Any]:
    return {"error": {"code": -32001, "message": f"not {text}", "data": {"sent": [text, {text: 1}]}}}


def _result(text: str, **more: Any) -> dict[str, Any]:
    return {"result": {"content": [{"type": "text", "text": f"not {text}"}], **more}}


@pytest.mark.parametrize("is_legacy", [False, True])
@pytest.mark.parametrize(
    ("status", "kind"), [(400, JSON), (200, JSON), (200, EVENTS)], ids=["refused", "answered", "streamed"]
)
def test_errors_do_not_show_credentials(status: int, kind: str, is_legacy: bool, tmp_path: Path) -> None:
    with faulty_server() as server:
        server.is_legacy = is_legacy
        kind = JSON if is_legacy else kind
        with gateway_to(server.url, tmp_path, headers=HEADERS) as gateway:

            def call(**answer: Any) -> dict[str, Any]:
                body = _encode(**answer)
                return gateway.call(
                    "refuses", status=status, body=f"data: {body}\n\n" if kind == EVENTS else body, **{"as": kind}
                )

            assert call(**_error(TOKEN))["error"] == _error("***")["error"]
            assert call(**_error(f"Bearer {TOKEN}"))["error"] == _error("***")["error"]
            if status == 200:
                assert call(**_result(TOKEN, isError=True)) == _result("***", isError=True)["result"]
                # Other results are the server's data and stay unchanged.
                assert call(**_result(TOKEN)) == _result(TOKEN)["result"]
                assert call(**_result(TOKEN, isError=False)) == _result(TOKEN, isError=False)["result"]
        assert "s3cr3t" not in gateway.log


@pytest.mark.parametrize("kind", [JSON, EVENTS])
def test_invalid_messages_are_logged_without_credentials(kind: str, tmp_path: Path) -> None:
    body = "data: you sent SECRET\n\n" if kind == EVENTS else "you sent SECRET"
    with faulty_server() as server, gateway_to(server.url, tmp_path, headers=HEADERS) as gateway:
        assert gateway.call("refuses", status=200, body=body, **{"as": kind})["isError"]
    assert "you sent ***" in gateway.log


def test_credentials_in_the_url_are_redacted_in_every_encoding() -> None:
    endpoint = Endpoint("http://user:p%40ssword@localhost/mcp?key=long-enough&mode=full")
    sent = base64.b64encode(b"user:p@ssword").decode()
    said = f"Basic {sent}, p@ssword, p%40ssword, long-enough, full"
    assert endpoint.redact(said) == "Basic ***, ***, ***, ***, full"


@pytest.mark.parametrize("spool_above", [100_000, 64_000_000])
def test_credentials_in_an_error_of_a_large_batch_are_redacted(spool_above: int, tmp_path: Path) -> None:
    padding = ",".join([json.dumps({"jsonrpc": "2.0", "method": "notifications/other"})] * 5000)
    arguments = {"status": 200, "body": f"[{padding},{_encode(**_error(TOKEN))}]", "as": JSON}
    settings: dict[str, Any] = {"headers": HEADERS, "spool_above_bytes": spool_above}
    with faulty_server() as server, gateway_to(server.url, tmp_path, **settings) as gateway:
        number = gateway.send_request("tools/call", {"name": "refuses", "arguments": arguments})
        assert gateway.read_response(number)["error"] == _error("***")["error"]


@pytest.mark.parametrize("kind", [JSON, EVENTS])
@pytest.mark.parametrize("is_tool_error", [False, True])
def test_a_spooled_error_with_credentials_is_withheld(kind: str, is_tool_error: bool, tmp_path: Path) -> None:
    def call(gateway: Gateway, text: str) -> bytes:
        answer = _result("x" * 200_000 + text, isError=True) if is_tool_error else _error("x" * 200_000 + text)
        body = f"data: {_encode(**answer)}\n\n" if kind == EVENTS else _encode(**answer)
        arguments = {"status": 200, "body": body, "as": kind}
        return gateway.request_line("tools/call", {"name": "refuses", "arguments": arguments})

    settings: dict[str, Any] = {"headers": HEADERS, "spool_above_bytes": 100_000}
    with faulty_server() as server, gateway_to(server.url, tmp_path, **settings) as gateway:
        response = call(gateway, TOKEN)
        assert b"s3cr3t" not in response
        assert "repeats credentials" in json.loads(response)["error"]["message"]
        # An error of the same size without credentials is forwarded.
        assert len(call(gateway, "no secret")) > 200_000


@given(st.text(max_size=20), st.text(max_size=20), st.booleans(), st.integers(0, 100))
def test_credentials_are_found_wherever_chunks_end(before: str, after: str, has_secret: bool, cut: int) -> None:
    endpoint = Endpoint("http://localhost/mcp", [("X-Key", TOKEN), ("X-Long", TOKEN * 2)])
    text = f"{before}{TOKEN if has_secret else TOKEN[1:]}{after}"
    for data in (_encode(text=text).encode(), json.dumps(text, ensure_ascii=False).encode(errors="surrogatepass")):
        assert endpoint.has_secret([data[:cut], data[cut:]]) == (TOKEN in text)


def test_errors_without_secrets_are_forwarded_unchanged() -> None:
    endpoint = Endpoint("http://localhost/mcp", [("X-Key", "s3cr3t")])
    for kept in (
        b'{"jsonrpc":"2.0", "id":1, "error":{"code":1,"message":"\\u0041", "big":123456789012345678901234567890}}',
        b'{"method":"notifications/message","params":{"error":"s3cr3t"}}',
        b'{"id":1,"result":{"error":"s3cr3t"}}',
        b'not json "error" s3cr3t',
    ):
        assert redact_errors(kept, endpoint) == kept
    half = b'{"id":1,"error":{"message":"s3cr3t","half":"\\ud800"}}'
    assert redact_errors(half, endpoint) == half.replace(b"s3cr3t", b"***")
    batch = b'[{"id":1,"error":{"message":"s3cr3t"}}]'
    assert json.loads(bytes(redact_errors(batch, endpoint))) == [{"id": 1, "error": {"message": "***"}}]  # type: ignore[arg-type]
    long = b'{"id":1,"error":{"message":"' + b"x" * 200_000 + b's3cr3t"}}'
    assert redact_errors(long, endpoint) == long.replace(b"s3cr3t", b"***")
