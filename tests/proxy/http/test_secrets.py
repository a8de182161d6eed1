"""Credentials do not appear in errors, even if the server repeats them."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from faulty_server import EVENTS, JSON, faulty_server
from forebay.proxy.http.connection import Endpoint
from forebay.proxy.http.streams import redact_errors
from gateway_harness import gateway_to

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


def test_errors_without_secrets_are_forwarded_unchanged() -> None:
    redact = Endpoint("http://localhost/mcp", [("X-Key", "s3cr3t")]).redact
    for kept in (
        b'{"jsonrpc":"2.0", "id":1, "error":{"code":1,"message":"\\u0041", "big":123456789012345678901234567890}}',
        b'{"method":"notifications/message","params":{"error":"s3cr3t"}}',
        b'{"id":1,"result":{"error":"s3cr3t"}}',
        b'not json "error" s3cr3t',
    ):
        assert redact_errors(kept, redact) == kept
    half = b'{"id":1,"error":{"message":"s3cr3t","half":"\\ud800"}}'
    assert redact_errors(half, redact) == half.replace(b"s3cr3t", b"***")
    batch = b'[{"id":1,"error":{"message":"s3cr3t"}}]'
    assert json.loads(bytes(redact_errors(batch, redact))) == [{"id": 1, "error": {"message": "***"}}]  # type: ignore[arg-type]
    long = b'{"id":1,"error":{"message":"' + b"x" * 200_000 + b's3cr3t"}}'
    assert redact_errors(long, redact) == long.replace(b"s3cr3t", b"***")
