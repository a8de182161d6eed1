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

CODEX = """model = "gpt-5" # the default
approval_policy = "on-request"

[mcp_servers.files] # local
command = 'npx' # from the registry
args = [
  # yes to all
  "-y",
  "@modelcontextprotocol/server-filesystem",
]
startup_timeout_sec = 20
enabled_tools = ["read_file", "search_files"]

[mcp_servers.files.env]
"API_KEY" = "hunter2"

[mcp_servers.plain]
command = "my-server" # without args
[mcp_servers.empty]
command = '''C:\\Tools\\server.exe'''
args = []

# In one line.
[mcp_servers]
inline = { command = "docker", args = ["run", "-i"], env = { TOKEN = "hunter2" } }
short = {command="x"}

[mcp_servers.figma]
url = "https://mcp.example.com/mcp" # remote
bearer_token_env_var = "FIGMA_TOKEN"
http_headers = { "X-Region" = "us-east-1", X-Key = "hunter2" }

[mcp_servers.tables]
url = 'https://mcp.example.com/mcp?key=hunter2'
[mcp_servers.tables.http_headers]
Authorization = "Bearer hunter2"

[model_providers.local]
base_url = "http://127.0.0.1:1"
api_key = "hunter2"

[[profiles]]
name = "a"
when = 1979-05-27 07:32:00"""

OPENCODE = """{
  "$schema": "https://opencode.ai/config.json",
  // Servers.
  "mcp": {
    "files": {
      "type": "local",
      "command": ["bun", "x", "my-mcp"], // one list
      "environment": { "API_KEY": "hunter2" },
      "enabled": true,
    },
    "alone": { "type": "local", "command": ["my-server"] },
    "jira": {
      "type": "remote",
      "url": "https://jira.example.com/mcp",
      "headers": {
        "Authorization": "Bearer hunter2", // ours
      },
    },
    "bare": {"url": "https://example.com/mcp", "type": "remote", "timeout": 9000},
    "elsewhere": { "enabled": false },
  },
  "provider": { "x": { "options": { "apiKey": "hunter2" } } },
}
"""

GEMINI = """{
  "mcpServers": {
    "local": {
      "command": "node",
      "args": ["server.js"],
      "env": { "KEY": "hunter2" },
      "includeTools": ["search", "read(x)"],
      "trust": true
    },
    "stream": { "httpUrl": "https://example.com/mcp", "headers": { "X-Key": "hunter2" }, "timeout": 5000 },
    "events": { "url": "https://example.com/sse", "includeTools": [
      "one",
      "two"
    ] }
  },
  "mcp": { "allowed": ["local"] },
  "security": { "auth": { "selectedType": "oauth-personal" } }
}
"""

QWEN = """{
    "mcpServers": {
        "db": { "command": "db-server", "includeTools": [ "query" , ], "discoveryTimeoutMs": 1000 },
        "web": { "httpUrl": "https://example.com/mcp" }
    },
    "permissions": { "allow": ["mcp__db__query", "Bash(git status)"] }
}
"""

COPILOT = """{
  "mcpServers": {
    "playwright": {
      "type": "local",
      "command": "npx",
      "args": ["@playwright/mcp@latest"],
      "env": {},
      "tools": ["*"]
    },
    "context7": {
      "type": "http",
      "url": "https://mcp.context7.com/mcp",
      "headers": { "CONTEXT7_API_KEY": "hunter2" },
      "tools": ["resolve-library-id"]
    }
  }
}
"""

CLINE = """{
  "mcpServers": {
    "flat": {
      "command": "uvx",
      "args": ["server"],
      "autoApprove": ["list"],
      "disabled": false,
      "timeout": 60
    },
    "nested": {
      "transport": { "type": "stdio", "command": "server", "args": [], "env": { "A": "hunter2" } },
      "disabled": true
    },
    "remote": {
      "type": "streamableHttp",
      "url": "https://example.com/mcp",
      "headers": { "Authorization": "Bearer hunter2" },
      "autoApprove": []
    },
    "nested-remote": { "transport": { "type": "sse", "url": "https://example.com/sse" } },
    "old": { "transportType": "http", "url": "https://example.com/mcp", "alwaysAllow": ["x"] }
  }
}
"""

WINDSURF = """{"mcpServers": {"remote": {"serverUrl": "https://example.com/mcp",
"headers": {"Authorization": "Bearer ${env:TOKEN}"}, "disabledTools": ["delete"]}}}"""

ZED = """// Settings of Zed.
{
  "theme": "One Dark",
  "context_servers": {
    "local": {
      "command": "some-command",
      "args": ["arg-1", "arg-2"],
      "env": {},
    },
    "remote": { "url": "https://example.com/mcp", "headers": { "Authorization": "Bearer hunter2" } },
  },
}
"""

CRUSH = """{
  "$schema": "https://charm.land/crush.json",
  "mcp": {
    "filesystem": { "type": "stdio", "command": "node", "args": ["server.js"], "timeout": 120,
      "enabled_tools": ["get-library-doc"] },
    "github": {
      "type": "http",
      "url": "https://api.example.com/mcp/",
      "headers": { "Authorization": "Bearer $GH_PAT" }
    }
  },
  "providers": { "x": { "api_key": "hunter2" } }
}
"""

GOOSE = """# Settings of goose.
GOOSE_PROVIDER: anthropic
extensions:
  developer:
    bundled: true
    enabled: true
    name: developer
    type: builtin
  github:
    args:
    - -y
    - '@modelcontextprotocol/server-github' # pinned
    available_tools:
      - search
      - get_issue
    bundled: null
    cmd: npx # node
    description: ''
    enabled: true
    env_keys:
    - GITHUB_TOKEN
    envs: {}
    name: GitHub
    timeout: 300
    type: stdio
  # Without args.
  plain:
    cmd: "my server" # quoted
    envs: { KEY: hunter2 }
    type: stdio

  flow: { type: stdio, cmd: x, args: [], name: flow }
  remote:
    available_tools: []
    enabled: true
    env_keys: []
    envs: {}
    headers:
      Authorization: Bearer hunter2
      X-Region: 'eu' # there
    name: remote
    timeout: 300
    type: streamable_http
    uri: https://example.com/mcp?a=b#c
  bare:
    type: streamable_http
    uri: "https://example.com/mcp"
    envs: {}
    headers: {}
api_key: hunter2
"""

FILES = {
    "claude_desktop_config.json": CLAUDE_DESKTOP,
    ".mcp.json": CLAUDE_CODE,
    ".claude.json": CLAUDE_CODE_USER,
    "cursor.json": CURSOR,
    "mcp.json": VS_CODE,
    "settings.json": VS_CODE_SETTINGS,
    "config.toml": CODEX,
    "opencode.jsonc": OPENCODE,
    "gemini.json": GEMINI,
    "qwen.json": QWEN,
    "mcp-config.json": COPILOT,
    "cline_mcp_settings.json": CLINE,
    "mcp_config.json": WINDSURF,
    "zed.json": ZED,
    "crush.json": CRUSH,
    "config.yaml": GOOSE,
    "windows.toml": "\ufeff" + CODEX.replace("\n", "\r\n"),
    "windows.yaml": "\ufeff" + GOOSE.replace("\n", "\r\n"),
    "windows.jsonc": "\ufeff" + OPENCODE.replace("\n", "\r\n"),
}
