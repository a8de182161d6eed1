"""What becomes of a message that a server did not answer, and of a server that cannot be connected."""

import dataclasses
import re
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, METHOD_NOT_FOUND, REQUEST_TIMEOUT

from forebay.operations.envelope import MCPContentBlock, MCPResponseMeta, ResponseEnvelope, mcp_envelope
from forebay.operations.envelope.body import parse
from forebay.operations.errors import CallError
from forebay.operations.mcp.targets import ServerTarget
from forebay.operations.spec import OperationSpec
from forebay.operations.validation import is_meaningful
from forebay.store.payload import encode

__all__ = [
    "ConnectionLost",
    "HTTPStatusError",
    "SessionExpired",
    "is_unknown_tool",
    "result_to_envelope",
    "to_call_error",
    "to_connect_error",
]

_MAX_CAUSE_CHARS = 1000

_NOT_FOUND = 404

_UNAUTHORIZED = (401, 403)


class ConnectionLost(Exception):
    """A message was sent, and its answer can never come."""


class SessionExpired(Exception):
    """A server answered that it does not know the session, and so has not even looked at the message."""


class HTTPStatusError(Exception):
    """A server answered with a status and without an error of the protocol."""

    def __init__(self, status: int) -> None:
        super().__init__(f"its server answered HTTP {status}")
        self.status = status


def to_connect_error(error: BaseException, target: ServerTarget, status: int | None, timeout: float) -> CallError:
    """What is told of a server that could not be connected, and what to do."""
    label, told = target.label, (str(error) or type(error).__name__)[:_MAX_CAUSE_CHARS]
    if isinstance(error, CallError):
        return error
    if isinstance(error, TimeoutError):
        return CallError(
            "TIMEOUT", f"{label} did not answer within {timeout:g} seconds; give from_mcp() a longer connect_timeout"
        )
    if isinstance(error, HTTPStatusError):
        status = error.status
    if status == _NOT_FOUND:
        return _execution_error(f"there is no MCP server at {label}; check the path of the URL", {"status": status})
    if status in _UNAUTHORIZED:
        told = "give from_mcp() an mcp.Client whose transport sends what the server asks for"
        return _execution_error(f"{label} answered HTTP {status}; {told}", {"status": status})
    if status is not None:
        return _execution_error(
            f"{label} answered HTTP {status}; try again later, or look at the server", {"status": status}
        )
    if target.is_command and isinstance(error, OSError):
        return _execution_error(f"the command {label} cannot be started: {told}", {"type": type(error).__name__})
    if target.is_command and isinstance(error, MCPError) and error.code == CONNECTION_CLOSED:
        return _execution_error(
            f"the command {label} ended before it answered; run it by hand to see why", {"code": error.code}
        )
    return _execution_error(f"{label} cannot be connected: {told}", {"type": type(error).__name__})


def _execution_error(message: str, details: dict[str, Any]) -> CallError:
    return CallError("EXECUTION_ERROR", message, details)


_MAX_MESSAGE_CHARS = 1000
_MAX_DATA_BYTES = 4096
"""How much of what a server says of an error is told on."""

_SDK_TIMEOUT = re.compile(r"Request '[a-z/]+' timed out")
"""What the SDK says of time that is up. Other SDKs have the code for something else."""

_UNKNOWN_TOOL = re.compile(r"unknown tool|tool .{0,300}not found|no such tool", re.IGNORECASE | re.DOTALL)


def result_to_envelope(result: dict[str, Any], spec: OperationSpec, *, parse_json: bool) -> ResponseEnvelope[Any]:
    """The envelope of a result as it is on the wire: what is structured first, else the blocks."""
    content = result.get("content")
    envelope: ResponseEnvelope[Any] = mcp_envelope(
        result.get("structuredContent"),
        is_error=result.get("isError") is True,
        content=content if isinstance(content, list) else (),
        structured_content=result.get("structuredContent"),
        meta=result["_meta"] if isinstance(result.get("_meta"), dict) else None,
    )
    meta = envelope.meta
    if envelope.data is not None or not isinstance(meta, MCPResponseMeta):
        return envelope
    is_asked_for = parse_json and not meta.is_error and is_meaningful(spec.output_schema)
    # The pipeline tells blocks from data by their being the very list of the meta.
    return dataclasses.replace(envelope, data=_parse_sole_text(meta.content) if is_asked_for else meta.content)


def _parse_sole_text(blocks: list[MCPContentBlock]) -> Any:
    """The value of a sole text that is JSON, else the blocks."""
    match blocks:
        case [{"type": "text", "text": str(text)}]:
            try:
                return parse(text.encode())
            except ValueError:
                pass
    return blocks


def is_unknown_tool(result: dict[str, Any], tool: str) -> bool:
    """Whether an error result says that there is no such tool: the SDK's own servers say it so."""
    match result:
        case {"isError": True, "content": [{"type": "text", "text": str(text)}]}:
            return text == f"Unknown tool: {tool}"
    return False


def to_call_error(error: BaseException, operation_id: str) -> CallError:
    """What a call that came to nothing is told as."""
    if isinstance(error, CallError):
        return error
    if isinstance(error, TimeoutError):
        return CallError("TIMEOUT", f"{operation_id} took too long: {error!s:.200}".rstrip(": "))
    told = (str(error) or type(error).__name__)[:_MAX_MESSAGE_CHARS]
    match error:
        case ConnectionLost():
            return CallError(
                "EXECUTION_ERROR",
                f"{operation_id} may or may not have run: the connection to its server was lost ({told}); "
                "the next call connects again",
                {"code": CONNECTION_CLOSED},
            )
        case SessionExpired():
            return CallError("EXECUTION_ERROR", f"{operation_id} has not run: its server forgets every session at once")
        case HTTPStatusError(status=status):
            return CallError("EXECUTION_ERROR", f"{operation_id} failed: {told}", {"status": status})
        case MCPError():
            return _protocol_to_call_error(error, told, operation_id)
    return CallError("EXECUTION_ERROR", f"{operation_id} could not be called: {told}", {"type": type(error).__name__})


def _protocol_to_call_error(error: MCPError, told: str, operation_id: str) -> CallError:
    details: dict[str, Any] = {"code": error.code}
    if error.data is not None and len(encode(error.data)) <= _MAX_DATA_BYTES:
        details["data"] = error.data
    if error.code == METHOD_NOT_FOUND or (error.code == INVALID_PARAMS and _UNKNOWN_TOOL.search(told)):
        return CallError("OPERATION_NOT_FOUND", f"{operation_id} is not there any more: {told}", details)
    if error.code == REQUEST_TIMEOUT and _SDK_TIMEOUT.fullmatch(told):
        return CallError("TIMEOUT", f"{operation_id} took too long: {told}", details)
    return CallError("EXECUTION_ERROR", f"{operation_id} failed: {told}", details)
