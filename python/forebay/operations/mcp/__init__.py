"""MCP servers on either side: their tools as operations, and operations as their tools."""

from forebay.operations.mcp.serving import serve_operations, tool_names
from forebay.operations.mcp.tools import MCPOperations, from_mcp

__all__ = ["MCPOperations", "from_mcp", "serve_operations", "tool_names"]
