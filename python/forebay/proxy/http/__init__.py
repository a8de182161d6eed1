"""Upstream MCP servers that are reached over HTTP."""
