"""The contract on a fastmcp server, nested tool calls and mounted servers."""

import asyncio
import json
from pathlib import Path
from typing import Any

import fastmcp
import pytest
from fastmcp.exceptions import ToolError
from fastmcp_harness import Client, serve
from fastmcp_server import make_server
from forebay.adapters.fastmcp import ForebayMiddleware
from mcp_harness import parse_text
from mcp_types import Icon
from stores import events


@pytest.mark.slow
def test_a_validating_client_accepts_every_response(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: ForebayMiddleware) -> None:  # noqa: ARG001
        for tool in ("rows", "report", "text", "json_text"):
            for size in (3, 3000):
                argument = "size" if tool == "text" else "count"
                answer = await client.call_tool_mcp(tool, {argument: size})
                fields = parse_text(answer)
                assert (fields["success"], fields["hasMore"]) == (True, size == 3000)
                if tool != "json_text":
                    assert answer.structured_content == fields
                await client.call_tool(tool, {argument: size})

    serve(test, tmp_path, era, make_server(), contract=True)


def make_nested() -> fastmcp.FastMCP[Any]:
    server = make_server()

    @server.tool
    async def total(count: int, ctx: fastmcp.Context) -> int:
        result = await ctx.fastmcp.call_tool("rows", {"count": count})
        assert result.structured_content is not None
        return sum(row["id"] for row in result.structured_content["result"])

    @server.tool
    def refuse() -> str:
        raise ToolError("never")

    @server.tool
    async def guarded(ctx: fastmcp.Context) -> bool:
        try:
            await ctx.fastmcp.call_tool("refuse", {})
        except ToolError:
            return True
        return False

    return server


@pytest.mark.parametrize("options", [{"output_mode": "auto"}, {"output_mode": "handle"}, {"contract": True}])
def test_a_nested_call_gets_the_plain_result(options: Any, era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: ForebayMiddleware) -> None:
        for tool, arguments, answer in (("total", {"count": 5000}, 12497500), ("guarded", {}, True)):
            result = await client.call_tool_mcp(tool, arguments)
            fields = parse_text(result) if options != {"output_mode": "auto"} else None
            if fields is None:
                assert result.structured_content == {"result": answer}
            elif "output_handle" in fields:
                with middleware.store.open(fields["output_handle"]) as file:
                    assert json.loads(file.read()) in (answer, {"result": answer})
            else:
                assert fields["data"] == {"result": answer}

    serve(test, tmp_path, era, make_nested(), **options)


def test_a_mounted_server_names_its_tools_with_the_prefix(era: str, tmp_path: Path) -> None:
    inner, outer = make_server(), fastmcp.FastMCP[Any]("outer")
    outer.mount(inner, namespace="kid")

    async def test(client: Client, middleware: ForebayMiddleware) -> None:  # noqa: ARG001
        result = await client.call_tool_mcp("kid_rows", {"count": 5000})
        # No resource_link: the outer server cannot resolve the inner one's address.
        assert [block.type for block in result.content] == ["text"]
        descriptor = parse_text(result)
        assert descriptor["fetch_with"] == "kid_output_fetch"
        page = parse_text(
            await client.call_tool_mcp(
                descriptor["fetch_with"], {"output_handle": descriptor["output_handle"], "offset": 4999}
            )
        )
        assert page["content"][0]["id"] == 4999

    serve(test, tmp_path, era, outer, inside=inner, output_mode="auto")


@pytest.mark.parametrize("options", [{"output_mode": "handle"}, {"contract": True}])
def test_large_server_info_leaves_room_for_results(options: Any, era: str, tmp_path: Path) -> None:
    icons = [Icon(src="data:image/png;base64," + "A" * 6000)]
    budget = 4096 if "output_mode" in options else 10240

    async def test(client: Client, middleware: ForebayMiddleware) -> None:  # noqa: ARG001
        result = await client.call_tool_mcp("rows", {"count": 5000})
        assert len(result.model_dump_json(by_alias=True, exclude_none=True)) <= budget

    serve(test, tmp_path, era, make_server(icons=icons), **options)


def test_sent_sizes_are_recorded(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: ForebayMiddleware) -> None:
        handle = parse_text(await client.call_tool_mcp("rows", {"count": 5000}))["output_handle"]
        await client.call_tool_mcp("output_fetch", {"output_handle": handle})
        fetched, called = events(middleware.store, "tool_called")
        assert (fetched["tool"], called["tool"]) == ("output_fetch", "rows")
        assert fetched["response_bytes"] > called["response_bytes"] > 500

    serve(test, tmp_path, era, make_server(), output_mode="auto", journal=True)


def test_totals_are_per_connection(tmp_path: Path) -> None:
    middleware = ForebayMiddleware(tmp_path.as_uri(), sweep_interval=0, monitor=True)
    server = make_server(middleware=[middleware])

    async def sent() -> list[int]:
        async with fastmcp.Client(server, mode="legacy") as client:
            await client.call_tool("text", {"size": 1000})
            assert middleware.policy.monitor is not None
            return [total.sent_bytes for total in middleware.policy.monitor._connections.values()]

    async def run() -> None:
        (first,) = await sent()
        assert first > 1000
        assert max(await sent()) < 2 * first

    asyncio.run(run())
    middleware.close()


def test_the_error_for_a_wrong_server_names_the_right_adapter(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import forebay
    import mcp
    from forebay.adapters.mcp import Forebay
    from mcp.server import MCPServer
    from mcp.shared.exceptions import MCPError

    adapter = Forebay(tmp_path.as_uri())
    for wrong in (fastmcp.FastMCP("x"), object()):
        with pytest.raises(forebay.InvalidArgument, match="ForebayMiddleware"):
            adapter.install(wrong)  # type: ignore[type-var]
    adapter.close()
    middleware = ForebayMiddleware(tmp_path.as_uri(), sweep_interval=0)
    server = MCPServer("x", middleware=[middleware])  # type: ignore[list-item]

    async def run() -> None:
        async with mcp.Client(server, mode="2026-07-28") as client:
            await client.list_tools()

    with pytest.raises((MCPError, ExceptionGroup)):
        asyncio.run(run())
    assert "forebay.adapters.mcp.Forebay(...).install(server)" in caplog.text
    middleware.close()
