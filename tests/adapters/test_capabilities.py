"""The capability filter in servers of both SDKs and in both eras, seen by a client without an SDK."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import fastmcp_harness
import mcp_harness
import pytest
from fastmcp import FastMCP
from fastmcp.server.middleware import Middleware
from forebay.adapters.mcp import Forebay
from forebay.outputs.capabilities import META_KEY
from mcp.server import MCPServer, Server
from mcp_harness import parse_text
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool
from wires import LEGACY, MODERN, Servers, Wire, connect_http, extract_message

pytestmark = pytest.mark.slow

CAPABILITIES = {"rows": "data", "*text": "data", "image": "media", "audio": "media", "*": "core"}
OWN_TOOLS = ["output_fetch", "output_search", "output_query"]


@pytest.fixture(scope="module", params=["mcp_server.py", "fastmcp_server.py"])
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    with closing(Servers(request.param)) as servers:
        yield servers


def list_names(wire: Wire) -> list[str]:
    return [tool["name"] for tool in json.loads(extract_message(wire.request("tools/list")))["result"]["tools"]]


def call(wire: Wire, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = json.loads(extract_message(wire.request("tools/call", {"name": tool, "arguments": arguments})))
    result: dict[str, Any] = answer["result"]
    return result


def parse_content(result: dict[str, Any]) -> Any:
    return json.loads(result["content"][0]["text"])


def make_options(root: Path, **options: Any) -> dict[str, Any]:
    return {"store": root.as_uri() + "/store", "capabilities": CAPABILITIES, **options}


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_what_is_switched_off_is_neither_listed_nor_called(
    transport: str, era: str, servers: Servers, tmp_path: Path
) -> None:
    with servers.connect(None, era) as plain:
        before = list_names(plain)
    options = make_options(tmp_path, disable_tools=["media"], tools_only=["core", "media"])
    with servers.connect(options, era, transport) as wire:
        # A call is the first request that the server gets.
        refused = call(wire, "rows")
        assert list_names(wire) == [
            *(name for name in before if name not in ("rows", "text", "json_text", "image", "audio")),
            *OWN_TOOLS,
        ]
        assert refused["isError"] is True
        assert parse_content(refused)["error"].keys() == {"code", "message", "capability"}
        for tool, capability in (("rows", "data"), ("text", "data"), ("image", "media")):
            error = parse_content(call(wire, tool))["error"]
            assert (error["code"], error["capability"]) == ("CAPABILITY_DISABLED", capability)
        assert call(wire, "several")["isError"] is False


def test_nothing_is_changed_where_nothing_is_asked_for(era: str, servers: Servers, tmp_path: Path) -> None:
    with (
        servers.connect({"store": tmp_path.as_uri() + "/store"}, era) as without,
        servers.connect(make_options(tmp_path), era) as configured,
        servers.connect(make_options(tmp_path, tools_only=["core", "data", "media"]), era) as allowing,
    ):
        expected = without.request("tools/list")
        assert configured.request("tools/list") == expected
        assert allowing.request("tools/list") == expected
        assert without.initialize_response == configured.initialize_response == allowing.initialize_response


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_hidden_tools_are_shown_to_who_asks(transport: str, era: str, servers: Servers, tmp_path: Path) -> None:
    options = make_options(tmp_path, hidden_tools=["data", "several"], disable_tools=["media"])
    with servers.connect(options, era, transport) as wire:
        if era == LEGACY:
            assert (
                json.loads(extract_message(wire.initialize_response))["result"]["capabilities"]["tools"]["listChanged"]
                is True
            )
        before = list_names(wire)
        assert before[-1] == "expand_tools"
        assert not {"rows", "text", "json_text", "several", "image"} & set(before)
        hidden = parse_content(call(wire, "expand_tools"))["hidden_tools"]
        assert [tool["name"] for tool in hidden] == ["rows", "text", "json_text", "several"]
        for arguments in ({"name": "image"}, {"names": ["rows", "image"]}, {"capability": "media"}):
            error = parse_content(call(wire, "expand_tools", **arguments))["error"]
            assert (error["code"], error["capability"]) == ("CAPABILITY_DISABLED", "media")
        assert list_names(wire) == before
        assert wire.notifications == []
        # A hidden tool can be called.
        assert call(wire, "text")["isError"] is False
        shown = parse_content(call(wire, "expand_tools", names=["text", "several"]))
        if era == MODERN:
            assert [tool["name"] for tool in shown["tools"]] == ["text", "several"]
            assert list_names(wire) == before
            assert wire.notifications == []
        else:
            assert shown["expanded"] == ["text", "several"]
            assert [name for name in list_names(wire) if name not in before] == ["text", "several"]
            if transport == "stdio":
                assert [json.loads(line)["method"] for line in wire.notifications] == [
                    "notifications/tools/list_changed"
                ]
            call(wire, "expand_tools", name="text")
            assert len(wire.notifications) <= 1
    with servers.connect(options, era, transport) as other:
        assert list_names(other) == before


def test_a_definition_is_as_the_list_would_have_it(servers: Servers, tmp_path: Path) -> None:
    options = {"output_mode": "auto", "per_call": True}
    with servers.connect(make_options(tmp_path, **options), MODERN) as wire:
        tools = json.loads(wire.request("tools/list"))["result"]["tools"]
    with servers.connect(make_options(tmp_path, **options, hidden_tools=["rows"]), MODERN) as wire:
        assert parse_content(call(wire, "expand_tools", name="rows"))["tools"] == [tools[0]]


def test_a_name_that_no_tool_has_closes_the_server(era: str, servers: Servers, tmp_path: Path) -> None:
    options = {"store": tmp_path.as_uri() + "/store", "disable_tools": ["workflw"]}
    with servers.connect(options, era) as wire:
        assert (
            "but no tool has this name or capability; the capabilities are core"
            in parse_content(call(wire, "text"))["error"]["message"]
        )
        assert list_names(wire) == OWN_TOOLS


def test_a_connection_that_does_not_last_is_told_the_definitions(tmp_path: Path) -> None:
    with closing(Servers("mcp_server.py")) as servers:
        wire = connect_http(servers.port(make_options(tmp_path, hidden_tools=["rows"]), "stateless"), LEGACY)
        assert [tool["name"] for tool in parse_content(call(wire, "expand_tools", name="rows"))["tools"]] == ["rows"]
        assert "rows" not in list_names(wire)


async def _call_all(client: Any) -> tuple[list[str], list[str | None]]:
    """Call three tools, then list; return the listed names and the capability that each refusal names."""
    answers = [
        await client.call_tool(name, {}, **CALL_OPTIONS.get(type(client).__module__, {})) for name in ("a", "b", "c")
    ]
    found = await client.list_tools()
    names = [tool.name for tool in (found if isinstance(found, list) else found.tools)]
    return names, [parse_text(answer)["error"]["capability"] if answer.is_error else None for answer in answers]


CALL_OPTIONS: dict[str, dict[str, Any]] = {"fastmcp.client.client": {"raise_on_error": False}}


def test_what_a_tool_of_the_sdk_says_itself(era: str, tmp_path: Path) -> None:
    server = MCPServer("own")
    for name, meta in (("a", {META_KEY: "x"}), ("b", {"capability": "y"}), ("c", None)):
        server.add_tool(lambda: "done", name=name, meta=meta)

    async def test(client: Any, _middleware: Any) -> None:
        assert await _call_all(client) == (["a", *OWN_TOOLS], [None, "y", "core"])

    mcp_harness.serve(test, tmp_path, era, server, tools_only=["x"])


def test_what_a_tool_of_fastmcp_says_itself(era: str, tmp_path: Path) -> None:
    server = FastMCP("own")
    for name, meta in (("a", {META_KEY: "x"}), ("b", {"capability": "y"}), ("c", None)):
        server.tool(lambda: "done", name=name, meta=meta)

    async def test(client: Any, _middleware: Any) -> None:
        assert await _call_all(client) == (["a", *OWN_TOOLS], [None, "y", "core"])

    fastmcp_harness.serve(test, tmp_path, era, server, tools_only=["x"])


def test_a_tool_that_is_added_later_does_not_slip_through(era: str, tmp_path: Path) -> None:
    server = MCPServer("later")
    server.add_tool(lambda: "done", name="a", meta={META_KEY: "x"})
    late = FastMCP("later")
    late.tool(lambda: "done", name="a", meta={META_KEY: "x"})

    async def on_sdk(client: Any, _middleware: Any) -> None:
        assert (await client.call_tool("a", {})).is_error
        server.add_tool(lambda: "done", name="b", meta={META_KEY: "x"})
        assert parse_text(await client.call_tool("b", {}))["error"]["capability"] == "x"

    async def on_fastmcp(client: Any, _middleware: Any) -> None:
        assert (await client.call_tool("a", {}, raise_on_error=False)).is_error
        late.tool(lambda: "done", name="b", meta={META_KEY: "x"})
        assert parse_text(await client.call_tool("b", {}, raise_on_error=False))["error"]["capability"] == "x"

    mcp_harness.serve(on_sdk, tmp_path / "sdk", era, server, disable_tools=["x"])
    fastmcp_harness.serve(on_fastmcp, tmp_path / "fastmcp", era, late, disable_tools=["x"])


def paged_server(is_listing: list[bool]) -> Server[Any]:
    """Tools `t0` to `t5` in pages of two; the odd ones are `odd`."""
    tools = [
        Tool(name=f"t{number}", input_schema={"type": "object"}, _meta={META_KEY: ["even", "odd"][number % 2]})
        for number in range(6)
    ]

    async def list_tools(_ctx: Any, params: Any) -> ListToolsResult:
        if not is_listing[0]:
            raise RuntimeError("not now")
        start = int(params.cursor or 0) if params else 0
        cursor = str(start + 2) if start + 2 < len(tools) else None
        return ListToolsResult(tools=tools[start : start + 2], next_cursor=cursor)

    async def call_tool(_ctx: Any, params: Any) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text=params.name)])

    return Server("paged", on_list_tools=list_tools, on_call_tool=call_tool)


def test_pages_stay_in_order_and_cursors_the_server_s(era: str, tmp_path: Path) -> None:
    async def test(client: Any, _middleware: Forebay) -> None:
        pages: list[list[str]] = []
        cursor = None
        while not pages or cursor is not None:
            page = await client.list_tools(cursor=cursor)
            pages.append([tool.name for tool in page.tools])
            cursor = page.next_cursor
        assert pages == [["t0"], ["t2"], ["t4", *OWN_TOOLS]]

    mcp_harness.serve(test, tmp_path, era, paged_server([True]), disable_tools=["odd"])


def test_while_a_server_cannot_list_its_tools_none_slips_through(era: str, tmp_path: Path) -> None:
    is_listing = [False]

    async def test(client: Any, _middleware: Forebay) -> None:
        refused = await client.call_tool("t0", {})
        assert "try again" in parse_text(refused)["error"]["message"]
        is_listing[0] = True
        assert not (await client.call_tool("t0", {})).is_error
        assert (await client.call_tool("t1", {})).is_error

    mcp_harness.serve(test, tmp_path, era, paged_server(is_listing), disable_tools=["odd"])


def test_what_one_connection_is_shown_another_is_not(tmp_path: Path) -> None:
    with closing(Servers("mcp_server.py")) as servers:
        options = make_options(tmp_path, hidden_tools=["rows"])
        with servers.connect(options, LEGACY, "http") as one, servers.connect(options, LEGACY, "http") as other:
            call(one, "expand_tools", name="rows")
            assert "rows" in list_names(one)
            assert "rows" not in list_names(other)


class _HidingSecrets(Middleware):
    async def on_list_tools(self, context: Any, call_next: Any) -> Any:
        return [tool for tool in await call_next(context) if tool.name != "secret"]


def test_expanding_shows_nothing_that_the_server_keeps_from_its_caller(era: str, tmp_path: Path) -> None:
    server = FastMCP("hiding", middleware=[_HidingSecrets()])
    for name in ("secret", "open"):
        server.tool(lambda: "done", name=name)

    async def test(client: Any, _middleware: Any) -> None:
        hidden = parse_text(await client.call_tool("expand_tools", {}))["hidden_tools"]
        assert [tool["name"] for tool in hidden] == ["open"]
        refused = await client.call_tool("expand_tools", {"name": "secret"}, raise_on_error=False)
        assert parse_text(refused)["error"]["code"] == "invalid_argument"

    fastmcp_harness.serve(test, tmp_path, era, server, hidden_tools=["*"])
