"""One way to call a local function, a tool of an MCP server or an HTTP API, and one shape that comes back."""

from typing import TYPE_CHECKING, Any

from headgate.operations.cast import cast
from headgate.operations.errors import CODES, CallCode, CallError
from headgate.operations.registry import OperationRegistry
from headgate.operations.results import finished
from headgate.operations.spec import (
    AccessControl,
    CallContext,
    Handler,
    Identity,
    Operation,
    OperationSpec,
    OperationType,
)

if TYPE_CHECKING:
    from headgate.operations.openapi import from_openapi as from_openapi

__all__ = [
    "CODES",
    "AccessControl",
    "CallCode",
    "CallContext",
    "CallError",
    "Handler",
    "Identity",
    "Operation",
    "OperationRegistry",
    "OperationSpec",
    "OperationType",
    "cast",
    "finished",
    "from_openapi",
]


def __getattr__(name: str) -> Any:
    # Nobody waits for an HTTP client who does not call an HTTP API.
    if name == "from_openapi":
        from headgate.operations.openapi import from_openapi

        return from_openapi
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
