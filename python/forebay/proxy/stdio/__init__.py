"""Upstream MCP servers that run as child processes."""
