"""One way to call a local function, a tool of an MCP server or an HTTP API, and one shape that comes back.

Decided along the way, and why:

- **No client for each source.** `unwrap()`, `envelope.is_error` and `meta` are enough: whoever wants an error result
  raised has one `if` to write, and a client that raised would hide what others want to read.
- **Subscriptions carry a time and no numbers.** Each yield has its own timestamp, and the iterator keeps the order. A
  source that has cursors yields them as data, where they survive a restart; a counter of ours would not.
- **`respond()` stays public**, because another transport has to call it. It takes envelopes alone, so nothing gets
  around the pipeline by it; handlers never need it.
- **Serving is the way back.** `to_call_tool_result` and `to_http_response` take any envelope, `serve_operations` makes
  tools of a registry. What came from a tool leaves as the same blocks, and what is too large goes through the same
  handles as in any other server.
- **JSON in a text block is parsed only where a schema asks for it**: the operation declares what it answers, nothing
  is structured, and the sole block is text that is JSON. Anywhere else a guess would cost time, and change numbers.
- **Output schemas stay JSON Schema.** Nothing is converted, so nothing gets lost in it. One that cannot be understood
  is told of once, and takes everything.
"""

from typing import TYPE_CHECKING, Any

from forebay.errors import install_hint

try:
    import jsonschema_rs as _  # noqa: F401 - to say what is missing before anything of it is used
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"operations need more: {install_hint('operations')}", name=error.name) from None

from forebay.operations.bus.events import (
    CALL_EVENT_SCHEMAS,
    CallAbortedEvent,
    CallErrorEvent,
    CallEvent,
    CallEventName,
    CallRequestedEvent,
    CallRespondedEvent,
    event_from_json,
    event_to_json,
)
from forebay.operations.bus.handler import CallHandler
from forebay.operations.bus.pending import PendingRequestMap
from forebay.operations.bus.pubsub import InProcessPubSub, PubSub, listen
from forebay.operations.cast import Caster, cast
from forebay.operations.env import OperationEnv, OperationFunction, build_env
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
    OperationSpec,
    OperationType,
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

_LAZY = {"from_mcp": "mcp", "serve_operations": "mcp", "from_openapi": "openapi"}


def __getattr__(name: str) -> Any:
    # An SDK and an HTTP client take a second to import: nobody waits for them who calls neither.
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
