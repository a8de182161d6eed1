"""Where the files of clients are, and whose a file is."""

from pathlib import Path

import pytest
from forebay.config.clients import CLIENTS, find_client_files, identify_client
from forebay.outputs import clients as known_clients

LINUX = {
    "Claude Desktop": [".config/Claude/claude_desktop_config.json"],
    "Claude Code": [".claude.json"],
    "Cursor": [".cursor/mcp.json"],
    "VS Code": [".config/Code/User/mcp.json", ".config/Code - Insiders/User/settings.json"],
    "Codex": [".codex/config.toml"],
    "opencode": [".config/opencode/opencode.json", ".config/opencode/opencode.jsonc"],
    "Gemini CLI": [".gemini/settings.json"],
    "Qwen Code": [".qwen/settings.json"],
    "Copilot CLI": [".copilot/mcp-config.json"],
    "Cline": [
        ".cline/data/settings/cline_mcp_settings.json",
        ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
    ],
    "Windsurf": [".codeium/windsurf/mcp_config.json"],
    "Zed": [".config/zed/settings.json"],
    "Crush": [".config/crush/crush.json"],
    "goose": [".config/goose/config.yaml"],
}
MACOS = {
    **LINUX,
    "Claude Desktop": ["Library/Application Support/Claude/claude_desktop_config.json"],
    "VS Code": ["Library/Application Support/Code/User/mcp.json"],
    "Cline": [
        "Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"
    ],
}
WINDOWS = {
    **LINUX,
    "Claude Desktop": ["AppData/Roaming/Claude/claude_desktop_config.json"],
    "VS Code": ["AppData/Roaming/Code/User/mcp.json"],
    "Cline": ["AppData/Roaming/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"],
    "Zed": ["AppData/Roaming/Zed/settings.json"],
    "goose": ["AppData/Roaming/Block/goose/config/config.yaml"],
}
PROJECT = {
    "Claude Code": [".mcp.json"],
    "Cursor": [".cursor/mcp.json"],
    "VS Code": [".vscode/mcp.json", ".vscode/settings.json"],
    "Codex": [".codex/config.toml"],
    "opencode": ["opencode.json", "opencode.jsonc", ".opencode/opencode.json"],
    "Gemini CLI": [".gemini/settings.json"],
    "Qwen Code": [".qwen/settings.json"],
    "Copilot CLI": [".github/mcp.json"],
    "Zed": [".zed/settings.json"],
    "Crush": ["crush.json", ".crush.json"],
}


