"""The contract in servers: tools that exist, tools that are decorated, real clients, and the bytes on the wire."""

import asyncio
import json
from pathlib import Path
from typing import Any

import anyio
import fastmcp
import forebay
import jsonschema
import orjson
import pytest
from forebay.adapters.mcp import Forebay
from forebay.outputs.contract import Response, ResponseLimits, contracted, wrap_response
from forebay.outputs.contract.rules import ToolContracts
from forebay.store.handles import extract_handle
from invariants import check
from mcp import Client
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_harness import get_text, parse_text, serve
from stores import events
from wires import NASTY, Servers

SCRIPT = "mcp_server.py"


@pytest.mark.slow
@pytest.mark.parametrize("of", NASTY)
def test_a_response_is_within_its_budget_as_a_whole_message(
    of: str, era: str, servers: Servers, tmp_path: Path
) -> None:
    options = {"store": tmp_path.as_uri() + "/store", "contract": {"text": "config", "*": True}, "handle_length": 26}
    with servers.wired(options, era) as wire:
        for tool, arguments, budget in (
            ("text", {"size": 60_000 // len(of), "of": of}, 1536),
            ("rows", {"count": 2000}, 10240),
            ("failing", {"size": 20_000}, 10240),
            ("several", {"size": 20_000}, 10240),
            ("with_meta", {"size": 100_000}, 10240),
            ("image", {}, 10240),
        ):
            line = wire.ask("tools/call", {"name": tool, "arguments": arguments}).rstrip(b"\n")
            assert len(line) <= budget
            said = json.loads(json.loads(line)["result"]["content"][0]["text"])
            assert (said["hasMore"], said["fetchWith"]) == (True, "output_fetch")
            assert said["success"] == (tool != "failing")


def test_tools_that_exist_answer_by_it(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Forebay) -> None:
        small = await client.call_tool("rows", {"count": 2})
        said = check(Response(get_text(small)), ResponseLimits())
        assert (said["summary"], said["success"], said["count"], said["hasMore"]) == ("rows: 2 items", True, 2, False)
        assert said["data"]["result"][1] == {"id": 1, "name": "naïve 1"}
        large = parse_text(await client.call_tool("rows", {"count": 5000}))
        page = await client.call_tool(large["fetchWith"], {"output_handle": large["artifactRef"], "offset": 4999})
        assert parse_text(page)["content"] == [{"id": 4999, "name": "naïve 4999"}]
        found = await client.call_tool("output_search", {"output_handle": large["artifactRef"], "pattern": 'naïve 77"'})
        assert parse_text(found)["matches"][0]["item"] == 77
        assert [event["mode"] for event in events(gate.store, "tool_called")][-2:] == ["contract", "contract"]

    serve(test, tmp_path / "store", era, contract=True)


@pytest.mark.slow
def test_a_client_that_validates_accepts_it(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Forebay) -> None:  # noqa: ARG001
        schemas = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
        for count in (2, 5000):
            answer = (await client.call_tool("rows", {"count": count})).structured_content
            jsonschema.validate(answer, schemas["rows"] or {})
            assert answer is not None
            assert answer["hasMore"] == (count == 5000) == ("artifactRef" in answer)
            # All of it, or where all of it is.
            assert ("data" in answer) == (count == 2)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"neither": 1}, schemas["rows"] or {})

    serve(test, tmp_path / "store", era, contract=True)


def test_a_tool_that_failed_says_so(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Forebay) -> None:  # noqa: ARG001
        for tool, size in (("failing", 3), ("failing", 20_000), ("breaking", None)):
            result = await client.call_tool(tool, {} if size is None else {"size": size})
            said = parse_text(result)
            assert result.is_error
            assert said["success"] is False
            assert said["summary"].startswith(f"{tool} failed: ")
            assert said["hasMore"] == (size == 20_000)
            assert "secret" not in get_text(result)

    serve(test, tmp_path / "store", era, contract=True)


def test_only_the_tools_that_are_named(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Forebay) -> None:  # noqa: ARG001
        assert parse_text(await client.call_tool("json_text", {}))["data"]["count"] == 3
        assert "output_handle" in parse_text(await client.call_tool("text", {"size": 50_000}))
        assert get_text(await client.call_tool("text", {"size": 5})) == "xxxxx"

    serve(test, tmp_path / "store", era, contract=["json_*"], output_mode="auto", per_call=True)


def test_calls_choose_nothing_where_there_is_a_contract(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Forebay) -> None:  # noqa: ARG001
        schemas = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        assert "output_mode" not in schemas["json_text"]["properties"]
        assert "output_mode" in schemas["text"]["properties"]
        assert parse_text(await client.call_tool("json_text", {"output_mode": "handle"}))["success"] is True

    serve(test, tmp_path / "store", era, contract=["json_*"], per_call=True)


