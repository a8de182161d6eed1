"""The contract in servers: existing and decorated tools, real clients, and the bytes on the wire."""

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
from forebay.outputs.contract.limits import ToolContracts
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
@pytest.mark.parametrize("character", NASTY)
def test_a_response_is_within_its_budget_as_a_whole_message(
    character: str, era: str, servers: Servers, tmp_path: Path
) -> None:
    options = {"store": tmp_path.as_uri() + "/store", "contract": {"text": "config", "*": True}, "handle_length": 26}
    with servers.connect(options, era) as wire:
        for tool, arguments, budget in (
            ("text", {"size": 60_000 // len(character), "of": character}, 1536),
            ("rows", {"count": 2000}, 10240),
            ("failing", {"size": 20_000}, 10240),
            ("several", {"size": 20_000}, 10240),
            ("with_meta", {"size": 100_000}, 10240),
            ("image", {}, 10240),
        ):
            line = wire.request("tools/call", {"name": tool, "arguments": arguments}).rstrip()
            assert len(line) <= budget
            fields = json.loads(json.loads(line)["result"]["content"][0]["text"])
            assert (fields["hasMore"], fields["fetchWith"]) == (True, "output_fetch")
            assert fields["success"] == (tool != "failing")


def test_existing_tools_follow_the_contract(era: str, tmp_path: Path) -> None:
    async def test(client: Client, adapter: Forebay) -> None:
        small = await client.call_tool("rows", {"count": 2})
        fields = check(Response(get_text(small)), ResponseLimits())
        assert (fields["summary"], fields["success"]) == ("rows: 2 items", True)
        assert (fields["count"], fields["hasMore"]) == (2, False)
        assert fields["data"]["result"][1] == {"id": 1, "name": "naïve 1"}
        large = parse_text(await client.call_tool("rows", {"count": 5000}))
        page = await client.call_tool(large["fetchWith"], {"output_handle": large["artifactRef"], "offset": 4999})
        assert parse_text(page)["content"] == [{"id": 4999, "name": "naïve 4999"}]
        search = {"output_handle": large["artifactRef"], "pattern": 'naïve 77"'}
        found = await client.call_tool("output_search", search)
        assert parse_text(found)["matches"][0]["item"] == 77
        assert [event["mode"] for event in events(adapter.store, "tool_called")][-2:] == ["contract", "contract"]

    serve(test, tmp_path / "store", era, contract=True)


@pytest.mark.slow
def test_a_validating_client_accepts_the_response(era: str, tmp_path: Path) -> None:
    async def test(client: Client, adapter: Forebay) -> None:  # noqa: ARG001
        schemas = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
        for count in (2, 5000):
            answer = (await client.call_tool("rows", {"count": count})).structured_content
            jsonschema.validate(answer, schemas["rows"] or {})
            assert answer is not None
            assert answer["hasMore"] == (count == 5000) == ("artifactRef" in answer)
            rows = answer["data"]["result"]
            assert len(rows["items"] if count == 5000 else rows) >= 2
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"neither": 1}, schemas["rows"] or {})

    serve(test, tmp_path / "store", era, contract=True)


def test_a_failed_tool_has_success_false(era: str, tmp_path: Path) -> None:
    async def test(client: Client, adapter: Forebay) -> None:  # noqa: ARG001
        for tool, size in (("failing", 3), ("failing", 20_000), ("breaking", None)):
            result = await client.call_tool(tool, {} if size is None else {"size": size})
            fields = parse_text(result)
            assert result.is_error
            assert fields["success"] is False
            assert fields["summary"].startswith(f"{tool} failed: ")
            assert fields["hasMore"] == (size == 20_000)
            assert "secret" not in get_text(result)

    serve(test, tmp_path / "store", era, contract=True)


