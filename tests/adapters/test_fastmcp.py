"""forebay in a fastmcp server: results of every kind and mode, for clients of both eras."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.middleware import Middleware
from fastmcp_harness import Client, call, read_stored, serve
from fastmcp_server import PIXELS, make_server
from forebay.adapters.fastmcp import ForebayMiddleware
from forebay.outputs.schemas import HANDLE_SCHEMA
from mcp_harness import get_text, parse_text, read_all_items
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult


@pytest.mark.parametrize(
    ("tool", "arguments", "payload", "mime_type"),
    [
        ("text", {"size": 50_000}, b"x" * 50_000, "text/plain"),
        ("text", {"size": 5_000_000, "of": "é"}, "é".encode() * 5_000_000, "text/plain"),
        ("json_text", {"count": 5000}, None, "application/json"),
        ("raw", {"size": 50_000}, b"r" * 50_000, "text/plain"),
        ("image", {}, PIXELS, "image/png"),
        ("audio", {}, PIXELS, "audio/wav"),
        ("blob", {}, b"\x1f\x8b" + PIXELS, "application/gzip"),
    ],
)
def test_every_kind_of_result(
    tool: str, arguments: dict[str, Any], payload: bytes | None, mime_type: str, era: str, tmp_path: Path
) -> None:
    async def test(client: Client, middleware: ForebayMiddleware) -> None:
        result = await call(client, tool, **arguments)
        descriptor = parse_text(result)
        assert descriptor["mime_type"] == mime_type
        assert (result.content[1].type, result.content[1].size) == ("resource_link", descriptor["size_bytes"])
        assert len(result.content) == 2
        stored = read_stored(middleware, result)
        if payload is None:
            assert json.loads(stored)["count"] == arguments["count"]
            assert descriptor["items_path"] == "/items"
            return
        assert stored == payload
        assert (descriptor["preview"] is None) == (not mime_type.startswith("text/"))
        if len(payload) < 10**6:
            pages = await read_all_items(client, descriptor["output_handle"], format="bytes")
            assert b"".join(base64.b64decode(page["content"]) for page in pages) == payload

    serve(
        test,
        tmp_path / "store",
        era,
        output_mode="auto",
        image_mode="auto",
        audio_mode="auto",
        resource_links=True,
    )


def test_what_is_structured_is_stored_once(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: ForebayMiddleware) -> None:
        assert json.loads(read_stored(middleware, await call(client, "rows", count=5000)))["result"][4999]["id"] == 4999
        assert json.loads(read_stored(middleware, await call(client, "report", count=1000))).keys() == {
            "title",
            "lines",
        }

    serve(test, tmp_path / "store", era, output_mode="auto")


def test_several_blocks_are_one_payload(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: ForebayMiddleware) -> None:  # noqa: ARG001
        descriptor = parse_text(await call(client, "several", size=20_000))
        assert (descriptor["items_path"], descriptor["item_count"]) == ("/content", 3)
        page = parse_text(await call(client, "output_fetch", output_handle=descriptor["output_handle"], limit=1))
        assert page["content"] == [{"type": "text", "text": "a" * 20_000}]

    serve(test, tmp_path / "store", era, output_mode="auto", page_limit_bytes=32_000)


@pytest.mark.parametrize(("tool", "letter"), [("raising", b"e"), ("failing", b"f")])
def test_an_error_stays_one(tool: str, letter: bytes, era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: ForebayMiddleware) -> None:
        large, small = await call(client, tool, size=50_000), await call(client, tool)
        assert large.is_error
        assert read_stored(middleware, large) == letter * 50_000
        assert (small.is_error, get_text(small)) == (True, letter.decode() * 3)
        broken = await call(client, "breaking")
        assert (broken.is_error, get_text(broken)) == (True, "Error calling tool 'breaking': lost")
        with pytest.raises(ToolError, match="output_handle"):
            await client.call_tool(tool, {"size": 50_000})

    serve(test, tmp_path / "store", era, output_mode="auto")


@pytest.mark.slow
def test_a_client_that_validates_accepts_both_answers(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: ForebayMiddleware) -> None:  # noqa: ARG001
        schemas = {tool.name: tool.output_schema or {} for tool in await client.list_tools()}
        for tool in ("rows", "report", "text"):
            for arguments in ({}, {"size" if tool == "text" else "count": 50_000}):
                answer = (await client.call_tool(tool, arguments)).structured_content or {}
                assert ("output_handle" in answer) == bool(arguments)
                jsonschema.validate(answer, schemas[tool])
            for wrong in ({"neither": 1}, {"result": 1, "title": 1}, {"output_handle": 1}):
                with pytest.raises(jsonschema.ValidationError):
                    jsonschema.validate(wrong, schemas[tool])

    serve(test, tmp_path / "store", era, output_mode="auto")


def test_a_schema_that_says_more_is_kept_whole(era: str, tmp_path: Path) -> None:
    server = FastMCP("schemas")
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "minProperties": 3}

    @server.tool(output_schema=schema)
    def strict(size: int = 1) -> dict[str, Any]:
        return {"n": 1, "a": "a" * size, "b": 2}

    async def test(client: Client, middleware: ForebayMiddleware) -> None:  # noqa: ARG001
        listed = (await client.list_tools())[0].output_schema or {}
        assert listed == {"type": "object", "anyOf": [schema, HANDLE_SCHEMA]}
        for size in (1, 50_000):
            jsonschema.validate((await client.call_tool("strict", {"size": size})).structured_content, listed)

    serve(test, tmp_path / "store", era, server, output_mode="auto")


@pytest.mark.slow
def test_fastmcp_s_client_makes_data_of_both_answers(
    era: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(client: Client, middleware: ForebayMiddleware) -> None:  # noqa: ARG001
        assert (await client.call_tool("rows", {"count": 1})).data == [{"id": 0, "name": "naïve 0"}]
        assert (await client.call_tool("text", {})).data == "xxx"
        assert (await client.call_tool("report", {})).data.title == "t"
        for tool, size in (("rows", "count"), ("text", "size"), ("report", "count")):
            result = await client.call_tool(tool, {size: 50_000})
            assert result.data.output_handle == parse_text(result)["output_handle"]

    serve(test, tmp_path / "store", era, output_mode="auto")
    assert "Error parsing" not in caplog.text


def test_modes_by_tool_and_pattern(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: ForebayMiddleware) -> None:  # noqa: ARG001
        assert "output_handle" in parse_text(await call(client, "rows", count=1))
        assert get_text(await call(client, "text", size=90_000)) == "x" * 90_000
        assert "output_handle" in parse_text(await call(client, "json_text", count=200))
        assert parse_text(await call(client, "json_text", count=2))["count"] == 2

    rules = {"rows": "handle", "json_*": {"output_mode": "auto", "output_inline_limit_bytes": 1024}}
    serve(test, tmp_path / "store", era, tools=rules)


def test_a_call_may_choose_where_the_server_lets_it(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: ForebayMiddleware) -> None:  # noqa: ARG001
        # Called before the tools were listed.
        assert get_text(await call(client, "chooses", output_mode="handle")) == "handle" * 20_000
        schemas = {tool.name: tool.input_schema for tool in await client.list_tools()}
        assert {"output_mode", "output_inline_limit_bytes"} <= schemas["text"]["properties"].keys()
        assert schemas["chooses"]["properties"].keys() == {"output_mode"}
        assert "output_handle" in parse_text(await call(client, "text", output_mode="handle"))
        assert get_text(await call(client, "text", size=2, output_mode=None)) == "xx"
        limited = {"size": 3000, "output_mode": "auto", "output_inline_limit_bytes": 2048}
        assert "output_handle" in parse_text(await call(client, "text", **limited))
        wrongs: list[dict[str, Any]] = [{"output_mode": "both"}, {"output_inline_limit_bytes": -7}]
        for wrong in wrongs:
            refused = await call(client, "text", **wrong)
            assert refused.is_error
            assert parse_text(refused)["error"]["code"] == "invalid_argument"

    serve(test, tmp_path / "store", era, per_call=True)


def test_a_request_for_input_passes_through(tmp_path: Path) -> None:
    server = FastMCP("guard")

    @server.tool
    def guard() -> str | InputRequiredResult:
        elicitation = ElicitRequest(
            params=ElicitRequestFormParams(message="?" * 60_000, requested_schema={"type": "object"})
        )
        return InputRequiredResult(input_requests={"sure": elicitation})

    middleware = ForebayMiddleware((tmp_path / "store").as_uri(), output_mode="handle", sweep_interval=0)
    server.add_middleware(middleware)
    try:
        result: Any = asyncio.run(server.call_tool("guard"))
    finally:
        middleware.close()
    assert result.input_required.input_requests["sure"].params.message == "?" * 60_000


def test_what_is_not_a_tool_s_result_passes_through(tmp_path: Path) -> None:
    class Tasks(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> Any:  # noqa: ARG002
            return {"task": "t" * 60_000}

    middleware = ForebayMiddleware((tmp_path / "store").as_uri(), output_mode="handle", sweep_interval=0)
    server = make_server(middleware=[middleware, Tasks()])
    try:
        passed: Any = asyncio.run(server.call_tool("rows"))
        assert passed == {"task": "t" * 60_000}
    finally:
        middleware.close()


@pytest.mark.parametrize("size", [10, 100_000])
def test_what_a_tool_says_beside_its_result_is_kept(size: int, era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: ForebayMiddleware) -> None:
        result = await call(client, "with_meta", size=size)
        if size == 10:
            assert (result.meta or {})["own"] == "o" * size
            assert read_stored(middleware, result) == b"m" * 50_000
        else:
            assert "own" not in (result.meta or {})
            assert json.loads(read_stored(middleware, result))["_meta"] == {"own": "o" * size}

    serve(test, tmp_path / "store", era, output_mode="auto")
