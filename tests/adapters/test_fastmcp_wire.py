"""forebay in a fastmcp server: bytes on the wire, clients of both SDKs over both transports, and principals."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from operator import attrgetter, methodcaller
from typing import Any

import fastmcp
import jsonschema
import mcp
import pytest
from fastmcp.client.transports import StdioTransport
from mcp_harness import parse_text, read_all_items
from support_paths import SUPPORT
from wires import CALLS, LEGACY, MODERN, NASTY, Servers, Wire, connect_http, extract_message, parse_without_note

pytestmark = pytest.mark.slow

SCRIPT = "fastmcp_server.py"
TRANSPORTS = ["stdio", "http"]

CALLS_OF_FASTMCP: list[tuple[str, dict[str, Any]]] = [
    *CALLS,
    ("report", {"count": 500}),
    ("raising", {"size": 50_000}),
    ("raw", {"size": 50_000}),
    ("chooses", {"output_mode": "handle"}),
    ("rows", {"output_mode": "handle"}),
]


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The store of the servers that the tests start."""
    return tmp_path_factory.mktemp("fastmcp").as_uri() + "/store"


def test_what_goes_inline_is_the_same_to_the_byte(era: str, transport: str, servers: Servers, root: str) -> None:
    default, limited = {"store": root}, {"store": root, "output_mode": "auto", "output_inline_limit_bytes": 10**9}
    with (
        servers.connect(None, era, transport) as plain,
        servers.connect(default, era, transport) as first,
        servers.connect(limited, era, transport) as second,
    ):
        discover = methodcaller("request", "server/discover") if era != LEGACY else attrgetter("initialize_response")
        before = json.loads(extract_message(discover(plain)))
        for gated in (first, second):
            assert parse_without_note(discover(gated)) == before
        requests: list[tuple[str, dict[str, Any]]] = [
            *(("tools/call", {"name": name, "arguments": arguments}) for name, arguments in CALLS_OF_FASTMCP),
            *((method, {}) for method in ("resources/list", "prompts/list")),
            *([("ping", {})] if era == LEGACY else []),
            *(("resources/read", {"uri": uri}) for uri in ("test://one", "test://each/other", "test://none")),
        ]
        for method, params in requests:
            before = plain.request(method, params)
            assert before == first.request(method, params) == second.request(method, params), (method, params)
            assert b'"result"' in extract_message(before) or params.get("uri") == "test://none", before


def test_the_list_differs_only_by_what_was_added(era: str, transport: str, servers: Servers, root: str) -> None:
    options = {"store": root, "journal": True}
    with servers.connect(None, era, transport) as plain, servers.connect(options, era, transport) as gated:
        before, after = (json.loads(extract_message(wire.request("tools/list")))["result"] for wire in (plain, gated))
        templates = [json.loads(extract_message(wire.request("resources/templates/list"))) for wire in (plain, gated)]
    added_tools = after["tools"][len(before["tools"]) :]
    assert {**after, "tools": after["tools"][: len(before["tools"])]} == before
    assert [tool["name"] for tool in added_tools] == ["output_fetch", "output_search", "output_query", "journal"]
    assert len(json.dumps(added_tools, separators=(",", ":"), ensure_ascii=False).encode()) <= 3072
    for tool in added_tools:
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        assert tool["annotations"]["readOnlyHint"] is True
        assert "outputSchema" not in tool
    before_templates, after_templates = (answer["result"]["resourceTemplates"] for answer in templates)
    assert after_templates[:-1] == before_templates
    assert after_templates[-1]["uriTemplate"] == "forebay://output/{output_handle}{?offset,limit}"
    assert "mimeType" not in after_templates[-1]


def test_a_descriptor_is_small_as_a_whole_message(era: str, transport: str, servers: Servers, root: str) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [("text", {"size": 60_000, "of": of}) for of in NASTY]
    with servers.connect({"store": root, "output_mode": "handle"}, era, transport) as wire:
        for name, arguments in (*calls, ("rows", {"count": 2000})):
            message = extract_message(wire.request("tools/call", {"name": name, "arguments": arguments}))
            assert len(message) <= 4096
            descriptor = json.loads(json.loads(message)["result"]["content"][0]["text"])
            assert len(descriptor["output_handle"]) == (15 if transport == "stdio" else 29)
            # Nearly all of the room is used, whatever the escaped size of a character.
            assert len(message) > 3800 or len(descriptor["preview"].encode()) > 2000


@asynccontextmanager
async def connect(sdk: str, era: str, transport: str, servers: Servers, options: dict[str, Any]) -> AsyncIterator[Any]:
    """Connect a client of either SDK to a server in its own process."""
    command = [str(SUPPORT.joinpath(SCRIPT)), transport, json.dumps(options)]
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
        async with connect(sdk, era, transport, servers, options) as client:
            result = await client.call_tool("rows", {"count": 5000})
            handle = parse_text(result)["output_handle"]
            assert result.structured_content == parse_text(result)
            pages = await read_all_items(client, handle)
            assert [row["id"] for page in pages for row in page["content"]] == list(range(5000))
            small = await client.call_tool("rows", {"count": 1})
            assert small.structured_content == {"result": [{"id": 0, "name": "naïve 0"}]}
            large = parse_text(await client.call_tool("json_text", {"count": 400_000}))
            assert large["size_bytes"] > 5_000_000
            last = await read_all_items(client, large["output_handle"], offset=399_999)
            assert last[-1]["content"] == [{"id": 399_999}]
            found = await client.call_tool("output_search", {"output_handle": handle, "pattern": "naïve 4321"})
            assert parse_text(found)["matches"][0]["item"] == 4321
            read = await client.read_resource(f"forebay://output/{handle}?offset=4998&limit=1")
            (content,) = read.contents if sdk == "mcp" else read
            assert json.loads(content.text)["content"] == [{"id": 4998, "name": "naïve 4998"}]

    asyncio.run(run())


def test_a_handle_is_its_principal_s(era: str, servers: Servers, root: str) -> None:
    port = servers.port({"store": root, "output_mode": "auto", "journal": True}, "guarded")
    ann, bob = connect_http(port, era, "of-ann"), connect_http(port, era, "of-bob")

    def ask(wire: Wire, method: str, **params: Any) -> Any:
        return json.loads(extract_message(wire.request(method, params)))

    def call(wire: Wire, tool: str, **arguments: Any) -> Any:
        return json.loads(ask(wire, "tools/call", name=tool, arguments=arguments)["result"]["content"][0]["text"])

    handle = call(ann, "rows", count=5000)["output_handle"]
    assert call(ann, "output_fetch", output_handle=handle)["total"] == 5000
    assert call(bob, "output_fetch", output_handle=handle)["error"]["code"] == "output_handle_not_found"
    uri = f"forebay://output/{handle}"
    assert "result" in ask(ann, "resources/read", uri=uri)
    assert ask(bob, "resources/read", uri=uri)["error"]["data"]["code"] == "output_handle_not_found"
    assert "output_handle_created" in [event["event"] for event in call(ann, "journal")]
    bob_events = {event["event"] for event in call(bob, "journal")}
    assert "output_handle_refused" in bob_events
    assert "output_handle_created" not in bob_events
    assert b"invalid_token" in connect_http(port, MODERN, "of-eve").request("tools/list")
