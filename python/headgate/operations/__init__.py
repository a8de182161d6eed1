"""One way to call a local function, a tool of an MCP server or an HTTP API, and one shape that comes back."""

from headgate.operations.cast import cast
from headgate.operations.errors import CODES, CallCode, CallError
from headgate.operations.registry import OperationRegistry
from headgate.operations.results import finished
from headgate.operations.serving import (
    HTTPResponse,
    error_to_call_tool_result,
    error_to_http_response,
    to_call_tool_result,
    to_http_response,
)
from headgate.operations.spec import (
    AccessControl,
    CallContext,
    Handler,
    Identity,
    Operation,
    OperationSpec,
    OperationType,
)

__all__ = [
    "CODES",
    "AccessControl",
    "CallCode",
    "CallContext",
    "CallError",
    "HTTPResponse",
    "Handler",
    "Identity",
    "Operation",
    "OperationRegistry",
    "OperationSpec",
    "OperationType",
    "cast",
    "error_to_call_tool_result",
    "error_to_http_response",
    "finished",
    "to_call_tool_result",
    "to_http_response",
]
