"""Definitions of a server's tools, as far as they fit into memory."""

from collections.abc import Mapping
from typing import Any

from forebay.store.payload import encode
from forebay.wire.lazy_json import LazyJSON, as_lazy

__all__ = ["MAX_DEFINITION_BYTES", "MAX_KNOWN_BYTES", "KnownTools", "encode_definition", "parse_definition"]

MAX_KNOWN_BYTES = 4 << 20
"""Maximum bytes of definitions to remember besides those that were listed last."""

MAX_DEFINITION_BYTES = 512 << 10
"""Maximum bytes of a definition that the gateway parses: as objects it may take more than twenty times as much."""

_MAX_DEFINITION_DEPTH = 128

_ENTRY_BYTES = 256
"""Memory that each definition takes besides its bytes."""


def parse_definition(definition: LazyJSON) -> Any:
    """Parse the definition of a tool. Parts that are too deep, and numbers that would change, stay `LazyJSON`.

    Raises `InvalidJSON`.
    """
    # Each `LazyJSON` counts as more bytes than it has, so that very many of them are not parsed one by one either.
    max_bytes = max(MAX_DEFINITION_BYTES, len(definition))
    return definition.parse(max_string_bytes=max_bytes, max_container_bytes=max_bytes, max_depth=_MAX_DEFINITION_DEPTH)


class KnownTools:
    """Tool definitions by name. Above `MAX_KNOWN_BYTES`, the definitions that were listed longest ago are forgotten.

    They are kept as JSON, which takes much less memory than objects.
    """

    def __init__(self) -> None:
        self._tools: dict[str, bytes] = {}
        self._size = 0

    def __contains__(self, name: str) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)

    def get(self, name: str) -> Mapping[str, Any] | None:
        """Return the definition of a tool, or `None` if it is not known."""
        definition = self._tools.get(name)
        return None if definition is None else parse_definition(as_lazy(definition))

    def add(self, definitions: Mapping[str, bytes]) -> list[str]:
        """Remember tools that the server lists now; return the names of the tools that are forgotten for them."""
        for name, definition in definitions.items():
            self._remove(name)
            self._tools[name] = definition
            self._size += len(definition) + _ENTRY_BYTES
        forgotten: list[str] = []
        # The new tools come last, so that they are never forgotten here.
        while self._size > MAX_KNOWN_BYTES and len(self._tools) > len(definitions):
            forgotten.append(next(iter(self._tools)))
            self._remove(forgotten[-1])
        return forgotten

    def _remove(self, name: str) -> None:
        definition = self._tools.pop(name, None)
        if definition is not None:
            self._size -= len(definition) + _ENTRY_BYTES


def encode_definition(tool: Mapping[str, Any]) -> bytes:
    """Return a definition as JSON; only its name if it cannot be encoded."""
    try:
        definition = encode(tool)
    except (TypeError, ValueError, RecursionError):
        definition = encode({"name": tool["name"]})
    # A copy, because orjson allocates some kilobytes for each of its results.
    return bytes(memoryview(definition))
