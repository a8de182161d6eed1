"""The MCP clients that `forebay adopt` and `forebay doctor` know, and where their configuration files are."""

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath

__all__ = ["CLIENTS", "Client", "ClientFile", "find_client_files", "identify_client"]


@dataclasses.dataclass(frozen=True, slots=True)
class Client:
    """An MCP client. `{…}` in a path is a folder of `_list_folders`."""

    name: str
    user_files: tuple[str, ...]
    """Files with servers for all projects of the user."""
    project_files: tuple[str, ...] = ()
    """Files with servers in the folder of a project."""
    rule_files: tuple[str, ...] = ()
    """Files that only have rules on tools: which may be used, and which need no approval."""
    start_seconds: float | None = None
    """How long the client waits for a server to start; `None` if this is not known."""
    start_option: tuple[str, float] | None = None
    """The key in a server's entry that changes `start_seconds`, and its unit in seconds."""
    knows_tool_names: bool = False
    """Whether `outputs.clients` knows what a model there calls a tool. VS Code cuts the name of the server."""


_EDITORS = ("Code", "Code - Insiders", "VSCodium")
_CLINE_FOLDER = "User/globalStorage/saoudrizwan.claude-dev/settings"

CLIENTS = (
    Client("Claude Desktop", ("{app_data}/Claude/claude_desktop_config.json",), start_seconds=60.0),
    Client(
        "Claude Code",
        ("{claude_json}/.claude.json",),
        (".mcp.json",),
        ("{claude}/settings.json", ".claude/settings.json", ".claude/settings.local.json"),
        start_seconds=30.0,
        knows_tool_names=True,
    ),
    Client(
        "Cursor",
        ("{home}/.cursor/mcp.json",),
        (".cursor/mcp.json",),
        (
            "{home}/.cursor/permissions.json",
            "{home}/.cursor/cli-config.json",
            ".cursor/permissions.json",
            ".cursor/cli.json",
        ),
    ),
    Client(
        "VS Code",
        tuple(f"{{app_data}}/{editor}/User/{file}" for editor in _EDITORS for file in ("mcp.json", "settings.json")),
        (".vscode/mcp.json", ".vscode/settings.json"),
    ),
    Client(
        "Codex",
        ("{codex}/config.toml",),
        (".codex/config.toml",),
        start_seconds=30.0,
        start_option=("startup_timeout_sec", 1.0),
        knows_tool_names=True,
    ),
    Client(
        "opencode",
        (
            *(f"{{xdg}}/opencode/{file}" for file in ("opencode.json", "opencode.jsonc", "config.json")),
            "{opencode_config}",
        ),
        ("opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc"),
        start_seconds=30.0,
        start_option=("timeout", 0.001),
        knows_tool_names=True,
    ),
    Client(
        "Gemini CLI",
        ("{gemini}/.gemini/settings.json",),
        (".gemini/settings.json",),
        start_seconds=600.0,
        start_option=("timeout", 0.001),
        knows_tool_names=True,
    ),
    Client(
        "Qwen Code",
        ("{qwen}/settings.json",),
        (".qwen/settings.json",),
        start_seconds=30.0,
        start_option=("discoveryTimeoutMs", 0.001),
        knows_tool_names=True,
    ),
    Client("Copilot CLI", ("{copilot}/mcp-config.json",), (".github/mcp.json",), knows_tool_names=True),
    Client(
        "Cline",
        (
            "{cline}/settings/cline_mcp_settings.json",
            "{cline_settings}",
            *(f"{{app_data}}/{editor}/{_CLINE_FOLDER}/cline_mcp_settings.json" for editor in (*_EDITORS, "Cursor")),
        ),
        start_seconds=3.0,
        start_option=("timeout", 1.0),
        knows_tool_names=True,
    ),
    Client("Windsurf", ("{home}/.codeium/windsurf/mcp_config.json",)),
    Client(
        "Zed",
        ("{zed}/settings.json",),
        (".zed/settings.json",),
        start_seconds=60.0,
        start_option=("timeout", 1.0),
    ),
    Client(
        "Crush",
        ("{crush}/crush.json",),
        ("crush.json", ".crush.json"),
        start_seconds=10.0,
        start_option=("timeout", 1.0),
    ),
    Client("goose", ("{goose}/config.yaml",), start_seconds=300.0, start_option=("timeout", 1.0)),
)
"""All clients. If two have the same file, it is listed with the first one."""

