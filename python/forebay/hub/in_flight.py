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
)

from forebay.hub.calls import Call, CallOver, Result
from forebay.wire.messages import key_of

__all__ = ["UnderWay", "sent_for"]

_current: contextvars.ContextVar[Call | None] = contextvars.ContextVar("call", default=None)


@contextlib.contextmanager
def sent_for(call: Call) -> Iterator[None]:
    """What is sent to a server here is this call."""
    before = _current.set(call)
    try:
        yield
    finally:
        _current.reset(before)


class UnderWay:
    """The clients' calls on a connection, from when they are sent until they are answered or cancelled."""

    def __init__(self) -> None:
        self._calls: dict[bytes, Call] = {}
        self._principals: set[str | None] = set()
        """Who has ever called by this connection."""

    def sent(self, message: object) -> None:
        """A message to the server, in the context of whoever sends it."""
        match message:
            case JSONRPCRequest(id=number):
                if (call := _current.get()) is not None:
                    key = key_of(number)
                    self._calls[key] = call
                    # It may never get there, or its answer may be one that nobody can read.
                    call.when_over(lambda: self._calls.pop(key, None))
                    self._principals.add(call.caller.principal)
            case JSONRPCNotification(method="notifications/cancelled", params={"requestId": number}):
                self._calls.pop(key_of(number), None)

    def received(self, message: object) -> None:
        """A message from the server."""
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._calls.pop(key_of(message.id), None)

    async def ask(self, method: str, params: Mapping[str, Any] | None, related: object) -> Result:
        """What the client answers whose call it is. Raises `MCPError`, also where that is nobody's."""
        while True:
            call = self._whose(method, params or {}, related)
            # It may have been another's: a server that has answered a call does not wait for anything in it.
            with contextlib.suppress(CallOver):
                return await call.ask(method, params)

    def _whose(self, method: str, params: Mapping[str, Any], related: object) -> Call:
        calls = [call for call in self._calls.values() if not call.is_over]
        if related is not None:
            # What comes by the stream of a request is of that.
            found = self._calls.get(key_of(related))
            calls = [] if found is None or found.is_over else [found]
        elif len(self._principals) > 1 or len({call.caller.one for call in calls}) > 1:
            # Even of an only call: what comes late may be of one that someone else has given up.
            raise MCPError(
                code=INTERNAL_ERROR, message="several clients share this connection; nobody can tell whose this is"
            )
        # Of one and the same client's, any will do: it is asked as one is that has a connection.
        able = [call for call in calls if call.caller.can(method, params)]
        if not able:
            raise MCPError(code=METHOD_NOT_FOUND, message="Method not found", data=method)
        return able[-1]
