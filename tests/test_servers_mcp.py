"""headgate in a server of the mcp SDK: real clients, both eras of the protocol, and the bytes on the wire."""

import base64
import json
from pathlib import Path
from typing import Any

import anyio
import headgate
import jsonschema
import pytest
from headgate.servers.mcp import Headgate, _principal
from headgate.servers.modes import Mode
from mcp import Client
from mcp.server import MCPServer, Server
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp_harness import serve, text_of, told
from mcp_server import PIXELS, make_server
from mcp_types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    TextContent,
    Tool,
)
from wires import MODERN


async def redeem(client: Client, handle: str, **ask: Any) -> list[Any]:
    """All pages of what was stored."""
    pages: list[Any] = []
    offset: int | None = 0
    while offset is not None:
        result = await client.call_tool("output_fetch", {"output_handle": handle, "offset": offset, **ask})
        assert not result.is_error
        pages.append(told(result))
        assert len(json.dumps(text_of(result), ensure_ascii=False).encode()) <= 32768 + 2
        offset = pages[-1]["next_offset"]
    return pages


def test_a_large_result_becomes_a_handle_that_gives_all_of_it(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Headgate) -> None:
        result = await client.call_tool("rows", {"count": 5000})
        descriptor = told(result)
        assert (descriptor["item_count"], descriptor["items_path"]) == (5000, "/result")
        assert result.structured_content == {"output_handle": descriptor["output_handle"], "fetch_with": "output_fetch"}
        pages = await redeem(client, descriptor["output_handle"])
        assert [row for page in pages for row in page["content"]] == [
            {"id": number, "name": f"naïve {number}"} for number in range(5000)
        ]
        assert gate.store.stat(descriptor["output_handle"]).source_tool == "rows"

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
    async def test(client: Client, gate: Headgate) -> None:
        descriptor = told(await client.call_tool(tool, arguments))
        assert descriptor["mime_type"] == mime_type
        with gate.store.open(descriptor["output_handle"]) as file:
            stored = file.read()
        if payload is None:
            assert json.loads(stored)["count"] == arguments["count"]
            assert descriptor["items_path"] == "/items"
            return
        assert stored == payload
        assert (descriptor["preview"] is None) == (not mime_type.startswith("text/"))
        pages = await redeem(client, descriptor["output_handle"], format="bytes")
        assert b"".join(base64.b64decode(page["content"]) for page in pages) == payload

    serve(test, tmp_path / "store", era, output_mode="auto")


def test_several_blocks_are_one_payload(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Headgate) -> None:  # noqa: ARG001
        descriptor = told(await client.call_tool("several", {"size": 20_000}))
        assert (descriptor["items_path"], descriptor["item_count"]) == ("/content", 3)
        page = told(await client.call_tool("output_fetch", {"output_handle": descriptor["output_handle"], "limit": 1}))
        assert page["content"] == [{"type": "text", "text": "a" * 20_000}]

    serve(test, tmp_path / "store", era, output_mode="auto")


def test_an_error_stays_one(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Headgate) -> None:
        result = await client.call_tool("failing", {"size": 50_000})
        assert result.is_error
        with gate.store.open(told(result)["output_handle"]) as file:
            assert file.read().endswith(b"e" * 50_000)
        small = await client.call_tool("failing", {})
        assert small.is_error
        assert text_of(small).endswith("eee")

    serve(test, tmp_path / "store", era, output_mode="auto")


def test_a_client_that_validates_accepts_both_answers(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Headgate) -> None:  # noqa: ARG001
        schemas = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
        for count in (2, 5000):
            answer = (await client.call_tool("rows", {"count": count})).structured_content
            jsonschema.validate(answer, schemas["rows"] or {})
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"neither": 1}, schemas["rows"] or {})

    serve(test, tmp_path / "store", era, output_mode="auto")


def test_modes_by_tool_and_pattern(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Headgate) -> None:  # noqa: ARG001
        assert "output_handle" in told(await client.call_tool("rows", {"count": 1}))
        assert text_of(await client.call_tool("text", {"size": 90_000})) == "x" * 90_000
        assert "output_handle" in told(await client.call_tool("json_text", {"count": 200}))
        assert told(await client.call_tool("json_text", {"count": 2}))["count"] == 2

    rules = {"rows": "handle", "json_*": {"output_mode": "auto", "output_inline_limit_bytes": 1024}}
    serve(test, tmp_path / "store", era, tools=rules)


