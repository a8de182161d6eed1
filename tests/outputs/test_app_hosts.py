"""The MCP App in every way in: hosts that declare apps get it, and other clients get what they got before."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import fastmcp
import pytest
from fastmcp import FastMCP
from forebay.adapters.fastmcp import ForebayMiddleware
from forebay.adapters.mcp import Forebay
from gateway_harness import parse_text, script, wrap
from mcp import Client, MCPError
from mcp.client import advertise
from mcp.server import MCPServer
from mcp.server.apps import Apps
from serve_harness import EraClient, serve_command, upstream_command, write_config
from serve_http_harness import connect_as, serving_http
from wires import LEGACY, MODERN, MODERN_META, extract_message

pytestmark = pytest.mark.slow

KEY, MIME_TYPE = "io.modelcontextprotocol/ui", "text/html;profile=mcp-app"
APPS = {"extensions": {KEY: {"mimeTypes": [MIME_TYPE]}}}
URI = "ui://forebay/output_fetch"
UI = {"resourceUri": URI}

TOOLS = {"rows": "handle"}


def _adapter(name: str, folder: Path) -> list[str]:
    options = {"store": (folder / "store").as_uri(), "output_mode": "auto", "tools": TOOLS}
    return [*script(name), "stdio", json.dumps(options)]


def _wrap(folder: Path) -> list[str]:
    server = [*script("mcp_server.py"), "stdio", "null"]
    return wrap(folder / "store", "--tool", "rows=handle", server=server)


def _serve(folder: Path) -> list[str]:
    # A second server, so that names and URIs are looked up.
    upstreams = {
        "one": upstream_command("mcp_server.py", "stdio", "null"),
        "two": upstream_command("adverse_server.py"),
    }
    return serve_command(write_config(folder, upstreams, tools=TOOLS))


WAYS: dict[str, Callable[[Path], list[str]]] = {
    "mcp": lambda folder: _adapter("mcp_server.py", folder),
    "fastmcp": lambda folder: _adapter("fastmcp_server.py", folder),
    "wrap": _wrap,
    "serve": _serve,
}


@contextmanager
def _connect(command: list[str], era: str, capabilities: dict[str, Any]) -> Iterator[EraClient]:
    client = EraClient(command, era, capabilities)
    try:
        client.server_info = client.initialize()["result"]
        yield client
    finally:
        client.kill()


def _list(client: EraClient, kind: str, meta: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    params = {} if meta is None else {"_meta": meta}
    return list(client.request(f"{kind}/list", params)["result"][kind])


def _find_shown(tools: list[dict[str, Any]]) -> dict[str, Any]:
    return {tool["name"]: tool["_meta"]["ui"] for tool in tools if "ui" in tool.get("_meta", {})}


def _drop_apps(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return tools without `_meta.ui`, and without a `_meta` that has nothing else."""
    dropped = []
    for tool in tools:
        meta = {key: value for key, value in tool.get("_meta", {}).items() if key != "ui"}
        bare = {key: value for key, value in tool.items() if key != "_meta"}
        dropped.append({**bare, "_meta": meta} if meta else bare)
    return dropped


@pytest.mark.parametrize("way", WAYS)
def test_a_host_gets_the_viewer_and_other_clients_what_they_got_before(way: str, era: str, tmp_path: Path) -> None:
    command = WAYS[way](tmp_path)
    with _connect(command, era, APPS) as client:
        # The SDK drops extensions from its answer to `initialize`.
        is_dropped = era == LEGACY and way in ("mcp", "fastmcp")
        assert (KEY in client.server_info["capabilities"].get("extensions", {})) is not is_dropped
        tools, resources = _list(client, "tools"), _list(client, "resources")
        assert _find_shown(tools) == {"rows": UI, "output_fetch": UI}
        (listed,) = (resource for resource in resources if resource["uri"] == URI)
        assert listed["mimeType"] == MIME_TYPE
        (content,) = client.request("resources/read", {"uri": URI})["result"]["contents"]
        assert (content["uri"], content["mimeType"]) == (URI, MIME_TYPE)
        assert content["_meta"]["ui"]["csp"]["connectDomains"] == []
        assert content["text"].startswith("<!doctype html>")
        assert '{"output_fetch":"output_fetch",' in content["text"]
        # What the app is for: a small result, stored because every result of this tool is.
        descriptor = parse_text(client.call("rows"))
        page = parse_text(client.call("output_fetch", output_handle=descriptor["output_handle"]))
        assert [item["id"] for item in page["content"]] == [0, 1, 2]
    with _connect(command, era, {}) as client:
        # fastmcp itself declares apps to everybody.
        assert way == "fastmcp" or KEY not in client.server_info["capabilities"].get("extensions", {})
        assert _list(client, "tools") == _drop_apps(tools)
        assert _list(client, "resources") == [resource for resource in resources if resource != listed]
        assert "error" in client.request("resources/read", {"uri": URI})
        if era == MODERN:
            # Capabilities hold for one request.
            meta = {"io.modelcontextprotocol/clientCapabilities": APPS}
            assert _list(client, "tools", meta) == tools
            assert "result" in client.request("resources/read", {"uri": URI, "_meta": meta})
            assert _list(client, "tools") == _drop_apps(tools)


