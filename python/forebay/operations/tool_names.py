"""Stable, unique names for the tools of several sources."""

import collections
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

__all__ = ["MAX_NAME_CHARS", "Origin", "ToolNames"]

MAX_NAME_CHARS = 128
"""Maximum length of a tool name."""

_MAX_FORMER_NAMES = 10_000
"""Maximum number of names to remember besides those of the tools that are listed."""

Origin: TypeAlias = tuple[str, str]
"""Namespace and name of the operation, or of the MCP server's tool, behind a tool name."""


class ToolNames:
    """The names that were given to tools so far.

    A name is not given to another tool, and stays valid as long as its tool exists, unless it has not been listed for
    10,000 newer names. `prefixes` maps a namespace to a prefix for the names of its tools. Namespaces are named in
    `namespace_order`, so that names do not depend on which server connected first.
    """

    def __init__(
        self,
        prefixes: Mapping[str, str] | None = None,
        namespace_order: Iterable[str] = (),
    ) -> None:
        self.origins: dict[str, Origin] = {}
        """The tool behind each name, former names included."""
        self._prefixes = prefixes or {}
        self._ranks = {namespace: rank for rank, namespace in enumerate(namespace_order)}

    def assign(self, origins: Iterable[Origin]) -> dict[str, Origin]:
        """Return the tools that exist now by their names, in the order of their namespaces.

        A tool has its own name, prefixed with its namespace if several tools have that name.
        """
        ordered = sorted(dict.fromkeys(origins), key=lambda origin: self._ranks.get(origin[0], len(self._ranks)))
        short_names = collections.Counter(map(self._shorten, ordered))
        suffixes: collections.Counter[str] = collections.Counter()
        names: dict[str, Origin] = {}
        known = self.origins
        for origin in ordered:
            name = self._shorten(origin)
            if short_names[name] > 1 or known.get(name, origin) != origin:
                base = name = _to_tool_name("_".join(origin))
                # The counter is kept between tools, so that a thousand equal names do not take a million attempts.
                while known.get(name, origin) != origin or name in short_names or name in names:
                    suffixes[base] += 1
                    name = f"{base[: MAX_NAME_CHARS - 8]}_{suffixes[base] + 1}"
            names[name] = known[name] = origin
        while len(known) > len(names) + _MAX_FORMER_NAMES:
            self._forget_former_names(names)
        return names

    def _shorten(self, origin: Origin) -> str:
        namespace, name = origin
        return _to_tool_name(self._prefixes.get(namespace, "") + name)

    def _forget_former_names(self, current_names: Collection[str]) -> None:
        """Forget the older half of the former names in the namespace that has most of them.

        So a server that always lists other tools does not use up memory, and does not displace the names of other
        servers.
        """
        former_names: dict[str, list[str]] = {}
        for name, (namespace, _) in self.origins.items():
            if name not in current_names:
                former_names.setdefault(namespace, []).append(name)
        most = max(former_names.values(), key=len)
        for name in most[: -(-len(most) // 2)]:
            del self.origins[name]


def _to_tool_name(name: str) -> str:
    """Replace characters that tool names may not have."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:MAX_NAME_CHARS]
