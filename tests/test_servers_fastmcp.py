"""headgate in a fastmcp server: real clients, both eras of the protocol, and the bytes on the wire."""

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import fastmcp
import headgate
import jsonschema
import mcp
import pytest
from fastmcp import FastMCP
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError
from fastmcp.server.auth import require_scopes
from fastmcp.server.middleware import AuthMiddleware, Middleware
from fastmcp.tools import Tool, ToolResult
from fastmcp_server import PIXELS, make_server
from headgate.servers.fastmcp import HeadgateMiddleware
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult, TextContent
from wires import CALLS, LEGACY, MODERN, NASTY, Servers, Wire, message_of, wired_to

SCRIPT = "fastmcp_server.py"
TRANSPORTS = ["stdio", "http"]

Client = fastmcp.Client[Any]
Test = Callable[[Client, HeadgateMiddleware], Coroutine[Any, Any, None]]


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The store of servers in processes of their own."""
    return tmp_path_factory.mktemp("fastmcp").as_uri() + "/store"


def serve(test: Test, root: Path, era: str, server: FastMCP | None = None, **options: Any) -> None:
    """Runs a test against a server in this process."""
    gate = HeadgateMiddleware(root.as_uri(), **{"sweep_interval": 0, **options})
    server = make_server() if server is None else server
    server.add_middleware(gate)

    async def run() -> None:
        async with fastmcp.Client(server, mode=era) as client:
            await test(client, gate)

    try:
        asyncio.run(run())
    finally:
        gate.close()


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    return await client.call_tool(tool, arguments, raise_on_error=False)


def text_of(result: Any) -> str:
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


def told(result: Any) -> Any:
    """What the first block says, as JSON."""
    return json.loads(text_of(result))


async def redeem(client: Any, handle: str, **ask: Any) -> list[Any]:
    """All pages of what was stored, through either SDK's client."""
    pages: list[Any] = []
    offset: int | None = 0
    while offset is not None:
        result = await client.call_tool("output_fetch", {"output_handle": handle, "offset": offset, **ask})
        assert not result.is_error
        pages.append(told(result))
        assert len(json.dumps(text_of(result), ensure_ascii=False).encode()) <= 32768 + 2
        offset = pages[-1]["next_offset"]
    return pages


def stored_of(gate: HeadgateMiddleware, result: Any) -> bytes:
    with gate.store.open(told(result)["output_handle"]) as file:
        return file.read()


CALLS_OF_FASTMCP: list[tuple[str, dict[str, Any]]] = [
    *CALLS,
    ("report", {"count": 500}),
    ("raising", {"size": 50_000}),
    ("raw", {"size": 50_000}),
    ("chooses", {"output_mode": "handle"}),
    ("rows", {"output_mode": "handle"}),
]


def test_what_goes_inline_is_the_same_to_the_byte(era: str, transport: str, servers: Servers, root: str) -> None:
    default, limited = {"store": root}, {"store": root, "output_mode": "auto", "output_inline_limit_bytes": 10**9}
    with (
        servers.wired(None, era, transport) as plain,
        servers.wired(default, era, transport) as first,
        servers.wired(limited, era, transport) as second,
    ):
        for gated in (first, second):
            assert plain.hello == gated.hello
        asks: list[tuple[str, dict[str, Any]]] = [
            *(("tools/call", {"name": name, "arguments": arguments}) for name, arguments in CALLS_OF_FASTMCP),
            *((method, {}) for method in ("resources/list", "prompts/list")),
            ("ping" if era == LEGACY else "server/discover", {}),
            *(("resources/read", {"uri": uri}) for uri in ("test://one", "test://each/other", "test://none")),
        ]
        for method, params in asks:
            before = plain.ask(method, params)
            assert before == first.ask(method, params) == second.ask(method, params), (method, params)
            assert b'"result"' in message_of(before) or params.get("uri") == "test://none", before


