"""Tools of MCP servers as operations, and operations as tools of an MCP server."""

from forebay.operations.mcp.operations import MCPOperations, from_mcp
from forebay.operations.mcp.server import serve_operations

__all__ = ["MCPOperations", "from_mcp", "serve_operations"]
