"""A client of the servers in examples/recipes, of the `mcp` SDK."""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import forebay
from mcp import Client, StdioServerParameters

RECIPES = Path(__file__).resolve().parents[2] / "examples" / "recipes"


class RecipeClient:
    """Calls tools, and reads the stored bytes behind handles without the server."""

    def __init__(self, client: Client, home: Path) -> None:
        self._client = client
        self._home = home

    async def call_tool(self, tool: str, **arguments: Any) -> tuple[str, bool]:
        """Return the text of a result, and whether it is an error."""
        result = await self._client.call_tool(tool, arguments)
        (block,) = result.content
        assert block.type == "text"
        return block.text, bool(result.is_error)

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool that must succeed, and parse its result."""
        text, is_error = await self.call_tool(tool, **arguments)
        assert not is_error, text
        return json.loads(text)

    async def call_large(self, tool: str, **arguments: Any) -> tuple[str, Any]:
        """Call a tool whose result must be stored; return its handle and the descriptor."""
        text, is_error = await self.call_tool(tool, **arguments)
        assert not is_error, text
        assert len(text.encode()) <= 4096
        descriptor = json.loads(text)
        assert descriptor["fetch_with"].startswith("output_fetch")
        return descriptor["output_handle"], descriptor

    async def query(self, handle: str, sql: str) -> list[list[Any]]:
        rows: list[list[Any]] = (await self.call("output_query", output_handle=handle, sql=sql))["rows"]
        return rows

    def read_stored(self, handle: str) -> bytes:
        with (
            forebay.open_store(self._home.as_uri(), sweep_interval=0) as store,
            store.open(handle, principal=forebay.OPERATOR) as payload,
        ):
            return payload.read()


@asynccontextmanager
async def connect_recipe(name: str, *arguments: str, era: str, home: Path) -> AsyncIterator[RecipeClient]:
    """Start a recipe as its docstring says, and yield a client of it."""
    environment = {**os.environ, "FOREBAY_HOME": str(home)}
    command = StdioServerParameters(command=sys.executable, args=[str(RECIPES / name), *arguments], env=environment)
    async with Client(command, mode=era) as client:
        yield RecipeClient(client, home)