def test_what_cannot_be_stored_is_said(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Forebay) -> None:  # noqa: ARG001
        said = parse_text(await client.call_tool("rows", {"count": 5000}))
        assert (said["error"]["code"], said["hasMore"], "artifactRef" in said) == ("store_full", True, False)
        assert said["data"]["result"]["totalCount"] == 5000

    serve(test, tmp_path / "store", era, contract=True, quota_bytes=10)


def test_what_must_not_be_shown_is_not_in_the_summary_either(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Forebay) -> None:  # noqa: ARG001
        for tool in ("failing", "text"):
            assert "eee" not in get_text(
                await client.call_tool(tool, {"size": 60, **({"of": "e"} if tool == "text" else {})})
            )

    serve(test, tmp_path / "store", era, contract=True, redact=lambda data: data.replace(b"e", b"-"))


def make_decorated() -> MCPServer:
    server = MCPServer("decorated")

    @server.tool()
    @contracted
    def bug_scan(count: int = 3) -> list[dict[str, int]]:
        return [{"id": number} for number in range(count)]

    @server.tool()
    @contracted(summary="Slow rows")
    async def slow_list(ctx: Context[Any], count: int = 3) -> "dict[str, list[int]]":
        await asyncio.sleep(0)
        assert ctx.request_id is not None
        return {"rows": list(range(count))}

    @server.tool()
    def by_hand(count: int = 3) -> str:
        return wrap_response(list(range(count)), summary="By hand", category="scan")

    return server


@pytest.mark.parametrize("contract", [False, True])
def test_decorated_tools_store_where_the_server_s_own_find_it(contract: bool, era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Forebay) -> None:
        schemas = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert schemas["bug_scan"].output_schema is None
        for tool in ("bug_scan", "slow_list"):
            assert list(schemas[tool].input_schema["properties"]) == ["count"]
        for tool in ("bug_scan", "slow_list", "by_hand"):
            result = await client.call_tool(tool, {"count": 3000})
            said = parse_text(result)
            # Not a response inside of another.
            assert "data" not in said["data"]
            assert said["count"] == 3000
            assert len(result.content) == 1
            page = parse_text(
                await client.call_tool(said["fetchWith"], {"output_handle": said["artifactRef"], "offset": 2999})
            )
            assert len(page["content"]) == 1
            assert gate.store.stat(str(extract_handle(said["artifactRef"]))).item_count == 3000
        assert len(list(gate.store.list())) == 3

    serve(test, tmp_path / "store", era, make_decorated(), contract=contract)


def test_what_a_tool_stores_is_its_caller_s(tmp_path: Path) -> None:
    gate = Forebay((tmp_path / "store").as_uri(), sweep_interval=0)
    with gate.make_context("ada", 26):
        handle = str(extract_handle(wrap_response(list(range(11)), summary="s").to_dict()["artifactRef"]))
    assert len(handle) == 29
    assert gate.store.stat(handle, principal="ada").principal == "ada"
    for other in ("bob", None):
        with pytest.raises(forebay.HandleNotFound):
            gate.store.stat(handle, principal=other)
    gate.close()


def test_a_decorated_tool_of_fastmcp(tmp_path: Path) -> None:
    server: fastmcp.FastMCP[Any] = fastmcp.FastMCP("fast")
    with forebay.open_store(tmp_path / "store", sweep_interval=0) as store:

        @server.tool
        @contracted(store=store)
        def bug_list(count: int = 3) -> list[int]:
            return list(range(count))

        async def go() -> None:
            async with fastmcp.Client(server) as client:
                result = await client.call_tool("bug_list", {"count": 50})
                assert result.structured_content is None
                (block,) = result.content
                assert json.loads(block.text)["count"] == 50
                assert len(orjson.dumps(block.text)) < 2048

        anyio.run(go)


def test_rules() -> None:
    limits = ResponseLimits(max_bytes=5000)
    rules = ToolContracts({"secret_*": False, "a_list": limits, "b": "execution", "*_scan": True, "*": True})
    assert rules.find_limits("secret_list") is None
    assert rules.find_limits("a_list") is limits
    found = [rules.find_limits(tool) for tool in ("b", "x_scan", "crawl")]
    assert [each and each.max_bytes for each in found] == [3072, 2048, 10240]
    assert ToolContracts(True).find_limits("t_status") == ResponseLimits(max_bytes=1536)
    assert not ToolContracts(False)
    assert ToolContracts(["a"]).find_limits("b") is None
    wrong: list[Any] = ["*_list", 3, {"a": "big"}]
    for each in wrong:
        with pytest.raises(forebay.InvalidArgument, match=r"contract is True|category is one of"):
            ToolContracts(each)
