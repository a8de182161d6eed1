"""The MCP App: a viewer for stored outputs, in hosts that show apps (`io.modelcontextprotocol/ui`)."""
