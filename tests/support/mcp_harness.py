"""Run tests against servers of the mcp SDK in this process."""

import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
from forebay.adapters.mcp import Forebay
from mcp import Client
from mcp_server import make_server
from mcp_types import TextContent

Test = Callable[[Client, Forebay], Coroutine[Any, Any, None]]


def serve(test: Test, root: Path, era: str, server: Any = None, **options: Any) -> None:
    """Run a test with a client of a server in this process."""
    middleware = Forebay(root.as_uri(), **{"sweep_interval": 0, **options})
    server = middleware.install(make_server() if server is None else server)

    async def run() -> None:
        async with Client(server, mode=era) as client:
            await test(client, middleware)

    try:
        anyio.run(run)
    finally:
        middleware.close()


def parse_text(result: Any) -> Any:
    """Parse the first text block of a result as JSON."""
    return json.loads(get_text(result))


def get_text(result: Any) -> str:
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


async def read_all_items(client: Any, handle: str, **options: Any) -> list[Any]:
    """Return all pages of a stored payload, with a client of either SDK."""
    pages: list[Any] = []
    offset: int | None = 0
    while offset is not None:
        result = await client.call_tool("output_fetch", {"output_handle": handle, "offset": offset, **options})
        assert not result.is_error
        pages.append(parse_text(result))
        assert len(json.dumps(get_text(result), ensure_ascii=False).encode()) <= 32768 + 2
        offset = pages[-1]["next_offset"]
    return pages
