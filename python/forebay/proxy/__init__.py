"""`forebay wrap`: the gateway between a client and one unmodified MCP server."""
