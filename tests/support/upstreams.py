"""Servers that operations are imported from, as targets of `from_mcp`."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forebay.operations import OperationRegistry
from forebay.operations.mcp.operations import MCPOperations, from_mcp
from wires import started

TRANSPORTS = ["stdio", "http"]

Test = Callable[[OperationRegistry, MCPOperations], Coroutine[Any, Any, None]]


@contextmanager
def target_of(script: str, transport: str, *more: str) -> Iterator[Any]:
    """A server of this folder: the command of it, or the URL of one that runs."""
    if transport == "stdio":
        yield [sys.executable, str(Path(__file__).with_name(script)), "stdio"]
        return
    with started(script, "http", *more) as process:
        assert process.stdout
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"


def with_tools_of(target: Any, test: Test, **options: Any) -> None:
    """Runs a test on the operations of a server, registered."""

    async def run() -> None:
        registry = OperationRegistry()
        async with asyncio.timeout(60), from_mcp(target, **options) as server:
            server.register_into(registry)
            await test(registry, server)

    asyncio.run(run())


async def until(is_so: Callable[[], bool]) -> None:
    """Waits for what happens by itself; the test has an end of its own."""
    while not is_so():
        await asyncio.sleep(0.01)
