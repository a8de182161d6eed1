"""What forebay is told: by flags, variables, a file, or the files of MCP clients."""
