"""forebay in a server of the mcp SDK: results of every kind and mode, for clients of both eras."""

import base64
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from forebay.adapters.mcp import Forebay
from forebay.outputs.modes import Mode
from forebay.outputs.tool_call import ToolCall
from mcp import Client
from mcp.server import MCPServer, Server
from mcp.server.mcpserver import Context
from mcp_harness import get_text, parse_text, read_all_items, serve
from mcp_server import PIXELS
from mcp_types import (
    CallToolResult,
    EmbeddedResource,
    InputRequiredResult,
    ListToolsResult,
    TextContent,
    TextResourceContents,
    Tool,
)
from wires import MODERN


def test_a_large_result_becomes_a_handle_that_gives_all_of_it(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: Forebay) -> None:
        result = await client.call_tool("rows", {"count": 5000})
        descriptor = parse_text(result)
        assert (descriptor["item_count"], descriptor["items_path"]) == (5000, "/result")
        assert result.structured_content == descriptor
        pages = await read_all_items(client, descriptor["output_handle"])
        assert [row for page in pages for row in page["content"]] == [
            {"id": number, "name": f"naïve {number}"} for number in range(5000)
        ]
        assert middleware.store.stat(descriptor["output_handle"]).source_tool == "rows"

    serve(test, tmp_path / "store", era, output_mode="auto")


@pytest.mark.parametrize(
    ("tool", "arguments", "payload", "mime_type"),
    [
        ("text", {"size": 50_000}, b"x" * 50_000, "text/plain"),
        ("json_text", {"count": 5000}, None, "application/json"),
        ("image", {}, PIXELS, "image/png"),
        ("audio", {}, PIXELS, "audio/wav"),
        ("blob", {}, b"\x1f\x8b" + PIXELS, "application/gzip"),
    ],
)
def test_every_kind_of_result(
    tool: str, arguments: dict[str, Any], payload: bytes | None, mime_type: str, era: str, tmp_path: Path
) -> None:
    async def test(client: Client, middleware: Forebay) -> None:
        descriptor = parse_text(await client.call_tool(tool, arguments))
        assert descriptor["mime_type"] == mime_type
        with middleware.store.open(descriptor["output_handle"]) as file:
            stored = file.read()
        if payload is None:
            assert json.loads(stored)["count"] == arguments["count"]
            assert descriptor["items_path"] == "/items"
            return
        assert stored == payload
        assert (descriptor["preview"] is None) == (not mime_type.startswith("text/"))
        pages = await read_all_items(client, descriptor["output_handle"], format="bytes")
        assert b"".join(base64.b64decode(page["content"]) for page in pages) == payload

    serve(test, tmp_path / "store", era, output_mode="auto", image_mode="auto", audio_mode="auto")


def test_rows_of_text_are_found_by_its_type(era: str, tmp_path: Path) -> None:
    server = MCPServer("rows")
    ndjson = "".join(f'{{"id": {number}}}\n' for number in range(5000))
    rows = "id\n" + "".join(f"{number}\n" for number in range(5000))

    @server.tool(structured_output=False)
    def lines() -> str:
        return ndjson

    @server.tool(structured_output=False)
    def untyped() -> str:
        return rows

    @server.tool(structured_output=False)
    def typed() -> EmbeddedResource:
        resource = TextResourceContents(uri="shop://orders", mime_type="text/csv", text=rows)
        return EmbeddedResource(type="resource", resource=resource)

    async def test(client: Client, middleware: Forebay) -> None:  # noqa: ARG001
        counts = {
            tool: parse_text(await client.call_tool(tool, {})).get("item_count")
            for tool in ("lines", "untyped", "typed")
        }
        assert counts == {"lines": 5000, "untyped": None, "typed": 5000}

    serve(test, tmp_path / "store", era, server, output_mode="handle")


def test_several_blocks_are_one_payload(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: Forebay) -> None:  # noqa: ARG001
        descriptor = parse_text(await client.call_tool("several", {"size": 20_000}))
        assert (descriptor["items_path"], descriptor["item_count"]) == ("/content", 3)
        page = parse_text(
            await client.call_tool("output_fetch", {"output_handle": descriptor["output_handle"], "limit": 1})
        )
        assert page["content"] == [{"type": "text", "text": "a" * 20_000}]

    serve(test, tmp_path / "store", era, output_mode="auto", page_limit_bytes=32_000)


def test_an_error_stays_one(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: Forebay) -> None:
        result = await client.call_tool("failing", {"size": 50_000})
        assert result.is_error
        with middleware.store.open(parse_text(result)["output_handle"]) as file:
            assert file.read().endswith(b"e" * 50_000)
        small = await client.call_tool("failing", {})
        assert small.is_error
        assert get_text(small).endswith("eee")

    serve(test, tmp_path / "store", era, output_mode="auto")


@pytest.mark.slow
def test_a_client_that_validates_accepts_both_answers(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: Forebay) -> None:  # noqa: ARG001
        schemas = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
        for count in (2, 5000):
            answer = (await client.call_tool("rows", {"count": count})).structured_content
            jsonschema.validate(answer, schemas["rows"] or {})
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"neither": 1}, schemas["rows"] or {})

    serve(test, tmp_path / "store", era, output_mode="auto")


def test_modes_by_tool_and_pattern(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: Forebay) -> None:  # noqa: ARG001
        assert "output_handle" in parse_text(await client.call_tool("rows", {"count": 1}))
        assert get_text(await client.call_tool("text", {"size": 90_000})) == "x" * 90_000
        assert "output_handle" in parse_text(await client.call_tool("json_text", {"count": 200}))
        assert parse_text(await client.call_tool("json_text", {"count": 2}))["count"] == 2

    rules = {"rows": "handle", "json_*": {"output_mode": "auto", "output_inline_limit_bytes": 1024}}
    serve(test, tmp_path / "store", era, tools=rules)


