"""Servers of either era that ask, behind `forebay serve`, and the SDK's client in both of its modes."""

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
from serve_harness import command_of, config
from wires import ERAS, LEGACY, started

pytestmark = pytest.mark.slow

UPSTREAMS = ["legacy", "modern"]
MISSING_CAPABILITY = -32021


async def elicited(context: Any, params: Any) -> ElicitResult:
    del context
    return ElicitResult(action="accept", content={"name": params.message})


async def sampled(context: Any, params: Any) -> CreateMessageResult:
    del context
    said = TextContent(type="text", text=params.messages[0].content.text)
    return CreateMessageResult(role="assistant", content=said, model="tests")


async def rooted(context: Any) -> ListRootsResult:
    del context
    return ListRootsResult(roots=[Root(uri=FileUrl("file:///tmp"))])


ALL: dict[str, Any] = {"elicitation_callback": elicited, "sampling_callback": sampled, "list_roots_callback": rooted}
ELICITED = {"action": "accept", "content": {"name": "Who is you?"}}


@contextmanager
def _upstream(transport: str, era: str) -> Iterator[dict[str, Any]]:
    if transport == "stdio":
        yield command_of("eliciting_server.py", "stdio", era)
        return
    with started("eliciting_server.py", "http", era) as process:
        assert process.stdout
        yield {"url": f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"}


def _run(
    folder: Path,
    upstream: dict[str, Any],
    mode: str,
    talk: Callable[[Client], Awaitable[None]],
    callbacks: dict[str, Any] = ALL,
) -> None:
    path = config(folder, {"one": upstream})
    command = StdioServerParameters(command=sys.executable, args=["-m", "forebay", "serve", "--config", str(path)])

    async def run() -> None:
        with anyio.fail_after(120):
            async with Client(command, mode=mode, **callbacks) as client:
                # A server may take longer to come than its client does.
                while "elicit" not in [tool.name for tool in (await client.list_tools()).tools]:
                    await anyio.sleep(0.1)
                await talk(client)

    anyio.run(run)


async def _called(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("upstream_era", UPSTREAMS)
@pytest.mark.parametrize("mode", ERAS)
def test_whatever_either_speaks_the_client_is_asked(
    mode: str, upstream_era: str, transport: str, tmp_path: Path
) -> None:
    async def talk(client: Client) -> None:
        assert json.loads(await _called(client, "elicit")) == ELICITED
        assert json.loads(await _called(client, "sample", of="cheese"))["content"]["text"] == "Say cheese"
        assert json.loads(await _called(client, "roots"))["roots"] == [{"uri": "file:///tmp"}]
        assert (await _called(client, "all")).count("{") > 3
        prompt = (await client.get_prompt("greet")).messages[0].content
        assert isinstance(prompt, TextContent)
        assert json.loads(prompt.text) == ELICITED
        resource = (await client.read_resource("asking://1")).contents[0]
        assert isinstance(resource, TextResourceContents)
        assert json.loads(resource.text) == ELICITED

    with _upstream(transport, upstream_era) as upstream:
        _run(tmp_path, upstream, mode, talk)


@pytest.mark.parametrize("upstream_era", UPSTREAMS)
@pytest.mark.parametrize("mode", ERAS)
def test_a_client_that_cannot_be_asked(mode: str, upstream_era: str, tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        if upstream_era == "legacy":
            # The call goes on, and its server makes of it what it can.
            refusal = -32600 if mode == LEGACY else -32601
            assert await _called(client, "sample") == f"refused: {refusal}"
        elif mode == LEGACY:
            for tool in ("sample", "all"):
                with pytest.raises(MCPError, match="one asks sampling/createMessage") as refused:
                    await _called(client, tool)
                assert refused.value.error.code == MISSING_CAPABILITY
                assert refused.value.error.data == {"requiredCapabilities": {"sampling": {}}}
        else:
            with pytest.raises(MCPError, match="Sampling not supported"):
                await _called(client, "sample")
        assert json.loads(await _called(client, "elicit")) == ELICITED

    with _upstream("stdio", upstream_era) as upstream:
        _run(tmp_path, upstream, mode, talk, {"elicitation_callback": elicited})


@pytest.mark.parametrize("upstream_era", UPSTREAMS)
@pytest.mark.parametrize("mode", ERAS)
def test_a_client_that_refuses(mode: str, upstream_era: str, tmp_path: Path) -> None:
    async def refused(context: Any, params: Any) -> ErrorData:
        del context, params
        return ErrorData(code=-7, message="not today")

    async def talk(client: Client) -> None:
        if mode == upstream_era == LEGACY:
            assert await _called(client, "elicit") == "refused: -7"
        else:
            with pytest.raises(MCPError, match="not today") as error:
                await _called(client, "elicit")
            assert error.value.error.code == -7
        assert "file:///tmp" in await _called(client, "roots")

    with _upstream("stdio", upstream_era) as upstream:
        _run(tmp_path, upstream, mode, talk, {"elicitation_callback": refused, "list_roots_callback": rooted})


def test_a_server_that_asks_for_ever_or_what_is_nothing_is_given_up(tmp_path: Path) -> None:
    rounds = 0

    async def counted(context: Any, params: Any) -> ElicitResult:
        nonlocal rounds
        rounds += 1
        return await elicited(context, params)

    async def talk(client: Client) -> None:
        error = json.loads(await _called(client, "forever"))["error"]
        assert (error["code"], "32 times" in error["message"]) == ("upstream_failed", True)
        assert rounds == 32
        error = json.loads(await _called(client, "odd"))["error"]
        assert (error["code"], "no question" in error["message"]) == ("upstream_failed", True)
        # One that only wants time has it.
        assert await _called(client, "later") == "later: None"

    with _upstream("stdio", "modern") as upstream:
        _run(tmp_path, upstream, LEGACY, talk, {"elicitation_callback": counted})


def test_questions_of_one_call_go_out_together(tmp_path: Path) -> None:
    """To a client with a connection, too: it answers the first when it has all."""
    came: set[str] = set()
    all_came = asyncio.Event()

    async def met(name: str) -> None:
        came.add(name)
        if len(came) == 2:
            all_came.set()
        await all_came.wait()

    async def elicited_last(context: Any, params: Any) -> ElicitResult:
        await met("elicit")
        return await elicited(context, params)

    async def sampled_last(context: Any, params: Any) -> CreateMessageResult:
        await met("sample")
        return await sampled(context, params)

    async def talk(client: Client) -> None:
        assert "Say you" in await _called(client, "all")

    callbacks = {**ALL, "elicitation_callback": elicited_last, "sampling_callback": sampled_last}
    with _upstream("stdio", "modern") as upstream:
        _run(tmp_path, upstream, LEGACY, talk, callbacks)
