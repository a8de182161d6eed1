"""`forebay serve`: several MCP servers, HTTP APIs and Python modules behind one server."""
