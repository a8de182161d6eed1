"""The MCP servers in the configuration files of clients."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from forebay.config.documents import Document, parse_document
from forebay.config.masking import MASK, is_secret_name, mask_args, mask_secret
from forebay.config.nodes import Member, Node, apply_edits
from forebay.config.options import OPTIONS
from forebay.config.upstreams import UpstreamConfig, parse_upstream
from forebay.errors import InvalidArgument

__all__ = [
    "HEADER_VARIABLE_PREFIX",
    "Dialect",
    "NoServers",
    "ServerEntry",
    "find_servers",
    "load_client_upstreams",
    "make_upstream",
    "mask_client_file",
    "read_client_file",
]

HEADER_VARIABLE_PREFIX = OPTIONS["headers"].variable
"""Prefix of the variables that hold the headers of an adopted server."""

_PROJECTS_KEY = "projects"
"""Key of the projects in Claude Code's file. Each project has servers of its own."""

_VARIABLE_PATTERN = re.compile(
    r"\$\{(?P<scope>[A-Za-z]+:)?(?P<name>[^}:]*)(?::-(?P<default>[^}]*))?\}|\{env:(?P<opencode_name>[^}]*)\}"
)
_KEYS_BY_TYPE = {"command": ("command", "args", "env", "cwd"), "url": ("url", "headers")}


@dataclasses.dataclass(frozen=True, slots=True)
class Dialect:
    """The keys that a client uses in the entry of a server."""

    command: str = "command"
    args: str | None = "args"
    """`None` if the command and its arguments are one list."""
    env: str = "env"
    urls: tuple[str, ...] = ("url", "httpUrl", "serverUrl")
    headers: str = "headers"
    local_type: str = "stdio"
    """Value of `type` for a server that the client starts with a command."""
    bearer_variable: str | None = None
    """Key whose value is the name of the variable that holds a bearer token."""
    header_variables: str | None = None
    """Key whose value maps each header to the name of the variable that holds it."""
    expands_variables: bool = True
    """Whether the client expands `${VAR}` in commands, URLs and environment variables."""


_STANDARD = Dialect()
_CODEX = Dialect(
    urls=("url",),
    headers="http_headers",
    bearer_variable="bearer_token_env_var",
    header_variables="env_http_headers",
    expands_variables=False,
)
_OPENCODE = Dialect(args=None, env="environment", urls=("url",), local_type="local")
_GOOSE = Dialect(command="cmd", env="envs", urls=("uri",), expands_variables=False)

_SERVER_PATHS: tuple[tuple[str, ...], ...] = (
    ("mcpServers",),
    ("servers",),
    ("mcp", "servers"),
    ("mcp_servers",),
    ("context_servers",),
    ("extensions",),
    ("mcp",),
)
"""Paths to the servers in a file: of most clients; of VS Code, in mcp.json and in settings.json; of Codex; of Zed; of
goose; of opencode and Crush."""

_SHARED_PATHS = (("mcp", "servers"), ("extensions",), ("mcp",))
"""Paths that may also hold other settings. There, only objects with a command or a URL are servers."""

_DIALECTS = {("mcp_servers",): _CODEX, ("extensions",): _GOOSE}

_SECRET_OBJECT_KEYS = ("env", "environment", "envs", "headers", "http_headers")


class NoServers(InvalidArgument):
    """A file of a client has no servers."""


def read_client_file(path: str) -> str:
    """Read a file without changing its line endings. Raises `InvalidArgument` if it cannot be read."""
    try:
        return Path(path).read_bytes().decode()
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}; give the path of a client's file") from None
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} is not UTF-8; save it as such") from None


