"""Clients as they are used, against the example server as it is started: every one can read all of a large result."""

import base64
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import anyio
import fastmcp
import mcp
import pages
import pytest
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from mcp import StdioServerParameters
from mcp_harness import parse_text
from running import command, serving
from scenarios import Bare, Handshake, Stateless
from wires import Servers

pytestmark = pytest.mark.slow

SCRIPT = "mcp_server.py"
URL = "https://example.com/"
LARGE = {"url": URL, "max_pages": 200}
PATIENCE = 120


class Answer(Protocol):
    """What all clients have of a result."""

    @property
    def content(self) -> list[Any]: ...
    @property
    def is_error(self) -> bool | None: ...
    @property
    def structured_content(self) -> Any: ...


class Peer(Protocol):
    """What is asked of a client."""

    async def names(self) -> list[str]: ...
    async def call(self, tool: str, /, **arguments: Any) -> Answer: ...
    async def read(self, uri: str) -> list[Any]: ...


class OfTheSdk:
    def __init__(self, client: mcp.Client) -> None:
        self._client = client

    async def names(self) -> list[str]:
        return [tool.name for tool in (await self._client.list_tools()).tools]

    async def call(self, tool: str, /, **arguments: Any) -> Answer:
        return await self._client.call_tool(tool, arguments)

    async def read(self, uri: str) -> list[Any]:
        return list((await self._client.read_resource(uri)).contents)


class OfFastmcp:
    def __init__(self, client: "fastmcp.Client[Any]") -> None:
        self._client = client

    async def names(self) -> list[str]:
        return [tool.name for tool in await self._client.list_tools()]

    async def call(self, tool: str, /, **arguments: Any) -> Answer:
        return await self._client.call_tool(tool, arguments, raise_on_error=False)

    async def read(self, uri: str) -> list[Any]:
        return list(await self._client.read_resource(uri))


async def fetched(peer: Peer, handle: str, **ask: Any) -> list[Any]:
    """The contents of all pages."""
    contents: list[Any] = []
    offset: int | None = 0
    while offset is not None:
        answer = await peer.call("oc_output_fetch", output_handle=handle, offset=offset, **ask)
        assert not answer.is_error
        page = parse_text(answer)
        contents.append(page["content"])
        offset = page["next_offset"]
    return contents


async def read_all_of_a_large_result(peer: Peer) -> None:
    inline = parse_text(await peer.call("crawl", **LARGE))
    answer = await peer.call("crawl", **LARGE, output_mode="handle")
    descriptor = parse_text(answer)
    handle = descriptor["output_handle"]
    assert descriptor["item_count"] == len(inline["pages"]) == 200
    assert descriptor["size_bytes"] > 1_000_000
    assert [item for content in await fetched(peer, handle) for item in content] == inline["pages"]
    found = parse_text(await peer.call("oc_output_search", output_handle=handle, pattern='"number": 150,'))
    assert [match["item"] for match in found["matches"]] == [150]
    (content,) = await peer.read(f"{answer.content[1].uri}?offset=150&limit=1")
    assert json.loads(content.text) == [inline["pages"][150]]


async def read_what_is_structured_or_binary(peer: Peer) -> None:
    inline = await peer.call("extract_data", count=2000)
    answer = await peer.call("extract_data", count=2000, output_mode="handle")
    handle = parse_text(answer)["output_handle"]
    # Listed with an output schema, which clients hold answers against.
    assert answer.structured_content == {"output_handle": handle, "fetch_with": "oc_output_fetch"}
    items = [item for content in await fetched(peer, handle) for item in content]
    assert items == inline.structured_content["items"]
    handle = parse_text(await peer.call("evidence_bundle", output_mode="handle"))["output_handle"]
    assert b"".join(map(base64.b64decode, await fetched(peer, handle))) == pages.bundle(URL)


async def be_told_of_what_is_not_there(peer: Peer) -> None:
    answer = await peer.call("oc_output_fetch", output_handle="oh_AAAAAAAAAAAA")
    assert answer.is_error
    assert parse_text(answer)["error"]["code"] == "output_handle_not_found"
    with pytest.raises(Exception, match="nothing is stored under"):
        await peer.read("forebay://output/oh_AAAAAAAAAAAA")


