"""The servers of a client's file, as upstreams."""

from pathlib import Path
from typing import Any

import pytest
from client_files import (
    CLAUDE_CODE,
    CLAUDE_CODE_USER,
    CLINE,
    CODEX,
    CURSOR,
    FILES,
    GEMINI,
    GOOSE,
    OPENCODE,
    VS_CODE,
    WINDSURF,
)
from forebay import InvalidArgument
from forebay.config.client_servers import load_client_upstreams
from forebay.config.load import load_settings
from forebay.config.upstreams import UpstreamConfig

ENVIRON = {"HOME": "/home/ann", "GITHUB_TOKEN": "token", "TOKEN": "token", "FIGMA_TOKEN": "token"}


def targets(
    tmp_path: Path, text: str, environ: dict[str, str] | None = None, name: str = "clients.json"
) -> dict[str, UpstreamConfig]:
    path = tmp_path / name
    path.write_bytes(text.encode())
    return load_client_upstreams(str(path), ENVIRON if environ is None else environ)


def refused(tmp_path: Path, text: str) -> str:
    with pytest.raises(InvalidArgument) as caught:
        targets(tmp_path, text)
    return str(caught.value)


def test_commands_and_addresses(tmp_path: Path) -> None:
    found = targets(tmp_path, CLAUDE_CODE)
    assert {name: target.upstream_type for name, target in found.items()} == {
        "github": "url",
        "db": "command",
        "old": "url",
    }
    assert found["github"].headers == {"Authorization": "Bearer token"}
    assert (found["db"].command, found["db"].args) == ("/home/ann/bin/db", ("--dsn", "sqlite://"))
    assert targets(tmp_path, CLAUDE_CODE, ENVIRON | {"DSN": "pg"})["db"].args == ("--dsn", "pg")
    assert targets(tmp_path, CURSOR)["local"].env == {"A": "/home/ann"}


@pytest.mark.parametrize("name", [name for name, text in FILES.items() if text != VS_CODE])
def test_every_client_is_understood(name: str, tmp_path: Path) -> None:
    assert targets(tmp_path, FILES[name], name=name)


def test_keys_of_other_clients(tmp_path: Path) -> None:
    codex = targets(tmp_path, CODEX, name="config.toml")
    assert codex["figma"].headers == {"Authorization": "Bearer token", "X-Region": "us-east-1", "X-Key": "hunter2"}
    assert (codex["inline"].command, codex["inline"].args) == ("docker", ("run", "-i"))
    assert codex["files"].env == {"API_KEY": "hunter2"}
    opencode = targets(tmp_path, OPENCODE, name="opencode.jsonc")
    assert (opencode["files"].command, opencode["files"].args) == ("bun", ("x", "my-mcp"))
    assert opencode["files"].env == {"API_KEY": "hunter2"}
    assert opencode["jira"].url == "https://jira.example.com/mcp"
    assert "elsewhere" not in opencode
    goose = targets(tmp_path, GOOSE, name="config.yaml")
    assert (goose["github"].command, goose["github"].args[0]) == ("npx", "-y")
    assert goose["remote"].url == "https://example.com/mcp?a=b#c"
    assert "developer" not in goose
    assert targets(tmp_path, GEMINI)["stream"].url == "https://example.com/mcp"
    assert targets(tmp_path, WINDSURF)["remote"].headers == {"Authorization": "Bearer token"}
    cline = targets(tmp_path, CLINE)
    assert cline["nested-remote"].url == "https://example.com/sse"
    assert "nested" not in cline
    text = '{"mcp": {"a": {"type": "local", "command": ["x", "{env:HOME}"]}}}'
    assert targets(tmp_path, text)["a"].args == ("/home/ann",)
    text = "[mcp_servers.a]\nurl = 'http://x'\nenv_http_headers = { X-Key = 'TOKEN' }"
    assert targets(tmp_path, text, name="config.toml")["a"].headers == {"X-Key": "token"}
    # Codex does not expand variables.
    text = "[mcp_servers.a]\ncommand = 'x'\nargs = ['${NOT_SET}']"
    assert targets(tmp_path, text, name="config.toml")["a"].args == ("${NOT_SET}",)
    # A server may be called like a key.
    assert targets(tmp_path, '{"mcp": {"servers": {"command": "x", "type": "stdio"}}}')["servers"].command == "x"