@dataclasses.dataclass(frozen=True, slots=True)
class ServerEntry:
    """A server in a client's file."""

    name: str
    entry: Node
    dialect: Dialect = _STANDARD
    project: str | None = None
    """The folder of the project that the server belongs to; `None` if it belongs to all projects."""

    def __str__(self) -> str:
        return self.name if self.project is None else f"{self.name} of {self.project}"

    @property
    def node(self) -> Node:
        """The object with the command or URL: `transport` in some entries of Cline, otherwise the entry itself."""
        transport = self.entry.find_node("transport")
        return transport if transport is not None and isinstance(transport.value, dict) else self.entry

    @property
    def command(self) -> Member | None:
        return self.node.get_member(self.dialect.command)

    @property
    def args(self) -> Member | None:
        return None if self.dialect.args is None else self.node.get_member(self.dialect.args)

    @property
    def env(self) -> Member | None:
        return self.node.get_member(self.dialect.env)

    @property
    def headers(self) -> Member | None:
        return self.node.get_member(self.dialect.headers)

    @property
    def urls(self) -> dict[str, Member]:
        """The URLs by key. More than one is a mistake."""
        return {key: member for key in self.dialect.urls if (member := self.node.get_member(key)) is not None}

    @property
    def is_disabled(self) -> bool:
        values = self.entry.to_python()
        return isinstance(values, dict) and (values.get("disabled") is True or values.get("enabled") is False)

    def to_launch_config(self) -> dict[str, Any]:
        """Return the entry with the keys that most clients use for the command or URL."""
        dialect, values = self.dialect, self.node.to_python()
        names = dict.fromkeys(dialect.urls, "url") | {
            dialect.command: "command",
            dialect.env: "env",
            dialect.headers: "headers",
        }
        launch_config = {names.get(key, key): value for key, value in values.items()}
        if dialect.args is None and isinstance(launch_config.get("command"), list):
            launch_config["command"], *launch_config["args"] = launch_config["command"] or [None]
        variables, literal_headers = values.get(dialect.header_variables), launch_config.get("headers", {})
        headers = {}
        if isinstance(variables, dict):
            headers = {name: f"${{{variable}}}" for name, variable in variables.items()}
        if dialect.bearer_variable in values:
            headers["Authorization"] = f"Bearer ${{{values[dialect.bearer_variable]}}}"
        if headers and isinstance(literal_headers, dict):
            launch_config["headers"] = headers | literal_headers
        return launch_config


def find_servers(document: Document, path: str) -> list[ServerEntry]:
    """Return the servers of a client's file. Raises `NoServers` if the file has none of the known keys."""
    lists = (_list_entries(document.root, keys) for keys in _SERVER_PATHS)
    servers = next((entries for entries in lists if entries is not None), None)
    project_servers = [
        dataclasses.replace(entry, project=project)
        for project, member in document.root.get_members(_PROJECTS_KEY).items()
        for entry in _list_entries(member.node, _SERVER_PATHS[0]) or []
    ]
    if servers is None and not project_servers:
        if document.root.find_node("upstreams") is not None or Path(path).name == "forebay.toml":
            raise NoServers(
                f"{path} is a configuration of forebay, not of a client; check it with "
                f"`forebay config --config {path}`, and start it with `forebay serve --config {path}`"
            )
        known = ", ".join(".".join(keys) for keys in _SERVER_PATHS)
        raise NoServers(f"{path} has no servers; there should be one of {known}")
    return [*(servers or []), *project_servers]


def _list_entries(root: Node, keys: tuple[str, ...]) -> list[ServerEntry] | None:
    """Return the servers at a path of keys, or `None` if the path does not hold servers."""
    node = root.find_node(*keys)
    if node is None or not isinstance(node.value, dict):
        return None
    entries = [
        ServerEntry(name, member.node, _choose_dialect(keys, member.node)) for name, member in node.value.items()
    ]
    if keys in _SHARED_PATHS:
        return [entry for entry in entries if entry.command is not None or entry.urls] or None
    return entries


def _choose_dialect(keys: tuple[str, ...], entry: Node) -> Dialect:
    if keys in _DIALECTS:
        return _DIALECTS[keys]
    command, server_type = entry.find_node("command"), entry.find_node("type")
    is_opencode = command is not None and isinstance(command.value, list)
    is_remote = server_type is not None and server_type.value == "remote"
    return _OPENCODE if keys[0] == "mcp" and (is_opencode or is_remote) else _STANDARD


