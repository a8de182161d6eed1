"""The files in which MCP clients keep their servers: Claude Desktop, Claude Code, Cursor, VS Code."""

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
"""How the variables begin that stand for the headers of an adopted server."""

_SERVER_PATHS = (("mcpServers",), ("servers",), ("mcp", "servers"))
"""The clients' own, VS Code's mcp.json, and VS Code's settings.json."""

_PROJECTS_KEY = "projects"
"""Where Claude Code keeps servers that are for one project each, beside those for all."""

_VARIABLE = re.compile(r"\$\{(?P<scope>[A-Za-z]+:)?(?P<name>[^}:]*)(?::-(?P<default>[^}]*))?\}")
_KEYS_BY_KIND = {"command": ("command", "args", "env", "cwd"), "url": ("url", "headers")}


def read_client_file(path: str) -> str:
    """What is in a file, to the letter."""
    try:
        return Path(path).read_bytes().decode()
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}; name a client's file") from None
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} is not UTF-8; save it as such") from None


@dataclasses.dataclass(frozen=True, slots=True)
class ServerEntry:
    """A server of a client's file, and what stands there of it."""

    name: str
    node: Node
    project: str | None = None
    """The folder of the project that it is for; without one it is for all."""

    def __str__(self) -> str:
        return self.name if self.project is None else f"{self.name} of {self.project}"


def find_servers(text: str, path: str) -> list[ServerEntry]:
    """The servers of a client's file. Raises `InvalidArgument` if there is no place for any."""
    try:
        root = parse_jsonc(text)
    except InvalidArgument as error:
        raise InvalidArgument(f"{path} is no JSON: {error}", error.index) from None
    places = [found for place in _SERVER_PATHS if (found := _find_object(root, *place)) is not None]
    projects = _find_object(root, _PROJECTS_KEY) or {}
    in_projects = {project: _find_object(node, *_SERVER_PATHS[0]) for project, node in projects.items()}
    if not places and not any(in_projects.values()):
        wanted = ", ".join(".".join(place) for place in _SERVER_PATHS)
        raise InvalidArgument(f"{path} has no servers; there should be one of {wanted}")
    return [
        *(ServerEntry(name, node) for name, node in (places[0] if places else {}).items()),
        *(ServerEntry(name, node, project) for project, of in in_projects.items() for name, node in (of or {}).items()),
    ]


def _find_object(node: Node, *names: str) -> dict[str, Node] | None:
    """What the object at a place has, if there is one."""
    for name in names:
        member = node.member(name)
        if member is None:
            return None
        node = member.node
    return {name: member.node for name, member in node.value.items()} if isinstance(node.value, dict) else None


def load_client_upstreams(path: str, environ: Mapping[str, str]) -> dict[str, UpstreamConfig]:
    """The servers of a client's file as upstreams, but for those that are disabled, or for one project only."""
    found: dict[str, UpstreamConfig] = {}
    servers = find_servers(read_client_file(path), path)
    if servers and all(one.project for one in servers):
        raise InvalidArgument(
            f"{path} has servers of single projects only, such as {servers[0]}, which are not for everyone; "
            "write those that are to be served as [upstreams.NAME] of a --config"
        )
    for one in servers:
        if one.project is not None:
            continue
        server = one.node.to_python()
        if not isinstance(server, dict):
            raise InvalidArgument(f"{path}: the server {one} is no object")
        if server.get("disabled") is True:
            continue
        target = _make_upstream(one.name, server, environ, path)
        if target.name in found:
            raise InvalidArgument(f"{path}: two servers are called {target.name}; rename one of them")
        found[target.name] = target
    return found


def _make_upstream(name: str, server: dict[str, Any], environ: Mapping[str, str], path: str) -> UpstreamConfig:
    where = f"{path}: the server {name}"
    if "envFile" in server:
        raise InvalidArgument(f"{where} has an envFile, which only its client reads; give it env instead")
    kind = "command" if "command" in server else "url"
    table = {
        key: _expand_variables(server[key], environ, where)
        for key in _KEYS_BY_KIND[kind]
        if server.get(key) is not None
    }
    # Clients take any text for a name, tools do not.
    return parse_upstream(re.sub(r"[^A-Za-z0-9_.-]+", "-", name), table, lambda *_: where)


def _expand_variables(value: Any, environ: Mapping[str, str], where: str) -> Any:
    """Variables as the clients write them: `${VAR}`, `${VAR:-default}`, `${env:VAR}`."""

    def variable(found: re.Match[str]) -> str:
        if found["scope"] not in (None, "env:"):
            raise InvalidArgument(f"{where} has {found[0]}, which only its client knows; write the value, or ${{VAR}}")
        text = environ.get(found["name"], found["default"])
        if text is None:
            raise InvalidArgument(f"{where} needs the variable {found['name']}, which is not set; set it")
        return text

    if isinstance(value, str):
        return _VARIABLE.sub(variable, value)
    if isinstance(value, dict):
        return {key: _expand_variables(inner, environ, where) for key, inner in value.items()}
    return [_expand_variables(inner, environ, where) for inner in value] if isinstance(value, list) else value


def mask_client_file(text: str, path: str) -> str:
    """A client's file as it may be shown: without what its servers are given to be let in."""
    edits: list[Edit] = []
    for server in (one.node for one in find_servers(text, path)):
        for name in ("env", "headers"):
            member = server.member(name)
            if member is not None and isinstance(member.node.value, dict):
                edits += [_mask_node(inner.node) for inner in member.node.value.values()]
        url = server.member("url")
        if url is not None and isinstance(url.node.value, str) and mask_url(url.node.value) != url.node.value:
            edits.append(_replace_node(url.node, mask_url(url.node.value)))
        args = server.member("args")
        if args is not None and isinstance(args.node.value, list):
            words = [node for node in args.node.value if isinstance(node.value, str)]
            shown = mask_args([str(word.value) for word in words])
            edits += [_replace_node(word, told) for word, told in zip(words, shown, strict=True) if told != word.value]
    return apply_edits(text, [edit for edit in edits if edit[2] != text[edit[0] : edit[1]]])


def _mask_node(node: Node) -> Edit:
    return _replace_node(node, mask_secret(node.value) if isinstance(node.value, str) else MASK)


def _replace_node(node: Node, shown: str) -> Edit:
    return node.start, node.end, json.dumps(shown, ensure_ascii=False)
