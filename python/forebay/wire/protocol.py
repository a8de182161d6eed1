"""Versions of the protocol, and what differs between them."""

from collections.abc import Mapping
from typing import Any

__all__ = ["MODERN_VERSION", "PROTOCOL_VERSION_KEY", "SERVER_INFO_KEY", "add_result_fields", "is_modern", "next_cursor"]

SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"
PROTOCOL_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
MODERN_VERSION = "2026-07-28"
_CACHEABLE_METHODS = {"tools/list", "resources/list", "resources/templates/list", "resources/read", "prompts/list"}
"""What the newest version wants to be told the lifetime of."""


def is_modern(version: str) -> bool:
    """Whether a version of the protocol has no handshake, and no connections that last."""
    return version >= MODERN_VERSION


def add_result_fields(method: str, result: dict[str, Any], version: str, stamp: Mapping[str, Any]) -> dict[str, Any]:
    """A result of ours as this version of the protocol has it."""
    if not is_modern(version):
        return result
    kept = {"ttlMs": 0, "cacheScope": "private"} if method in _CACHEABLE_METHODS else {}
    return {
        **result,
        "resultType": "complete",
        **kept,
        "_meta": {SERVER_INFO_KEY: stamp, **(result.get("_meta") or {})},
    }


def next_cursor(page: Mapping[str, Any]) -> Any:
    """`None` at the end of a list. Some servers say that by a cursor that is empty."""
    cursor = page.get("nextCursor")
    return None if cursor == "" else cursor
