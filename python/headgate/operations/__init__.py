"""One way to call a local function, a tool of an MCP server or an HTTP API, and one shape that comes back."""

from headgate.operations.cast import Caster, cast
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

__all__ = [
    "CODES",
    "AccessControl",
    "CallCode",
    "CallContext",
    "CallError",
    "Caster",
    "Handler",
    "Identity",
    "Operation",
    "OperationRegistry",
    "OperationSpec",
    "OperationType",
    "cast",
    "finished",
]
