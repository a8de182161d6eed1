"""forebay inside a Python MCP server: `servers.mcp` for the SDK, `servers.fastmcp` for fastmcp."""
