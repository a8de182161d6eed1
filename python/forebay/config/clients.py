"""Configuration files of MCP clients: Claude Desktop, Claude Code, Cursor, VS Code."""

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forebay.config.jsonc import Edit, Node, apply_edits, parse_jsonc
from forebay.config.masking import MASK, mask_args, mask_secret, mask_url
from forebay.config.options import OPTIONS
from forebay.config.upstreams import UpstreamConfig, parse_upstream
from forebay.errors import InvalidArgument

__all__ = [
    "HEADER_VARIABLE_PREFIX",
    "ServerEntry",
    "find_servers",
    "load_client_upstreams",
    "mask_client_file",
    "read_client_file",
]

HEADER_VARIABLE_PREFIX = OPTIONS["headers"].variable
"""Prefix of the variables that hold the headers of an adopted server."""

_SERVER_PATHS = (("mcpServers",), ("servers",), ("mcp", "servers"))
"""Paths to the servers in a file: of most clients, of VS Code's mcp.json, and of VS Code's settings.json."""

_PROJECTS_KEY = "projects"
"""Key of the projects in Claude Code's file. Each project has servers of its own."""

_VARIABLE_PATTERN = re.compile(r"\$\{(?P<scope>[A-Za-z]+:)?(?P<name>[^}:]*)(?::-(?P<default>[^}]*))?\}")
_KEYS_BY_TYPE = {"command": ("command", "args", "env", "cwd"), "url": ("url", "headers")}


def read_client_file(path: str) -> str:
    """Read a file without changing its line ends. Raises `InvalidArgument` if it cannot be read."""
    try:
        return Path(path).read_bytes().decode()
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}; name a client's file") from None
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} is not UTF-8; save it as such") from None


@dataclasses.dataclass(frozen=True, slots=True)
class ServerEntry:
    """A server in a client's file."""

    name: str
    node: Node
    project: str | None = None
    """The folder of the project that has the server; `None` for a server of all projects."""

    def __str__(self) -> str:
        return self.name if self.project is None else f"{self.name} of {self.project}"


def find_servers(text: str, path: str) -> list[ServerEntry]:
    """Return the servers of a client's file. Raises `InvalidArgument` if it has none of the known keys."""
    try:
        root = parse_jsonc(text)
    except InvalidArgument as error:
        raise InvalidArgument(f"{path} is no JSON: {error}", error.index) from None
    server_lists = [servers for keys in _SERVER_PATHS if (servers := _find_object(root, *keys)) is not None]
    projects = _find_object(root, _PROJECTS_KEY) or {}
    by_project = {project: _find_object(node, *_SERVER_PATHS[0]) or {} for project, node in projects.items()}
    if not server_lists and not any(by_project.values()):
        known = ", ".join(".".join(keys) for keys in _SERVER_PATHS)
        raise InvalidArgument(f"{path} has no servers; there should be one of {known}")
    return [
        *(ServerEntry(name, node) for name, node in (server_lists[0] if server_lists else {}).items()),
        *(ServerEntry(name, node, project) for project, nodes in by_project.items() for name, node in nodes.items()),
    ]


def _find_object(node: Node, *keys: str) -> dict[str, Node] | None:
    """Return the members of the object at the path `keys`, or `None` if there is no object."""
    for key in keys:
        member = node.get_member(key)
        if member is None:
            return None
        node = member.node
    return {name: member.node for name, member in node.value.items()} if isinstance(node.value, dict) else None


def load_client_upstreams(path: str, environ: Mapping[str, str]) -> dict[str, UpstreamConfig]:
    """Return the servers of a client's file as upstreams, except disabled servers and servers of single projects.

    Raises `InvalidArgument`.
    """
    upstreams: dict[str, UpstreamConfig] = {}
    entries = find_servers(read_client_file(path), path)
    if entries and all(entry.project for entry in entries):
        raise InvalidArgument(
            f"{path} has servers of single projects only, such as {entries[0]}, which are not for everyone; "
            "write those that are to be served as [upstreams.NAME] of a --config"
        )
    for entry in entries:
        if entry.project is not None:
            continue
        server = entry.node.to_python()
        if not isinstance(server, dict):
            raise InvalidArgument(f"{path}: the server {entry} is no object")
        if server.get("disabled") is True:
            continue
        upstream = _make_upstream(entry.name, server, environ, path)
        if upstream.name in upstreams:
            raise InvalidArgument(f"{path}: two servers are called {upstream.name}; rename one of them")
        upstreams[upstream.name] = upstream
    return upstreams


def _make_upstream(name: str, server: dict[str, Any], environ: Mapping[str, str], path: str) -> UpstreamConfig:
    location = f"{path}: the server {name}"
    if "envFile" in server:
        raise InvalidArgument(f"{location} has an envFile, which only its client reads; give it env instead")
    upstream_type = "command" if "command" in server else "url"
    table = {
        key: _expand_variables(server[key], environ, location)
        for key in _KEYS_BY_TYPE[upstream_type]
        if server.get(key) is not None
    }
    # Replace characters that tool names cannot have, because the server's name may become a prefix of tool names.
    return parse_upstream(re.sub(r"[^A-Za-z0-9_.-]+", "-", name), table, lambda *_: location)


def _expand_variables(value: Any, environ: Mapping[str, str], location: str) -> Any:
    """Expand variables in the syntax of clients: `${VAR}`, `${VAR:-default}`, `${env:VAR}`."""

    def expand(match: re.Match[str]) -> str:
        if match["scope"] not in (None, "env:"):
            raise InvalidArgument(
                f"{location} has {match[0]}, which only its client knows; write the value, or ${{VAR}}"
            )
        text = environ.get(match["name"], match["default"])
        if text is None:
            raise InvalidArgument(f"{location} needs the variable {match['name']}, which is not set; set it")
        return text

    if isinstance(value, str):
        return _VARIABLE_PATTERN.sub(expand, value)
    if isinstance(value, dict):
        return {key: _expand_variables(inner, environ, location) for key, inner in value.items()}
    return [_expand_variables(inner, environ, location) for inner in value] if isinstance(value, list) else value


def mask_client_file(text: str, path: str) -> str:
    """Mask the secrets in a client's file: variables, headers, and parts of URLs and args that look like secrets."""
    edits: list[Edit] = []
    for server in (entry.node for entry in find_servers(text, path)):
        for name in ("env", "headers"):
            member = server.get_member(name)
            if member is not None and isinstance(member.node.value, dict):
                edits += [_mask_node(inner.node) for inner in member.node.value.values()]
        url = server.get_member("url")
        if url is not None and isinstance(url.node.value, str) and mask_url(url.node.value) != url.node.value:
            edits.append(_replace_node(url.node, mask_url(url.node.value)))
        args = server.get_member("args")
        if args is not None and isinstance(args.node.value, list):
            nodes = [node for node in args.node.value if isinstance(node.value, str)]
            masked = mask_args([str(node.value) for node in nodes])
            edits += [_replace_node(node, word) for node, word in zip(nodes, masked, strict=True) if word != node.value]
    return apply_edits(text, [edit for edit in edits if edit[2] != text[edit[0] : edit[1]]])


def _mask_node(node: Node) -> Edit:
    return _replace_node(node, mask_secret(node.value) if isinstance(node.value, str) else MASK)


def _replace_node(node: Node, text: str) -> Edit:
    return node.start, node.end, json.dumps(text, ensure_ascii=False)
