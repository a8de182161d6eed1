"""forebay inside a Python MCP server: `adapters.mcp` for the `mcp` SDK, `adapters.fastmcp` for fastmcp."""
