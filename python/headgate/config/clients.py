"""The files in which MCP clients keep their servers: Claude Desktop, Claude Code, Cursor, VS Code."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headgate.config.jsonc import Edit, Node, edited, parsed
from headgate.config.masked import MASK, hidden, masked_args, masked_url
from headgate.config.options import OPTIONS
from headgate.config.targets import Target, target_of
from headgate.errors import InvalidArgument

__all__ = ["HEADER", "masked", "read", "servers_in", "targets_of"]

HEADER = OPTIONS["headers"].variable
"""How the variables begin that stand for the headers of an adopted server."""

_PLACES = (("mcpServers",), ("servers",), ("mcp", "servers"))
"""The clients' own, VS Code's mcp.json, and VS Code's settings.json."""

_VARIABLE = re.compile(r"\$\{(?P<scope>[A-Za-z]+:)?(?P<name>[^}:]*)(?::-(?P<default>[^}]*))?\}")
_READ = {"command": ("command", "args", "env", "cwd"), "url": ("url", "headers")}


def read(path: str) -> str:
    """What is in a file, to the letter."""
    try:
        return Path(path).read_bytes().decode()
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}; name a client's file") from None
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} is not UTF-8; save it as such") from None


def servers_in(text: str, path: str) -> dict[str, Node]:
    """The servers of a client's file, by name. Raises `InvalidArgument` if there is no place for any."""
    try:
        root = parsed(text)
    except InvalidArgument as error:
        raise InvalidArgument(f"{path} is no JSON: {error}", error.index) from None
    for place in _PLACES:
        node: Node | None = root
        for name in place:
            member = node.member(name) if node is not None else None
            node = None if member is None else member.node
        if node is not None and isinstance(node.value, dict):
            return {name: member.node for name, member in node.value.items()}
    wanted = ", ".join(".".join(place) for place in _PLACES)
    raise InvalidArgument(f"{path} has no servers; there should be one of {wanted}")


def targets_of(path: str, environ: Mapping[str, str]) -> dict[str, Target]:
    """The servers of a client's file as upstreams, but for those that are disabled."""
    found: dict[str, Target] = {}
    for name, node in servers_in(read(path), path).items():
        server = node.plain()
        if not isinstance(server, dict):
            raise InvalidArgument(f"{path}: the server {name} is no object")
        if server.get("disabled") is True:
            continue
        target = _target(name, server, environ, path)
        if target.name in found:
            raise InvalidArgument(f"{path}: two servers are called {target.name}; rename one of them")
        found[target.name] = target
    return found


def _target(name: str, server: dict[str, Any], environ: Mapping[str, str], path: str) -> Target:
    where = f"{path}: the server {name}"
    if "envFile" in server:
        raise InvalidArgument(f"{where} has an envFile, which only its client reads; give it env instead")
    kind = "command" if "command" in server else "url"
    table = {key: _expanded(server[key], environ, where) for key in _READ[kind] if server.get(key) is not None}
    # Clients take any text for a name, tools do not.
    return target_of(re.sub(r"[^A-Za-z0-9_.-]+", "-", name), table, lambda *_: where)


def _expanded(value: Any, environ: Mapping[str, str], where: str) -> Any:
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
        return {key: _expanded(inner, environ, where) for key, inner in value.items()}
    return [_expanded(inner, environ, where) for inner in value] if isinstance(value, list) else value


def masked(text: str, path: str) -> str:
    """A client's file as it may be shown: without what its servers are given to be let in."""
    edits: list[Edit] = []
    for server in servers_in(text, path).values():
        for name in ("env", "headers"):
            member = server.member(name)
            if member is not None and isinstance(member.node.value, dict):
                edits += [_masked(inner.node) for inner in member.node.value.values()]
        url = server.member("url")
        if url is not None and isinstance(url.node.value, str) and masked_url(url.node.value) != url.node.value:
            edits.append(_shown(url.node, masked_url(url.node.value)))
        args = server.member("args")
        if args is not None and isinstance(args.node.value, list):
            words = [node for node in args.node.value if isinstance(node.value, str)]
            shown = masked_args([str(word.value) for word in words])
            edits += [_shown(word, told) for word, told in zip(words, shown, strict=True) if told != word.value]
    return edited(text, [edit for edit in edits if edit[2] != text[edit[0] : edit[1]]])


def _masked(node: Node) -> Edit:
    return _shown(node, hidden(node.value) if isinstance(node.value, str) else MASK)


def _shown(node: Node, shown: str) -> Edit:
    return node.start, node.end, json.dumps(shown, ensure_ascii=False)