def test_a_prefix_is_part_of_every_name(era: str, tmp_path: Path) -> None:
    server = [*script("mcp_server.py"), "stdio", "null"]
    with _connect(wrap(tmp_path, "--prefix", "oc_", server=server), era, APPS) as client:
        (fetch,) = (tool for tool in _list(client, "tools") if tool["name"] == "oc_output_fetch")
        uri = fetch["_meta"]["ui"]["resourceUri"]
        assert uri == "ui://forebay/oc_output_fetch"
        (content,) = client.request("resources/read", {"uri": uri})["result"]["contents"]
        assert '"output_search":"oc_output_search"' in content["text"]


def test_forebay_behind_forebay(era: str, tmp_path: Path) -> None:
    """Each of the two has a URI of its own, and its page calls its own tools."""
    inner = _adapter("mcp_server.py", tmp_path / "inner")
    with _connect(wrap(tmp_path / "outer", server=inner), era, APPS) as client:
        # Even before a list of tools has shown that both have a tool of the same name.
        response = client.request("resources/read", {"uri": "ui://forebay/forebay_output_fetch"})
        assert '"output_fetch":"forebay_output_fetch"' in response["result"]["contents"][0]["text"]
        shown = {
            tool["name"]: tool["_meta"]["ui"]["resourceUri"]
            for tool in _list(client, "tools")
            if "ui" in tool.get("_meta", {})
        }
        assert shown == {
            "rows": URI,
            "output_fetch": URI,
            "forebay_output_fetch": "ui://forebay/forebay_output_fetch",
        }
        for name in ("output_fetch", "forebay_output_fetch"):
            (content,) = client.request("resources/read", {"uri": shown[name]})["result"]["contents"]
            assert f'"output_fetch":"{name}"' in content["text"]


def _make_server_with_app() -> MCPServer:
    apps = Apps()

    @apps.tool(resource_uri="ui://clock/app.html")
    def clock() -> str:
        return "noon"

    apps.add_html_resource("ui://clock/app.html", "<!doctype html><title>Clock</title>")
    return MCPServer("clock", extensions=[apps])


def test_a_client_of_the_sdk_beside_a_server_s_own_app(tmp_path: Path) -> None:
    with_forebay = Forebay(tmp_path.as_uri(), output_mode="handle", sweep_interval=0)
    server = with_forebay.install(_make_server_with_app())

    async def run() -> None:
        async with Client(server, mode=MODERN, extensions=[advertise(KEY, {"mimeTypes": [MIME_TYPE]})]) as client:
            tools = {tool.name: (tool.meta or {}).get("ui") for tool in (await client.list_tools()).tools}
            assert tools["clock"] == {"resourceUri": "ui://clock/app.html"}
            assert tools["output_fetch"] == UI
            for uri, title in (("ui://clock/app.html", "Clock"), (URI, "Stored output")):
                (content,) = (await client.read_resource(uri)).contents
                assert f"<title>{title}</title>" in content.text  # type: ignore[union-attr]
        async with Client(server, mode=MODERN) as client:
            uris = [str(resource.uri) for resource in (await client.list_resources()).resources]
            assert URI not in uris
            with pytest.raises(MCPError):
                await client.read_resource(URI)

    try:
        anyio.run(run)
    finally:
        with_forebay.close()


def test_a_mounted_server_has_no_app(tmp_path: Path) -> None:
    """The outer server would list the tool with its URI, but would not find the resource."""
    inner, outer = FastMCP("inner"), FastMCP("outer")
    middleware = ForebayMiddleware(tmp_path.as_uri(), output_mode="handle", sweep_interval=0)
    inner.add_middleware(middleware)
    outer.mount(inner, namespace="in")

    async def run() -> None:
        for server, expected in ((outer, {"in_output_fetch": None}), (inner, {"output_fetch": UI})):
            async with fastmcp.Client(server, extensions=[advertise(KEY, {"mimeTypes": [MIME_TYPE]})]) as client:
                tools = {tool.name: (tool.meta or {}).get("ui") for tool in await client.list_tools()}
                assert {name: ui for name, ui in tools.items() if name.endswith("output_fetch")} == expected
                uris = [str(resource.uri) for resource in await client.list_resources()]
                assert uris == ([URI] if server is inner else [])

    try:
        anyio.run(run)
    finally:
        middleware.close()


def test_the_app_does_not_open_outputs_of_others(tmp_path: Path) -> None:
    upstreams = {"one": upstream_command("mcp_server.py", "stdio", "null")}
    meta = {**MODERN_META, "io.modelcontextprotocol/clientCapabilities": APPS}
    with serving_http(tmp_path, upstreams, tools=TOOLS) as server:
        ann, bob = (connect_as(server.port, MODERN, name) for name in ("ann", "bob"))

        def call(wire: Any, tool: str, **arguments: Any) -> dict[str, Any]:
            params = {"name": tool, "arguments": arguments, "_meta": meta}
            return dict(json.loads(extract_message(wire.request("tools/call", params)))["result"])

        handle = parse_text(call(ann, "rows"))["output_handle"]
        assert not call(ann, "output_fetch", output_handle=handle)["isError"]
        for tool, more in (
            ("output_fetch", {}),
            ("output_search", {"pattern": "id"}),
            ("output_query", {"sql": "FROM items"}),
        ):
            refused = call(bob, tool, output_handle=handle, **more)
            assert parse_text(refused)["error"]["code"] == "output_handle_not_found"
