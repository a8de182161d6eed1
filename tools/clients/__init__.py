"""Real MCP clients in front of the gateway, with a scripted model that records what reaches it."""
