"""A large result of a tool through forebay, beside the limiter of fastmcp: what a client gets, and how fast."""

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from forebay.bench.contest import FOREBAY, Benchmark, Contender
from forebay.bench.workspace import NotApplicable, Workspace, get_available_bytes

__all__ = ["list_limits"]

_MEMORY_FACTOR = 12
"""Estimate of the memory that a server and a client need for a text, relative to its size."""

_LIMIT_BYTES = 32768
"""Results above this are not sent inline: the default of forebay in mode `auto`."""


def list_limits(work: Workspace) -> Iterator[Benchmark]:
    """Yield the benchmark of a server with fastmcp, if fastmcp is installed and the payload is a large text."""
    payload = work.payload
    if payload.nature == "binary":
        raise NotApplicable("the payload is no text, which a tool could return")
    if len(payload.data) <= _LIMIT_BYTES:
        raise NotApplicable(f"a payload of up to {_LIMIT_BYTES:,} bytes is sent inline")
    if _MEMORY_FACTOR * len(payload.data) > get_available_bytes():
        raise NotApplicable("the payload is larger than what a tool could return with the memory that is free")
    if not work.has("fastmcp"):
        raise NotApplicable(f"it compares servers with fastmcp: {work.peers['fastmcp'].install}")
    try:
        import fastmcp
        from fastmcp.server.middleware.response_limiting import ResponseLimitingMiddleware

        from forebay.adapters.fastmcp import ForebayMiddleware
    except ImportError as error:
        raise NotApplicable(f"fastmcp {work.peers['fastmcp'].version} cannot be used: {error}") from None

    text = payload.data.decode()

    def serve(middleware: Any) -> Any:
        server = fastmcp.FastMCP("bench", middleware=[middleware])
        server.tool(lambda: text, name="large", output_schema=None)
        return server

    ours = serve(ForebayMiddleware(work.store, output_mode="auto", output_inline_limit_bytes=_LIMIT_BYTES))
    theirs = serve(ResponseLimitingMiddleware(max_size=_LIMIT_BYTES))
    call_ours, call_theirs = work.stack.enter_context(_open_clients([ours, theirs]))

    handles: list[str] = []

    def call_with_handle() -> str:
        result = call_ours()
        handles.append(orjson.loads(result)["output_handle"])
        return result

    def delete_handles() -> None:
        while handles:
            work.store.delete(handles.pop())

    def redeem(result: str) -> bytes:
        with work.store.open(orjson.loads(result)["output_handle"]) as file:
            return file.read()

    def find_flaw(redeemed: bytes, _: str) -> str | None:
        # The peer's flaw is in its note: it is measured, because cutting is all that it promises.
        return None if redeemed == payload.data else "forebay's handle leads to other bytes"

    yield Benchmark(
        "limit",
        "large result of a tool, to a client",
        len(payload.data),
        Contender(FOREBAY, call_with_handle, redeem, delete_handles, functools.partial(_describe, text)),
        [Contender("fastmcp's limiter", call_theirs, describe=functools.partial(_describe, text))],
        find_flaw=find_flaw,
        note="client and server in one process; forebay stores the result and sends a handle",
    )


def _describe(text: str, result: str) -> str:
    """Return what a client got in place of a text."""
    size = f"{len(result.encode()):,} bytes"
    with contextlib.suppress(orjson.JSONDecodeError):
        value = orjson.loads(result)
        if isinstance(value, dict) and "output_handle" in value:
            return f"JSON with a handle to all of it, {size}"
        return f"valid JSON, the rest lost, {size}"
    is_cut_json = text.lstrip()[:1] in ("{", "[")
    return f"{'invalid JSON' if is_cut_json else 'cut text'}, the rest lost, {size}"


@contextlib.contextmanager
def _open_clients(servers: list[Any]) -> Iterator[list[Callable[[], str]]]:
    """Connect a client to each server, and return functions that call the tool. A thread runs the event loop."""
    import fastmcp

    loop = asyncio.new_event_loop()
    clients = [fastmcp.Client(server) for server in servers]
    is_open, closing = threading.Event(), asyncio.Event()
    errors: list[Exception] = []

    async def keep_open() -> None:
        # Clients are closed by the task that opened them.
        try:
            async with contextlib.AsyncExitStack() as stack:
                for client in clients:
                    await stack.enter_async_context(client)
                is_open.set()
                await closing.wait()
        except Exception as error:
            # Of any kind: a server of another package does not start.
            errors.append(error)
        finally:
            is_open.set()

    def call(client: Any) -> str:
        result = asyncio.run_coroutine_threadsafe(client.call_tool("large", {}), loop).result()
        return str(result.content[0].text)

    thread = threading.Thread(target=loop.run_until_complete, args=[keep_open()], name="forebay-bench", daemon=True)
    # The limiter logs a line for each result that it cuts.
    loggers = [logging.getLogger(name) for name in ("fastmcp", "forebay", "mcp")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    thread.start()
    try:
        is_open.wait()
        if errors:
            raise NotApplicable(f"a server with fastmcp does not start: {errors[0]}")
        yield [functools.partial(call, client) for client in clients]
    finally:
        loop.call_soon_threadsafe(closing.set)
        thread.join()
        loop.close()
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
