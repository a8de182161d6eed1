"""Calls and subscriptions in flight on a connection, to find the call that a server request belongs to.

Before 2026-07-28 a server request does not name its call.
"""

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from forebay.hub.calls import Call, CallFinished, Result
from forebay.wire.messages import make_id_key

__all__ = ["InFlight", "OpenSubscriptions", "bind_call"]

_current_call: contextvars.ContextVar[Call | None] = contextvars.ContextVar("call", default=None)


@contextlib.contextmanager
def bind_call(call: Call) -> Iterator[None]:
    """Mark messages that are sent to a server inside the block as part of this call."""
    reset_token = _current_call.set(call)
    try:
        yield
    finally:
        _current_call.reset(reset_token)


class InFlight:
    """The client calls in flight on one connection to a server."""

    def __init__(self) -> None:
        self._calls: dict[bytes, Call] = {}
        self._principals: set[str | None] = set()
        """Every principal that has used this connection."""

    def on_sent(self, message: object) -> None:
        """Record a message that is sent to the server. Must run in the sender's `contextvars` context."""
        match message:
            case JSONRPCRequest(id=request_id):
                if (call := _current_call.get()) is not None:
                    key = make_id_key(request_id)
                    self._calls[key] = call
                    # Also forget the call when it ends: the request may get lost, or its response may be unreadable.
                    call.add_done_callback(lambda: self._calls.pop(key, None))
                    self._principals.add(call.caller.principal)
            case JSONRPCNotification(method="notifications/cancelled", params={"requestId": request_id}):
                self._calls.pop(make_id_key(request_id), None)

    def on_received(self, message: object) -> None:
        """Record a message from the server."""
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._calls.pop(make_id_key(message.id), None)

    async def request_input(self, method: str, params: Mapping[str, Any] | None, related_request_id: object) -> Result:
        """Return the answer of the client whose call the server request belongs to.

        Raises `MCPError` if the client answers with an error, or if the call cannot be determined.
        """
        while True:
            call = self._find_call(method, params or {}, related_request_id)
            # If the call has ended, the server request must belong to another call: look for that call.
            with contextlib.suppress(CallFinished):
                return await call.request_input(method, params)

    def _find_call(self, method: str, params: Mapping[str, Any], related_request_id: object) -> Call:
        calls = [call for call in self._calls.values() if not call.is_finished]
        if related_request_id is not None:
            # A server request on the SSE stream of a call belongs to that call.
            found = self._calls.get(make_id_key(related_request_id))
            calls = [] if found is None or found.is_finished else [found]
        elif len(self._principals) > 1 or len({call.caller.identity for call in calls}) > 1:
            # Do not guess, even with one call in flight: the request may belong to a cancelled call of another client.
            raise MCPError(
                code=INTERNAL_ERROR, message="several clients share this connection; nobody can tell whose this is"
            )
        # All these calls are of the same client, so any of them can be used.
        candidates = [call for call in calls if call.caller.supports(method, params)]
        if not candidates:
            raise MCPError(code=METHOD_NOT_FOUND, message="Method not found", data=method)
        return candidates[-1]


_FILTER_KEYS = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}


class OpenSubscriptions:
    """The open subscriptions of a connection: their filters, by the id of the request that opened each."""

    def __init__(self) -> None:
        self._filters: dict[RequestId, Mapping[str, Any]] = {}

    def on_sent(self, message: object) -> None:
        """Record a message to the server."""
        match message:
            case JSONRPCRequest(method="subscriptions/listen", params={"notifications": dict() as requested_filter}):
                self._filters[message.id] = requested_filter
            case JSONRPCNotification(
                method="notifications/cancelled", params={"requestId": str() | int() as request_id}
            ):
                self._filters.pop(request_id, None)

    def on_received(self, message: object) -> None:
        """Record a message from the server."""
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._filters.pop(message.id, None)

    def is_duplicate(self, message: JSONRPCNotification) -> bool:
        """Return whether a notification also arrives on an earlier subscription."""
        match message.params:
            case {"_meta": {"io.modelcontextprotocol/subscriptionId": str() | int() as subscription}} if (
                subscription in self._filters
            ):
                matching = (
                    other for other, its_filter in self._filters.items() if _matches_filter(message, its_filter)
                )
                return bool(next(matching, subscription) != subscription)
        return False


def _matches_filter(message: JSONRPCNotification, subscription_filter: Mapping[str, Any]) -> bool:
    if message.method == "notifications/resources/updated":
        return (message.params or {}).get("uri") in (subscription_filter.get("resourceSubscriptions") or ())
    return subscription_filter.get(_FILTER_KEYS.get(message.method, "")) is True