def make(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")


def find(home: Path, folder: Path, platform: str, **environ: str) -> dict[str, list[str]]:
    """Return the paths of files with servers, relative to the home, by name of the client."""
    found: dict[str, list[str]] = {}
    for file in find_client_files({"HOME": str(home), "USERPROFILE": str(home), **environ}, folder, platform):
        if file.has_servers and file.client is not None:
            found.setdefault(file.client.name, []).append(file.path.relative_to(home).as_posix())
    return found


@pytest.mark.parametrize(("platform", "files"), [("linux", LINUX), ("darwin", MACOS), ("win32", WINDOWS)])
def test_files_of_the_user(platform: str, files: dict[str, list[str]], tmp_path: Path) -> None:
    make(tmp_path, *(name for names in files.values() for name in names))
    assert find(tmp_path, tmp_path / "none", platform) == files
    assert files.keys() == {client.name for client in CLIENTS}


def test_files_of_the_project(tmp_path: Path) -> None:
    project = tmp_path / "project"
    make(project, *(name for names in PROJECT.values() for name in names))
    found = find(tmp_path, project, "linux")
    assert found == {client: [f"project/{name}" for name in names] for client, names in PROJECT.items()}
    assert all(file.is_of_project for file in find_client_files({"HOME": str(tmp_path)}, project))


def test_variables_that_move_files(tmp_path: Path) -> None:
    make(tmp_path, "xdg/zed/settings.json", "codex/config.toml", "oc.json", "claude/.claude.json", "cline.json")
    make(tmp_path, "gemini/.gemini/settings.json", "qwen/settings.json", "copilot/mcp-config.json", "crush/crush.json")
    found = find(
        tmp_path,
        tmp_path / "none",
        "linux",
        XDG_CONFIG_HOME=str(tmp_path / "xdg"),
        CODEX_HOME=str(tmp_path / "codex"),
        OPENCODE_CONFIG=str(tmp_path / "oc.json"),
        CLAUDE_CONFIG_DIR=str(tmp_path / "claude"),
        CLINE_MCP_SETTINGS_PATH=str(tmp_path / "cline.json"),
        GEMINI_CLI_HOME=str(tmp_path / "gemini"),
        QWEN_HOME=str(tmp_path / "qwen"),
        COPILOT_HOME=str(tmp_path / "copilot"),
        CRUSH_GLOBAL_CONFIG=str(tmp_path / "crush"),
    )
    assert found == {
        "Zed": ["xdg/zed/settings.json"],
        "Codex": ["codex/config.toml"],
        "opencode": ["oc.json"],
        "Claude Code": ["claude/.claude.json"],
        "Cline": ["cline.json"],
        "Gemini CLI": ["gemini/.gemini/settings.json"],
        "Qwen Code": ["qwen/settings.json"],
        "Copilot CLI": ["copilot/mcp-config.json"],
        "Crush": ["crush/crush.json"],
    }


@pytest.mark.posix
def test_a_file_is_found_once(tmp_path: Path) -> None:
    """The home may be a project too, and a link may lead to the file of another client."""
    make(tmp_path, ".cursor/mcp.json", ".mcp.json")
    (tmp_path / ".copilot").mkdir()
    (tmp_path / ".copilot" / "mcp-config.json").symlink_to(tmp_path / ".mcp.json")
    files = find_client_files({"HOME": str(tmp_path)}, tmp_path)
    assert [(file.path.name, file.is_of_project) for file in files] == [(".mcp.json", True), ("mcp.json", False)]


def test_files_with_rules(tmp_path: Path) -> None:
    make(tmp_path, ".claude/settings.json", ".cursor/permissions.json", "p/.claude/settings.local.json")
    files = find_client_files({"HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}, tmp_path / "p")
    found = [(file.client.name, file.path.name) for file in files if file.client is not None and not file.has_servers]
    assert found == [
        ("Claude Code", "settings.json"),
        ("Claude Code", "settings.local.json"),
        ("Cursor", "permissions.json"),
    ]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/x/claude_desktop_config.json", "Claude Desktop"),
        (".mcp.json", "Claude Code"),
        ("/home/ann/.claude.json", "Claude Code"),
        (".cursor/mcp.json", "Cursor"),
        (".vscode/mcp.json", "VS Code"),
        ("/x/User/mcp.json", "VS Code"),
        ("/x/.codex/config.toml", "Codex"),
        ("opencode.jsonc", "opencode"),
        (".gemini/settings.json", "Gemini CLI"),
        (".qwen/settings.json", "Qwen Code"),
        ("mcp-config.json", "Copilot CLI"),
        ("cline_mcp_settings.json", "Cline"),
        ("mcp_config.json", "Windsurf"),
        ("/x/zed/settings.json", "Zed"),
        ("crush.json", "Crush"),
        ("/x/goose/config.yaml", "goose"),
        ("mcp.json", None),
        ("settings.json", None),
        ("config.toml", None),
        ("x/y.json", None),
    ],
)
def test_whose_a_file_is(path: str, name: str | None) -> None:
    client = identify_client(path)
    assert (client and client.name) == name


def test_tool_names_are_known_of_the_clients_that_were_run() -> None:
    titles = {client.title for client in known_clients.CLIENTS}
    assert {client.name for client in CLIENTS if client.knows_tool_names} == titles - {"VS Code"}
