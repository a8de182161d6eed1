"""`forebay adopt --all`: the files of all clients at once."""

import json
import os
import re
from pathlib import Path

import pytest
from client_files import (
    CLAUDE_CODE,
    CLAUDE_CODE_USER,
    CLAUDE_DESKTOP,
    CLINE,
    CODEX,
    COPILOT,
    CRUSH,
    CURSOR,
    FILES,
    GEMINI,
    GOOSE,
    OPENCODE,
    QWEN,
    VS_CODE,
    VS_CODE_SETTINGS,
    WINDSURF,
    ZED,
)
from client_home import ClientHome
from command import plain, run, run_on_terminal
from forebay.config.documents import parse_document

pytestmark = [pytest.mark.usefixtures("home"), pytest.mark.slow]

SETTINGS = """{
  // Rules of Claude Code.
  "env": { "SOME_TOKEN": "hunter2" },
  "permissions": {
    "allow": [
      "Bash(ls)",
      "mcp__github__get_issue"
    ],
    "deny": ["mcp__old"]
  }
}
"""

EVERYTHING = {
    ".config/Claude/claude_desktop_config.json": CLAUDE_DESKTOP,
    ".claude.json": CLAUDE_CODE_USER,
    "project/.mcp.json": CLAUDE_CODE,
    ".claude/settings.json": SETTINGS,
    ".cursor/mcp.json": CURSOR,
    "project/.cursor/mcp.json": CURSOR.replace("\n", "\r\n"),
    ".config/Code/User/mcp.json": VS_CODE,
    ".config/Code/User/settings.json": VS_CODE_SETTINGS,
    ".codex/config.toml": CODEX,
    "project/.codex/config.toml": FILES["windows.toml"],
    ".config/opencode/opencode.jsonc": OPENCODE,
    "project/opencode.json": FILES["windows.jsonc"],
    ".gemini/settings.json": GEMINI,
    ".qwen/settings.json": QWEN,
    ".copilot/mcp-config.json": COPILOT,
    ".cline/data/settings/cline_mcp_settings.json": CLINE,
    ".codeium/windsurf/mcp_config.json": WINDSURF,
    ".config/zed/settings.json": ZED,
    ".config/crush/crush.json": CRUSH,
    ".config/goose/config.yaml": GOOSE,
}


@pytest.fixture
def clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClientHome:
    return ClientHome(tmp_path, monkeypatch)


def list_allowed(path: Path) -> list[str]:
    allowed = parse_document(path.read_text(), str(path)).root.find_node("permissions", "allow")
    assert allowed is not None
    rules: list[str] = allowed.to_python()
    return rules


def test_all_files_are_changed_and_come_back_to_the_byte(clients: ClientHome) -> None:
    for name, text in EVERYTHING.items():
        clients.write(name, text)
    before = clients.read_all()
    assert len(before) == len(EVERYTHING)

    shown = run("adopt", "--all")
    assert (shown.code, clients.read_all()) == (0, before)
    assert shown.out.count(b"\n+++ ") == len(EVERYTHING)
    assert b"nothing is written yet; --yes changes 20 files" in shown.err
    assert b"hunter2" not in shown.out + shown.err

    written = run("adopt", "--all", "--yes")
    assert (written.code, written.out) == (0, shown.out)
    after = clients.read_all()
    assert after.keys() == before.keys()
    assert [name for name in after if after[name] == before[name]] == []
    parts = (".mcp.json", ".claude.json", ".codex", "opencode", ".gemini", ".qwen", ".copilot", ".cline")
    with_names = {name for name, content in after.items() if b"--server-name=" in content}
    assert with_names == {name for name in after if any(part in name for part in parts)}
    assert list_allowed(clients.user / ".qwen" / "settings.json") == [
        "mcp__db__query",
        "Bash(git status)",
        "mcp__db__output_fetch",
        "mcp__db__output_search",
        "mcp__db__output_query",
    ]

    again = run("adopt", "--all", "--yes")
    assert (again.code, again.out, clients.read_all()) == (0, b"", after)
    assert b"there is nothing to change" in again.err

    undone = run("adopt", "--all", "--undo", "--yes")
    assert (undone.code, clients.read_all()) == (0, before)
    assert b"hunter2" not in undone.out + undone.err
    assert b"there is nothing to change" in run("adopt", "--all", "--undo", "--yes").err


