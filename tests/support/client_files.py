"""Configuration files of MCP clients."""

CLAUDE_DESKTOP = """{
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": [
        "-y",
        "@modelcontextprotocol/server-filesystem",
        "/Users/ann/Desktop"
      ]
    },
    "memory": {
      "command": "docker",
      "args": ["run", "-i", "--rm", "mcp/memory"],
      "env": {
        "API_KEY": "hunter2"
      }
    },
    "plain": {
      "command": "my-server"
    },
    "empty": { "command": "C:\\\\Tools\\\\server.exe", "args": [] }
  },
  "globalShortcut": "Ctrl+Space"
}
"""

CLAUDE_CODE = """{"mcpServers":{"github":{"type":"http","url":"https://api.example.com/mcp",
"headers":{"Authorization":"Bearer ${GITHUB_TOKEN}"}},
"db":{"type":"stdio","command":"${HOME}/bin/db","args":["--dsn","${DSN:-sqlite://}"],"env":{}},
"old":{"type":"sse","url":"https://example.com/sse?key=hunter2"}}}"""

CLAUDE_CODE_USER = """{
  "numStartups": 7,
  "projects": {
    "/home/ann/shop": {
      "allowedTools": [],
      "mcpServers": {
        "db": {
          "type": "stdio",
          "command": "db-server",
          "args": [],
          "env": {
            "DB_PASSWORD": "hunter2"
          }
        },
        "github": { "type": "http", "url": "https://api.example.com/mcp?key=hunter2" }
      },
      "history": []
    },
    "/home/ann/notes": { "mcpServers": { "db": { "command": "other-db" } } },
    "/home/ann/empty": { "mcpServers": {} },
    "/home/ann/none": {}
  },
  "mcpServers": { "db": { "command": "everywhere" } }
}
"""

CURSOR = """{
\t"mcpServers": {
\t\t"remote": {
\t\t\t"url": "http://localhost:3000/mcp",
\t\t\t"headers": { "X-Api-Key": "hunter2", "Accept-Language": "de" }
\t\t},
\t\t"with-env": { "url": "http://localhost:3000/sse", "env": { "API_KEY": "hunter2" } },
\t\t"local": {
\t\t\t"args": ["server.py", "--", "-v"],
\t\t\t"command": "python",
\t\t\t"env": { "A": "${env:HOME}" }
\t\t}
\t}
}
"""

VS_CODE = """{
  // Servers of this workspace.
  "inputs": [
    { "type": "promptString", "id": "key", "description": "Key", "password": true },
  ],
  "servers": {
    /* over HTTP */
    "perplexity": {
      "type": "stdio",
      "command": "npx", // from the registry
      "args": [
        // yes to all
        "-y",
        "server-perplexity-ask",
      ],
      "env": { "PERPLEXITY_API_KEY": "${input:key}" },
    },
    "fetch": {
      "type": "http", "url": "https://example.com/mcp", // ours
      "headers": {
        "Authorization": "Bearer ${input:key}", // asked for
      },
    },
  },
}
"""

VS_CODE_SETTINGS = """\ufeff{\r
    "editor.fontSize": 12,\r
    "mcp": {\r
        "servers": {\r
            "a": {\r
                "command": "caf\\u00e9",\r
                "args": [ "é" ]\r
            }\r
        }\r
    }\r
}"""

FILES = {
    "claude_desktop_config.json": CLAUDE_DESKTOP,
    ".mcp.json": CLAUDE_CODE,
    ".claude.json": CLAUDE_CODE_USER,
    "cursor.json": CURSOR,
    "mcp.json": VS_CODE,
    "settings.json": VS_CODE_SETTINGS,
}