def test_what_only_the_client_knows(tmp_path: Path) -> None:
    assert "has ${input:key}, which only its client knows" in refused(tmp_path, VS_CODE)
    assert "needs the variable NOT_SET" in refused(tmp_path, '{"servers": {"a": {"command": "${NOT_SET}"}}}')
    assert "envFile" in refused(tmp_path, '{"servers": {"a": {"command": "x", "envFile": ".env"}}}')


@pytest.mark.parametrize("lines", ["http_headers = ['x']", "env_http_headers = ['A']", "http_headers = 1"])
def test_headers_that_are_none(lines: str, tmp_path: Path) -> None:
    text = f"[mcp_servers.a]\nurl = 'http://x'\nbearer_token_env_var = 'TOKEN'\n{lines}"
    if lines.startswith("env"):
        assert targets(tmp_path, text, name="f.toml")["a"].headers == {"Authorization": "Bearer token"}
    else:
        with pytest.raises(InvalidArgument, match="headers of the upstream a"):
            targets(tmp_path, text, name="f.toml")


@pytest.mark.parametrize("server", ["3", "{}", '{"command": 3}', '{"command": "x", "args": "y"}', '{"url": "x"}'])
def test_what_is_no_server(server: str, tmp_path: Path) -> None:
    assert "the server a" in refused(tmp_path, f'{{"mcpServers": {{"a": {server}}}}}')


def test_what_is_disabled_is_not_served(tmp_path: Path) -> None:
    text = '{"mcpServers": {"a": {"command": "x", "disabled": true}, "b": {"command": "y", "disabled": false}}}'
    assert targets(tmp_path, text).keys() == {"b"}
    text = "[mcp_servers.a]\ncommand = 'x'\nenabled = false\n[mcp_servers.b]\ncommand = 'y'"
    assert targets(tmp_path, text, name="config.toml").keys() == {"b"}


def test_servers_of_one_project_are_not_for_everyone(tmp_path: Path) -> None:
    assert targets(tmp_path, CLAUDE_CODE_USER)["db"].command == "everywhere"
    text = '{"mcpServers": {}, "projects": {"/p": {"mcpServers": {"db": {"command": "x"}}}}}'
    assert "has servers of single projects only, such as db of /p" in refused(tmp_path, text)


def test_names_that_tools_cannot_have(tmp_path: Path) -> None:
    assert targets(tmp_path, '{"mcpServers": {"My Server!": {"command": "x"}}}').keys() == {"My-Server-"}
    text = '{"mcpServers": {"a b": {"command": "x"}, "a/b": {"command": "x"}}}'
    assert "two servers are called a-b" in refused(tmp_path, text)


def test_they_are_served_beside_those_of_the_configuration(tmp_path: Path) -> None:
    clients, own = tmp_path / "clients.json", tmp_path / "forebay.toml"
    clients.write_text(CURSOR)
    own.write_text('mcp_servers = "clients.json"\n[upstreams.mine]\npython = "m"\n')
    settings = load_settings("serve", {"config": str(own)}, ENVIRON)
    assert settings.upstreams.keys() == {"mine", "remote", "with-env", "local"}
    only: dict[str, Any] = {"mcp_servers": str(clients)}
    assert load_settings("serve", only, ENVIRON).upstreams.keys() == {"remote", "with-env", "local"}
    own.write_text('mcp_servers = "clients.json"\n[upstreams.local]\npython = "m"\n')
    with pytest.raises(InvalidArgument, match="both have an upstream local"):
        load_settings("serve", {"config": str(own)}, ENVIRON)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot be read: No such file"):
        load_client_upstreams(str(tmp_path / "none"), {})
    (tmp_path / "latin").write_bytes(b'{"mcpServers": {"\xe9": {}}}')
    with pytest.raises(InvalidArgument, match="is not UTF-8"):
        load_client_upstreams(str(tmp_path / "latin"), {})
