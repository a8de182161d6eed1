"""What a server of MCP answered, as an envelope or as what went wrong."""

import dataclasses
import re
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, METHOD_NOT_FOUND, REQUEST_TIMEOUT

from forebay.operations.envelope import MCPContentBlock, MCPResponseMeta, ResponseEnvelope, mcp_envelope
from forebay.operations.envelope.body import parsed
from forebay.operations.errors import CallError
from forebay.operations.mcp.failures import ConnectionLost, HTTPRefused, SessionForgotten
from forebay.operations.spec import OperationSpec
from forebay.operations.validation import is_meaningful
from forebay.store.payload import encoded

__all__ = ["envelope_of", "error_of", "says_unknown"]

_MOST_MESSAGE = 1000
_MOST_DATA = 4096
"""How much of what a server says of an error is told on."""

_TIMED_OUT = re.compile(r"Request '[a-z/]+' timed out")
"""What the SDK says of time that is up. Other SDKs have the code for something else."""

_UNKNOWN = re.compile(r"unknown tool|tool .{0,300}not found|no such tool", re.IGNORECASE | re.DOTALL)


def envelope_of(result: dict[str, Any], spec: OperationSpec, *, parse_json: bool) -> ResponseEnvelope[Any]:
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
    return dataclasses.replace(envelope, data=_parsed(meta.content) if is_asked_for else meta.content)


def _parsed(blocks: list[MCPContentBlock]) -> Any:
    """The value of a sole text that is JSON, else the blocks."""
    match blocks:
        case [{"type": "text", "text": str(text)}]:
            try:
                return parsed(text.encode())
            except ValueError:
                pass
    return blocks


def says_unknown(result: dict[str, Any], tool: str) -> bool:
    """Whether an error result says that there is no such tool: the SDK's own servers say it so."""
    match result:
        case {"isError": True, "content": [{"type": "text", "text": str(text)}]}:
            return text == f"Unknown tool: {tool}"
    return False


def error_of(error: BaseException, operation_id: str) -> CallError:
    """What a call that came to nothing is told as."""
    if isinstance(error, CallError):
        return error
    if isinstance(error, TimeoutError):
        return CallError("TIMEOUT", f"{operation_id} took too long: {error!s:.200}".rstrip(": "))
    told = (str(error) or type(error).__name__)[:_MOST_MESSAGE]
    match error:
        case ConnectionLost():
            return CallError(
                "EXECUTION_ERROR",
                f"{operation_id} may or may not have run: the connection to its server was lost ({told}); "
                "the next call connects again",
                {"code": CONNECTION_CLOSED},
            )
        case SessionForgotten():
            return CallError("EXECUTION_ERROR", f"{operation_id} has not run: its server forgets every session at once")
        case HTTPRefused(status=status):
            return CallError("EXECUTION_ERROR", f"{operation_id} failed: {told}", {"status": status})
        case MCPError():
            return _error_of_protocol(error, told, operation_id)
    return CallError("EXECUTION_ERROR", f"{operation_id} could not be called: {told}", {"type": type(error).__name__})


def _error_of_protocol(error: MCPError, told: str, operation_id: str) -> CallError:
    details: dict[str, Any] = {"code": error.code}
    if error.data is not None and len(encoded(error.data)) <= _MOST_DATA:
        details["data"] = error.data
    if error.code == METHOD_NOT_FOUND or (error.code == INVALID_PARAMS and _UNKNOWN.search(told)):
        return CallError("OPERATION_NOT_FOUND", f"{operation_id} is not there any more: {told}", details)
    if error.code == REQUEST_TIMEOUT and _TIMED_OUT.fullmatch(told):
        return CallError("TIMEOUT", f"{operation_id} took too long: {told}", details)
    return CallError("EXECUTION_ERROR", f"{operation_id} failed: {told}", details)
