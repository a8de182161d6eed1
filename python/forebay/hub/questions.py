"""Calls that wait for their client to answer what a server asks: since 2026-07-28 it does so in another request."""

import asyncio
import dataclasses
import secrets

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, REQUEST_TIMEOUT

from forebay.adapters.mcp import principal_of
from forebay.hub.calls import Call, Caller, Result, request_of
from forebay.hub.client_peer import Front
from forebay.hub.in_flight import sent_for
from forebay.hub.send import Request, asked, sent
from forebay.hub.tenant_pool import Scopes
from forebay.hub.timeouts import Limit
from forebay.hub.upstreams import MCPUpstream
from forebay.operations.errors import CallError

__all__ = ["Questions"]

_MOST_WAITING = 32
"""How many calls of a principal may wait at once."""

_UNKNOWN = "this requestState is not known, or not any more; make the call again without it"


@dataclasses.dataclass(eq=False, frozen=True, slots=True)
class _Waiting:
    call: Call
    upstream: MCPUpstream
    late: asyncio.TimerHandle


class Questions:
    """Of all clients, each call by the `requestState` that was given for it; that is good for one answer."""

    def __init__(self, scopes: Scopes, seconds: float) -> None:
        self._scopes = scopes
        self.seconds = seconds
        """How long a client may take to answer."""
        self._waiting: dict[str, _Waiting] = {}

    async def passed(self, request: Request, front: Front, upstream: MCPUpstream) -> Result:
        """What a server answers or, if that is one that asks in the middle of a call, what the client is to be asked.

        Raises `Failed`, and `MCPError`. Whoever gives up here ends the call.
        """
        call = self._taken_up(request, upstream)
        if call is None:
            if not await _has_connections(upstream):
                return await asked(request, upstream)
            if any(request.params.get(key) is not None for key in ("requestState", "inputResponses")):
                raise MCPError(code=INVALID_PARAMS, message=_UNKNOWN)
            call = self._begun(request, upstream)
        request.asking.limit = call.limit
        with front.going_on(call.token, request.asking):
            return await self._outcome(call, upstream)

    def _begun(self, request: Request, upstream: MCPUpstream) -> Call:
        principal = _principal()

        async def send(limit: Limit) -> Result:
            # While its client thinks, no request of it may be under way.
            async with self._scopes.used_by(principal):
                return await sent(upstream, request.method, request.params, limit)

        # On stdio there is but one client; over HTTP, nobodies may be anyone.
        one = principal or (object() if request.is_over_http else "stdio")
        caller = Caller(principal, one, request.capabilities)
        call = Call(request.method, request.params, request.asking.used, caller)
        with sent_for(call):
            call.start(send, upstream.call_timeout)
        return call

    def _taken_up(self, request: Request, upstream: MCPUpstream) -> Call | None:
        """The call that a request goes on with, if it names one that is its own."""
        params = request.params
        state = params.get("requestState")
        waiting = self._waiting.get(state) if isinstance(state, str) else None
        if waiting is None or waiting.upstream is not upstream:
            return None
        call = waiting.call
        if call.caller.principal != _principal() or call.request != request_of(request.method, params):
            return None
        answers = params.get("inputResponses")
        answers = {} if answers is None else answers
        if not isinstance(answers, dict) or not all(isinstance(answer, dict) for answer in answers.values()):
            raise MCPError(code=INVALID_PARAMS, message="inputResponses is an object of results; answer again")
        del self._waiting[str(state)]
        waiting.late.cancel()
        call.go_on(answers)
        return call

    async def _outcome(self, call: Call, upstream: MCPUpstream) -> Result:
        try:
            while (result := await call.news()) is None:
                if self._has_room(call):
                    return self._asked(call, upstream)
                call.refuse(INTERNAL_ERROR, "too many calls wait for their client already; try again in a while")
            return result
        except asyncio.CancelledError:
            call.end(INTERNAL_ERROR, "the client has cancelled the call")
            raise

    def _has_room(self, call: Call) -> bool:
        theirs = (each for each in self._waiting.values() if each.call.caller.principal == call.caller.principal)
        return sum(1 for _ in theirs) < _MOST_WAITING

    def _asked(self, call: Call, upstream: MCPUpstream) -> Result:
        state = secrets.token_urlsafe(32)
        late = asyncio.get_running_loop().call_later(self.seconds, self._is_late, state)
        self._waiting[state] = _Waiting(call, upstream, late)
        call.pause()
        return {"resultType": "input_required", "inputRequests": call.questions, "requestState": state}

    def _is_late(self, state: str) -> None:
        told = f"the client did not answer within {self.seconds:g} s"
        self._waiting.pop(state).call.end(REQUEST_TIMEOUT, told)

    def close(self) -> None:
        """Nobody will come back."""
        waiting = [*self._waiting.values()]
        self._waiting.clear()
        for each in waiting:
            each.late.cancel()
            each.call.end(INTERNAL_ERROR, "the gateway is about to end")


def _principal() -> str | None:
    return principal_of(get_access_token())


async def _has_connections(upstream: MCPUpstream) -> bool:
    """Whether it may ask by its connection; of one that cannot be reached, nobody knows."""
    try:
        return not await upstream.is_modern()
    except CallError:
        return False