def test_a_broken_file_does_not_stop_the_others(clients: ClientHome) -> None:
    clients.write(".gemini/settings.json", '{"mcpServers": {"a": {"command": "x"}')
    clients.write(".qwen/settings.json", '{"mcpServers": {}, "mcpServers": {"a": {"command": "x"}}}')
    clients.write(".codex/config.toml", "a = 1\na = 2\n")
    clients.write(".config/goose/config.yaml", "extensions: {a: 1, a: 2}")
    clients.write(".config/crush/crush.json", b'{"mcp": {"\xe9": {}}}')
    clients.write(".copilot/mcp-config.json", '{"mcpServers": []}')
    good = clients.write(".cursor/mcp.json", CURSOR)
    result = run("adopt", "--all", "--yes")
    assert result.code == 1
    assert "forebay" in good.read_text()
    errors = [json.loads(line)["error"]["message"] for line in result.err.splitlines() if line.startswith(b"{")]
    assert [re.split(r"[/\\]", message.partition(" cannot be read as ")[0])[-1] for message in errors] == [
        "config.toml",
        "settings.json",
        "settings.json",
        "crush.json is not UTF-8; save it as such",
        "config.yaml",
    ]
    assert "no second mcpServers" in errors[2]
    assert run("adopt", "--all", "--undo", "--yes").code == 1
    assert good.read_text() == CURSOR


@pytest.mark.posix
def test_a_file_that_is_read_only_stays(clients: ClientHome) -> None:
    locked, other = clients.write(".cursor/mcp.json", CURSOR), clients.write(".codex/config.toml", CODEX)
    locked.chmod(0o444)
    result = run("adopt", "--all", "--yes")
    assert result.code == 1
    assert f"{locked} is read-only; run chmod u+w on it".encode() in result.err
    assert locked.read_text() == CURSOR
    assert [path.name for path in locked.parent.iterdir()] == ["mcp.json"]
    assert "forebay" in other.read_text()
    assert (run("adopt", str(locked), "--write").code, locked.read_text()) == (1, CURSOR)


@pytest.mark.posix
def test_a_link_stays_a_link(clients: ClientHome) -> None:
    file = clients.write("dotfiles/codex.toml", CODEX)
    link = clients.user / ".codex" / "config.toml"
    link.parent.mkdir()
    link.symlink_to(file)
    assert run("adopt", "--all", "--yes").code == 0
    assert link.is_symlink()
    assert "forebay" in file.read_text()
    assert (file.parent / "codex.toml.forebay-backup").read_text() == CODEX
    assert run("adopt", "--all", "--undo", "--yes").code == 0
    assert (link.is_symlink(), file.read_text()) == (True, CODEX)


