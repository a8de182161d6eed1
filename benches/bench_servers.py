"""The overhead of forebay in a server, and what a client gets of a large result, beside fastmcp's own limiter.

Clients run in the same process. Compared calls alternate, so that other load on the machine affects both sides.
"""

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import corpus
import fastmcp
import forebay
import orjson
import pytest
from conftest import Measured
from fastmcp.server.middleware.response_limiting import ResponseLimitingMiddleware
from forebay.adapters.fastmcp import ForebayMiddleware
from forebay.adapters.mcp import Forebay
from forebay.outputs.modes import Mode
from forebay.outputs.tool_call import ToolCall
from mcp import Client
from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult

ERAS = ["legacy", "2026-07-28"]
LIMIT = 32768
SIZES = {"1 MB": corpus.MB, "5 MB": 5 * corpus.MB, "20 MB": 20 * corpus.MB}

Seconds = dict[str, list[float]]


@cache
def text(size: str) -> str:
    return corpus.records(SIZES[size]).decode()


@cache
def ascii_text(size: str) -> str:
    """Return the same text as Python's `json` writes it, with escapes for everything that is not ASCII."""
    return json.dumps(orjson.loads(text(size)))


LARGE = {"20 MB": text, "20 MB ASCII": ascii_text}


@pytest.fixture(scope="module")
def store(folder: Path) -> Iterator[forebay.Store]:
    with forebay.open_store(folder / "servers", warn_bytes=0) as store:
        yield store


async def time_in_turn(rounds: int, sides: Mapping[str, Callable[[], Awaitable[Any]]]) -> Seconds:
    """Time both sides; the first one changes from round to round, because the second finds warmer caches."""
    seconds: Seconds = {who: [] for who in sides}
    order = list(sides.items())
    for _ in range(rounds):
        for who, work in order:
            start = time.perf_counter()
            await work()
            seconds[who].append(time.perf_counter() - start)
        order.reverse()
    return seconds


class TimedMiddleware:
    """A middleware that measures its own time, without the time of the handler that it calls."""

    def __init__(self, middleware: Forebay) -> None:
        self._middleware = middleware
        self.seconds = 0.0

    async def __call__(self, ctx: Any, call_next: CallNext) -> HandlerResult:
        inner_seconds = 0.0

        async def timed_next(ctx: Any) -> HandlerResult:
            nonlocal inner_seconds
            start = time.perf_counter()
            try:
                return await call_next(ctx)
            finally:
                inner_seconds += time.perf_counter() - start

        start = time.perf_counter()
        try:
            return await self._middleware(ctx, timed_next)
        finally:
            self.seconds = time.perf_counter() - start - inner_seconds


def make_server() -> MCPServer:
    server = MCPServer("bench")

    @server.tool(structured_output=False)
    def small() -> str:
        return "x" * 1000

    @server.tool(structured_output=False)
    def empty() -> str:
        return ""

    @server.tool(structured_output=False)
    def large(which: str) -> str:
        return LARGE[which]("20 MB")

    return server


@pytest.mark.parametrize("era", ERAS)
def bench_inline(measured: Measured, store: forebay.Store, era: str) -> None:
    """A result that stays inline: forebay only checks its size."""

    async def run() -> Seconds:
        gated = Forebay(store, output_mode="auto").install(make_server())
        async with Client(make_server(), mode=era) as plain, Client(gated, mode=era) as ours:
            sides = {"with": lambda: ours.call_tool("small", {}), "without": lambda: plain.call_tool("small", {})}
            assert (await sides["with"]()).content == (await sides["without"]()).content
            await time_in_turn(200, sides)
            return await time_in_turn(2000, sides)

    seconds = asyncio.run(run())
    added = [ours - theirs for ours, theirs in zip(seconds["with"], seconds["without"], strict=True)]
    measured("added to an inline 1 KB", era, "forebay", 1000, added)


@cache
def time_store(store: forebay.Store, which: str) -> Seconds:
    """Time a result of 20 MB in the store alone, in the pipeline, and in the middleware of a server."""
    payload = LARGE[which]("20 MB").encode()
    result = {"content": [{"type": "text", "text": LARGE[which]("20 MB")}], "isError": False}
    gate = Forebay(store, output_mode="auto")
    server = gate.install(make_server())
    timed = server.middleware[-1] = TimedMiddleware(gate)
    inside: list[float] = []

    def in_the_pipeline() -> dict[str, Any]:
        assert not gate.policy.pipeline.is_inline(result, Mode("auto"), ToolCall("large"))
        return gate.policy.pipeline.store_result(result, ToolCall("large"))

    async def run() -> Seconds:
        async with Client(server) as client:

            async def call() -> None:
                answer = orjson.loads((await client.call_tool("large", {"which": which})).content[0].text)  # type: ignore[union-attr]
                inside.append(timed.seconds)
                store.delete(answer["output_handle"])

            async def put() -> None:
                store.put(payload)

            async def pipeline() -> None:
                in_the_pipeline()

            handle = orjson.loads(in_the_pipeline()["content"][0]["text"])["output_handle"]
            with store.open(handle) as file:
                assert file.read() == payload
            await call()
            inside.clear()
            return await time_in_turn(7, {"the store's put": put, "the pipeline": pipeline, "the middleware": call})

    return {**asyncio.run(run()), "the middleware": inside}