def load_client_upstreams(path: str, environ: Mapping[str, str]) -> dict[str, UpstreamConfig]:
    """Return the servers of a client's file as upstreams, except disabled servers and servers of single projects.

    Raises `InvalidArgument`.
    """
    upstreams: dict[str, UpstreamConfig] = {}
    entries = find_servers(parse_document(read_client_file(path), path), path)
    if entries and all(entry.project for entry in entries):
        raise InvalidArgument(
            f"{path} has servers of single projects only, such as {entries[0]}, and these are not served; "
            "to serve one, write it as [upstreams.NAME] in the file of --config"
        )
    for entry in entries:
        if entry.project is not None or entry.is_disabled:
            continue
        upstream = make_upstream(entry, environ, path)
        if upstream.name in upstreams:
            raise InvalidArgument(f"{path}: two servers are called {upstream.name}; rename one of them")
        upstreams[upstream.name] = upstream
    return upstreams


def make_upstream(entry: ServerEntry, environ: Mapping[str, str], path: str) -> UpstreamConfig:
    """Convert the entry of a server to an upstream, with variables expanded. Raises `InvalidArgument`."""
    location = f"{path}: the server {entry}"
    if not isinstance(entry.node.value, dict):
        raise InvalidArgument(f"{location} is not an object")
    launch_config = entry.to_launch_config()
    if "envFile" in launch_config:
        raise InvalidArgument(f"{location} has an envFile, which only its client reads; use env instead")
    upstream_type = "command" if "command" in launch_config else "url"
    table = {
        key: _expand_variables(launch_config[key], environ, location)
        if entry.dialect.expands_variables or key == "headers"
        else launch_config[key]
        for key in _KEYS_BY_TYPE[upstream_type]
        if launch_config.get(key) is not None
    }
    # Replace characters that tool names cannot have, because the server's name may become a prefix of tool names.
    return parse_upstream(re.sub(r"[^A-Za-z0-9_.-]+", "-", entry.name), table, lambda *_: location)


def _expand_variables(value: Any, environ: Mapping[str, str], location: str) -> Any:
    """Expand variables in the syntax of clients: `${VAR}`, `${VAR:-default}`, `${env:VAR}`, `{env:VAR}`."""

    def expand(match: re.Match[str]) -> str:
        if match["scope"] not in (None, "env:"):
            raise InvalidArgument(
                f"{location} has {match[0]}, which only its client knows; write the value, or use ${{VAR}}"
            )
        name = match["name"] if match["opencode_name"] is None else match["opencode_name"]
        text = environ.get(name, match["default"])
        if text is None:
            raise InvalidArgument(f"{location} needs the variable {name}, which is not set; set it")
        return text

    if isinstance(value, str):
        return _VARIABLE_PATTERN.sub(expand, value)
    if isinstance(value, dict):
        return {key: _expand_variables(inner, environ, location) for key, inner in value.items()}
    return [_expand_variables(inner, environ, location) for inner in value] if isinstance(value, list) else value


def mask_client_file(text: str, path: str) -> str:
    """Mask the secrets in a client's file: variables, headers, and values that look like secrets."""
    document = parse_document(text, path)
    return apply_edits(
        text,
        [
            document.replace_value(node, document.quote(shown))
            for node, shown in _iter_masked(document.root)
            if shown != node.value
        ],
    )


def _iter_masked(node: Node, *, is_secret: bool = False) -> Iterator[tuple[Node, str]]:
    """Yield the strings below a node, and numbers that are secret, each with the text to show instead."""
    match node.value:
        case dict():
            for key, member in node.value.items():
                is_object = isinstance(member.node.value, dict)
                is_inner_secret = key in _SECRET_OBJECT_KEYS if is_object else is_secret_name(key)
                yield from _iter_masked(member.node, is_secret=is_secret or is_inner_secret)
        case list():
            strings = [] if is_secret else [inner for inner in node.value if isinstance(inner.value, str)]
            yield from zip(strings, mask_args([inner.value for inner in strings]), strict=True)
            for inner in node.value:
                if is_secret or not isinstance(inner.value, str):
                    yield from _iter_masked(inner, is_secret=is_secret)
        case str():
            yield node, mask_secret(node.value) if is_secret else mask_args([node.value])[0]
        case int() | float() if is_secret:
            yield node, MASK