def test_a_call_may_choose_where_the_server_lets_it(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Headgate) -> None:  # noqa: ARG001
        schemas = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        assert {"output_mode", "output_inline_limit_bytes"} <= schemas["text"]["properties"].keys()
        assert schemas["chooses"]["properties"].keys() == {"output_mode"}
        assert "output_handle" in told(await client.call_tool("text", {"output_mode": "handle"}))
        assert text_of(await client.call_tool("text", {"size": 2, "output_mode": None})) == "xx"
        limited = {"size": 3000, "output_mode": "auto", "output_inline_limit_bytes": 2048}
        assert "output_handle" in told(await client.call_tool("text", limited))
        # An argument of that name that the tool has itself is the tool's.
        assert text_of(await client.call_tool("chooses", {"output_mode": "handle"})) == "handle" * 20_000
        for wrong in ({"output_mode": "both"}, {"output_inline_limit_bytes": -7}, {"output_inline_limit_bytes": "big"}):
            refused = await client.call_tool("text", wrong)
            assert refused.is_error
            assert told(refused)["error"]["code"] == "invalid_argument"

    serve(test, tmp_path / "store", era, per_call=True)


def test_what_nobody_let_it_choose_is_the_tool_s_to_refuse(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Headgate) -> None:  # noqa: ARG001
        result = await client.call_tool("text", {"size": 50_000, "output_mode": "handle"})
        assert text_of(result) == "x" * 50_000

    serve(test, tmp_path / "store", era)


def test_ours_give_way_to_a_tool_of_the_same_name(era: str, tmp_path: Path) -> None:
    server = MCPServer("clash")

    @server.tool(structured_output=False)
    def output_fetch(size: int = 5) -> str:
        return "theirs" * size

    async def test(client: Client, gate: Headgate) -> None:  # noqa: ARG001
        # Called before it was ever listed.
        assert text_of(await client.call_tool("output_fetch", {"size": 1})) == "theirs"
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["output_fetch", "headgate_output_fetch", "headgate_output_search"]
        descriptor = told(await client.call_tool("output_fetch", {"size": 10_000}))
        assert descriptor["fetch_with"] == "headgate_output_fetch"
        page = await client.call_tool("headgate_output_fetch", {"output_handle": descriptor["output_handle"]})
        assert told(page)["content"].startswith("theirs")

    serve(test, tmp_path / "store", era, server, output_mode="auto")


def test_the_prefix_is_settable(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Headgate) -> None:  # noqa: ARG001
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names[-3:] == ["oc_output_fetch", "oc_output_search", "oc_journal"]
        assert told(await client.call_tool("rows", {}))["fetch_with"] == "oc_output_fetch"

    serve(test, tmp_path / "store", era, output_mode="handle", prefix="oc_", journal=True)


def test_errors_of_ours_can_be_acted_on(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Headgate) -> None:  # noqa: ARG001
        handle = told(await client.call_tool("text", {"size": 50_000}))["output_handle"]
        cases: list[tuple[dict[str, Any] | None, str, str]] = [
            ({"output_handle": "oh_AAAAAAAAAAAA"}, "output_handle_not_found", "call the tool again"),
            ({"output_handle": "../../etc/passwd"}, "output_handle_not_found", "call the tool again"),
            ({"output_handle": 7}, "output_handle_not_found", "call the tool again"),
            ({}, "invalid_argument", "output_fetch needs output_handle"),
            (None, "invalid_argument", "output_fetch needs output_handle"),
            ({"output_handle": handle, "page": 2}, "invalid_argument", "it has output_handle, offset"),
            ({"output_handle": handle, "offset": "3"}, "invalid_argument", "offset must be a whole number"),
            ({"output_handle": handle, "format": "items"}, "invalid_format_for_payload", "use format="),
            ({"output_handle": None}, "invalid_argument", "output_fetch needs output_handle"),
            ({"output_handle": handle, "path": "/a"}, "invalid_format_for_payload", "leave the path out"),
        ]
        for arguments, code, says in cases:
            result = await client.call_tool("output_fetch", arguments)
            assert result.is_error
            error = told(result)["error"]
            assert (error["code"], says in error["message"]) == (code, True), error

    serve(test, tmp_path / "store", era, output_mode="auto")