def test_the_list_differs_only_by_what_was_added(era: str, transport: str, servers: Servers, root: str) -> None:
    options = {"store": root, "journal": True}
    with servers.wired(None, era, transport) as plain, servers.wired(options, era, transport) as gated:
        before, after = (json.loads(message_of(wire.ask("tools/list")))["result"] for wire in (plain, gated))
        templates = [json.loads(message_of(wire.ask("resources/templates/list"))) for wire in (plain, gated)]
    ours = after["tools"][len(before["tools"]) :]
    assert {**after, "tools": after["tools"][: len(before["tools"])]} == before
    assert [tool["name"] for tool in ours] == ["output_fetch", "output_search", "journal"]
    assert len(json.dumps(ours, separators=(",", ":"), ensure_ascii=False).encode()) <= 2048
    for tool in ours:
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        assert tool["annotations"]["readOnlyHint"] is True
        assert "outputSchema" not in tool
    theirs, added = (answer["result"]["resourceTemplates"] for answer in templates)
    assert added[:-1] == theirs
    assert added[-1]["uriTemplate"] == "headgate://output/{output_handle}{?offset,limit}"
    assert "mimeType" not in added[-1]


def test_a_descriptor_is_small_as_a_whole_message(era: str, transport: str, servers: Servers, root: str) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [("text", {"size": 60_000, "of": of}) for of in NASTY]
    with servers.wired({"store": root, "output_mode": "handle"}, era, transport) as wire:
        for name, arguments in (*calls, ("rows", {"count": 2000})):
            message = message_of(wire.ask("tools/call", {"name": name, "arguments": arguments}))
            assert len(message) <= 4096
            descriptor = json.loads(json.loads(message)["result"]["content"][0]["text"])
            assert len(descriptor["output_handle"]) == (15 if transport == "stdio" else 29)
            # Nearly all of the room is used, whatever a character weighs.
            assert len(message) > 3800 or len(descriptor["preview"].encode()) > 2000


@asynccontextmanager
async def connected(
    sdk: str, era: str, transport: str, servers: Servers, options: dict[str, Any]
) -> AsyncIterator[Any]:
    """A client of either SDK, to a server in a process of its own."""
    command = [str(Path(__file__).with_name(SCRIPT)), transport, json.dumps(options)]
    make: Any = mcp.Client if sdk == "mcp" else fastmcp.Client
    where: Any
    if transport == "http":
        where = f"http://127.0.0.1:{servers.port(options)}/mcp"
    elif sdk == "mcp":
        where = mcp.StdioServerParameters(command=sys.executable, args=command)
    else:
        where = StdioTransport(sys.executable, command, keep_alive=False)
    async with make(where, mode=era) as client:
        yield client


@pytest.mark.parametrize("sdk", ["mcp", "fastmcp"])
def test_clients_of_both_sdks_over_both_transports(
    sdk: str, era: str, transport: str, servers: Servers, root: str
) -> None:
    async def run() -> None:
        options = {"store": root, "output_mode": "auto"}
        async with connected(sdk, era, transport, servers, options) as client:
            result = await client.call_tool("rows", {"count": 5000})
            handle = told(result)["output_handle"]
            assert result.structured_content == {"output_handle": handle, "fetch_with": "output_fetch"}
            pages = await redeem(client, handle)
            assert [row["id"] for page in pages for row in page["content"]] == list(range(5000))
            small = await client.call_tool("rows", {"count": 1})
            assert small.structured_content == {"result": [{"id": 0, "name": "naïve 0"}]}
            large = told(await client.call_tool("json_text", {"count": 400_000}))
            assert large["size_bytes"] > 5_000_000
            last = await redeem(client, large["output_handle"], offset=399_999)
            assert last[-1]["content"] == [{"id": 399_999}]
            found = await client.call_tool("output_search", {"output_handle": handle, "pattern": "naïve 4321"})
            assert told(found)["matches"][0]["item"] == 4321
            read = await client.read_resource(f"headgate://output/{handle}?offset=4998&limit=1")
            (content,) = read.contents if sdk == "mcp" else read
            assert json.loads(content.text) == [{"id": 4998, "name": "naïve 4998"}]

    asyncio.run(run())


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
    async def test(client: Client, gate: HeadgateMiddleware) -> None:
        result = await call(client, tool, **arguments)
        descriptor = told(result)
        assert descriptor["mime_type"] == mime_type
        assert (result.content[1].type, result.content[1].size) == ("resource_link", descriptor["size_bytes"])
        stored = stored_of(gate, result)
        if payload is None:
            assert json.loads(stored)["count"] == arguments["count"]
            assert descriptor["items_path"] == "/items"
            return
        assert stored == payload
        assert (descriptor["preview"] is None) == (not mime_type.startswith("text/"))
        if len(payload) < 10**6:
            pages = await redeem(client, descriptor["output_handle"], format="bytes")
            assert b"".join(base64.b64decode(page["content"]) for page in pages) == payload

    serve(test, tmp_path / "store", era, output_mode="auto")


