"""One way to call a local function, a tool of an MCP server or an HTTP API, and one shape that comes back."""

from headgate.operations.cast import cast
from headgate.operations.env import OperationEnv, OperationFunction, build_env
from headgate.operations.errors import CODES, CallCode, CallError
from headgate.operations.events import (
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
from headgate.operations.handler import CallHandler
from headgate.operations.pending import PendingRequestMap
from headgate.operations.pubsub import InProcessPubSub, PubSub, listen
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
from headgate.operations.subscribe import subscribe

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
    "event_from_json",
    "event_to_json",
    "finished",
    "listen",
    "subscribe",
]
