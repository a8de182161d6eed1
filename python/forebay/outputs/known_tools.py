"""Definitions of a server's tools, as far as they fit into memory."""

from collections.abc import Mapping
from typing import Any

from forebay.store.payload import encode

__all__ = ["MAX_KNOWN_BYTES", "KnownTools"]

MAX_KNOWN_BYTES = 2 << 20
"""Maximum bytes of definitions to remember besides those that were listed last."""

_UNKNOWN_SIZE_BYTES = 1024
"""Assumed size of a definition that cannot be encoded."""


class KnownTools:
    """Tool definitions by name. Above `MAX_KNOWN_BYTES`, the definitions that were listed longest ago are forgotten."""

    def __init__(self) -> None:
        self._tools: dict[str, tuple[Mapping[str, Any], int]] = {}
        self._size = 0

    def __contains__(self, name: str) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)

    def get(self, name: str) -> Mapping[str, Any] | None:
        entry = self._tools.get(name)
        return None if entry is None else entry[0]

    def add(self, tools: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Remember tools that the server lists now; return the names of the tools that are forgotten for them."""
        for name, tool in tools.items():
            self._remove(name)
            size = _measure(tool)
            self._tools[name] = tool, size
            self._size += size
        forgotten: list[str] = []
        # The new tools come last, so that they are never forgotten here.
        while self._size > MAX_KNOWN_BYTES and len(self._tools) > len(tools):
            forgotten.append(next(iter(self._tools)))
            self._remove(forgotten[-1])
        return forgotten

    def _remove(self, name: str) -> None:
        _, size = self._tools.pop(name, (None, 0))
        self._size -= size


def _measure(tool: Mapping[str, Any]) -> int:
    try:
        return len(encode(tool))
    except (TypeError, ValueError):
        return _UNKNOWN_SIZE_BYTES
