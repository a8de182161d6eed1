"""Headgate in front of any MCP server."""