def test_only_named_tools_follow_the_contract(era: str, tmp_path: Path) -> None:
    async def test(client: Client, adapter: Forebay) -> None:  # noqa: ARG001
        assert parse_text(await client.call_tool("json_text", {}))["data"]["count"] == 3
        assert "output_handle" in parse_text(await client.call_tool("text", {"size": 50_000}))
        assert get_text(await client.call_tool("text", {"size": 5})) == "xxxxx"

    serve(test, tmp_path / "store", era, contract=["json_*"], output_mode="auto", per_call=True)


def test_calls_cannot_choose_a_mode_under_a_contract(era: str, tmp_path: Path) -> None:
    async def test(client: Client, adapter: Forebay) -> None:  # noqa: ARG001
        schemas = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        assert "output_mode" not in schemas["json_text"]["properties"]
        assert "output_mode" in schemas["text"]["properties"]
        assert parse_text(await client.call_tool("json_text", {"output_mode": "handle"}))["success"] is True

    serve(test, tmp_path / "store", era, contract=["json_*"], per_call=True)


def test_a_full_store_is_reported(era: str, tmp_path: Path) -> None:
    async def test(client: Client, adapter: Forebay) -> None:  # noqa: ARG001
        fields = parse_text(await client.call_tool("rows", {"count": 5000}))
        assert (fields["error"]["code"], fields["hasMore"], "artifactRef" in fields) == ("store_full", True, False)
        assert fields["data"]["result"]["totalCount"] == 5000

    serve(test, tmp_path / "store", era, contract=True, quota_bytes=10)


def test_redactions_apply_to_the_summary(era: str, tmp_path: Path) -> None:
    async def test(client: Client, adapter: Forebay) -> None:  # noqa: ARG001
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
def test_decorated_tools_use_the_server_s_store(contract: bool, era: str, tmp_path: Path) -> None:
    async def test(client: Client, adapter: Forebay) -> None:
        schemas = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert schemas["bug_scan"].output_schema is None
        for tool in ("bug_scan", "slow_list"):
            assert list(schemas[tool].input_schema["properties"]) == ["count"]
        for tool in ("bug_scan", "slow_list", "by_hand"):
            result = await client.call_tool(tool, {"count": 3000})
            fields = parse_text(result)
            # Not wrapped twice.
            assert "data" not in fields["data"]
            assert fields["count"] == 3000
            assert len(result.content) == 1
            page = parse_text(
                await client.call_tool(fields["fetchWith"], {"output_handle": fields["artifactRef"], "offset": 2999})
            )
            assert len(page["content"]) == 1
            assert adapter.store.stat(str(extract_handle(fields["artifactRef"]))).item_count == 3000
        assert len(list(adapter.store.list())) == 3

    serve(test, tmp_path / "store", era, make_decorated(), contract=contract)


def test_artifacts_belong_to_the_caller(tmp_path: Path) -> None:
    adapter = Forebay((tmp_path / "store").as_uri(), sweep_interval=0)
    with adapter.policy.make_context("ada", 26):
        handle = str(extract_handle(wrap_response(list(range(11)), summary="s").to_dict()["artifactRef"]))
    assert len(handle) == 29
    assert adapter.store.stat(handle, principal="ada").principal == "ada"
    for other in ("bob", None):
        with pytest.raises(forebay.HandleNotFound):
            adapter.store.stat(handle, principal=other)
    adapter.close()


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
    resolved = [rules.find_limits(tool) for tool in ("b", "x_scan", "crawl")]
    assert [limits and limits.max_bytes for limits in resolved] == [3072, 2048, 10240]
    assert ToolContracts(True).find_limits("t_status") == ResponseLimits(max_bytes=1536)
    assert not ToolContracts(False)
    assert ToolContracts(["a"]).find_limits("b") is None
    invalid: list[Any] = ["*_list", 3, {"a": "big"}]
    for rule in invalid:
        with pytest.raises(forebay.InvalidArgument, match=r"contract is True|category is one of"):
            ToolContracts(rule)