def test_search_finds_what_fetch_then_shows(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Headgate) -> None:  # noqa: ARG001
        handle = told(await client.call_tool("rows", {"count": 5000}))["output_handle"]
        asked = {"output_handle": handle, "pattern": r'"id":4\d{3},', "regex": True, "limit": 2}
        found = told(await client.call_tool("output_search", asked))
        assert [match["item"] for match in found["matches"]] == [4000, 4001]
        page = told(await client.call_tool("output_fetch", {"output_handle": handle, "offset": 4000, "limit": 1}))
        assert page["content"] == [{"id": 4000, "name": "naïve 4000"}]

    serve(test, tmp_path / "store", era, output_mode="auto")


def test_stored_payloads_are_resources(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Headgate) -> None:  # noqa: ARG001
        result = await client.call_tool("rows", {"count": 5000})
        uri = result.content[1].uri  # type: ignore[union-attr]
        assert (result.content[1].type, result.content[1].size) == ("resource_link", told(result)["size_bytes"])  # type: ignore[union-attr]
        (content,) = (await client.read_resource(uri)).contents
        rows = json.loads(content.text)  # type: ignore[union-attr]
        assert rows[0] == {"id": 0, "name": "naïve 0"}
        (content,) = (await client.read_resource(f"{uri}?offset=4998&limit=1")).contents
        assert json.loads(content.text) == [{"id": 4998, "name": "naïve 4998"}]  # type: ignore[union-attr]
        assert content.meta == {
            "headgate/page": {
                "offset": 4998, "returned": 1, "total": 5000, "next_offset": 4999, "eof": False, "format": "items",
            }
        }  # fmt: skip
        handle = told(await client.call_tool("image", {}))["output_handle"]
        (image,) = (await client.read_resource(f"headgate://output/{handle}")).contents
        assert PIXELS.startswith(base64.b64decode(image.blob))  # type: ignore[union-attr]
        templates = (await client.list_resource_templates()).resource_templates
        assert templates[-1].uri_template == "headgate://output/{output_handle}{?offset,limit}"
        for wrong in ("headgate://output/oh_AAAAAAAAAAAA", f"{uri}?offset=-1", f"{uri}?page=1", "headgate://output/"):
            with pytest.raises(Exception, match=r"nothing is stored under|an address takes"):
                await client.read_resource(wrong)

    serve(test, tmp_path / "store", era, output_mode="auto")


def test_the_journal_tells_and_is_bounded(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Headgate) -> None:
        handle = told(await client.call_tool("rows", {"count": 5000}))["output_handle"]
        events = told(await client.call_tool("journal", {"action": "recent", "count": 50}))
        assert {"event": "output_handle_created", "handle": handle, "source_tool": "rows"}.items() <= events[-1].items()
        summary = told(await client.call_tool("journal", {"action": "summary"}))
        assert summary["by_tool"]["rows"]["handles"] == 1
        for number in range(800):
            gate.store.journal.record("noise", text='"' * 200, number=number)
        result = await client.call_tool("journal", {"count": 1000})
        assert len(json.dumps(text_of(result)).encode()) <= 32768
        assert told(result)[0]["number"] == 799
        assert told(await client.call_tool("journal", {"action": "both"}))["error"]["code"] == "invalid_argument"
        assert told(await client.call_tool("journal", {"count": 0}))["error"]["code"] == "invalid_argument"

    serve(test, tmp_path / "store", era, output_mode="auto", journal=True)


def test_what_cannot_be_stored_says_so_beside_its_start(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Headgate) -> None:  # noqa: ARG001
        result = await client.call_tool("text", {"size": 50_000, "of": "é"})
        assert result.is_error
        assert told(result)["error"]["code"] == "store_full"
        assert told(result)["preview"].startswith("ééé")
        assert len(text_of(result)) < 4096

    serve(test, tmp_path / "store", era, output_mode="auto", quota=10)


def test_what_cannot_be_redacted_shows_nothing(era: str, tmp_path: Path) -> None:
    def broken(data: bytes) -> bytes:
        raise ValueError(data)

    async def test(client: Client, gate: Headgate) -> None:  # noqa: ARG001
        result = await client.call_tool("text", {"size": 50_000, "of": "secret"})
        assert told(result)["error"]["code"] == "redaction_failed"
        assert "secret" not in text_of(result)

    serve(test, tmp_path / "store", era, output_mode="auto", redact=broken)


def test_what_is_redacted_is_neither_stored_nor_shown(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Headgate) -> None:
        result = await client.call_tool("text", {"size": 50_000, "of": "secret"})
        assert "secret" not in text_of(result)
        with gate.store.open(told(result)["output_handle"]) as file:
            assert b"secret" not in file.read()

    serve(test, tmp_path / "store", era, output_mode="auto", redact=lambda data: data.replace(b"secret", b"------"))


