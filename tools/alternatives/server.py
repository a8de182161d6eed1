"""MCP servers on stdio whose tool `list_orders` returns the payload, with or without a library that limits results.

    python server.py KIND

Each kind runs in the environment that has its libraries, and is set up as the documentation of its library shows.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from orders import make_payload  # type: ignore[import-not-found] # this is a script, and `orders` is beside it

__all__ = ["SERVERS"]

PAYLOAD: str = make_payload()


def list_orders() -> str:
    """Return all orders."""
    return PAYLOAD


def run_plain() -> None:
    """The official SDK, version 2."""
    from mcp.server import MCPServer

    server = MCPServer("orders")
    server.tool(structured_output=False)(list_orders)
    server.run()


def run_limited() -> None:
    """fastmcp with its middleware that limits results, at the default size of forebay."""
    from fastmcp import FastMCP
    from fastmcp.server.middleware.response_limiting import ResponseLimitingMiddleware

    server = FastMCP("orders", middleware=[ResponseLimitingMiddleware(max_size=32_768)])
    server.tool(list_orders, output_schema=None)
    server.run(show_banner=False)


def run_refcache() -> None:
    """fastmcp with mcp-refcache. The tool returns the list, because only lists and maps at the top can be paged."""
    from fastmcp import FastMCP
    from mcp_refcache import PreviewConfig, PreviewStrategy, RefCache

    cache = RefCache(preview_config=PreviewConfig(default_strategy=PreviewStrategy.PAGINATE))
    server = FastMCP("orders")
    orders: list[dict[str, Any]] = json.loads(PAYLOAD)["orders"]

    @server.tool(name="list_orders")
    @cache.cached(namespace="public")
    async def cached_orders() -> list[dict[str, Any]]:
        return orders

    @server.tool
    async def get_cached_result(ref_id: str, page: int = 1, page_size: int = 20, full: bool = False) -> dict[str, Any]:
        if full:
            return {"ref_id": ref_id, "value": cache.resolve(ref_id)}
        return cache.get(ref_id, page=page, page_size=page_size).model_dump(mode="json")

    server.run(show_banner=False)


def run_pager() -> None:
    """Version 1 of the official SDK with mcp-pager."""
    from mcp.server.fastmcp import FastMCP  # type: ignore[attr-defined]
    from mcp_pager import paginate  # type: ignore[import-not-found]

    server = FastMCP("orders")
    paginate(server)
    server.tool()(list_orders)
    server.run()


SERVERS: dict[str, Callable[[], None]] = {
    "plain": run_plain,
    "limited": run_limited,
    "refcache": run_refcache,
    "pager": run_pager,
}

if __name__ == "__main__":
    SERVERS[sys.argv[1]]()