def test_what_is_structured_is_stored_once(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: HeadgateMiddleware) -> None:
        assert json.loads(stored_of(gate, await call(client, "rows", count=5000)))["result"][4999]["id"] == 4999
        assert json.loads(stored_of(gate, await call(client, "report", count=1000))).keys() == {"title", "lines"}

    serve(test, tmp_path / "store", era, output_mode="auto")


def test_several_blocks_are_one_payload(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: HeadgateMiddleware) -> None:  # noqa: ARG001
        descriptor = told(await call(client, "several", size=20_000))
        assert (descriptor["items_path"], descriptor["item_count"]) == ("/content", 3)
        page = told(await call(client, "output_fetch", output_handle=descriptor["output_handle"], limit=1))
        assert page["content"] == [{"type": "text", "text": "a" * 20_000}]

    serve(test, tmp_path / "store", era, output_mode="auto")


@pytest.mark.parametrize(("tool", "letter"), [("raising", b"e"), ("failing", b"f")])
def test_an_error_stays_one(tool: str, letter: bytes, era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: HeadgateMiddleware) -> None:
        large, small = await call(client, tool, size=50_000), await call(client, tool)
        assert large.is_error
        assert stored_of(gate, large) == letter * 50_000
        assert (small.is_error, text_of(small)) == (True, letter.decode() * 3)
        broken = await call(client, "breaking")
        assert (broken.is_error, text_of(broken)) == (True, "Error calling tool 'breaking': lost")
        with pytest.raises(ToolError, match="output_handle"):
            await client.call_tool(tool, {"size": 50_000})

    serve(test, tmp_path / "store", era, output_mode="auto")


def test_a_client_that_validates_accepts_both_answers(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: HeadgateMiddleware) -> None:  # noqa: ARG001
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

    async def test(client: Client, gate: HeadgateMiddleware) -> None:  # noqa: ARG001
        listed = (await client.list_tools())[0].output_schema or {}
        assert listed == {"type": "object", "anyOf": [schema, {"required": ["output_handle"]}]}
        for size in (1, 50_000):
            jsonschema.validate((await client.call_tool("strict", {"size": size})).structured_content, listed)

    serve(test, tmp_path / "store", era, server, output_mode="auto")


