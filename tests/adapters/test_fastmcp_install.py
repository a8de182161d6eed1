"""forebay in a fastmcp server: without a client, in a mounted server, and beside other middleware."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastmcp
import forebay
import pytest
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.auth import require_scopes
from fastmcp.server.middleware import AuthMiddleware, Middleware
from fastmcp.tools import Tool, ToolResult
from fastmcp_harness import Client, call, serve
from fastmcp_server import make_server
from forebay.adapters.fastmcp import ForebayMiddleware
from mcp_harness import get_text, parse_text
from wires import LEGACY


def test_without_any_client(tmp_path: Path) -> None:
    server = make_server()
    middleware = ForebayMiddleware((tmp_path / "store").as_uri(), output_mode="auto", sweep_interval=0)
    server.add_middleware(middleware)

    async def run() -> None:
        assert isinstance(await server.get_tool("output_fetch"), Tool)
        assert [tool.name for tool in await server.list_tools()][-3:] == [
            "output_fetch",
            "output_search",
            "output_query",
        ]
        handle = parse_text(await server.call_tool("rows", {"count": 5000}))["output_handle"]
        page = await server.call_tool("output_fetch", {"output_handle": handle, "offset": 4999})
        assert parse_text(page)["content"] == [{"id": 4999, "name": "naïve 4999"}]
        (content,) = (await server.read_resource(f"forebay://output/{handle}?limit=1")).contents
        assert json.loads(content.content)["content"] == [{"id": 0, "name": "naïve 0"}]
        assert (await server.call_tool("output_fetch", {})).is_error
        with pytest.raises(ToolError, match=r"^eee$"):
            await server.call_tool("raising", {})

    try:
        asyncio.run(run())
    finally:
        middleware.close()


def test_a_server_mounted_in_another(era: str, tmp_path: Path) -> None:
    inner, outer = make_server(), FastMCP("outer")
    middleware = ForebayMiddleware((tmp_path / "store").as_uri(), output_mode="auto", prefix="in_", sweep_interval=0)
    inner.add_middleware(middleware)
    outer.mount(inner)

    async def run() -> None:
        async with fastmcp.Client(outer, mode=era) as client:
            result = await client.call_tool("rows", {"count": 5000})
            stamp = (result.meta or {}).get("io.modelcontextprotocol/serverInfo")
            assert stamp is None if era == LEGACY else (stamp or {})["name"] == "outer"
            descriptor = parse_text(result)
            fetched = await client.call_tool(descriptor["fetch_with"], {"output_handle": descriptor["output_handle"]})
            assert parse_text(fetched)["total"] == 5000
            assert "in_output_fetch" in [tool.name for tool in await client.list_tools()]

    try:
        asyncio.run(run())
    finally:
        middleware.close()


def test_a_second_middleware_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    second = ForebayMiddleware((tmp_path / "second").as_uri(), sweep_interval=0)
    server = make_server()
    server.add_middleware(second)

    async def test(client: Client, middleware: ForebayMiddleware) -> None:  # noqa: ARG001
        await client.call_tool("rows", {"count": 1})
        assert "this server has more than one; keep one of them, and give it the options" in caplog.text

    try:
        serve(test, tmp_path / "store", LEGACY, server)
    finally:
        second.close()


def test_a_server_s_own_checks_hold_for_ours(tmp_path: Path) -> None:
    """A client without access cannot fetch, whatever the order of the middleware."""
    root = (tmp_path / "store").as_uri()
    with forebay.open_store(root, sweep_interval=0) as store:
        handle = store.put(b"l" * 50_000).output_handle
        guard = AuthMiddleware(auth=require_scopes("read"))

        async def run(middleware: Sequence[Middleware]) -> None:
            async with fastmcp.Client(make_server(middleware=middleware)) as client:
                refused = await call(client, "output_fetch", output_handle=handle)
                assert (refused.is_error, "lll" in get_text(refused)) == (True, False)
                with pytest.raises(Exception, match="Authorization"):
                    await client.read_resource(f"forebay://output/{handle}")

        own = ForebayMiddleware(store)
        for middleware in ([guard, own], [own, guard]):
            asyncio.run(run(middleware))


def test_a_store_that_is_open_is_used_and_left_open(tmp_path: Path) -> None:
    with forebay.open_store(tmp_path / "store", sweep_interval=0) as store:
        middleware = ForebayMiddleware(store, output_mode="auto")
        middleware.close()
        assert middleware.store is store
        store.put(b"still open")
        with pytest.raises(forebay.InvalidArgument, match="give ttl to open_store"):
            ForebayMiddleware(store, ttl=5)


def test_an_answer_of_ours_can_be_edited_further_out(era: str, tmp_path: Path) -> None:
    class Signs(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> ToolResult:
            result: ToolResult = await call_next(context)
            return ToolResult(result.content, result.structured_content, {"signed": True}, result.is_error)

    async def test(client: Client, middleware: ForebayMiddleware) -> None:  # noqa: ARG001
        result = await call(client, "rows", count=5000)
        assert (result.meta or {})["signed"] is True
        assert "output_handle" in parse_text(result)

    serve(test, tmp_path / "store", era, make_server(middleware=[Signs()]), output_mode="auto")


@pytest.mark.slow
def test_without_the_extra_it_says_what_to_install() -> None:
    script = "import sys; sys.modules['fastmcp'] = None\ntry: import forebay.adapters.fastmcp\n"
    script += "except ModuleNotFoundError as error: print(error.name, error)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    # It is installed in this environment, where only its import fails.
    assert done.stdout.startswith("fastmcp forebay.adapters.fastmcp does not work with fastmcp ")
    assert "pip install 'forebay[fastmcp]'" in done.stdout
