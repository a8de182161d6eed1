"""To which of the calls on a connection a request of its server belongs: before 2026-07-28, nothing in it says so."""

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
from forebay.wire.messages import id_key

__all__ = ["InFlight", "OpenSubscriptions", "bind_call"]

_current_call: contextvars.ContextVar[Call | None] = contextvars.ContextVar("call", default=None)


@contextlib.contextmanager
def bind_call(call: Call) -> Iterator[None]:
    """What is sent to a server here is this call."""
    before = _current_call.set(call)
    try:
        yield
    finally:
        _current_call.reset(before)


class InFlight:
    """The clients' calls on a connection, from when they are sent until they are answered or cancelled."""

    def __init__(self) -> None:
        self._calls: dict[bytes, Call] = {}
        self._principals: set[str | None] = set()
        """Who has ever called by this connection."""

    def on_sent(self, message: object) -> None:
        """A message to the server, in the context of whoever sends it."""
        match message:
            case JSONRPCRequest(id=number):
                if (call := _current_call.get()) is not None:
                    key = id_key(number)
                    self._calls[key] = call
                    # It may never get there, or its answer may be one that nobody can read.
                    call.add_done_callback(lambda: self._calls.pop(key, None))
                    self._principals.add(call.caller.principal)
            case JSONRPCNotification(method="notifications/cancelled", params={"requestId": number}):
                self._calls.pop(id_key(number), None)

    def on_received(self, message: object) -> None:
        """A message from the server."""
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._calls.pop(id_key(message.id), None)

    async def request_input(self, method: str, params: Mapping[str, Any] | None, related: object) -> Result:
        """What the client answers whose call it is. Raises `MCPError`, also where that is nobody's."""
        while True:
            call = self._find_call(method, params or {}, related)
            # It may have been another's: a server that has answered a call does not wait for anything in it.
            with contextlib.suppress(CallFinished):
                return await call.request_input(method, params)

    def _find_call(self, method: str, params: Mapping[str, Any], related: object) -> Call:
        calls = [call for call in self._calls.values() if not call.is_finished]
        if related is not None:
            # What comes by the stream of a request is of that.
            found = self._calls.get(id_key(related))
            calls = [] if found is None or found.is_finished else [found]
        elif len(self._principals) > 1 or len({call.caller.identity for call in calls}) > 1:
            # Even of an only call: what comes late may be of one that someone else has given up.
            raise MCPError(
                code=INTERNAL_ERROR, message="several clients share this connection; nobody can tell whose this is"
            )
        # Of one and the same client's, any will do: it is asked as one is that has a connection.
        able = [call for call in calls if call.caller.supports(method, params)]
        if not able:
            raise MCPError(code=METHOD_NOT_FOUND, message="Method not found", data=method)
        return able[-1]


_FILTER_KEYS = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}


class OpenSubscriptions:
    """The subscriptions that are open on a connection, by the requests that opened them."""

    def __init__(self) -> None:
        self._filters: dict[RequestId, Mapping[str, Any]] = {}

    def on_sent(self, message: object) -> None:
        """A message to the server."""
        match message:
            case JSONRPCRequest(id=number, method="subscriptions/listen", params={"notifications": dict() as wanted}):
                self._filters[number] = wanted
            case JSONRPCNotification(method="notifications/cancelled", params={"requestId": str() | int() as number}):
                self._filters.pop(number, None)

    def on_received(self, message: object) -> None:
        """A message from the server."""
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._filters.pop(message.id, None)

    def is_duplicate(self, message: JSONRPCNotification) -> bool:
        """Whether it is said to an earlier subscription, too: to the first that wants it, it is news."""
        match message.params:
            case {"_meta": {"io.modelcontextprotocol/subscriptionId": str() | int() as said}} if said in self._filters:
                first = (other for other, wanted in self._filters.items() if _matches_filter(message, wanted))
                return bool(next(first, said) != said)
        return False


def _matches_filter(message: JSONRPCNotification, wanted: Mapping[str, Any]) -> bool:
    if message.method == "notifications/resources/updated":
        return (message.params or {}).get("uri") in (wanted.get("resourceSubscriptions") or ())
    return wanted.get(_FILTER_KEYS.get(message.method, "")) is True