def test_fastmcp_s_client_makes_data_of_both_answers(
    era: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(client: Client, gate: HeadgateMiddleware) -> None:  # noqa: ARG001
        assert (await client.call_tool("rows", {"count": 1})).data == [{"id": 0, "name": "naïve 0"}]
        assert (await client.call_tool("text", {})).data == "xxx"
        assert (await client.call_tool("report", {})).data.title == "t"
        for tool, size in (("rows", "count"), ("text", "size"), ("report", "count")):
            result = await client.call_tool(tool, {size: 50_000})
            assert result.data.output_handle == told(result)["output_handle"]

    serve(test, tmp_path / "store", era, output_mode="auto")
    assert "Error parsing" not in caplog.text


def test_modes_by_tool_and_pattern(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: HeadgateMiddleware) -> None:  # noqa: ARG001
        assert "output_handle" in told(await call(client, "rows", count=1))
        assert text_of(await call(client, "text", size=90_000)) == "x" * 90_000
        assert "output_handle" in told(await call(client, "json_text", count=200))
        assert told(await call(client, "json_text", count=2))["count"] == 2

    rules = {"rows": "handle", "json_*": {"output_mode": "auto", "output_inline_limit_bytes": 1024}}
    serve(test, tmp_path / "store", era, tools=rules)


def test_a_call_may_choose_where_the_server_lets_it(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: HeadgateMiddleware) -> None:  # noqa: ARG001
        # Called before it was ever listed.
        assert text_of(await call(client, "chooses", output_mode="handle")) == "handle" * 20_000
        schemas = {tool.name: tool.input_schema for tool in await client.list_tools()}
        assert {"output_mode", "output_inline_limit_bytes"} <= schemas["text"]["properties"].keys()
        assert schemas["chooses"]["properties"].keys() == {"output_mode"}
        assert "output_handle" in told(await call(client, "text", output_mode="handle"))
        assert text_of(await call(client, "text", size=2, output_mode=None)) == "xx"
        limited = {"size": 3000, "output_mode": "auto", "output_inline_limit_bytes": 2048}
        assert "output_handle" in told(await call(client, "text", **limited))
        wrongs: list[dict[str, Any]] = [{"output_mode": "both"}, {"output_inline_limit_bytes": -7}]
        for wrong in wrongs:
            refused = await call(client, "text", **wrong)
            assert refused.is_error
            assert told(refused)["error"]["code"] == "invalid_argument"

    serve(test, tmp_path / "store", era, per_call=True)


def test_ours_give_way_to_a_tool_of_the_same_name(era: str, tmp_path: Path) -> None:
    server = FastMCP("clash")

    @server.tool(output_schema=None)
    def output_fetch(size: int = 5) -> str:
        return "theirs" * size

    async def test(client: Client, gate: HeadgateMiddleware) -> None:  # noqa: ARG001
        # Called before it was ever listed.
        assert text_of(await call(client, "output_fetch", size=1)) == "theirs"
        names = [tool.name for tool in await client.list_tools()]
        assert names == ["output_fetch", "headgate_output_fetch", "headgate_output_search"]
        descriptor = told(await call(client, "output_fetch", size=10_000))
        assert descriptor["fetch_with"] == "headgate_output_fetch"
        page = await call(client, "headgate_output_fetch", output_handle=descriptor["output_handle"])
        assert told(page)["content"].startswith("theirs")

    serve(test, tmp_path / "store", era, server, output_mode="auto")


def test_what_ours_are_called_does_not_depend_on_who_asks(era: str, tmp_path: Path) -> None:
    """A tool that this caller is not shown has its name all the same."""
    server = FastMCP("clash")
    server.tool(lambda: "theirs", name="output_search", tags={"admin"})
    server.tool(lambda: "l" * 50_000, name="large")
    server.disable(tags={"admin"})

    async def test(client: Client, gate: HeadgateMiddleware) -> None:  # noqa: ARG001
        before = told(await call(client, "large"))["fetch_with"]
        names = [tool.name for tool in await client.list_tools()]
        assert names == ["large", "headgate_output_fetch", "headgate_output_search"]
        assert before == told(await call(client, "large"))["fetch_with"] == "headgate_output_fetch"
        assert "Unknown tool" in text_of(await call(client, "output_search"))

    serve(test, tmp_path / "store", era, server, output_mode="auto")


def test_ours_are_there_whatever_is_visible(era: str, tmp_path: Path) -> None:
    server = make_server()
    server.tool(lambda: "p" * 50_000, name="public", tags={"public"})
    server.enable(tags={"public"}, only=True)

    async def test(client: Client, gate: HeadgateMiddleware) -> None:  # noqa: ARG001
        assert [tool.name for tool in await client.list_tools()] == ["public", "output_fetch", "output_search"]
        pages = await redeem(client, told(await call(client, "public"))["output_handle"])
        assert "".join(page["content"] for page in pages) == "p" * 50_000

    serve(test, tmp_path / "store", era, server, output_mode="auto")


def test_without_any_client(tmp_path: Path) -> None:
    server = make_server()
    gate = HeadgateMiddleware((tmp_path / "store").as_uri(), output_mode="auto", sweep_interval=0)
    server.add_middleware(gate)

    async def run() -> None:
        assert isinstance(await server.get_tool("output_fetch"), Tool)
        assert [tool.name for tool in await server.list_tools()][-2:] == ["output_fetch", "output_search"]
        handle = told(await server.call_tool("rows", {"count": 5000}))["output_handle"]
        page = await server.call_tool("output_fetch", {"output_handle": handle, "offset": 4999})
        assert told(page)["content"] == [{"id": 4999, "name": "naïve 4999"}]
        (content,) = (await server.read_resource(f"headgate://output/{handle}?limit=1")).contents
        assert json.loads(content.content) == [{"id": 0, "name": "naïve 0"}]
        assert (await server.call_tool("output_fetch", {})).is_error
        with pytest.raises(ToolError, match=r"^eee$"):
            await server.call_tool("raising", {})

    try:
        asyncio.run(run())
    finally:
        gate.close()


def test_a_server_mounted_in_another(era: str, tmp_path: Path) -> None:
    inner, outer = make_server(), FastMCP("outer")
    gate = HeadgateMiddleware((tmp_path / "store").as_uri(), output_mode="auto", prefix="in_", sweep_interval=0)
    inner.add_middleware(gate)
    outer.mount(inner)

    async def run() -> None:
        async with fastmcp.Client(outer, mode=era) as client:
            result = await client.call_tool("rows", {"count": 5000})
            stamp = (result.meta or {}).get("io.modelcontextprotocol/serverInfo")
            assert stamp is None if era == LEGACY else (stamp or {})["name"] == "outer"
            descriptor = told(result)
            fetched = await client.call_tool(descriptor["fetch_with"], {"output_handle": descriptor["output_handle"]})
            assert told(fetched)["total"] == 5000
            assert "in_output_fetch" in [tool.name for tool in await client.list_tools()]

    try:
        asyncio.run(run())
    finally:
        gate.close()


def test_a_list_in_pages_has_ours_once(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: HeadgateMiddleware) -> None:  # noqa: ARG001
        names = [tool.name for tool in await client.list_tools()]
        assert len(set(names)) == len(names)
        assert names[-2:] == ["output_fetch", "output_search"]

    serve(test, tmp_path / "store", era, make_server(list_page_size=4))


def test_the_prefix_is_settable_and_the_journal_tells(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: HeadgateMiddleware) -> None:  # noqa: ARG001
        names = [tool.name for tool in await client.list_tools()]
        assert names[-3:] == ["oc_output_fetch", "oc_output_search", "oc_journal"]
        descriptor = told(await call(client, "rows"))
        assert descriptor["fetch_with"] == "oc_output_fetch"
        events = told(await call(client, "oc_journal", action="recent"))
        assert (events[-1]["handle"], events[-1]["source_tool"]) == (descriptor["output_handle"], "rows")

    serve(test, tmp_path / "store", era, output_mode="handle", prefix="oc_", journal=True)


def test_resources(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: HeadgateMiddleware) -> None:  # noqa: ARG001
        uri = (await call(client, "rows", count=5000)).content[1].uri
        (content,) = await client.read_resource(f"{uri}?offset=4998&limit=1")
        assert json.loads(content.text) == [{"id": 4998, "name": "naïve 4998"}]  # type: ignore[union-attr]
        assert (content.mime_type, (content.meta or {})["headgate/page"]["next_offset"]) == ("application/json", 4999)
        (image,) = await client.read_resource((await call(client, "image")).content[1].uri)
        assert PIXELS.startswith(base64.b64decode(image.blob))  # type: ignore[union-attr]
        assert image.mime_type == "image/png"
        (theirs,) = await client.read_resource("test://one")
        assert theirs.text == "theirs"  # type: ignore[union-attr]
        for wrong in ("headgate://output/oh_AAAAAAAAAAAA", f"{uri}?offset=-1", f"{uri}?page=1", "headgate://output/"):
            with pytest.raises(Exception, match=r"nothing is stored under|an address takes"):
                await client.read_resource(wrong)

    serve(test, tmp_path / "store", era, output_mode="auto")


def test_a_request_for_input_passes_through(tmp_path: Path) -> None:
    server = FastMCP("guard")

    @server.tool
    def guard() -> str | InputRequiredResult:
        asked = ElicitRequest(params=ElicitRequestFormParams(message="?" * 60_000, requested_schema={"type": "object"}))
        return InputRequiredResult(input_requests={"sure": asked})

    gate = HeadgateMiddleware((tmp_path / "store").as_uri(), output_mode="handle", sweep_interval=0)
    server.add_middleware(gate)
    try:
        result: Any = asyncio.run(server.call_tool("guard"))
    finally:
        gate.close()
    assert result.input_required.input_requests["sure"].params.message == "?" * 60_000


def test_what_is_not_a_tool_s_result_passes_through(tmp_path: Path) -> None:
    class Tasks(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> Any:  # noqa: ARG002
            return {"task": "t" * 60_000}

    gate = HeadgateMiddleware((tmp_path / "store").as_uri(), output_mode="handle", sweep_interval=0)
    server = make_server(middleware=[gate, Tasks()])
    try:
        passed: Any = asyncio.run(server.call_tool("rows"))
        assert passed == {"task": "t" * 60_000}
    finally:
        gate.close()


@pytest.mark.parametrize("size", [10, 100_000])
def test_what_a_tool_says_beside_its_result_is_kept(size: int, era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: HeadgateMiddleware) -> None:
        result = await call(client, "with_meta", size=size)
        if size == 10:
            assert (result.meta or {})["own"] == "o" * size
            assert stored_of(gate, result) == b"m" * 50_000
        else:
            assert "own" not in (result.meta or {})
            assert json.loads(stored_of(gate, result))["_meta"] == {"own": "o" * size}

    serve(test, tmp_path / "store", era, output_mode="auto")


def test_what_cannot_be_stored_says_so_beside_its_start(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: HeadgateMiddleware) -> None:  # noqa: ARG001
        result = await call(client, "text", size=50_000, of="é")
        assert (result.is_error, told(result)["error"]["code"]) == (True, "store_full")
        assert told(result)["preview"].startswith("ééé")

    serve(test, tmp_path / "store", era, output_mode="auto", quota=10)


def test_what_is_redacted_is_neither_stored_nor_shown(era: str, tmp_path: Path) -> None:
    async def test(client: Client, gate: HeadgateMiddleware) -> None:
        result = await call(client, "text", size=50_000, of="secret")
        assert "secret" not in text_of(result)
        assert b"secret" not in stored_of(gate, result)

    serve(test, tmp_path / "store", era, output_mode="auto", redact=lambda data: data.replace(b"secret", b"------"))


def test_a_handle_is_its_principal_s(era: str, servers: Servers, root: str) -> None:
    port = servers.port({"store": root, "output_mode": "auto", "journal": True}, "guarded")
    ann, bob = wired_to(port, era, "of-ann"), wired_to(port, era, "of-bob")

    def asked(wire: Wire, method: str, **params: Any) -> Any:
        return json.loads(message_of(wire.ask(method, params)))

    def called(wire: Wire, tool: str, **arguments: Any) -> Any:
        return json.loads(asked(wire, "tools/call", name=tool, arguments=arguments)["result"]["content"][0]["text"])

    handle = called(ann, "rows", count=5000)["output_handle"]
    assert called(ann, "output_fetch", output_handle=handle)["total"] == 5000
    assert called(bob, "output_fetch", output_handle=handle)["error"]["code"] == "output_handle_not_found"
    uri = f"headgate://output/{handle}"
    assert "result" in asked(ann, "resources/read", uri=uri)
    assert asked(bob, "resources/read", uri=uri)["error"]["data"]["code"] == "output_handle_not_found"
    assert "output_handle_created" in [event["event"] for event in called(ann, "journal")]
    assert {event["event"] for event in called(bob, "journal")} == {"output_handle_refused"}
    assert b"invalid_token" in wired_to(port, MODERN, "of-eve").ask("tools/list")


def test_a_server_s_own_checks_hold_for_ours(tmp_path: Path) -> None:
    """Whoever may call nothing may not fetch, wherever headgate stands among the middleware."""
    root = (tmp_path / "store").as_uri()
    with headgate.open_store(root, sweep_interval=0) as store:
        handle = store.put(b"l" * 50_000).output_handle
        guard = AuthMiddleware(auth=require_scopes("read"))

        async def run(middleware: Sequence[Middleware]) -> None:
            async with fastmcp.Client(make_server(middleware=middleware)) as client:
                refused = await call(client, "output_fetch", output_handle=handle)
                assert (refused.is_error, "lll" in text_of(refused)) == (True, False)
                with pytest.raises(Exception, match="Authorization"):
                    await client.read_resource(f"headgate://output/{handle}")

        ours = HeadgateMiddleware(store)
        for middleware in ([guard, ours], [ours, guard]):
            asyncio.run(run(middleware))


def test_a_store_that_is_open_is_used_and_left_open(tmp_path: Path) -> None:
    with headgate.open_store(tmp_path / "store", sweep_interval=0) as store:
        gate = HeadgateMiddleware(store, output_mode="auto")
        gate.close()
        assert gate.store is store
        store.put(b"still open")
        with pytest.raises(headgate.InvalidArgument, match="ttl are options of a store"):
            HeadgateMiddleware(store, ttl=5)


def test_an_answer_of_ours_can_be_edited_further_out(era: str, tmp_path: Path) -> None:
    class Signs(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> ToolResult:
            result: ToolResult = await call_next(context)
            return ToolResult(result.content, result.structured_content, {"signed": True}, result.is_error)

    async def test(client: Client, gate: HeadgateMiddleware) -> None:  # noqa: ARG001
        result = await call(client, "rows", count=5000)
        assert (result.meta or {})["signed"] is True
        assert "output_handle" in told(result)

    serve(test, tmp_path / "store", era, make_server(middleware=[Signs()]), output_mode="auto")
