"""What a server of the benches says of itself, whatever it is reached by."""

from typing import Any

__all__ = ["said"]


def said(method: str, name: str, properties: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request that is no call; `None` for a method that it does not have."""
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
