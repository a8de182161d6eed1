"""Events of the call protocol, and their JSON form for transports between processes.

Each event is published under its name: `call.requested`, then one of `call.responded`, `call.error` and
`call.aborted`. The `identity` of an event is trusted: let only trusted processes publish.
"""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from forebay.envelope import RESPONSE_ENVELOPE_SCHEMA
from forebay.envelope.body import dump_reversible, from_jsonable, parse
from forebay.errors import InvalidArgument
from forebay.operations.deadlines import from_epoch_ms, to_epoch_ms
from forebay.operations.errors import CODES, CallCode
from forebay.operations.spec import CallContext, Identity

__all__ = [
    "CALL_EVENT_SCHEMAS",
    "CallAbortedEvent",
    "CallErrorEvent",
    "CallEvent",
    "CallEventName",
    "CallRequestedEvent",
    "CallRespondedEvent",
    "IdentityClaim",
    "build_requested_event",
    "context_from_event",
    "event_from_json",
    "event_to_json",
]

CallEventName: TypeAlias = Literal["call.requested", "call.responded", "call.error", "call.aborted"]


class IdentityClaim(TypedDict):
    """The caller of an event."""

    id: str
    scopes: list[str]


class CallRequestedEvent(TypedDict):
    """A request to run an operation."""

    requestId: str
    operationId: str
    input: Any
    parentRequestId: NotRequired[str]
    deadline: NotRequired[float]
    """In milliseconds since 1970."""
    identity: NotRequired[IdentityClaim]


class CallRespondedEvent(TypedDict):
    """The response to a call: its envelope as a dict, which may have `isError`."""

    requestId: str
    output: Mapping[str, Any]


class CallErrorEvent(TypedDict):
    """The failure of a call."""

    requestId: str
    code: CallCode
    message: str
    details: NotRequired[dict[str, Any]]


class CallAbortedEvent(TypedDict):
    """The end of a call whose caller does not wait any more."""

    requestId: str
    reason: NotRequired[str]


CallEvent: TypeAlias = CallRequestedEvent | CallRespondedEvent | CallErrorEvent | CallAbortedEvent

_STRING: dict[str, Any] = {"type": "string"}
_IDENTITY: dict[str, Any] = {
    "type": "object",
    "properties": {"id": _STRING, "scopes": {"type": "array", "items": _STRING}},
    "required": ["id", "scopes"],
}


def _schema(required_properties: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"requestId": _STRING, **required_properties, **optional},
        "required": ["requestId", *required_properties],
    }


CALL_EVENT_SCHEMAS: dict[CallEventName, dict[str, Any]] = {
    "call.requested": _schema(
        {"operationId": _STRING, "input": {}},
        parentRequestId=_STRING,
        deadline={"type": "number"},
        identity=_IDENTITY,
    ),
    "call.responded": _schema({"output": RESPONSE_ENVELOPE_SCHEMA}),
    "call.error": _schema({"code": {"enum": [*CODES]}, "message": _STRING}, details={"type": "object"}),
    "call.aborted": _schema({}, reason=_STRING),
}
"""JSON Schemas (2020-12) of the events by their names."""


def event_to_json(event: CallEvent) -> bytes:
    """Dump an event as JSON, bytes and bodies as in envelopes. Raises `TypeError` for objects without a JSON form."""
    return dump_reversible(event)


def event_from_json(data: bytes | str) -> Any:
    """Read an event that `event_to_json` wrote."""
    try:
        content = data.encode() if isinstance(data, str) else data
        return from_jsonable(parse(content), content)
    except ValueError as error:
        raise InvalidArgument(f"this is not JSON: {error}") from None


def build_requested_event(operation_id: str, input_data: Any, context: CallContext) -> CallRequestedEvent:
    """Build the `call.requested` event of a call."""
    request_id = context.request_id or ""
    event: CallRequestedEvent = {"requestId": request_id, "operationId": operation_id, "input": input_data}
    if context.parent_request_id is not None:
        event["parentRequestId"] = context.parent_request_id
    if context.deadline is not None:
        event["deadline"] = to_epoch_ms(context.deadline)
    if context.identity is not None:
        event["identity"] = {"id": context.identity.id, "scopes": sorted(context.identity.scopes)}
    return event


def context_from_event(event: Mapping[str, Any]) -> CallContext:
    """Read the context of a call from its `call.requested` event. Raises `InvalidArgument` if it is malformed."""
    parent, deadline = event.get("parentRequestId"), event.get("deadline")
    if parent is not None and not isinstance(parent, str):
        raise InvalidArgument("parentRequestId is the requestId of the call that this one is a part of")
    return CallContext(
        request_id=event["requestId"],
        parent_request_id=parent,
        identity=_parse_identity(event.get("identity")),
        deadline=None if deadline is None else _parse_deadline(deadline),
    )


def _parse_identity(claim: Any) -> Identity | None:
    match claim:
        case None:
            return None
        case {"id": str(name), "scopes": list(scopes)} if all(isinstance(scope, str) for scope in scopes):
            return Identity(name, frozenset(scopes))
    raise InvalidArgument("identity has an id and a list of scopes")


_MAX_EPOCH_MS = 1e18


def _parse_deadline(milliseconds: Any) -> float:
    is_number = isinstance(milliseconds, int | float) and not isinstance(milliseconds, bool)
    # Compared and not converted: an integer may be too large for a float.
    if not is_number or not -_MAX_EPOCH_MS < milliseconds < _MAX_EPOCH_MS:
        raise InvalidArgument("deadline is a number of milliseconds since 1970")
    return from_epoch_ms(milliseconds)
