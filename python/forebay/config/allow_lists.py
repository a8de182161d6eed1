"""Lists of tools that a client may use, or use without approval. Without forebay's tools, handles cannot be read."""

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

from forebay.config.client_servers import ServerEntry
from forebay.config.documents import Document
from forebay.config.nodes import Edit, Node, apply_edits

__all__ = [
    "ALLOW_KEYS",
    "add_rules",
    "find_denied_tools",
    "find_hidden_tools",
    "find_missing_rules",
    "find_missing_tools",
    "list_tool_names",
    "remove_rules",
]

_TOOL_NAMES = ("output_fetch", "output_search")

ALLOW_KEYS = ("includeTools", "enabled_tools", "tools", "available_tools", "autoApprove", "alwaysAllow")
"""Keys of lists in the entry of a server: of Gemini CLI and Qwen Code, Codex and Crush, Copilot CLI, goose, Cline."""

_DENY_KEYS = ("excludeTools", "disabled_tools", "disabledTools")

_ALL = "*"


def list_tool_names(options: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the tools that `forebay wrap` adds, given its options."""
    prefix = ""
    for word, following in pairwise([*options, ""]):
        if word == "--prefix":
            prefix = following
        elif word.startswith("--prefix="):
            prefix = word.removeprefix("--prefix=")
    return tuple(prefix + name for name in _TOOL_NAMES)


def find_missing_tools(server: ServerEntry, names: Collection[str]) -> dict[str, list[str]]:
    """Return the names of tools that are missing in the allow-lists of a server's entry, by the key of the list."""
    missing = {}
    for key in ALLOW_KEYS:
        listed = _list_strings(server.entry.find_node(key))
        # Without items, a list allows either all tools or none. In both cases no handle is stranded.
        if listed and _ALL not in listed and (absent := [name for name in names if name not in listed]):
            missing[key] = absent
    return missing


def _list_strings(node: Node | None) -> list[str]:
    """Return the items of a list of strings; nothing for any other value."""
    if node is None or not isinstance(node.value, list) or not all(isinstance(item.value, str) for item in node.value):
        return []
    return [item.value for item in node.value]


@dataclasses.dataclass(frozen=True, slots=True)
class _RuleList:
    """A list of rules in the settings of a client, each for one tool or for a pattern of tools."""

    allow_path: tuple[str, ...]
    deny_path: tuple[str, ...]
    tool_rule: str
    server_rule: str
    """The rule for all tools of a server."""

    def name_tool(self, server: str, tool: str) -> str:
        return self.tool_rule.format(server=self._normalize(server), tool=tool)

    def covers(self, rules: Collection[str], server: str, tool: str) -> bool:
        rule = self.name_tool(server, tool)
        return self.server_rule.format(server=self._normalize(server)) in rules or any(
            fnmatchcase(rule, pattern) for pattern in rules
        )

    def mentions(self, rules: Collection[str], server: str) -> bool:
        prefix = self.name_tool(server, "\0").partition("\0")[0]
        return any(rule.startswith(prefix) for rule in rules)

    def _normalize(self, server: str) -> str:
        return re.sub(r"[^A-Za-z0-9_-]", "_", server) if self.tool_rule.startswith("mcp__") else server


_RULE_LISTS = (
    _RuleList(("permissions", "allow"), ("permissions", "deny"), "mcp__{server}__{tool}", "mcp__{server}"),
    _RuleList(("permissions", "allow"), ("permissions", "deny"), "Mcp({server}:{tool})", "Mcp({server}:*)"),
    _RuleList(("mcpAllowlist",), (), "{server}:{tool}", "{server}:*"),
)
"""Rules of Claude Code and Qwen Code, of Cursor's command line, and of Cursor."""

Servers = Mapping[str, Collection[str]]
"""The names of forebay's tools, by name of the server that has them."""


def find_missing_rules(document: Document, servers: Servers) -> list[str]:
    """Return the rules that allow forebay's tools, for servers that have such rules for other tools."""
    return [rule for rules in _RULE_LISTS for rule in _iter_missing(rules, document, servers)]


def _iter_missing(rules: _RuleList, document: Document, servers: Servers) -> Iterator[str]:
    listed = _list_strings(document.root.find_node(*rules.allow_path))
    for server, tools in servers.items():
        if rules.mentions(listed, server):
            missing = [rules.name_tool(server, tool) for tool in tools if not rules.covers(listed, server, tool)]
            # Two servers may have the same name in rules.
            listed += missing
            yield from missing


def add_rules(document: Document, servers: Servers) -> tuple[str, list[str]]:
    """Return the text of a document with the rules of `find_missing_rules`, and these rules."""
    edits: list[Edit] = []
    added: list[str] = []
    for rules in _RULE_LISTS:
        node = document.root.find_node(*rules.allow_path)
        if node is not None and (missing := [*_iter_missing(rules, document, servers)]):
            edits.append(document.append_items(node.value, [document.quote(rule) for rule in missing]))
            added += missing
    return apply_edits(document.text, edits), added


def remove_rules(document: Document, servers: Servers, earlier: Sequence[Document]) -> tuple[str, list[str], list[str]]:
    """Return the text without the rules that `add_rules` added, these rules, and the rules that it may have added.

    It has added a rule that is not in all earlier versions of the document. Without earlier versions all rules stay.
    """
    edits: list[Edit] = []
    removed: list[str] = []
    unsure: list[str] = []
    for rules in _RULE_LISTS:
        member = document.root.find_member(*rules.allow_path)
        listed = _list_strings(None if member is None else member.node)
        ours = {rules.name_tool(server, tool) for server, tools in servers.items() for tool in tools} & {*listed}
        earlier_lists = [_list_strings(version.root.find_node(*rules.allow_path)) for version in earlier]
        added = {rule for rule in ours if any(rule not in rules_then for rules_then in earlier_lists)}
        unsure += [] if earlier else sorted(ours)
        removed += sorted(added)
        if member is not None and added:
            edits += document.remove_items(member, [index for index, rule in enumerate(listed) if rule in added])
    return apply_edits(document.text, edits), removed, unsure


def find_hidden_tools(document: Document, servers: Servers) -> list[tuple[str, str]]:
    """Return settings that hide or deny forebay's tools and that forebay does not change: the server, and advice."""
    return [*_iter_denied(document, servers), *_iter_opencode(document, servers), *_iter_zed(document, servers)]


def find_denied_tools(server: ServerEntry, names: Collection[str]) -> list[str]:
    """Return advice on the deny-lists of a server's entry that have one of the names."""
    advice = []
    for key in _DENY_KEYS:
        listed = _list_strings(server.entry.find_node(key))
        if denied := [name for name in names if name in listed]:
            advice.append(f"{key} has {', '.join(denied)}; take that out")
    return advice


def _iter_denied(document: Document, servers: Servers) -> Iterator[tuple[str, str]]:
    for rules in _RULE_LISTS:
        denied = _list_strings(document.root.find_node(*rules.deny_path)) if rules.deny_path else []
        for server, tools in servers.items():
            if names := [rules.name_tool(server, tool) for tool in tools if rules.covers(denied, server, tool)]:
                yield server, f"{'.'.join(rules.deny_path)} denies {', '.join(names)}; take out the rule that does"


def _iter_opencode(document: Document, servers: Servers) -> Iterator[tuple[str, str]]:
    """Yield advice on the rules of opencode, of which the last one that matches counts."""
    rules = _list_opencode_rules(document.root)
    scopes = {"permission": rules}
    for name, member in document.root.get_members("agent").items():
        scopes[f"agent.{name}.permission"] = [*rules, *_list_opencode_rules(member.node)]
    for server, tools in servers.items():
        prefix = re.sub(r"[^A-Za-z0-9_-]", "_", server) + "_"
        for scope, scope_rules in scopes.items():
            hidden = [prefix + tool for tool in tools if not _is_allowed(prefix + tool, scope_rules)]
            # If no rule allows a tool of the server, then no tool can return a handle.
            if hidden and any(is_allowed and pattern.startswith(prefix) for pattern, is_allowed in scope_rules):
                lines = ", ".join(f'"{name}": "allow"' for name in hidden)
                yield server, f"the rules on tools hide forebay's; add at the end of {scope}: {lines}"


def _list_opencode_rules(node: Node) -> list[tuple[str, bool]]:
    """Return the patterns of tools in `tools` and `permission`, and whether each allows the tools."""
    return [
        (pattern, member.node.value not in (False, "deny"))
        for key in ("tools", "permission")
        for pattern, member in node.get_members(key).items()
        if isinstance(member.node.value, bool | str)
    ]


def _is_allowed(name: str, rules: Sequence[tuple[str, bool]]) -> bool:
    return next((is_allowed for pattern, is_allowed in reversed(rules) if fnmatchcase(name, pattern)), True)


def _iter_zed(document: Document, servers: Servers) -> Iterator[tuple[str, str]]:
    for profile, member in document.root.get_members("agent", "profiles").items():
        shows_all = member.node.find_node("enable_all_context_servers")
        if shows_all is not None and shows_all.value is True:
            continue
        for server, names in servers.items():
            tools = member.node.get_members("context_servers", server, "tools")
            shown = {name for name, tool in tools.items() if tool.node.value is True}
            if shown and (hidden := [name for name in names if name not in shown]):
                lines = ", ".join(f'"{name}": true' for name in hidden)
                yield server, f"the profile {profile} hides forebay's tools; add to its tools of {server}: {lines}"
