"""forebay in a server of the mcp SDK: lists of tools, in pages, with clashes or errors."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from forebay.adapters.mcp import Forebay
from mcp import Client
from mcp.server import MCPServer, Server
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_harness import get_text, parse_text, serve
from mcp_server import make_server
from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool
from wires import MODERN


def test_ours_give_way_to_a_tool_of_the_same_name(era: str, tmp_path: Path) -> None:
    server = MCPServer("clash")

    @server.tool(structured_output=False)
    def output_fetch(size: int = 5) -> str:
        return "theirs" * size

    async def test(client: Client, middleware: Forebay) -> None:  # noqa: ARG001
        # Called before the tools were listed.
        assert get_text(await client.call_tool("output_fetch", {"size": 1})) == "theirs"
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["output_fetch", "forebay_output_fetch", "forebay_output_search", "forebay_output_query"]
        descriptor = parse_text(await client.call_tool("output_fetch", {"size": 10_000}))
        assert descriptor["fetch_with"] == "forebay_output_fetch"
        page = await client.call_tool("forebay_output_fetch", {"output_handle": descriptor["output_handle"]})
        assert parse_text(page)["content"].startswith("theirs")

    serve(test, tmp_path / "store", era, server, output_mode="auto")


@pytest.mark.parametrize("end", [None, ""])
def test_a_list_in_pages_has_ours_on_its_last(end: str | None, era: str, tmp_path: Path) -> None:
    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:  # noqa: ARG001
        number = int(params.cursor or 0) if params else 0
        tool = Tool(name="output_search" if number == 2 else f"tool {number}", input_schema={"type": "object"})
        return ListToolsResult(tools=[tool], next_cursor=str(number + 1) if number < 2 else end)

    async def test(client: Client, middleware: Forebay) -> None:  # noqa: ARG001
        names, cursor = [], None
        while True:
            page = await client.list_tools(cursor=cursor)
            names.append([tool.name for tool in page.tools])
            cursor = page.next_cursor
            if not cursor:
                break
        # A clash with the last tool of the last page counts too.
        added_tools = ["forebay_output_fetch", "forebay_output_search", "forebay_output_query"]
        assert names == [["tool 0"], ["tool 1"], ["output_search", *added_tools]]

    serve(test, tmp_path / "store", era, Server("pages", on_list_tools=list_tools))


def test_a_list_whose_last_page_links_to_an_earlier_one_has_our_tools_once(era: str, tmp_path: Path) -> None:
    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:  # noqa: ARG001
        number = int(params.cursor or 0) if params else 0
        tool = Tool(name=f"tool {number}", input_schema={"type": "object"})
        return ListToolsResult(tools=[tool], next_cursor=str((number + 1) % 2))

    async def test(client: Client, middleware: Forebay) -> None:  # noqa: ARG001
        for _ in range(2):
            pages = [await client.list_tools(cursor=cursor) for cursor in (None, "1", "0")]
            names = [tool.name for page in pages for tool in page.tools]
            assert names == ["tool 0", "tool 1", "tool 0", "output_fetch", "output_search", "output_query"]

    serve(test, tmp_path / "store", era, Server("loop", on_list_tools=list_tools))


@pytest.mark.parametrize("error", [MCPError(code=-32000, message="not now"), RuntimeError("db down")], ids=repr)
def test_a_server_that_cannot_list_can_still_be_called(error: Exception, era: str, tmp_path: Path) -> None:
    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:  # noqa: ARG001
        raise error

    async def call_tool(ctx: Any, params: Any) -> CallToolResult:  # noqa: ARG001
        return CallToolResult(content=[TextContent(type="text", text="b" * 50_000)])

    async def test(client: Client, middleware: Forebay) -> None:
        sent = await client.session.send_request(
            CallToolRequest(params=CallToolRequestParams(name="big", arguments={})), CallToolResult
        )
        assert middleware.store.stat(parse_text(sent)["output_handle"]).size_bytes == 50_000

    serve(
        test,
        tmp_path / "store",
        era,
        Server("shy", on_list_tools=list_tools, on_call_tool=call_tool),
        output_mode="auto",
    )


@pytest.mark.parametrize("is_same", [True, False])
def test_a_list_without_an_end_holds_up_nobody(is_same: bool, era: str, tmp_path: Path) -> None:
    list_count = 0

    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:  # noqa: ARG001
        nonlocal list_count
        list_count += 1
        return ListToolsResult(
            tools=[Tool(name="x", input_schema={"type": "object"})], next_cursor="again" if is_same else str(list_count)
        )

    async def call_tool(ctx: Any, params: Any) -> CallToolResult:  # noqa: ARG001
        return CallToolResult(content=[TextContent(type="text", text="hi")])

    async def test(client: Client, middleware: Forebay) -> None:
        for name in ("x", "x"):
            request = CallToolRequest(params=CallToolRequestParams(name=name, arguments={}))
            assert get_text(await client.session.send_request(request, CallToolResult)) == "hi"
        assert list_count <= 101
        assert middleware.policy.knows_tools

    serve(test, tmp_path / "store", era, Server("endless", on_list_tools=list_tools, on_call_tool=call_tool))


def test_a_tool_that_came_later_has_all_its_arguments(era: str, tmp_path: Path) -> None:
    server = make_server()

    async def test(client: Client, middleware: Forebay) -> None:  # noqa: ARG001
        await client.call_tool("text", {})

        @server.tool(structured_output=False)
        def late(output_mode: str = "default") -> str:
            return output_mode

        assert get_text(await client.call_tool("late", {"output_mode": "handle"})) == "handle"

    serve(test, tmp_path / "store", era, server, per_call=True)


def test_a_notification_teaches_nothing(tmp_path: Path) -> None:
    middleware = Forebay((tmp_path / "store").as_uri(), sweep_interval=0)

    async def handle(ctx: Any) -> None:
        del ctx

    session: Any = None
    context = ServerRequestContext(session=session, lifespan_context=None, protocol_version=MODERN, method="tools/list")
    assert anyio.run(middleware, context, handle) is None
    assert not middleware.policy.knows_tools
    middleware.close()


def test_only_what_is_switched_on_can_clash(tmp_path: Path) -> None:
    for journal, fetch_with in ((False, "output_fetch"), (True, "forebay_output_fetch")):
        middleware = Forebay((tmp_path / "store").as_uri(), sweep_interval=0, journal=journal)
        middleware.policy.learn_tools([{"name": "journal"}])
        assert middleware.policy.tools.fetch_tool == fetch_with
        middleware.close()


def test_a_name_that_was_a_tool_s_once_is_never_one_of_ours(tmp_path: Path) -> None:
    middleware = Forebay((tmp_path / "store").as_uri(), sweep_interval=0)
    middleware.policy.learn_tools([{"name": "output_fetch"}])
    middleware.policy.learn_tools([{"name": "other"}])
    assert middleware.policy.tools.fetch_tool == "forebay_output_fetch"
    assert "output_fetch" not in middleware.policy.tools.names
    middleware.close()
