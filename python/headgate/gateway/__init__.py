"""The gateway: headgate before any MCP server."""
