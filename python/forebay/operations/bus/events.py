"""Events of the call protocol, their JSON form, and the topics that they are published to.

Each event is published under its name: `call.requested`, then one of `call.responded`, `call.error` and
`call.aborted`. The `identity` of an event is trusted: let only trusted processes publish.

A transport such as Redis or NATS implements the two methods of `PubSub`, and sends events with `event_to_json` and
`event_from_json`.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Literal, NotRequired, Protocol, TypeAlias, TypedDict

from forebay.envelope.body import dump_reversible, from_jsonable, parse
from forebay.envelope.envelope import MAX_EPOCH_MS, RESPONSE_ENVELOPE_SCHEMA, make_object_schema
from forebay.errors import InvalidArgument
from forebay.operations.deadlines import from_epoch_ms, to_epoch_ms, wait_bounded, wait_shielded
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
    "InProcessPubSub",
    "PubSub",
    "Receiver",
    "Unsubscribe",
    "build_requested_event",
    "context_from_event",
    "event_from_json",
    "event_to_json",
    "listen",
    "subscribe_all",
]

_log = logging.getLogger("forebay")

CallEventName: TypeAlias = Literal["call.requested", "call.responded", "call.error", "call.aborted"]


class IdentityClaim(TypedDict):
    """The id and scopes of a caller."""

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
    """The response to a call: an envelope as a dict, also for a tool that reported a failure."""

    requestId: str
    output: Mapping[str, Any]


class CallErrorEvent(TypedDict):
    """The failure of a call."""

    requestId: str
    code: CallCode
    message: str
    details: NotRequired[dict[str, Any]]


class CallAbortedEvent(TypedDict):
    """The abort of a call: its caller does not wait any more."""

    requestId: str
    reason: NotRequired[str]


CallEvent: TypeAlias = CallRequestedEvent | CallRespondedEvent | CallErrorEvent | CallAbortedEvent

_STRING: dict[str, Any] = {"type": "string"}
_IDENTITY = make_object_schema({"id": _STRING, "scopes": {"type": "array", "items": _STRING}})


def _make_event_schema(required_properties: dict[str, Any], **optional_properties: Any) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **make_object_schema({"requestId": _STRING, **required_properties}, **optional_properties),
    }


CALL_EVENT_SCHEMAS: dict[CallEventName, dict[str, Any]] = {
    "call.requested": _make_event_schema(
        {"operationId": _STRING, "input": {}},
        parentRequestId=_STRING,
        deadline={"type": "number"},
        identity=_IDENTITY,
    ),
    "call.responded": _make_event_schema({"output": RESPONSE_ENVELOPE_SCHEMA}),
    "call.error": _make_event_schema({"code": {"enum": [*CODES]}, "message": _STRING}, details={"type": "object"}),
    "call.aborted": _make_event_schema({}, reason=_STRING),
}
"""JSON Schemas (2020-12) of the events by their names."""


def event_to_json(event: CallEvent) -> bytes:
    """Dump an event as JSON; bytes become `{"$base64": …}`. Raises `TypeError` for objects without a JSON form."""
    return dump_reversible(event)


def event_from_json(data: bytes | str) -> Any:
    """Read an event that `event_to_json` wrote. Raises `InvalidArgument` if the data is not JSON."""
    try:
        content = data.encode() if isinstance(data, str) else data
        return from_jsonable(parse(content), content)
    except ValueError as error:
        raise InvalidArgument(f"this is not JSON: {error}") from None


def build_requested_event(operation_id: str, input_data: Any, context: CallContext) -> CallRequestedEvent:
    """Return the `call.requested` event of a call."""
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
    """Read the context of a call from its `call.requested` event. Raises `InvalidArgument` for a malformed event."""
    parent_id, deadline = event.get("parentRequestId"), event.get("deadline")
    if parent_id is not None and not isinstance(parent_id, str):
        raise InvalidArgument("parentRequestId is the requestId of the call that this one is a part of")
    return CallContext(
        request_id=event["requestId"],
        parent_request_id=parent_id,
        identity=_parse_identity(event.get("identity")),
        deadline=None if deadline is None else _parse_deadline(deadline),
    )


def _parse_identity(claim: Any) -> Identity | None:
    match claim:
        case None:
            return None
        case {"id": str(caller_id), "scopes": list(scopes)} if all(isinstance(scope, str) for scope in scopes):
            return Identity(caller_id, frozenset(scopes))
    raise InvalidArgument("identity has an id and a list of scopes")


def _parse_deadline(milliseconds: Any) -> float:
    is_number = isinstance(milliseconds, int | float) and not isinstance(milliseconds, bool)
    # The number is compared without a conversion to float: an integer may be too large for that.
    if not is_number or not -MAX_EPOCH_MS < milliseconds < MAX_EPOCH_MS:
        raise InvalidArgument("deadline is a number of milliseconds since 1970")
    return from_epoch_ms(milliseconds)


Receiver: TypeAlias = Callable[[Any], None]
"""Callback for events. It must return at once; slower consumers use `listen`."""

Unsubscribe: TypeAlias = Callable[[], Awaitable[None]]
"""Function that ends a subscription. A second call does nothing."""


class PubSub(Protocol):
    """A transport with topics. Each subscriber receives events on its own event loop."""

    async def publish(self, topic: CallEventName, event: CallEvent) -> None:
        """Send an event to all subscribers. Raises an exception if the event cannot be sent."""
        ...

    async def subscribe(self, topic: CallEventName, receive: Receiver) -> Unsubscribe:
        """Call `receive` with every later event of a topic. Return a function that ends the subscription."""
        ...


class InProcessPubSub:
    """A transport within one event loop. `publish` delivers an event before it returns, so there is no queue."""

    def __init__(self) -> None:
        self._receivers: dict[str, dict[object, Receiver]] = {}

    async def publish(self, topic: CallEventName, event: CallEvent) -> None:
        """Call all receivers with an event. If a receiver raises, that is logged and the others are still called."""
        if topic == "call.requested" and not self._receivers.get(topic):
            _log.warning("forebay: nobody answers this call; start one with `async with CallHandler(registry, calls)`")
        for receive in [*self._receivers.get(topic, {}).values()]:
            try:
                receive(event)
            except Exception:
                _log.warning("forebay: a subscriber to %s failed", topic, exc_info=True)

    async def subscribe(self, topic: CallEventName, receive: Receiver) -> Unsubscribe:
        """Call `receive` with every later event of a topic. Return a function that ends the subscription."""
        receivers, key = self._receivers.setdefault(topic, {}), object()
        receivers[key] = receive

        async def unsubscribe() -> None:
            receivers.pop(key, None)

        return unsubscribe


async def subscribe_all(pubsub: PubSub, receivers: Mapping[CallEventName, Receiver]) -> Unsubscribe:
    """Subscribe to several topics. If one subscription fails, end the others and raise."""
    subscriptions: list[Unsubscribe] = []

    async def unsubscribe() -> None:
        # Unsubscribe from all topics concurrently, so that one that hangs does not delay the others.
        waits = [wait_bounded(subscriptions.pop()()) for _ in range(len(subscriptions))]
        for outcome in await asyncio.gather(*waits, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    try:
        for topic, receive in receivers.items():
            subscriptions.append(await pubsub.subscribe(topic, receive))
    except BaseException:
        await wait_shielded(unsubscribe())
        raise
    return unsubscribe


@contextlib.asynccontextmanager
async def listen(pubsub: PubSub, topic: CallEventName, *, limit: int = 1024) -> AsyncIterator[AsyncIterator[Any]]:
    """Context manager that yields an iterator over the events of a topic.

    At most `limit` events are queued; further events are dropped, and the first drop is logged.
    """
    queue: asyncio.Queue[Any] = asyncio.Queue(limit)
    has_dropped = False

    def receive(event: Any) -> None:
        nonlocal has_dropped
        if not queue.full():
            queue.put_nowait(event)
        elif not has_dropped:
            has_dropped = True
            _log.warning("forebay: a listener to %s is %d events behind, and misses some", topic, limit)

    async def events() -> AsyncIterator[Any]:
        while True:
            yield await queue.get()

    unsubscribe = await pubsub.subscribe(topic, receive)
    try:
        yield events()
    finally:
        await wait_shielded(unsubscribe())
