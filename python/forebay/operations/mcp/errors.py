"""Errors of connections to MCP servers, and their conversion to `CallError`."""

import re
from http import HTTPStatus
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, METHOD_NOT_FOUND, REQUEST_TIMEOUT

from forebay.operations.errors import CallError
from forebay.operations.mcp.targets import ServerTarget
from forebay.store.payload import encode

__all__ = ["ConnectionLost", "HTTPStatusError", "SessionExpired", "to_call_error", "to_connect_error"]

_MAX_MESSAGE_CHARS = 1000
_MAX_DATA_BYTES = 4096
"""Maximum size of a server's error message, and of its error data, to pass on."""

_SDK_TIMEOUT_PATTERN = re.compile(r"Request '[a-z/]+' timed out")
"""The SDK's message for a timeout. Its error code is not enough: other SDKs use the same code for other errors."""

_UNKNOWN_TOOL_PATTERN = re.compile(r"unknown tool|tool .{0,300}not found|no such tool", re.IGNORECASE | re.DOTALL)

_UNAUTHORIZED_STATUSES = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class ConnectionLost(Exception):
    """The connection was lost after a request was sent, so its response cannot arrive."""


class SessionExpired(Exception):
    """The server does not know the session, so it has not run the request."""


class HTTPStatusError(Exception):
    """The server answered with an HTTP status and no JSON-RPC error."""

    def __init__(self, status: int) -> None:
        super().__init__(f"its server answered HTTP {status}")
        self.status = status


def to_connect_error(error: BaseException, target: ServerTarget, status: int | None, timeout: float) -> CallError:
    """Convert the error of a failed connection attempt to a `CallError` that says what to do."""
    label, cause = target.label, _describe(error)
    if isinstance(error, CallError):
        return error
    if isinstance(error, TimeoutError):
        return CallError(
            "TIMEOUT", f"{label} did not answer within {timeout:g} seconds; give from_mcp() a longer connect_timeout"
        )
    if isinstance(error, HTTPStatusError):
        status = error.status
    if status == HTTPStatus.NOT_FOUND:
        return _make_execution_error(
            f"there is no MCP server at {label}; check the path of the URL", {"status": status}
        )
    if status in _UNAUTHORIZED_STATUSES:
        hint = "give from_mcp() an mcp.Client whose transport sends what the server asks for"
        return _make_execution_error(f"{label} answered HTTP {status}; {hint}", {"status": status})
    if status is not None:
        return _make_execution_error(
            f"{label} answered HTTP {status}; try again later, or look at the server", {"status": status}
        )
    if target.is_command and isinstance(error, OSError):
        return _make_execution_error(f"the command {label} cannot be started: {cause}", {"type": type(error).__name__})
    if target.is_command and isinstance(error, MCPError) and error.code == CONNECTION_CLOSED:
        return _make_execution_error(
            f"the command {label} ended before it answered; run it by hand to see why", {"code": error.code}
        )
    return _make_execution_error(f"{label} cannot be connected: {cause}", {"type": type(error).__name__})


def to_call_error(error: BaseException, operation_id: str) -> CallError:
    """Convert the failure of a call to a `CallError`."""
    if isinstance(error, CallError):
        return error
    if isinstance(error, TimeoutError):
        return CallError("TIMEOUT", f"{operation_id} took too long: {error!s:.200}".rstrip(": "))
    cause = _describe(error)
    match error:
        case ConnectionLost():
            return _make_execution_error(
                f"{operation_id} may or may not have run: the connection to its server was lost ({cause}); "
                "the next call connects again",
                {"code": CONNECTION_CLOSED},
            )
        case SessionExpired():
            return _make_execution_error(f"{operation_id} has not run: its server forgets every session at once", {})
        case HTTPStatusError(status=status):
            return _make_execution_error(f"{operation_id} failed: {cause}", {"status": status})
        case MCPError():
            return _convert_mcp_error(error, cause, operation_id)
    return _make_execution_error(f"{operation_id} could not be called: {cause}", {"type": type(error).__name__})


def _convert_mcp_error(error: MCPError, message: str, operation_id: str) -> CallError:
    details: dict[str, Any] = {"code": error.code}
    if error.data is not None and len(encode(error.data)) <= _MAX_DATA_BYTES:
        details["data"] = error.data
    if error.code == METHOD_NOT_FOUND or (error.code == INVALID_PARAMS and _UNKNOWN_TOOL_PATTERN.search(message)):
        return CallError("OPERATION_NOT_FOUND", f"{operation_id} is not there any more: {message}", details)
    if error.code == REQUEST_TIMEOUT and _SDK_TIMEOUT_PATTERN.fullmatch(message):
        return CallError("TIMEOUT", f"{operation_id} took too long: {message}", details)
    return _make_execution_error(f"{operation_id} failed: {message}", details)


def _describe(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:_MAX_MESSAGE_CHARS]


def _make_execution_error(message: str, details: dict[str, Any]) -> CallError:
    return CallError("EXECUTION_ERROR", message, details)