@pytest.mark.parametrize("size", [10, 100_000])
def test_what_a_tool_says_beside_its_result_is_kept(size: int, era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: Headgate) -> None:
        result = await client.call_tool("with_meta", {"size": size})
        with gate.store.open(told(result)["output_handle"]) as file:
            stored = file.read()
        if size == 10:
            assert result.meta is not None
            assert result.meta["own"] == "o" * size
            assert stored == b"m" * 50_000
        else:
            assert "own" not in (result.meta or {})
            assert json.loads(stored)["_meta"] == {"own": "o" * size}

    serve(test, tmp_path / "store", era, output_mode="auto")


def test_a_low_level_server_without_anything(era: str, tmp_path: Path) -> None:
    async def listed(ctx: Any, params: Any) -> ListToolsResult:  # noqa: ARG001
        return ListToolsResult(tools=[Tool(name="big", input_schema={"type": "object"})])

    async def called(ctx: Any, params: Any) -> CallToolResult:  # noqa: ARG001
        return CallToolResult(content=[TextContent(type="text", text="b" * 50_000)])

    async def test(client: Client, gate: Headgate) -> None:  # noqa: ARG001
        assert [tool.name for tool in (await client.list_tools()).tools] == ["big", "output_fetch", "output_search"]
        handle = told(await client.call_tool("big", {}))["output_handle"]
        assert told(await client.call_tool("output_fetch", {"output_handle": handle}))["total"] == 50_000
        assert len((await client.list_resource_templates()).resource_templates) == 1
        assert (await client.read_resource(f"headgate://output/{handle}")).contents[0].text[:3] == "bbb"  # type: ignore[union-attr]

    server: Server[Any] = Server("low", on_list_tools=listed, on_call_tool=called)
    serve(test, tmp_path / "store", era, server, output_mode="auto")


def test_a_store_that_is_open_is_used_and_left_open(tmp_path: Path) -> None:
    with headgate.open_store(tmp_path / "store", sweep_interval=0) as store:
        gate = Headgate(store, output_mode="auto")
        gate.close()
        assert gate.store is store
        store.put(b"still open")
        with pytest.raises(headgate.InvalidArgument, match="ttl are options of a store"):
            Headgate(store, ttl=5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"output_mode": "both"},
        {"output_inline_limit_bytes": -10},
        {"handle_length": 20},
        {"output_inline_limit_bytes": True},
        {"tools": {"a": "both"}},
        {"tools": {"a": {"mode": "auto"}}},
        {"no_such_option": 1},
    ],
)
def test_an_option_that_is_none_is_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(headgate.InvalidArgument):
        Headgate((tmp_path / "store").as_uri(), **wrong)
    assert not (tmp_path / "store").exists()


def test_a_server_that_asks_back_is_let_to(tmp_path: Path) -> None:
    async def listed(ctx: Any, params: Any) -> ListToolsResult:  # noqa: ARG001
        return ListToolsResult(tools=[Tool(name="asks", input_schema={"type": "object"})])

    async def called(ctx: Any, params: Any) -> CallToolResult | InputRequiredResult:  # noqa: ARG001
        if params.request_state is None:
            return InputRequiredResult(request_state="s" * 50_000)
        return CallToolResult(content=[TextContent(type="text", text=params.request_state)])

    async def test(client: Client, gate: Headgate) -> None:
        handle = told(await client.call_tool("asks", {}))["output_handle"]
        assert gate.store.stat(handle).size_bytes == 50_000
        assert len(list(gate.store.list())) == 1

    serve(
        test,
        tmp_path / "store",
        MODERN,
        Server("asking", on_list_tools=listed, on_call_tool=called),
        output_mode="handle",
    )