@pytest.mark.posix
@pytest.mark.parametrize(("typed", "is_written"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_on_a_terminal_it_asks(typed: str, is_written: bool, clients: ClientHome) -> None:
    file = clients.write(".cursor/mcp.json", CURSOR)
    result = run_on_terminal("adopt", "--all", typed=typed)
    assert f"change {file}? [y/N]" in plain(result.out)
    assert (result.code, file.read_text() != CURSOR) == (0, is_written)


def test_halves_of_surrogate_pairs_are_no_obstacle(clients: ClientHome) -> None:
    text = r'{"mcpServers": {"\ud800": {"url": "http://u:hunter2@x/\ud800"}}}'
    rules = r'{"mcpAllowlist": ["\ud800:a"]}'
    files = clients.write(".cursor/mcp.json", text), clients.write(".cursor/permissions.json", rules)
    result = run("adopt", "--all", "--yes")
    assert (result.code, b"hunter2" in result.out) == (0, False)
    assert "wrap" in files[0].read_text()
    assert r"\ud800:output_search" in files[1].read_text()
    assert run("adopt", "--all", "--undo", "--yes").code == 0
    assert [file.read_text() for file in files] == [text, rules]


def test_without_files_there_is_nothing_to_change(clients: ClientHome) -> None:
    clients.write(".config/Code/User/settings.json", '{"editor.fontSize": 12}')
    result = run("adopt", "--all", "--yes")
    assert (result.code, result.out, result.err) == (0, b"", b"there is nothing to change\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--all", "x.json"], "name the PATH of a client's file, or give --all"),
        (["--all", "--server", "a"], "--server needs the PATH"),
        (["--all", "--undo", "--journal"], "leave them out"),
    ],
)
def test_what_does_not_go_together(words: list[str], expected: str, clients: ClientHome) -> None:
    clients.write(".cursor/mcp.json", CURSOR)
    result = run("adopt", *words)
    assert result.code == 2
    assert expected in result.error["message"]


def test_rules_of_claude_code_follow_its_servers(clients: ClientHome) -> None:
    clients.write("project/.mcp.json", CLAUDE_CODE)
    settings = clients.write(".claude/settings.json", SETTINGS)
    local = clients.write("project/.claude/settings.local.json", SETTINGS.replace("github", "elsewhere"))
    result = run("adopt", "--all", "--yes")
    assert list_allowed(settings)[-3:] == [
        "mcp__github__output_fetch",
        "mcp__github__output_search",
        "mcp__github__output_query",
    ]
    assert local.read_text() == SETTINGS.replace("github", "elsewhere")
    assert f"{settings}: old: permissions.deny denies mcp__old__output_fetch, mcp__old__output_search".encode() in (
        result.err
    )
    # What the user adds later stays.
    settings.write_text(settings.read_text().replace('"Bash(ls)"', '"Bash(ls)", "mcp__github__list"'))
    assert run("adopt", "--all", "--undo", "--yes").code == 0
    assert settings.read_text() == SETTINGS.replace('"Bash(ls)"', '"Bash(ls)", "mcp__github__list"')


def test_rules_are_removed_even_if_the_servers_went_before(clients: ClientHome) -> None:
    servers = clients.write("project/.mcp.json", CLAUDE_CODE)
    settings = clients.write(".claude/settings.json", SETTINGS)
    run("adopt", "--all", "--yes")
    result = run("adopt", str(servers), "--undo", "--write")
    assert servers.read_text() == CLAUDE_CODE
    assert (
        f"{settings} has rules on tools of its own; `forebay adopt --all --undo` changes mcp__".encode() in result.err
    )
    run("adopt", "--all", "--undo", "--yes")
    assert settings.read_text() == SETTINGS


def test_a_rule_of_unknown_origin_stays(clients: ClientHome) -> None:
    clients.write("project/.mcp.json", CLAUDE_CODE)
    settings = clients.write(".claude/settings.json", SETTINGS)
    run("adopt", "--all", "--yes")
    for backup in settings.parent.glob("*.forebay-backup*"):
        backup.unlink()
    result = run("adopt", "--all", "--undo", "--yes")
    assert b"has the rule mcp__github__output_fetch; there is no backup that shows who added it" in result.err
    assert "mcp__github__output_fetch" in list_allowed(settings)


