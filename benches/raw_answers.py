"""Results that the raw servers share, over stdio and over HTTP."""

from typing import Any

__all__ = ["make_result"]


def make_result(method: str, name: str, properties: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a request other than `tools/call`, or None for an unknown method."""
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    match method:
        case "initialize":
            info = {"name": name, "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [{"name": "text", "description": "A text of some size.", "inputSchema": schema}]}
        case "ping":
            return {}
    return None
