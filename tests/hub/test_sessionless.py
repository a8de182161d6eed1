"""`serve --stateless`: clients of versions with sessions get none."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from listening_harness import JSON, HttpServer
from serve_harness import upstream_command
from serve_http_harness import serving_http, token
from wires import INITIALIZE_PARAMS, LEGACY, MODERN, HttpWire, connect_http, extract_message


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[HttpServer]]:
    """Two gateways with one store."""
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "other")]
    store = (folders[0] / "store").as_uri()
    upstreams = {
        "large": upstream_command("large_server.py", "stdio"),
        "asking": upstream_command("asking_server.py"),
    }
    with (
        serving_http(folders[0], upstreams, store=store, stateless=True) as one,
        serving_http(folders[1], upstreams, store=store, stateless=True) as other,
    ):
        yield [one, other]


def post(server: HttpServer, method: str, params: dict[str, Any] | None = None, name: str = "ann") -> Any:
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params or {}}
    headers = {**JSON, "authorization": f"Bearer {token(name)}", "mcp-protocol-version": "2025-11-25"}
    answer = server.request("POST", "/mcp", json.dumps(message).encode(), headers)
    assert "mcp-session-id" not in answer.headers
    parsed = json.loads(extract_message(answer.body))
    assert parsed["id"] == 7
    return parsed


def test_each_request_may_go_to_another_replica(servers: list[HttpServer]) -> None:
    one, other = servers
    result = post(one, "initialize", INITIALIZE_PARAMS)["result"]
    assert result["protocolVersion"] == "2025-11-25"
    assert result["capabilities"]["tools"] == {}
    assert "logging" not in result["capabilities"]
    names = [{tool["name"] for tool in post(each, "tools/list")["result"]["tools"]} for each in servers]
    assert names[0] == names[1]
    assert {"output_fetch", "json", "asks"} <= names[0]
    called = post(one, "tools/call", {"name": "json", "arguments": {"size": 100_000}})["result"]
    descriptor = json.loads(called["content"][0]["text"])
    assert "resultType" not in called
    arguments = {"output_handle": descriptor["output_handle"], "offset": 7, "limit": 1}
    for each in (other, one):
        page = post(each, "tools/call", {"name": "output_fetch", "arguments": arguments})["result"]
        assert "100007" in page["content"][0]["text"]
    stolen = post(other, "tools/call", {"name": "output_fetch", "arguments": arguments}, "bob")["result"]
    assert "output_handle_not_found" in json.dumps(stolen)
    assert post(other, "ping")["result"] == {}


def test_what_needs_a_session_is_refused(servers: list[HttpServer]) -> None:
    (one, _) = servers
    headers = {**JSON, "authorization": f"Bearer {token('ann')}"}
    for method in ("GET", "DELETE"):
        assert one.request(method, "/mcp", None, headers).status == 405
    for method, params in (("resources/subscribe", {"uri": "x://y"}), ("logging/setLevel", {"level": "debug"})):
        error = post(one, method, params)["error"]
        assert error["code"] == -32601
        assert "--stateless" in error["message"]
    notification = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
    assert one.request("POST", "/mcp", notification, headers).status == 202


def test_a_server_cannot_ask_a_client_without_a_session(servers: list[HttpServer]) -> None:
    result = post(servers[0], "tools/call", {"name": "asks", "arguments": {}})["result"]
    (answer,) = json.loads(result["content"][0]["text"])
    assert answer["code"] == -32601


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_other_clients_are_served_as_before(era: str, servers: list[HttpServer]) -> None:
    wire: HttpWire = connect_http(servers[0].port, era, token("ann"))
    assert "mcp-session-id" not in wire.headers
    result = json.loads(extract_message(wire.request("tools/call", {"name": "text", "arguments": {"size": 100}})))[
        "result"
    ]
    assert result["content"][0]["type"] == "text"
