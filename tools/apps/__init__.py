"""The viewer in a real host of MCP Apps."""
