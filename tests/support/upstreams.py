"""Test servers as targets of `from_mcp`."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forebay.operations import OperationRegistry
from forebay.operations.mcp.operations import MCPOperations, from_mcp
from wires import start_server

TRANSPORTS = ["stdio", "http"]

Test = Callable[[OperationRegistry, MCPOperations], Coroutine[Any, Any, None]]


@contextmanager
def open_target(script: str, transport: str, *more: str) -> Iterator[Any]:
    """Yield the command of a server of this folder, or the URL of a running one."""
    if transport == "stdio":
        yield [sys.executable, str(Path(__file__).with_name(script)), "stdio"]
        return
    with start_server(script, "http", *more) as process:
        assert process.stdout
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"


def run_with_tools(target: Any, test: Test, **options: Any) -> None:
    """Run a test with the operations of a server in a registry."""

    async def run() -> None:
        registry = OperationRegistry()
        async with asyncio.timeout(60), from_mcp(target, **options) as server:
            server.register_into(registry)
            await test(registry, server)

    asyncio.run(run())
