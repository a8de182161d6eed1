"""MCP servers on either side: their tools as operations, and operations as their tools."""

from headgate.operations.mcp.serving import serve_operations, tool_names
from headgate.operations.mcp.tools import MCPOperations, from_mcp

__all__ = ["MCPOperations", "from_mcp", "serve_operations", "tool_names"]
