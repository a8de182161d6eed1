"""Clients of several SDKs read large results of the example server, which runs in its own process."""

import base64
import gzip
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
TIMEOUT_SECONDS = 120


class Answer(Protocol):
    """The parts of a result that all clients have."""

    @property
    def content(self) -> list[Any]: ...
    @property
    def is_error(self) -> bool | None: ...
    @property
    def structured_content(self) -> Any: ...


class Peer(Protocol):
    """A client of any SDK."""

    async def names(self) -> list[str]: ...
    async def call(self, tool: str, /, **arguments: Any) -> Answer: ...
    async def read(self, uri: str) -> list[Any]: ...


class SdkPeer:
    def __init__(self, client: mcp.Client) -> None:
        self._client = client

    async def names(self) -> list[str]:
        return [tool.name for tool in (await self._client.list_tools()).tools]

    async def call(self, tool: str, /, **arguments: Any) -> Answer:
        return await self._client.call_tool(tool, arguments)

    async def read(self, uri: str) -> list[Any]:
        return list((await self._client.read_resource(uri)).contents)


class FastmcpPeer:
    def __init__(self, client: "fastmcp.Client[Any]") -> None:
        self._client = client

    async def names(self) -> list[str]:
        return [tool.name for tool in await self._client.list_tools()]

    async def call(self, tool: str, /, **arguments: Any) -> Answer:
        return await self._client.call_tool(tool, arguments, raise_on_error=False)

    async def read(self, uri: str) -> list[Any]:
        return list(await self._client.read_resource(uri))


async def fetch_all(peer: Peer, handle: str, **options: Any) -> list[Any]:
    """Return the contents of all pages."""
    contents: list[Any] = []
    offset: int | None = 0
    while offset is not None:
        answer = await peer.call("oc_output_fetch", output_handle=handle, offset=offset, **options)
        assert not answer.is_error
        page = parse_text(answer)
        contents.append(page["content"])
        offset = page["next_offset"]
    return contents


async def check_large_result(peer: Peer) -> None:
    inline = parse_text(await peer.call("crawl", **LARGE))
    answer = await peer.call("crawl", **LARGE, output_mode="handle")
    descriptor = parse_text(answer)
    handle = descriptor["output_handle"]
    assert descriptor["item_count"] == len(inline["pages"]) == 200
    assert descriptor["size_bytes"] > 1_000_000
    assert [item for content in await fetch_all(peer, handle) for item in content] == inline["pages"]
    found = parse_text(await peer.call("oc_output_search", output_handle=handle, pattern='"number": 150,'))
    assert [match["item"] for match in found["matches"]] == [150]
    (content,) = await peer.read(f"forebay://output/{handle}?offset=150&limit=1")
    assert json.loads(content.text)["content"] == [inline["pages"][150]]


async def check_structured_and_binary(peer: Peer) -> None:
    inline = await peer.call("extract_data", count=2000)
    answer = await peer.call("extract_data", count=2000, output_mode="handle")
    handle = parse_text(answer)["output_handle"]
    # The tool has an output schema, which clients validate results against.
    assert answer.structured_content == parse_text(answer)
    items = [item for content in await fetch_all(peer, handle) for item in content]
    assert items == inline.structured_content["items"]
    handle = parse_text(await peer.call("evidence_bundle", output_mode="handle"))["output_handle"]
    evidence = pages.bundle(URL)
    assert b"".join(map(base64.b64decode, await fetch_all(peer, handle, format="bytes"))) == evidence
    assert "".join(await fetch_all(peer, handle, format="text")).encode() == gzip.decompress(evidence)


async def check_unknown_handle(peer: Peer) -> None:
    answer = await peer.call("oc_output_fetch", output_handle="oh_AAAAAAAAAAAA")
    assert answer.is_error
    assert parse_text(answer)["error"]["code"] == "output_handle_not_found"
    with pytest.raises(Exception, match="nothing is stored under"):
        await peer.read("forebay://output/oh_AAAAAAAAAAAA")


async def check_all(peer: Peer) -> None:
    assert {"crawl", "read_page", "oc_output_fetch", "oc_output_search", "oc_journal"} <= set(await peer.names())
    await check_large_result(peer)
    await check_structured_and_binary(peer)
    await check_unknown_handle(peer)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def run_with_timeout() -> None:
        with anyio.fail_after(TIMEOUT_SECONDS):
            await work()

    anyio.run(run_with_timeout)


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
            await check_all(SdkPeer(client))

    run(work)


def test_the_sdk_s_client_over_http(era: str, http: str) -> None:
    async def work() -> None:
        async with mcp.Client(http, mode=era) as client:
            await check_all(SdkPeer(client))

    run(work)


def test_fastmcp_s_client_over_stdio(era: str, stdio: list[str]) -> None:
    async def work() -> None:
        program, *arguments = stdio
        async with fastmcp.Client(StdioTransport(program, arguments, keep_alive=False), mode=era) as client:
            await check_all(FastmcpPeer(client))

    run(work)


def test_fastmcp_s_client_over_http(era: str, http: str) -> None:
    async def work() -> None:
        async with fastmcp.Client(StreamableHttpTransport(http), mode=era) as client:
            await check_all(FastmcpPeer(client))

    run(work)


@pytest.mark.parametrize("peer_class", [Bare, Handshake, Stateless])
def test_a_descriptor_is_small_as_a_whole_message_over_http(
    peer_class: type[Bare], servers: Servers, tmp_path: Path
) -> None:
    """One variant escapes non-ASCII characters and DEL, which then takes six bytes instead of one."""
    options = {"store": (tmp_path / "store").as_uri(), "output_mode": "handle"}
    peer = peer_class(f"http://127.0.0.1:{servers.port(options, 'stateless')}/mcp")
    for of in ('"', "\\", "\x01", "\x7f", "é", "\u2028", "東", "😀", "a"):
        body = peer.call("text", size=40_000, of=of)
        assert len(body) <= 4096, of
        preview = json.loads(json.loads(body)["result"]["content"][0]["text"])["preview"]
        # Nearly all of the room is used, whatever the escaped size of a character.
        assert len(body) > 3700 or len(preview.encode()) > 1500, of
        handle = json.loads(json.loads(body)["result"]["content"][0]["text"])["output_handle"]
        for format in ("text", "lines"):  # noqa: A001
            page = peer.call("output_fetch", output_handle=handle, format=format)
            assert 12_000 < len(page) <= 16_384 + 256, (of, format)
        assert len(peer.call("output_search", output_handle=handle, pattern=of, limit=5000)) <= 16_384 + 256, of


@pytest.mark.parametrize("peer_class", [Handshake, Stateless])
def test_an_answer_by_the_contract_keeps_to_its_budget_over_http(
    peer_class: type[Bare], servers: Servers, tmp_path: Path
) -> None:
    options = {"store": (tmp_path / "store").as_uri(), "contract": {"text": "list", "rows": True}}
    peer = peer_class(f"http://127.0.0.1:{servers.port(options, 'stateless')}/mcp")
    for of in ('"', "\\", "\x7f", "é", "東", "😀", "a"):
        body = peer.call("text", size=40_000, of=of)
        assert 0 < len(body) <= 2048, (of, len(body))
        assert json.loads(json.loads(body)["result"]["content"][0]["text"])["hasMore"]
    assert len(peer.call("rows", count=5000)) <= 10_240