def test_a_call_may_choose_where_the_server_lets_it(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: Forebay) -> None:  # noqa: ARG001
        schemas = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        assert {"output_mode", "output_inline_limit_bytes"} <= schemas["text"]["properties"].keys()
        assert schemas["chooses"]["properties"].keys() == {"output_mode"}
        assert "output_handle" in parse_text(await client.call_tool("text", {"output_mode": "handle"}))
        assert get_text(await client.call_tool("text", {"size": 2, "output_mode": None})) == "xx"
        limited = {"size": 3000, "output_mode": "auto", "output_inline_limit_bytes": 2048}
        assert "output_handle" in parse_text(await client.call_tool("text", limited))
        # The tool has an argument of that name itself.
        assert get_text(await client.call_tool("chooses", {"output_mode": "handle"})) == "handle" * 20_000
        for wrong in ({"output_mode": "both"}, {"output_inline_limit_bytes": -7}, {"output_inline_limit_bytes": "big"}):
            refused = await client.call_tool("text", wrong)
            assert refused.is_error
            assert parse_text(refused)["error"]["code"] == "invalid_argument"

    serve(test, tmp_path / "store", era, per_call=True)


def test_what_nobody_let_it_choose_is_the_tool_s_to_refuse(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: Forebay) -> None:  # noqa: ARG001
        result = await client.call_tool("text", {"size": 50_000, "output_mode": "handle"})
        assert get_text(result) == "x" * 50_000

    serve(test, tmp_path / "store", era)


@pytest.mark.parametrize("size", [10, 100_000])
def test_what_a_tool_says_beside_its_result_is_kept(size: int, era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: Forebay) -> None:
        result = await client.call_tool("with_meta", {"size": size})
        with middleware.store.open(parse_text(result)["output_handle"]) as file:
            stored = file.read()
        if size == 10:
            assert result.meta is not None
            assert result.meta["own"] == "o" * size
            assert stored == b"m" * 50_000
        else:
            assert "own" not in (result.meta or {})
            assert json.loads(stored)["_meta"] == {"own": "o" * size}

    serve(test, tmp_path / "store", era, output_mode="auto")


def test_a_server_that_asks_back_is_let_to(tmp_path: Path) -> None:
    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:  # noqa: ARG001
        return ListToolsResult(tools=[Tool(name="asks", input_schema={"type": "object"})])

    async def call_tool(ctx: Any, params: Any) -> CallToolResult | InputRequiredResult:  # noqa: ARG001
        if params.request_state is None:
            return InputRequiredResult(request_state="s" * 50_000)
        return CallToolResult(content=[TextContent(type="text", text=params.request_state)])

    async def test(client: Client, middleware: Forebay) -> None:
        handle = parse_text(await client.call_tool("asks", {}))["output_handle"]
        assert middleware.store.stat(handle).size_bytes == 50_000
        assert len(list(middleware.store.list())) == 1

    serve(
        test,
        tmp_path / "store",
        MODERN,
        Server("asking", on_list_tools=list_tools, on_call_tool=call_tool),
        output_mode="handle",
    )


def test_progress_passes_through(era: str, tmp_path: Path) -> None:
    server = MCPServer("slow")

    @server.tool(structured_output=False)
    async def slow(ctx: Context[Any, Any]) -> str:
        for step in range(3):
            await ctx.report_progress(step, 3)
        return "done " * 20_000

    async def test(client: Client, middleware: Forebay) -> None:  # noqa: ARG001
        steps: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001
            steps.append(progress)

        assert "output_handle" in parse_text(await client.call_tool("slow", {}, progress_callback=on_progress))
        assert steps == [0, 1, 2]

    serve(test, tmp_path / "store", era, server, output_mode="auto")


@pytest.mark.parametrize("schema", [{"type": "array", "items": {"type": "integer"}}, {}, {"type": ["array", "null"]}])
def test_what_is_structured_need_not_be_an_object(schema: dict[str, Any], tmp_path: Path) -> None:
    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:  # noqa: ARG001
        tool = Tool(name="ints", input_schema={"type": "object"}, output_schema=schema)
        return ListToolsResult(tools=[tool])

    async def call_tool(ctx: Any, params: Any) -> CallToolResult:  # noqa: ARG001
        numbers = list(range((params.arguments or {}).get("count", 2)))
        return CallToolResult(content=[TextContent(type="text", text=json.dumps(numbers))], structured_content=numbers)

    async def test(client: Client, middleware: Forebay) -> None:
        await client.list_tools()
        assert (await client.call_tool("ints", {})).structured_content == [0, 1]
        handle = parse_text(await client.call_tool("ints", {"count": 20_000}))["output_handle"]
        assert middleware.store.stat(handle).item_count == 20_000

    serve(
        test,
        tmp_path / "store",
        MODERN,
        Server("ints", on_list_tools=list_tools, on_call_tool=call_tool),
        output_mode="auto",
    )


def test_what_extensions_define_is_theirs(tmp_path: Path) -> None:
    middleware = Forebay((tmp_path / "store").as_uri(), sweep_interval=0, output_mode="handle")
    pipeline, call = middleware.policy.pipeline, ToolCall("x")
    mode, _ = middleware.policy.resolve_mode("x", {})
    assert pipeline.is_inline({"resultType": "com.example/stream", "content": []}, mode, call)
    assert not pipeline.is_inline({"resultType": "com.example/stream", "content": [{"type": "text"}]}, mode, call)
    assert not pipeline.is_inline({"resultType": "complete", "content": []}, mode, call)
    assert pipeline.is_inline({"content": ["no block"]}, Mode("auto"), call)
    middleware.close()
