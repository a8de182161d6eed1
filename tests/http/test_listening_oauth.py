"""A server over HTTP whose callers show JWTs of an issuer, or tokens of a file."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from issuing import AUDIENCE, ISSUER, OTHER, issuing, signed
from listening_harness import ALICE, Listening, listening, tokens_in
from wires import ERAS, message_of, wired_to

SCOPE = "mcp:use"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    root = tmp_path_factory.mktemp("oauth")
    with (
        issuing() as keys,
        listening(
            root,
            oauth_issuer=ISSUER,
            oauth_audience=AUDIENCE,
            oauth_jwks_url=keys.url,
            oauth_scopes=[SCOPE],
            token_file=tokens_in(root),
        ) as server,
    ):
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
def test_who_is_let_in(era: str, server: Listening) -> None:
    assert server.first(era, signed(scope=SCOPE)).status == 200
    # Whoever wrote the file has given out the scopes with it.
    assert server.first(era, ALICE).status == 200
    for token in (None, signed(scope=SCOPE, key=OTHER), signed(scope=SCOPE, aud="https://x.example"), "no" * 20):
        refused = server.first(era, token)
        assert refused.status == 401
        assert 'error="invalid_token"' in refused.headers["www-authenticate"]


@pytest.mark.parametrize("era", ERAS)
def test_a_token_that_is_good_for_less(era: str, server: Listening) -> None:
    for more in ({}, {"scope": "mcp:us"}, {"scope": "mcp:use2"}):
        refused = server.first(era, signed(**more))
        assert refused.status == 403
        assert 'error="insufficient_scope"' in refused.headers["www-authenticate"]


def test_clients_are_told_where_tokens_come_from(server: Listening) -> None:
    told = server.discover().headers["www-authenticate"]
    assert 'resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource/mcp"' in told
    metadata = json.loads(server.ask("GET", "/.well-known/oauth-protected-resource/mcp").body)
    assert metadata["resource"] == AUDIENCE
    assert [url.rstrip("/") for url in metadata["authorization_servers"]] == [ISSUER]
    assert metadata["scopes_supported"] == [SCOPE]


@pytest.mark.parametrize("era", ERAS)
def test_the_subject_is_the_principal(era: str, server: Listening) -> None:
    def told(token: str, tool: str, **arguments: Any) -> Any:
        answer = wired_to(server.port, era, token).ask("tools/call", {"name": tool, "arguments": arguments})
        return json.loads(json.loads(message_of(answer))["result"]["content"][0]["text"])

    handle = told(signed(scope=SCOPE), "text", size=50_000)["output_handle"]
    # Another token of the same subject will do.
    assert told(signed("ES256", scope=SCOPE), "output_fetch", output_handle=handle)["total"] == 50_000
    # The alice of the file is another one.
    for token in (signed(scope=SCOPE, sub="bob"), ALICE):
        assert told(token, "output_fetch", output_handle=handle)["error"]["code"] == "output_handle_not_found"


def test_a_session_goes_on_with_the_next_token(server: Listening) -> None:
    session = server.hello(signed(scope=SCOPE)).headers["mcp-session-id"]
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    for token, status in ((signed("ES256", scope=SCOPE), 200), (signed(scope=SCOPE, sub="bob"), 404), (ALICE, 404)):
        answer = server.post(ping, token, mcp_session_id=session, mcp_protocol_version="2025-11-25")
        assert answer.status == status


@pytest.mark.slow
def test_who_listens_is_told_nothing_any_more_when_its_token_has_expired(server: Listening) -> None:
    token = signed(scope=SCOPE, exp=int(time.time()) + 3)
    session = server.hello(token).headers["mcp-session-id"]
    with server.connected() as stream:
        asked = f"GET /mcp HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\nmcp-session-id: {session}"
        stream.sendall(f"{asked}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n".encode())
        came, deadline = b"", time.monotonic() + 30
        while not came.endswith(b"0\r\n\r\n"):
            # It is kept open by lines that say nothing.
            assert time.monotonic() < deadline
            came += stream.recv(65536)
        assert b" 200 " in came
    assert server.discover(token).status == 401


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
def test_a_call_that_outlasts_its_token_is_answered(era: str, server: Listening) -> None:
    wire = wired_to(server.port, era, signed(scope=SCOPE, exp=int(time.time()) + 3))
    answer = wire.ask("tools/call", {"name": "slow", "arguments": {"seconds": 5.0}})
    assert json.loads(message_of(answer))["result"]["content"][0]["text"] == "at last"