@pytest.mark.parametrize("which", LARGE)
@pytest.mark.parametrize("part", ["the pipeline", "the middleware"])
@pytest.mark.parametrize("who", ["forebay", "the store's put"])
def bench_handle(measured: Measured, store: forebay.Store, which: str, part: str, who: str) -> None:
    seconds = time_store(store, which)[part if who == "forebay" else who]
    measured("result to a handle", f"{which}, {part}", who, SIZES["20 MB"], seconds)


@cache
def time_fetch(store: forebay.Store, limit: int | None) -> Seconds:
    handle = store.put(text("20 MB")).output_handle
    arguments = {"output_handle": handle, "offset": 1000, **({} if limit is None else {"limit": limit})}

    async def run() -> Seconds:
        async with Client(Forebay(store).install(make_server())) as client:
            page = orjson.loads((await client.call_tool("output_fetch", arguments)).content[0].text)  # type: ignore[union-attr]
            assert page["content"] == orjson.loads(text("20 MB"))[1000 : 1000 + page["returned"]]
            sides = {
                "forebay": lambda: client.call_tool("output_fetch", arguments),
                "an empty tool": lambda: client.call_tool("empty", {}),
            }
            await time_in_turn(50, sides)
            return await time_in_turn(500, sides)

    return asyncio.run(run())


@pytest.mark.parametrize("limit", [50, None])
@pytest.mark.parametrize("who", ["forebay", "an empty tool"])
def bench_fetch(measured: Measured, store: forebay.Store, limit: int | None, who: str) -> None:
    page = "a full page" if limit is None else f"{limit} items"
    measured("output_fetch by a client", page, who, SIZES["20 MB"], time_fetch(store, limit)[who])


class ReceivedResult:
    """A result as the client received it."""

    def __init__(self, result: Any) -> None:
        self.text: str = result.content[0].text
        blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
        self.size = len(orjson.dumps({"content": blocks, "isError": result.is_error}))

    @property
    def parses(self) -> bool:
        with contextlib.suppress(orjson.JSONDecodeError):
            orjson.loads(self.text)
            return True
        return False


async def read_all(client: fastmcp.Client[Any], handle: str) -> bytes:
    """Read a stored payload page by page."""
    parts: list[bytes] = []
    offset: int | None = 0
    while offset is not None:
        arguments = {"output_handle": handle, "offset": offset, "format": "bytes"}
        page = orjson.loads((await client.call_tool("output_fetch", arguments)).content[0].text)  # type: ignore[union-attr]
        parts.append(base64.b64decode(page["content"]))
        offset = page["next_offset"]
    return b"".join(parts)


@cache
def time_limiting(store: forebay.Store, size: str) -> tuple[Seconds, dict[str, str]]:
    """Time the same result through either middleware with the same limit; return notes on what the client got."""

    def serve(middleware: Any) -> fastmcp.FastMCP:
        server = fastmcp.FastMCP("bench", middleware=[middleware])
        server.tool(lambda: text(size), name="large", output_schema=None)
        return server

    async def run() -> tuple[Seconds, dict[str, str]]:
        gated = serve(ForebayMiddleware(store, output_mode="auto", output_inline_limit_bytes=LIMIT))
        cut = serve(ResponseLimitingMiddleware(max_size=LIMIT))
        async with fastmcp.Client(gated) as ours, fastmcp.Client(cut) as theirs:
            handle, rest = (
                ReceivedResult(await ours.call_tool("large", {})),
                ReceivedResult(await theirs.call_tool("large", {})),
            )
            assert await read_all(ours, orjson.loads(handle.text)["output_handle"]) == text(size).encode()
            assert handle.parses
            # The part cut off is lost: no handle leads to it.
            assert "output_handle" not in rest.text
            assert not text(size).startswith(rest.text)
            notes = {
                "forebay": f"{handle.size:,} bytes, JSON, all of it redeemed",
                "ResponseLimiting": f"{rest.size:,} bytes, {'' if rest.parses else 'not '}JSON, the rest lost",
            }
            sides = {
                "forebay": lambda: ours.call_tool("large", {}),
                "ResponseLimiting": lambda: theirs.call_tool("large", {}),
            }
            return await time_in_turn(7, sides), notes

    return asyncio.run(run())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("who", ["forebay", "ResponseLimiting"])
def bench_limiting(measured: Measured, store: forebay.Store, size: str, who: str) -> None:
    seconds, notes = time_limiting(store, size)
    measured("large result in fastmcp", size, who, SIZES[size], seconds[who], note=notes[who])
