"""Configuration: options from flags, variables and forebay.toml, and the configuration files of MCP clients."""
