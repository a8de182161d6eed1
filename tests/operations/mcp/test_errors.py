"""Failures of connections and calls become errors that say what happened, and what to do."""

from typing import Any

import pytest
from forebay.operations import CallError
from forebay.operations.mcp.errors import (
    ConnectionLost,
    HTTPStatusError,
    SessionExpired,
    to_call_error,
    to_connect_error,
)
from forebay.operations.mcp.targets import ServerTarget
from mcp.shared.exceptions import MCPError

CLOSED, TIMEOUT, INVALID, MISSING, OTHER = -32000, -32001, -32602, -32601, -32603


def target(*, is_command: bool) -> ServerTarget:
    def never(_: object) -> Any:
        raise AssertionError

    return ServerTarget("shop", never, never, is_command)


def test_an_error_that_is_converted_already_stays() -> None:
    error = CallError("TIMEOUT", "too long")
    assert to_call_error(error, "a.b") is error
    assert to_connect_error(error, target(is_command=True), None, 1) is error


@pytest.mark.parametrize(
    ("error", "is_command", "status", "code", "message"),
    [
        (TimeoutError(), False, None, "TIMEOUT", "shop did not answer within 2.5 seconds; give from_mcp() a longer"),
        (HTTPStatusError(404), False, None, "EXECUTION_ERROR", "no MCP server at shop; check the path of the URL"),
        (OSError("no"), False, 401, "EXECUTION_ERROR", "shop answered HTTP 401; give from_mcp() an mcp.Client whose"),
        (HTTPStatusError(403), False, 500, "EXECUTION_ERROR", "shop answered HTTP 403; give from_mcp()"),
        (OSError("no"), False, 503, "EXECUTION_ERROR", "shop answered HTTP 503; try again later"),
        (FileNotFoundError("no file"), True, None, "EXECUTION_ERROR", "the command shop cannot be started: no file"),
        (MCPError(CLOSED, "gone"), True, None, "EXECUTION_ERROR", "ended before it answered; run it by hand"),
        (MCPError(OTHER, "gone"), True, None, "EXECUTION_ERROR", "shop cannot be connected: gone"),
        (OSError(), False, None, "EXECUTION_ERROR", "shop cannot be connected: OSError"),
    ],
)
def test_a_failed_connection_says_what_to_do(
    error: Exception, is_command: bool, status: int | None, code: str, message: str
) -> None:
    converted = to_connect_error(error, target(is_command=is_command), status, 2.5)
    assert (converted.code, message in str(converted)) == (code, True), converted


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (TimeoutError(), "TIMEOUT", "a.b took too long"),
        (TimeoutError("of 3 s"), "TIMEOUT", "a.b took too long: of 3 s"),
        (ConnectionLost("broken pipe"), "EXECUTION_ERROR", "a.b may or may not have run: the connection to its server"),
        (SessionExpired(), "EXECUTION_ERROR", "a.b has not run"),
        (HTTPStatusError(500), "EXECUTION_ERROR", "a.b failed: its server answered HTTP 500"),
        (MCPError(MISSING, "no"), "OPERATION_NOT_FOUND", "a.b is not there any more: no"),
        (MCPError(INVALID, "Unknown tool: b"), "OPERATION_NOT_FOUND", "a.b is not there any more"),
        (MCPError(INVALID, "b is required"), "EXECUTION_ERROR", "a.b failed: b is required"),
        (MCPError(TIMEOUT, "Request 'tools/call' timed out"), "TIMEOUT", "a.b took too long"),
        # Other SDKs use the code of a timeout for other errors.
        (MCPError(TIMEOUT, "quota exceeded"), "EXECUTION_ERROR", "a.b failed: quota exceeded"),
        (RuntimeError(), "EXECUTION_ERROR", "a.b could not be called: RuntimeError"),
    ],
)
def test_a_failed_call_says_what_happened(error: Exception, code: str, message: str) -> None:
    converted = to_call_error(error, "a.b")
    assert (converted.code, str(converted).startswith(message)) == (code, True), converted


def test_a_server_cannot_send_an_error_of_any_size() -> None:
    small = to_call_error(MCPError(OTHER, "x" * 5000, {"a": 1}), "a.b")
    assert len(str(small)) < 1100
    assert small.details == {"code": OTHER, "data": {"a": 1}}
    assert to_call_error(MCPError(OTHER, "x", {"a": "y" * 5000}), "a.b").details == {"code": OTHER}
