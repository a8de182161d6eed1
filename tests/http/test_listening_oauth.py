"""An HTTP server that accepts JWTs of an issuer and tokens of a file."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from jwt_issuer import AUDIENCE, ISSUER, OTHER_KEY, serve_jwks, sign_token
from listening_harness import ALICE, HttpServer, run_server, write_token_file
from wires import ERAS, connect_http, extract_message

SCOPE = "mcp:use"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    root = tmp_path_factory.mktemp("oauth")
    with (
        serve_jwks() as keys,
        run_server(
            root,
            oauth_issuer=ISSUER,
            oauth_audience=AUDIENCE,
            oauth_jwks_url=keys.url,
            oauth_scopes=[SCOPE],
            token_file=write_token_file(root),
        ) as server,
    ):
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
def test_jwts_and_file_tokens_are_accepted(era: str, server: HttpServer) -> None:
    assert server.send_first_request(era, sign_token(scope=SCOPE)).status == 200
    # Tokens of the file have all scopes.
    assert server.send_first_request(era, ALICE).status == 200
    challenge = server.send_first_request(era, None).headers["www-authenticate"]
    assert challenge.startswith('Bearer realm="forebay", resource_metadata=')
    for token in (
        sign_token(scope=SCOPE, key=OTHER_KEY),
        sign_token(scope=SCOPE, aud="https://x.example"),
        "no" * 20,
    ):
        refused = server.send_first_request(era, token)
        assert refused.status == 401
        assert 'error="invalid_token"' in refused.headers["www-authenticate"]


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
def test_a_token_without_the_required_scope_is_refused(era: str, server: HttpServer) -> None:
    for changes in ({}, {"scope": "mcp:us"}, {"scope": "mcp:use2"}):
        refused = server.send_first_request(era, sign_token(**changes))
        assert refused.status == 403
        assert 'error="insufficient_scope"' in refused.headers["www-authenticate"]


def test_refusals_name_the_resource_metadata(server: HttpServer) -> None:
    challenge = server.list_tools().headers["www-authenticate"]
    assert 'resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource/mcp"' in challenge
    metadata = json.loads(server.request("GET", "/.well-known/oauth-protected-resource/mcp").body)
    assert metadata["resource"] == AUDIENCE
    assert [url.rstrip("/") for url in metadata["authorization_servers"]] == [ISSUER]
    assert metadata["scopes_supported"] == [SCOPE]


def test_pages_of_any_site_may_read_the_metadata(server: HttpServer) -> None:
    path, page = "/.well-known/oauth-protected-resource/mcp", "https://app.example"
    answer = server.request("GET", path, headers={"origin": page})
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "*")
    # There is nothing to expose but what all pages see.
    assert "access-control-expose-headers" not in answer.headers
    assert server.request("POST", path, b"{}").status == 405

    def ask(method: str, requested: str = "") -> tuple[int, str]:
        headers = {"origin": page, "access-control-request-method": method}
        if requested:
            headers["access-control-request-headers"] = requested
        answer = server.request("OPTIONS", path, headers=headers)
        return answer.status, answer.body.decode()

    assert ask("GET") == (200, "OK")
    assert ask("GET", "MCP-Protocol-Version, accept") == (200, "OK")
    assert ask("GET", "accept, x-other") == (400, "Disallowed CORS headers")
    assert ask("DELETE") == (400, "Disallowed CORS method")


@pytest.mark.parametrize("era", ERAS)
def test_the_subject_is_the_principal(era: str, server: HttpServer) -> None:
    def call(token: str, tool: str, **arguments: Any) -> Any:
        answer = connect_http(server.port, era, token).request("tools/call", {"name": tool, "arguments": arguments})
        return json.loads(json.loads(extract_message(answer))["result"]["content"][0]["text"])

    handle = call(sign_token(scope=SCOPE), "text", size=50_000)["output_handle"]
    # Another token of the same subject is the same principal.
    assert call(sign_token("ES256", scope=SCOPE), "output_fetch", output_handle=handle)["total"] == 50_000
    # The alice of the token file is another principal.
    for token in (sign_token(scope=SCOPE, sub="bob"), ALICE):
        assert call(token, "output_fetch", output_handle=handle)["error"]["code"] == "output_handle_not_found"


def test_a_session_continues_with_a_renewed_token(server: HttpServer) -> None:
    session = server.initialize(sign_token(scope=SCOPE)).headers["mcp-session-id"]
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    for token, status in (
        (sign_token("ES256", scope=SCOPE), 200),
        (sign_token(scope=SCOPE, sub="bob"), 404),
        (ALICE, 404),
    ):
        answer = server.post(ping, token, mcp_session_id=session, mcp_protocol_version="2025-11-25")
        assert answer.status == status


@pytest.mark.slow
def test_a_stream_ends_when_its_token_expires(server: HttpServer) -> None:
    token = sign_token(scope=SCOPE, exp=int(time.time()) + 3)
    session = server.initialize(token).headers["mcp-session-id"]
    with server.connect() as stream:
        request = f"GET /mcp HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\nmcp-session-id: {session}"
        stream.sendall(f"{request}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n".encode())
        received, deadline = b"", time.monotonic() + 30
        while not received.endswith(b"0\r\n\r\n"):
            # Keep-alive comments arrive in the meantime.
            assert time.monotonic() < deadline
            received += stream.recv(65536)
        assert b" 200 " in received
    assert server.list_tools(token).status == 401


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
def test_a_call_is_answered_after_its_token_has_expired(era: str, server: HttpServer) -> None:
    wire = connect_http(server.port, era, sign_token(scope=SCOPE, exp=int(time.time()) + 3))
    answer = wire.request("tools/call", {"name": "slow", "arguments": {"seconds": 5.0}})
    assert json.loads(extract_message(answer))["result"]["content"][0]["text"] == "at last"