async def do_all(peer: Peer) -> None:
    assert {"crawl", "read_page", "oc_output_fetch", "oc_output_search", "oc_journal"} <= set(await peer.names())
    await read_all_of_a_large_result(peer)
    await read_what_is_structured_or_binary(peer)
    await be_told_of_what_is_not_there(peer)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(PATIENCE):
            await work()

    anyio.run(bounded)


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving("server.py", "--store", (tmp_path_factory.mktemp("http") / "store").as_uri()) as url:
        yield url


@pytest.fixture
def stdio(tmp_path: Path) -> list[str]:
    return command("server.py", "--store", (tmp_path / "store").as_uri())


def test_the_sdk_s_client_over_stdio(era: str, stdio: list[str]) -> None:
    async def work() -> None:
        program, *arguments = stdio
        async with mcp.Client(StdioServerParameters(command=program, args=arguments), mode=era) as client:
            await do_all(OfTheSdk(client))

    run(work)


def test_the_sdk_s_client_over_http(era: str, http: str) -> None:
    async def work() -> None:
        async with mcp.Client(http, mode=era) as client:
            await do_all(OfTheSdk(client))

    run(work)


def test_fastmcp_s_client_over_stdio(era: str, stdio: list[str]) -> None:
    async def work() -> None:
        program, *arguments = stdio
        async with fastmcp.Client(StdioTransport(program, arguments, keep_alive=False), mode=era) as client:
            await do_all(OfFastmcp(client))

    run(work)


def test_fastmcp_s_client_over_http(era: str, http: str) -> None:
    async def work() -> None:
        async with fastmcp.Client(StreamableHttpTransport(http), mode=era) as client:
            await do_all(OfFastmcp(client))

    run(work)


@pytest.mark.parametrize("speaks", [Bare, Handshake, Stateless])
def test_a_descriptor_is_small_as_a_whole_message_over_http(
    speaks: type[Bare], servers: Servers, tmp_path: Path
) -> None:
    """One way of speaking escapes all that is not ASCII, and DEL, which then weighs six bytes in place of one."""
    options = {"store": (tmp_path / "store").as_uri(), "output_mode": "handle"}
    peer = speaks(f"http://127.0.0.1:{servers.port(options, 'stateless')}/mcp")
    for of in ('"', "\\", "\x01", "\x7f", "é", "\u2028", "東", "😀", "a"):
        body = peer.call("text", size=40_000, of=of)
        assert len(body) <= 4096, of
        preview = json.loads(json.loads(body)["result"]["content"][0]["text"])["preview"]
        # Nearly all of the room is used, whatever a character weighs.
        assert len(body) > 3700 or len(preview.encode()) > 1500, of
        handle = json.loads(json.loads(body)["result"]["content"][0]["text"])["output_handle"]
        for format in ("text", "lines"):  # noqa: A001
            page = peer.call("output_fetch", output_handle=handle, format=format)
            assert 24_000 < len(page) <= 32_768 + 64, (of, format)
        assert len(peer.call("output_search", output_handle=handle, pattern=of, limit=5000)) <= 32_768 + 64, of


@pytest.mark.parametrize("speaks", [Handshake, Stateless])
def test_an_answer_by_the_contract_keeps_to_its_budget_over_http(
    speaks: type[Bare], servers: Servers, tmp_path: Path
) -> None:
    options = {"store": (tmp_path / "store").as_uri(), "contract": {"text": "list", "rows": True}}
    peer = speaks(f"http://127.0.0.1:{servers.port(options, 'stateless')}/mcp")
    for of in ('"', "\\", "\x7f", "é", "東", "😀", "a"):
        body = peer.call("text", size=40_000, of=of)
        assert 0 < len(body) <= 2048, (of, len(body))
        assert json.loads(json.loads(body)["result"]["content"][0]["text"])["hasMore"]
    assert len(peer.call("rows", count=5000)) <= 10_240
