"""Servers of both protocol eras that send requests, behind `forebay serve`, with the SDK's client in both modes."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CreateMessageResult,
    ElicitResult,
    ErrorData,
    ListRootsResult,
    Root,
    TextContent,
    TextResourceContents,
)
from pydantic import FileUrl
from serve_harness import upstream_command, write_config
from waiting import wait_until_async
from wires import ERAS, LEGACY, start_server

pytestmark = pytest.mark.slow

UPSTREAMS = ["legacy", "modern"]
MISSING_CAPABILITY = -32021


async def answer_elicitation(context: Any, params: Any) -> ElicitResult:
    del context
    return ElicitResult(action="accept", content={"name": params.message})


async def answer_sampling(context: Any, params: Any) -> CreateMessageResult:
    del context
    content = TextContent(type="text", text=params.messages[0].content.text)
    return CreateMessageResult(role="assistant", content=content, model="tests")


async def list_roots(context: Any) -> ListRootsResult:
    del context
    return ListRootsResult(roots=[Root(uri=FileUrl("file:///tmp"))])


CALLBACKS: dict[str, Any] = {
    "elicitation_callback": answer_elicitation,
    "sampling_callback": answer_sampling,
    "list_roots_callback": list_roots,
}
ELICITATION_RESULT = {"action": "accept", "content": {"name": "Who is you?"}}


@contextmanager
def _upstream(transport: str, era: str) -> Iterator[dict[str, Any]]:
    if transport == "stdio":
        yield upstream_command("eliciting_server.py", "stdio", era)
        return
    with start_server("eliciting_server.py", "http", era) as process:
        assert process.stdout
        yield {"url": f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"}


def _run(
    folder: Path,
    upstream: dict[str, Any],
    mode: str,
    talk: Callable[[Client], Awaitable[None]],
    callbacks: dict[str, Any] = CALLBACKS,
) -> None:
    path = write_config(folder, {"one": upstream})
    command = StdioServerParameters(command=sys.executable, args=["-m", "forebay", "serve", "--config", str(path)])

    async def run() -> None:
        with anyio.fail_after(120):
            async with Client(command, mode=mode, **callbacks) as client:

                async def has_started() -> bool:
                    return "elicit" in [tool.name for tool in (await client.list_tools()).tools]

                # The upstream may start later than the client.
                await wait_until_async(has_started)
                await talk(client)

    anyio.run(run)


async def _call_tool(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("upstream_era", UPSTREAMS)
@pytest.mark.parametrize("mode", ERAS)
def test_input_requests_reach_the_client_in_all_versions(
    mode: str, upstream_era: str, transport: str, tmp_path: Path
) -> None:
    async def talk(client: Client) -> None:
        assert json.loads(await _call_tool(client, "elicit")) == ELICITATION_RESULT
        assert json.loads(await _call_tool(client, "sample", of="cheese"))["content"]["text"] == "Say cheese"
        assert json.loads(await _call_tool(client, "roots"))["roots"] == [{"uri": "file:///tmp"}]
        assert (await _call_tool(client, "all")).count("{") > 3
        prompt = (await client.get_prompt("greet")).messages[0].content
        assert isinstance(prompt, TextContent)
        assert json.loads(prompt.text) == ELICITATION_RESULT
        resource = (await client.read_resource("asking://1")).contents[0]
        assert isinstance(resource, TextResourceContents)
        assert json.loads(resource.text) == ELICITATION_RESULT

    with _upstream(transport, upstream_era) as upstream:
        _run(tmp_path, upstream, mode, talk)


@pytest.mark.parametrize("upstream_era", UPSTREAMS)
@pytest.mark.parametrize("mode", ERAS)
def test_a_client_without_the_capabilities(mode: str, upstream_era: str, tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        if upstream_era == "legacy":
            # The call continues, and the server handles the refusal.
            refusal = -32600 if mode == LEGACY else -32601
            assert await _call_tool(client, "sample") == f"refused: {refusal}"
        elif mode == LEGACY:
            for tool in ("sample", "all"):
                with pytest.raises(
                    MCPError, match="one sent sampling/createMessage, but this client did not declare the sampling"
                ) as refused:
                    await _call_tool(client, tool)
                assert refused.value.error.code == MISSING_CAPABILITY
                assert refused.value.error.data == {"requiredCapabilities": {"sampling": {}}}
        else:
            with pytest.raises(MCPError, match="Sampling not supported"):
                await _call_tool(client, "sample")
        assert json.loads(await _call_tool(client, "elicit")) == ELICITATION_RESULT

    with _upstream("stdio", upstream_era) as upstream:
        _run(tmp_path, upstream, mode, talk, {"elicitation_callback": answer_elicitation})


@pytest.mark.parametrize("upstream_era", UPSTREAMS)
@pytest.mark.parametrize("mode", ERAS)
def test_a_client_that_refuses(mode: str, upstream_era: str, tmp_path: Path) -> None:
    async def refuse(context: Any, params: Any) -> ErrorData:
        del context, params
        return ErrorData(code=-7, message="not today")

    async def talk(client: Client) -> None:
        if mode == upstream_era == LEGACY:
            assert await _call_tool(client, "elicit") == "refused: -7"
        else:
            with pytest.raises(MCPError, match="not today") as error:
                await _call_tool(client, "elicit")
            assert error.value.error.code == -7
        assert "file:///tmp" in await _call_tool(client, "roots")

    with _upstream("stdio", upstream_era) as upstream:
        _run(tmp_path, upstream, mode, talk, {"elicitation_callback": refuse, "list_roots_callback": list_roots})


def test_endless_or_invalid_input_requests_are_errors(tmp_path: Path) -> None:
    rounds = 0

    async def count_and_answer(context: Any, params: Any) -> ElicitResult:
        nonlocal rounds
        rounds += 1
        return await answer_elicitation(context, params)

    async def talk(client: Client) -> None:
        error = json.loads(await _call_tool(client, "forever"))["error"]
        assert (error["code"], "32 times" in error["message"]) == ("upstream_failed", True)
        assert rounds == 32
        error = json.loads(await _call_tool(client, "odd"))["error"]
        assert (error["code"], "without a method" in error["message"]) == ("upstream_failed", True)
        # A server that only asks to be called again is called again.
        assert await _call_tool(client, "later") == "later: None"

    with _upstream("stdio", "modern") as upstream:
        _run(tmp_path, upstream, LEGACY, talk, {"elicitation_callback": count_and_answer})


def test_input_requests_of_one_call_are_sent_together(tmp_path: Path) -> None:
    """Also to a client of protocol 2025-11-25, which here answers the first request only after receiving all."""
    arrived: set[str] = set()
    all_arrived = asyncio.Event()

    async def wait_for_all(name: str) -> None:
        arrived.add(name)
        if len(arrived) == 2:
            all_arrived.set()
        await all_arrived.wait()

    async def elicit_after_all(context: Any, params: Any) -> ElicitResult:
        await wait_for_all("elicit")
        return await answer_elicitation(context, params)

    async def sample_after_all(context: Any, params: Any) -> CreateMessageResult:
        await wait_for_all("sample")
        return await answer_sampling(context, params)

    async def talk(client: Client) -> None:
        assert "Say you" in await _call_tool(client, "all")

    callbacks = {**CALLBACKS, "elicitation_callback": elicit_after_all, "sampling_callback": sample_after_all}
    with _upstream("stdio", "modern") as upstream:
        _run(tmp_path, upstream, LEGACY, talk, callbacks)