def test_progress_passes_through(era: str, tmp_path: Path) -> None:
    server = MCPServer("slow")

    @server.tool(structured_output=False)
    async def slow(ctx: Context[Any, Any]) -> str:
        for step in range(3):
            await ctx.report_progress(step, 3)
        return "done " * 20_000

    async def test(client: Client, gate: Headgate) -> None:  # noqa: ARG001
        steps: list[float] = []

        async def heard(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001
            steps.append(progress)

        assert "output_handle" in told(await client.call_tool("slow", {}, progress_callback=heard))
        assert steps == [0, 1, 2]

    serve(test, tmp_path / "store", era, server, output_mode="auto")


def test_a_list_in_pages_has_ours_on_its_last(era: str, tmp_path: Path) -> None:
    async def listed(ctx: Any, params: Any) -> ListToolsResult:  # noqa: ARG001
        number = int(params.cursor or 0) if params else 0
        tool = Tool(name="output_search" if number == 2 else f"tool {number}", input_schema={"type": "object"})
        return ListToolsResult(tools=[tool], next_cursor=str(number + 1) if number < 2 else None)

    async def test(client: Client, gate: Headgate) -> None:  # noqa: ARG001
        names, cursor = [], None
        while True:
            page = await client.list_tools(cursor=cursor)
            names.append([tool.name for tool in page.tools])
            cursor = page.next_cursor
            if cursor is None:
                break
        # The name of one that comes last of all is taken, too.
        ours = ["headgate_output_fetch", "headgate_output_search"]
        assert names == [["tool 0"], ["tool 1"], ["output_search", *ours]]

    async def called(ctx: Any, params: Any) -> CallToolResult:
        raise NotImplementedError

    serve(test, tmp_path / "store", era, Server("pages", on_list_tools=listed, on_call_tool=called))


@pytest.mark.parametrize("error", [MCPError(code=-32000, message="not now"), RuntimeError("db down")], ids=repr)
def test_a_server_that_cannot_list_can_still_be_called(error: Exception, era: str, tmp_path: Path) -> None:
    async def listed(ctx: Any, params: Any) -> ListToolsResult:  # noqa: ARG001
        raise error

    async def called(ctx: Any, params: Any) -> CallToolResult:  # noqa: ARG001
        return CallToolResult(content=[TextContent(type="text", text="b" * 50_000)])

    async def test(client: Client, gate: Headgate) -> None:
        sent = await client.session.send_request(
            CallToolRequest(params=CallToolRequestParams(name="big", arguments={})), CallToolResult
        )
        assert gate.store.stat(told(sent)["output_handle"]).size_bytes == 50_000

    serve(test, tmp_path / "store", era, Server("shy", on_list_tools=listed, on_call_tool=called), output_mode="auto")


@pytest.mark.parametrize("is_same", [True, False])
def test_a_list_without_an_end_holds_up_nobody(is_same: bool, era: str, tmp_path: Path) -> None:
    asked = 0

    async def listed(ctx: Any, params: Any) -> ListToolsResult:  # noqa: ARG001
        nonlocal asked
        asked += 1
        return ListToolsResult(
            tools=[Tool(name="x", input_schema={"type": "object"})], next_cursor="again" if is_same else str(asked)
        )

    async def called(ctx: Any, params: Any) -> CallToolResult:  # noqa: ARG001
        return CallToolResult(content=[TextContent(type="text", text="hi")])

    async def test(client: Client, gate: Headgate) -> None:
        for name in ("x", "x"):
            request = CallToolRequest(params=CallToolRequestParams(name=name, arguments={}))
            assert text_of(await client.session.send_request(request, CallToolResult)) == "hi"
        assert asked <= 101
        assert gate.has_learnt

    serve(test, tmp_path / "store", era, Server("endless", on_list_tools=listed, on_call_tool=called))


@pytest.mark.parametrize("schema", [{"type": "array", "items": {"type": "integer"}}, {}, {"type": ["array", "null"]}])
def test_what_is_structured_need_not_be_an_object(schema: dict[str, Any], tmp_path: Path) -> None:
    async def listed(ctx: Any, params: Any) -> ListToolsResult:  # noqa: ARG001
        tool = Tool(name="ints", input_schema={"type": "object"}, output_schema=schema)
        return ListToolsResult(tools=[tool])

    async def called(ctx: Any, params: Any) -> CallToolResult:  # noqa: ARG001
        numbers = list(range((params.arguments or {}).get("count", 2)))
        return CallToolResult(content=[TextContent(type="text", text=json.dumps(numbers))], structured_content=numbers)

    async def test(client: Client, gate: Headgate) -> None:
        await client.list_tools()
        assert (await client.call_tool("ints", {})).structured_content == [0, 1]
        handle = told(await client.call_tool("ints", {"count": 20_000}))["output_handle"]
        assert gate.store.stat(handle).item_count == 20_000

    serve(
        test, tmp_path / "store", MODERN, Server("ints", on_list_tools=listed, on_call_tool=called), output_mode="auto"
    )


def test_a_tool_that_came_later_has_all_its_arguments(era: str, tmp_path: Path) -> None:
    server = make_server()

    async def test(client: Client, gate: Headgate) -> None:  # noqa: ARG001
        await client.call_tool("text", {})

        @server.tool(structured_output=False)
        def late(output_mode: str = "default") -> str:
            return output_mode

        assert text_of(await client.call_tool("late", {"output_mode": "handle"})) == "handle"

    serve(test, tmp_path / "store", era, server, per_call=True)


def test_a_notification_teaches_nothing(tmp_path: Path) -> None:
    gate = Headgate((tmp_path / "store").as_uri(), sweep_interval=0)

    async def nothing(ctx: Any) -> None:
        del ctx

    session: Any = None
    context = ServerRequestContext(session=session, lifespan_context=None, protocol_version=MODERN, method="tools/list")
    assert anyio.run(gate, context, nothing) is None
    assert not gate.has_learnt
    gate.close()


def test_only_what_is_switched_on_can_clash(tmp_path: Path) -> None:
    for journal, fetch_with in ((False, "output_fetch"), (True, "headgate_output_fetch")):
        gate = Headgate((tmp_path / "store").as_uri(), sweep_interval=0, journal=journal)
        gate.learn([{"name": "journal"}])
        assert gate.tools.fetch_with == fetch_with
        gate.close()


def test_what_extensions_define_is_theirs(tmp_path: Path) -> None:
    gate = Headgate((tmp_path / "store").as_uri(), sweep_interval=0, output_mode="handle")
    mode, _ = gate.mode_of("x", {})
    assert gate.pipeline.is_inline({"resultType": "com.example/stream", "content": [{"type": "text"}]}, mode)
    assert not gate.pipeline.is_inline({"resultType": "complete", "content": []}, mode)
    assert gate.pipeline.is_inline({"content": ["no block"]}, Mode("auto"))
    gate.close()


def test_it_is_installed_once(tmp_path: Path) -> None:
    server, gate = make_server(), Headgate((tmp_path / "store").as_uri(), sweep_interval=0)
    gate.install(server)
    with pytest.raises(headgate.InvalidArgument, match="has a headgate already"):
        gate.install(server)
    gate.close()


@pytest.mark.parametrize("options", [{"quota": 10}, {}])
def test_what_was_to_be_redacted_is_never_shown(
    options: dict[str, Any], era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where the store is full, and not where we make a mistake."""

    def mistaken(*_args: object, **_kwargs: object) -> None:
        raise ZeroDivisionError

    async def test(client: Client, gate: Headgate) -> None:
        if not options:
            monkeypatch.setattr(gate.store, "put", mistaken)
        result = await client.call_tool("text", {"size": 9000, "of": "SECRET "})
        assert result.is_error
        assert "SECRET" not in text_of(result)
        assert told(result)["error"]["code"] == ("store_full" if options else "redaction_failed")

    serve(
        test, tmp_path / "store", era, output_mode="auto", redact=lambda data: data.replace(b"SECRET", b"*"), **options
    )


def test_principals_are_never_written_alike() -> None:
    tokens = [("https://iss|alice", None, None), ("c", "https://iss", "alice"), ("c", "a", "b|c"), ("c", "a|b", "c")]
    tokens += [("c", None, "x"), ("x", None, None), ("c", "None", "x"), ("c", "i", "s" * 5000), ("c", "i", "s" * 5001)]
    names = []
    for client, issuer, subject in tokens:
        claims = None if issuer is None else {"iss": issuer}
        token = AccessToken(token="t", client_id=client, scopes=[], subject=subject, claims=claims)  # noqa: S106
        auth_context_var.set(AuthenticatedUser(token))
        names.append(_principal())
    auth_context_var.set(None)
    assert len(set(names)) == len(names)
    assert all(name is not None and len(name) <= 1024 for name in names)


def test_a_mistake_of_ours_costs_nobody_their_result(
    era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def mistaken(*_args: object, **_kwargs: object) -> None:
        raise ZeroDivisionError

    async def test(client: Client, gate: Headgate) -> None:
        monkeypatch.setattr(gate.store, "put", mistaken)
        assert text_of(await client.call_tool("text", {"size": 50_000})) == "x" * 50_000
        assert "could not be taken apart" in caplog.text

    serve(test, tmp_path / "store", era, output_mode="auto")


def test_a_name_that_was_a_tool_s_once_is_never_one_of_ours(tmp_path: Path) -> None:
    gate = Headgate((tmp_path / "store").as_uri(), sweep_interval=0)
    gate.learn([{"name": "output_fetch"}])
    gate.learn([{"name": "other"}])
    assert gate.tools.fetch_with == "headgate_output_fetch"
    assert "output_fetch" not in gate.tools
    gate.close()