def test_rules_that_cannot_be_read_are_an_error_of_their_own(clients: ClientHome) -> None:
    servers = clients.write("project/.mcp.json", CLAUDE_CODE)
    # The client of the other rules has no server here, so its file is not even read.
    clients.write(".config/opencode/opencode.json", "{")
    settings = clients.write(".claude/settings.json", '{"permissions": {"allow": [')
    result = run("adopt", "--all", "--yes")
    assert result.code != 0
    assert f"{json.dumps(str(settings))[1:-1]} cannot be read as JSON" in result.err.decode()
    # The servers are behind forebay all the same.
    assert "wrap" in servers.read_text()


def test_a_single_file_says_which_rules_it_leaves(clients: ClientHome) -> None:
    servers = clients.write("project/.mcp.json", CLAUDE_CODE)
    settings = clients.write(".claude/settings.json", SETTINGS)
    result = run("adopt", str(servers), "--write")
    assert (
        f"{settings} has rules on tools of its own; `forebay adopt --all` changes mcp__github__".encode() in result.err
    )
    assert settings.read_text() == SETTINGS


def test_a_file_of_a_project_may_be_shared(clients: ClientHome) -> None:
    file = clients.write("project/.mcp.json", CLAUDE_CODE)
    clients.write(".cursor/mcp.json", CURSOR)
    note = f"{file} is part of a project; if others use it as well, give --forebay forebay".encode()
    result = run("adopt", "--all")
    assert note in result.err
    assert result.err.count(b"is part of a project") == 1
    assert note not in run("adopt", "--all", "--forebay", "forebay").err


def test_tools_that_stay_hidden_are_named(clients: ClientHome) -> None:
    entry = {"command": "x", "excludeTools": ["output_fetch"]}
    file = clients.write(".gemini/settings.json", json.dumps({"mcpServers": {"s": entry}}))
    result = run("adopt", str(file))
    assert b"s: excludeTools has output_fetch; take that out, or handles cannot be read" in result.err
    clients.write(
        ".config/opencode/opencode.json",
        json.dumps({"mcp": {"s": {"type": "local", "command": ["x"]}}, "tools": {"*": False, "s_a": True}}),
    )
    assert b'add at the end of permission: "s_output_fetch": "allow"' in run("adopt", "--all").err


@pytest.mark.posix
def test_a_file_that_cannot_be_read_is_named(clients: ClientHome) -> None:
    if os.geteuid() == 0:
        # Root can read everything, but not a file that is a link to itself.
        path = clients.user / ".cursor" / "mcp.json"
        path.parent.mkdir()
        path.symlink_to(path)
        result = run("adopt", str(path))
    else:
        path = clients.write(".cursor/mcp.json", CURSOR)
        path.chmod(0)
        result = run("adopt", str(path))
    assert (result.code, result.error["code"]) == (2, "invalid_argument")
    assert "cannot be read" in result.error["message"]


def test_undo_leaves_servers_that_were_wrapped_by_hand(clients: ClientHome) -> None:
    text = """{
  "mcpServers": {
    "mine": {
      "command": "forebay",
      "args": ["wrap", "--redact", "sk-x", "--ttl", "1h", "--", "python", "mine.py"]
    },
    "listed": {
      "command": "forebay",
      "args": [
        "wrap",
        "--ttl=1h",
        "--",
        "python"
      ],
      "includeTools": ["query"]
    },
    "other": { "command": "python", "args": ["other.py"] }
  }
}
"""
    path = clients.write(".gemini/settings.json", text)
    adopted = run("adopt", str(path), "--write")
    assert adopted.code == 0
    assert b"mine is behind forebay already, and stays as it is" in adopted.err
    assert path.read_text().count("wrap") == 3
    assert "output_fetch" in path.read_text()

    undone = run("adopt", str(path), "--undo", "--write")
    assert undone.code == 0
    assert b"mine was behind forebay before" in undone.err
    assert path.read_text() == text

    assert run("adopt", str(path), "--undo", "--server", "mine", "--write").code == 0
    mine = json.loads(path.read_text())["mcpServers"]["mine"]
    assert mine == {"command": "python", "args": ["mine.py"]}
