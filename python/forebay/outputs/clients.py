"""Known MCP clients: how much of a tool result each of them shows to the model, and how it renames tools.

`docs/clients.md` describes how this was measured.
"""

import dataclasses
import fnmatch
import functools
import re

__all__ = ["CLIENTS", "UNKNOWN_CLIENT_BYTES", "Client", "find_client"]

UNKNOWN_CLIENT_BYTES = 16384
"""Maximum bytes of a page for a client that is not in `CLIENTS`. Most clients show a page of this size whole."""

_MAX_NAME_CHARS = 256
"""A longer name matches no client."""

_RESERVED_BYTES = 512
"""Bytes of a client's limit that are reserved for the text that the client adds to a result."""


@dataclasses.dataclass(frozen=True, slots=True)
class Client:
    """An MCP client."""

    title: str
    pattern: str
    """Pattern of the name that the client sends in `clientInfo`, in lower case."""
    limit: int
    """The size above which the client cuts a tool result or writes it to a file."""
    unit: str
    """The unit of `limit`. A text never has more characters than bytes, so `max_result_bytes` is right for both."""
    tool_name_template: str
    """Template of the name that the model sees for a tool. `server` is the server's name in the client's settings."""

    @property
    def max_result_bytes(self) -> int:
        """Maximum bytes of a result that reaches the model whole."""
        return self.limit - _RESERVED_BYTES

    def name_tool(self, tool: str, server: str | None) -> str:
        """Return the name that the model sees for a tool, or a description if the server's name is not known."""
        if server is None:
            return f"{tool} of this server"
        return self.tool_name_template.format(server=re.sub(r"[^A-Za-z0-9_-]", "_", server), tool=tool)


CLIENTS = (
    Client("Claude Code", "claude-code", 50_000, "characters", "mcp__{server}__{tool}"),
    # Codex shows 48,000 characters to models that it knows, and 12,000 to others. It does not say which model it uses.
    Client("Codex", "codex-mcp-client", 12_000, "characters", "mcp__{server}__{tool}"),
    Client("Gemini CLI", "gemini-cli-mcp-client*", 40_000, "characters", "mcp_{server}_{tool}"),
    Client("opencode", "opencode", 51_200, "bytes", "{server}_{tool}"),
    Client("Qwen Code", "qwen-cli-mcp-client*", 28_000, "characters", "mcp__{server}__{tool}"),
    Client("Copilot CLI", "copilot-cli", 20_480, "bytes", "{server}-{tool}"),
    Client("Cline", "*cline*", 8_000, "characters", "{server}__{tool}"),
    Client("VS Code", "visual studio code*", 8_192, "bytes", "mcp_{server}_{tool}"),
)


def find_client(name: object) -> Client | None:
    """Return the client that sends this name in `clientInfo`, or `None` if it is not known."""
    return None if not isinstance(name, str) or len(name) > _MAX_NAME_CHARS else _match_client(name)


# Cached, because since 2026-07-28 every request has the name.
@functools.lru_cache(64)
def _match_client(name: str) -> Client | None:
    return next((client for client in CLIENTS if fnmatch.fnmatchcase(name.lower(), client.pattern)), None)
