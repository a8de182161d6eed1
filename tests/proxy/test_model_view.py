"""What the model behind a client gets from a wrapped server, in both protocol eras."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forebay.outputs.clients import CLIENTS, UNKNOWN_CLIENT_BYTES
from gateway_harness import StdioClient, parse_text, script, wrap
from wires import ERAS, INITIALIZE_PARAMS, LEGACY, MODERN_META, make_request

LARGE = [*script("large_server.py"), "stdio"]
pytestmark = pytest.mark.slow


class NamedClient(StdioClient):
    """A client that sends its name in the handshake or, in the newest protocol, with each request."""

    def __init__(self, command: list[str], era: str, name: str) -> None:
        super().__init__(command)
        self._era, self._info = era, {"name": name, "version": "1"}

    def discover(self) -> dict[str, Any]:
        """Return what the server says of itself."""
        if self._era != LEGACY:
            return dict(self.request("server/discover")["result"])
        result = self.request("initialize", {**INITIALIZE_PARAMS, "clientInfo": self._info})["result"]
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return dict(result)

    def send_request(self, method: str, params: dict[str, Any] | None = None) -> int:
        self._number += 1
        request = make_request(self._number, method, params, self._era)
        if self._era != LEGACY:
            meta = {**MODERN_META, "io.modelcontextprotocol/clientInfo": self._info}
            request["params"]["_meta"] = {**request["params"]["_meta"], **meta}
        self.send(request)
        return self._number


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def connect_as(tmp_path: Path, era: str) -> Iterator[Any]:
    clients: list[NamedClient] = []

    def connect(name: str, *options: str) -> NamedClient:
        clients.append(NamedClient(wrap(tmp_path / "store", *options, server=LARGE), era, name))
        return clients[-1]

    yield connect
    for client in clients:
        client.kill()


def test_the_name_of_the_client_selects_the_size_of_pages(connect_as: Any) -> None:
    sizes = {}
    for name in ("@cline/core", "copilot-cli", "claude-code", "anyone"):
        client = connect_as(name)
        client.discover()
        descriptor = parse_text(client.call("json", size=300_000))
        expected = "output_fetch" if name == "anyone" else "output_fetch of this server"
        assert descriptor["fetch_with"] == expected
        result = client.call("output_fetch", output_handle=descriptor["output_handle"], limit=100_000)
        sizes[name] = len(result["content"][0]["text"])
    limits = {client.pattern: client.limit for client in CLIENTS}
    assert 5000 < sizes["@cline/core"] <= limits["*cline*"]
    assert 13_000 < sizes["copilot-cli"] <= limits["copilot-cli"]
    assert 20_000 < sizes["claude-code"] <= limits["claude-code"]
    assert 10_000 < sizes["anyone"] <= UNKNOWN_CLIENT_BYTES


def test_a_result_that_the_client_would_cut_becomes_a_handle(connect_as: Any) -> None:
    for name, is_inline in (("@cline/core", False), ("anyone", True)):
        client = connect_as(name)
        client.discover()
        text = client.call("text", size=12_000)["content"][0]["text"]
        assert text.startswith("a line") is is_inline


def test_instructions_say_what_a_handle_is(connect_as: Any) -> None:
    client = connect_as("anyone", "--prefix", "big_")
    assert "with big_output_fetch, find text in it with big_output_search" in client.discover()["instructions"]


def test_our_tools_are_loaded_from_the_start(connect_as: Any) -> None:
    client = connect_as("claude-code")
    client.discover()
    meta = {tool["name"]: tool.get("_meta") for tool in client.request("tools/list")["result"]["tools"]}
    assert meta["output_fetch"] == meta["output_search"] == {"anthropic/alwaysLoad": True}
    assert meta["text"] is None


def test_the_server_name_gives_the_exact_name_of_the_tool(connect_as: Any) -> None:
    client = connect_as("claude-code", "--server-name", "orders")
    client.discover()
    assert parse_text(client.call("text", size=100_000))["fetch_with"] == "mcp__orders__output_fetch"


def test_structured_content_is_the_whole_descriptor_within_the_limit(connect_as: Any) -> None:
    client = connect_as("claude-code")
    client.discover()
    number = client.send_request("tools/call", {"name": "structured", "arguments": {"size": 300_000}})
    line = client.read_line()
    assert json.loads(line)["id"] == number
    assert len(line) <= 4096
    result = json.loads(line)["result"]
    assert result["structuredContent"] == parse_text(result)
    assert result["structuredContent"]["item_count"] > 1000
    assert len(result["structuredContent"]["preview"]) > 500


def test_resource_links_are_sent_only_if_they_are_asked_for(connect_as: Any) -> None:
    for options, kinds in (((), ["text"]), (("--resource-links",), ["text", "resource_link"])):
        client = connect_as("anyone", *options)
        client.discover()
        result = client.call("text", size=100_000)
        assert [block["type"] for block in result["content"]] == kinds


def test_a_resource_says_that_it_is_a_page(connect_as: Any) -> None:
    client = connect_as("claude-code")
    client.discover()
    handle = parse_text(client.call("json", size=200_000))["output_handle"]
    uri, rows, total = f"forebay://output/{handle}", [], None
    while uri is not None:
        (content,) = client.request("resources/read", {"uri": uri})["result"]["contents"]
        assert content["mimeType"] == "application/json"
        page = json.loads(content["text"])
        assert page["output_handle"] == handle
        assert page["eof"] == (page.get("next_uri") is None)
        rows += page["content"]
        uri, total = page.get("next_uri"), page["total"]
    assert len(rows) == total > 1000
    assert [row["id"] for row in rows] == list(range(100_000, 100_000 + len(rows)))


def test_a_program_gets_the_result_that_it_asks_for(connect_as: Any) -> None:
    client = connect_as("anyone")
    client.discover()
    for size, is_inline in ((500_000, True), (2_000_000, False)):
        params = {"name": "text", "arguments": {"size": size}, "_meta": {"forebay/output_mode": "inline"}}
        text = client.request("tools/call", params)["result"]["content"][0]["text"]
        assert text.startswith("a line") is is_inline


def test_an_unknown_handle_may_belong_to_another_server(connect_as: Any) -> None:
    client = connect_as("anyone")
    client.discover()
    error = parse_text(client.call("output_fetch", output_handle="oh_AAAAAAAAAAAA"))["error"]
    assert error["code"] == "output_handle_not_found"
    assert "another server" in error["message"]
