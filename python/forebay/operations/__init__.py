"""Local functions, tools of MCP servers and HTTP APIs as operations with one result type.

Design decisions:

- **No client class for each source.** `unwrap()`, `envelope.is_error` and `meta` are enough. A caller that wants an
  exception for an error result writes one `if`; a client that raised it would hide the result from other callers.
- **Subscriptions have timestamps and no sequence numbers.** Each value has its own timestamp, and the iterator keeps
  the order. A source with cursors yields them as data, so they survive a restart; a counter in this process would not.
- **`PendingRequestMap.respond()` is public** because other transports have to call it. It accepts only envelopes, so
  that no data bypasses the result pipeline. Handlers never need it.
- **Any envelope can be served.** `to_call_tool_result` and `to_http_response` accept envelopes of every source, and
  `serve_operations` serves the operations of a registry as tools. The content blocks of a tool result are passed on
  unchanged, and large results become handles as in any other server.
- **JSON in a text block is parsed only if a schema asks for it**: the operation has an output schema, the result has no
  structured content, and its only block is text that is JSON. In other cases the text may not be meant as JSON, and
  parsing it would take time and could change numbers.
- **Output schemas stay JSON Schema.** They are not converted to Python types, so no rule is lost. An unreadable schema
  is logged once and accepts everything.
"""

from typing import TYPE_CHECKING, Any

from forebay.errors import make_missing_extra

try:
    import jsonschema_rs as _  # noqa: F401 - imported first, to name the missing extra
except ModuleNotFoundError as error:
    raise make_missing_extra(__name__, "serve", error) from None

from forebay.operations.bus.events import (
    CALL_EVENT_SCHEMAS,
    CallAbortedEvent,
    CallErrorEvent,
    CallEvent,
    CallEventName,
    CallRequestedEvent,
    CallRespondedEvent,
    InProcessPubSub,
    PubSub,
    event_from_json,
    event_to_json,
    listen,
)
from forebay.operations.bus.handler import CallHandler
from forebay.operations.bus.pending import PendingRequestMap
from forebay.operations.cast import Caster, cast
from forebay.operations.errors import CODES, CallCode, CallError
from forebay.operations.registry import OperationRegistry, subscribe
from forebay.operations.responses import (
    HTTPResponse,
    error_to_call_tool_result,
    error_to_http_response,
    to_call_tool_result,
    to_http_response,
)
from forebay.operations.results import to_envelope
from forebay.operations.spec import (
    AccessControl,
    CallContext,
    Handler,
    Identity,
    Operation,
    OperationEnv,
    OperationFunction,
    OperationSpec,
    OperationType,
    build_env,
)

if TYPE_CHECKING:
    from forebay.operations.mcp import from_mcp, serve_operations
    from forebay.operations.openapi import from_openapi

__all__ = [
    "CALL_EVENT_SCHEMAS",
    "CODES",
    "AccessControl",
    "CallAbortedEvent",
    "CallCode",
    "CallContext",
    "CallError",
    "CallErrorEvent",
    "CallEvent",
    "CallEventName",
    "CallHandler",
    "CallRequestedEvent",
    "CallRespondedEvent",
    "Caster",
    "HTTPResponse",
    "Handler",
    "Identity",
    "InProcessPubSub",
    "Operation",
    "OperationEnv",
    "OperationFunction",
    "OperationRegistry",
    "OperationSpec",
    "OperationType",
    "PendingRequestMap",
    "PubSub",
    "build_env",
    "cast",
    "error_to_call_tool_result",
    "error_to_http_response",
    "event_from_json",
    "event_to_json",
    "from_mcp",
    "from_openapi",
    "listen",
    "serve_operations",
    "subscribe",
    "to_call_tool_result",
    "to_envelope",
    "to_http_response",
]

_LAZY_MODULES = {"from_mcp": "mcp", "serve_operations": "mcp", "from_openapi": "openapi"}


def __getattr__(name: str) -> Any:
    # Imported on first use: the MCP SDK and the HTTP client take about a second to import.
    if name not in _LAZY_MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    try:
        module = importlib.import_module(f"{__name__}.{_LAZY_MODULES[name]}")
    except ImportError as error:
        raise make_missing_extra(f"{__name__}.{name}", "serve", error) from None
    return getattr(module, name)
