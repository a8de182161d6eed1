"""Clients' lists of tools that the model may use, or use without approval.

A list that lacks forebay's tools would keep the model from reading handles.
"""

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

from forebay.config.client_servers import ServerEntry
from forebay.config.documents import Document
from forebay.config.nodes import Edit, Node, apply_edits
from forebay.query.duckdb_module import is_installed

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
_SQL_TOOL_NAME = "output_query"

ALLOW_KEYS = ("includeTools", "enabled_tools", "tools", "available_tools", "autoApprove", "alwaysAllow")
"""Keys of allow-lists in a server's entry. In this order they are used by Gemini CLI and Qwen Code, Codex and Crush,
Copilot CLI, goose, and the last two by Cline."""

_DENY_KEYS = ("excludeTools", "disabled_tools", "disabledTools")

_ALL_TOOLS = "*"


def list_tool_names(options: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the tools that `forebay wrap` adds, given its options."""
    prefix = ""
    for word, next_word in pairwise([*options, ""]):
        if word == "--prefix":
            prefix = next_word
        elif word.startswith("--prefix="):
            prefix = word.removeprefix("--prefix=")
    names = (*_TOOL_NAMES, _SQL_TOOL_NAME) if is_installed() else _TOOL_NAMES
    return tuple(prefix + name for name in names)


def find_missing_tools(server: ServerEntry, names: Collection[str]) -> dict[str, list[str]]:
    """Return the names that each allow-list in a server's entry lacks, by the key of the list."""
    missing = {}
    for key in ALLOW_KEYS:
        listed = _list_strings(server.entry.find_node(key))
        # An empty list allows all tools, or none. With none, the model gets no handles either.
        if listed and _ALL_TOOLS not in listed and (absent := [name for name in names if name not in listed]):
            missing[key] = absent
    return missing


def _list_strings(node: Node | None) -> list[str]:
    """Return the items of a list of strings; nothing for any other value."""
    if node is None or not isinstance(node.value, list) or not all(isinstance(item.value, str) for item in node.value):
        return []
    return [item.value for item in node.value]


@dataclasses.dataclass(frozen=True, slots=True)
class _RuleSyntax:
    """The paths and the syntax of a client's rules on tools. A rule may be a pattern."""

    allow_path: tuple[str, ...]
    deny_path: tuple[str, ...]
    tool_rule: str
    """Template of a rule for one tool."""
    server_rule: str
    """Template of a rule for all tools of a server."""

    def format_rule(self, server: str, tool: str) -> str:
        return self.tool_rule.format(server=self._normalize(server), tool=tool)

    def covers(self, rules: Collection[str], server: str, tool: str) -> bool:
        """Return whether one of the rules applies to a tool."""
        rule = self.format_rule(server, tool)
        return self.server_rule.format(server=self._normalize(server)) in rules or any(
            fnmatchcase(rule, pattern) for pattern in rules
        )

    def mentions(self, rules: Collection[str], server: str) -> bool:
        """Return whether one of the rules is for a tool of the server."""
        prefix = self.format_rule(server, "\0").partition("\0")[0]
        return any(rule.startswith(prefix) for rule in rules)

    def _normalize(self, server: str) -> str:
        return re.sub(r"[^A-Za-z0-9_-]", "_", server) if self.tool_rule.startswith("mcp__") else server


_RULE_SYNTAXES = (
    _RuleSyntax(("permissions", "allow"), ("permissions", "deny"), "mcp__{server}__{tool}", "mcp__{server}"),
    _RuleSyntax(("permissions", "allow"), ("permissions", "deny"), "Mcp({server}:{tool})", "Mcp({server}:*)"),
    _RuleSyntax(("mcpAllowlist",), (), "{server}:{tool}", "{server}:*"),
)
"""Rules of Claude Code and Qwen Code, of Cursor's command line, and of Cursor."""

ToolsByServer = Mapping[str, Collection[str]]
"""The names of forebay's tools in each server, by the server's name."""


def find_missing_rules(document: Document, servers: ToolsByServer) -> list[str]:
    """Return the rules that are missing for forebay's tools, for servers that have rules for other tools."""
    return [rule for syntax in _RULE_SYNTAXES for rule in _iter_missing_rules(syntax, document, servers)]


def _iter_missing_rules(syntax: _RuleSyntax, document: Document, servers: ToolsByServer) -> Iterator[str]:
    listed = _list_strings(document.root.find_node(*syntax.allow_path))
    for server, tools in servers.items():
        if syntax.mentions(listed, server):
            missing = [syntax.format_rule(server, tool) for tool in tools if not syntax.covers(listed, server, tool)]
            # Two servers may have the same name in rules, because special characters are replaced.
            listed += missing
            yield from missing


def add_rules(document: Document, servers: ToolsByServer) -> tuple[str, list[str]]:
    """Add the rules of `find_missing_rules` to a document. Return the new text and the added rules."""
    edits: list[Edit] = []
    added: list[str] = []
    for syntax in _RULE_SYNTAXES:
        node = document.root.find_node(*syntax.allow_path)
        if node is not None and (missing := [*_iter_missing_rules(syntax, document, servers)]):
            edits.append(document.append_items(node.value, [document.quote(rule) for rule in missing]))
            added += missing
    return apply_edits(document.text, edits), added


def remove_rules(
    document: Document, servers: ToolsByServer, earlier: Sequence[Document]
) -> tuple[str, list[str], list[str]]:
    """Remove the rules that `add_rules` added. Return the new text, the removed rules and the uncertain rules.

    A rule counts as added if an earlier version of the document lacks it. Without earlier versions, nothing is removed,
    and all rules for forebay's tools are uncertain.
    """
    edits: list[Edit] = []
    removed: list[str] = []
    uncertain: list[str] = []
    for syntax in _RULE_SYNTAXES:
        member = document.root.find_member(*syntax.allow_path)
        listed = _list_strings(None if member is None else member.node)
        our_rules = {syntax.format_rule(server, tool) for server, tools in servers.items() for tool in tools}
        our_rules &= {*listed}
        earlier_rule_lists = [_list_strings(version.root.find_node(*syntax.allow_path)) for version in earlier]
        added = {rule for rule in our_rules if any(rule not in earlier_rules for earlier_rules in earlier_rule_lists)}
        uncertain += [] if earlier else sorted(our_rules)
        removed += sorted(added)
        if member is not None and added:
            edits += document.remove_items(member, [index for index, rule in enumerate(listed) if rule in added])
    return apply_edits(document.text, edits), removed, uncertain


def find_hidden_tools(document: Document, servers: ToolsByServer) -> list[tuple[str, str]]:
    """Return the server's name and advice for each setting that hides or denies forebay's tools.

    forebay does not change these settings; the user has to.
    """
    return [
        *_iter_deny_advice(document, servers),
        *_iter_opencode_advice(document, servers),
        *_iter_zed_advice(document, servers),
    ]


def find_denied_tools(server: ServerEntry, names: Collection[str]) -> list[str]:
    """Return advice for each deny-list in a server's entry that has one of the names."""
    advice = []
    for key in _DENY_KEYS:
        listed = _list_strings(server.entry.find_node(key))
        if denied := [name for name in names if name in listed]:
            advice.append(f"{key} has {', '.join(denied)}; take that out")
    return advice


def _iter_deny_advice(document: Document, servers: ToolsByServer) -> Iterator[tuple[str, str]]:
    for syntax in _RULE_SYNTAXES:
        denied = _list_strings(document.root.find_node(*syntax.deny_path)) if syntax.deny_path else []
        for server, tools in servers.items():
            if names := [syntax.format_rule(server, tool) for tool in tools if syntax.covers(denied, server, tool)]:
                yield server, f"{'.'.join(syntax.deny_path)} denies {', '.join(names)}; remove that rule"


def _iter_opencode_advice(document: Document, servers: ToolsByServer) -> Iterator[tuple[str, str]]:
    """Yield advice on the rules of opencode. The last rule that matches a tool decides."""
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
                yield server, f"the rules hide forebay's tools; add at the end of {scope}: {lines}"


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


def _iter_zed_advice(document: Document, servers: ToolsByServer) -> Iterator[tuple[str, str]]:
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