_COMMON_NAMES = ("mcp.json", "settings.json", "config.toml", "config.yaml", "config.json")
"""Names of files that several clients use, and that say nothing without their folder."""


@dataclasses.dataclass(frozen=True, slots=True)
class ClientFile:
    """A file of a client."""

    path: Path
    client: Client | None
    """The client, if it is known."""
    has_servers: bool = True
    """Whether servers are configured in it; otherwise it only has rules on tools."""
    is_of_project: bool = False
    """Whether it is in the folder of a project, so that whoever wrote the project may have written it."""


def find_client_files(environ: Mapping[str, str], folder: Path, platform: str = sys.platform) -> list[ClientFile]:
    """Return the files of all clients that exist: those of the user, and those of the project in a folder."""
    found: dict[Path, ClientFile] = {}
    for file in _iter_client_files(environ, folder, platform):
        if file.path.is_file():
            # The folder may be the user's home, and several paths may lead to the same file.
            found.setdefault(file.path.resolve(), file)
    return [*found.values()]


def identify_client(path: str) -> Client | None:
    """Return the client that a file belongs to, judging by the end of its path."""
    *_, folder, name = ("", *PurePath(path).parts)
    for client in CLIENTS:
        for known in (*client.user_files, *client.project_files):
            *_, known_folder, known_name = ("", *PurePath(known).parts)
            is_same_folder = folder.strip(".").lower() == known_folder.strip("{}.").lower()
            if name == known_name and (is_same_folder or name not in _COMMON_NAMES):
                return client
    return None


def _iter_client_files(environ: Mapping[str, str], folder: Path, platform: str) -> Iterator[ClientFile]:
    folders = _list_folders(environ, platform)
    for client in CLIENTS:
        for path in client.user_files:
            yield ClientFile(Path(path.format_map(folders)), client)
        for path in client.project_files:
            yield ClientFile(folder / path, client, is_of_project=True)
        for path in client.rule_files:
            yield ClientFile(folder / path.format_map(folders), client, has_servers=False)


def _list_folders(environ: Mapping[str, str], platform: str) -> dict[str, str]:
    """Return the folders in which clients keep their files."""
    home = environ.get("USERPROFILE" if platform == "win32" else "HOME") or str(Path.home())
    xdg = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    roaming = environ.get("APPDATA") or f"{home}/AppData/Roaming"
    is_windows = platform == "win32"
    app_data = {"win32": roaming, "darwin": f"{home}/Library/Application Support"}.get(platform, xdg)
    return {
        "home": home,
        "xdg": xdg,
        "app_data": app_data,
        "claude_json": environ.get("CLAUDE_CONFIG_DIR") or home,
        "claude": environ.get("CLAUDE_CONFIG_DIR") or f"{home}/.claude",
        "codex": environ.get("CODEX_HOME") or f"{home}/.codex",
        "gemini": environ.get("GEMINI_CLI_HOME") or home,
        "qwen": environ.get("QWEN_HOME") or f"{home}/.qwen",
        "copilot": environ.get("COPILOT_HOME") or f"{home}/.copilot",
        "cline": environ.get("CLINE_DATA_DIR") or f"{home}/.cline/data",
        "cline_settings": environ.get("CLINE_MCP_SETTINGS_PATH") or "",
        "opencode_config": environ.get("OPENCODE_CONFIG") or "",
        "zed": f"{roaming}/Zed" if is_windows else f"{home}/.config/zed" if platform == "darwin" else f"{xdg}/zed",
        "crush": environ.get("CRUSH_GLOBAL_CONFIG") or f"{xdg}/crush",
        "goose": f"{roaming}/Block/goose/config" if is_windows else f"{xdg}/goose",
    }
