"""What becomes of a message that a server did not answer, and of a server that cannot be connected."""

from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED

from forebay.operations.errors import CallError
from forebay.operations.mcp.targets import Upstream

__all__ = ["ConnectionLost", "HTTPRefused", "SessionForgotten", "unreachable"]

_MOST_MESSAGE = 1000

_NOT_FOUND = 404

_UNAUTHORISED = (401, 403)


class ConnectionLost(Exception):
    """A message was sent, and its answer can never come."""


class SessionForgotten(Exception):
    """A server answered that it does not know the session, and so has not even looked at the message."""


class HTTPRefused(Exception):
    """A server answered with a status and without an error of the protocol."""

    def __init__(self, status: int) -> None:
        super().__init__(f"its server answered HTTP {status}")
        self.status = status


def unreachable(error: BaseException, upstream: Upstream, status: int | None, timeout: float) -> CallError:
    """What is told of a server that could not be connected, and what to do."""
    label, told = upstream.label, (str(error) or type(error).__name__)[:_MOST_MESSAGE]
    if isinstance(error, CallError):
        return error
    if isinstance(error, TimeoutError):
        return CallError(
            "TIMEOUT", f"{label} did not answer within {timeout:g} seconds; give from_mcp() a longer connect_timeout"
        )
    if isinstance(error, HTTPRefused):
        status = error.status
    if status == _NOT_FOUND:
        return _failed(f"there is no MCP server at {label}; check the path of the URL", {"status": status})
    if status in _UNAUTHORISED:
        told = "give from_mcp() an mcp.Client whose transport sends what the server asks for"
        return _failed(f"{label} answered HTTP {status}; {told}", {"status": status})
    if status is not None:
        return _failed(f"{label} answered HTTP {status}; try again later, or look at the server", {"status": status})
    if upstream.is_command and isinstance(error, OSError):
        return _failed(f"the command {label} cannot be started: {told}", {"type": type(error).__name__})
    if upstream.is_command and isinstance(error, MCPError) and error.code == CONNECTION_CLOSED:
        return _failed(f"the command {label} ended before it answered; run it by hand to see why", {"code": error.code})
    return _failed(f"{label} cannot be connected: {told}", {"type": type(error).__name__})


def _failed(message: str, details: dict[str, Any]) -> CallError:
    return CallError("EXECUTION_ERROR", message, details)
