"""Calls that wait for their client to answer what a server asks: since 2026-07-28 it does so in another request."""

import asyncio
import dataclasses
import secrets

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, REQUEST_TIMEOUT

from forebay.adapters.mcp import get_principal
from forebay.hub.calls import Call, Caller, PausableTimeout, Result, request_key
from forebay.hub.client_peer import ClientPeer
from forebay.hub.in_flight import bind_call
from forebay.hub.requests import ForwardedRequest, send_request, send_with_timeout
from forebay.hub.tenants import TenantPool
from forebay.hub.upstreams import MCPUpstream
from forebay.operations.errors import CallError

__all__ = ["PausedCalls"]

_MAX_PAUSED_CALLS = 32
"""How many calls of a principal may wait at once."""

_UNKNOWN_STATE = "this requestState is not known, or not any more; make the call again without it"


@dataclasses.dataclass(eq=False, frozen=True, slots=True)
class _PausedCall:
    call: Call
    upstream: MCPUpstream
    expiry_timer: asyncio.TimerHandle


class PausedCalls:
    """Of all clients, each call by the `requestState` that was given for it; that is good for one answer."""

    def __init__(self, tenants: TenantPool, answer_timeout: float) -> None:
        self._tenants = tenants
        self.answer_timeout = answer_timeout
        """How long a client may take to answer."""
        self._paused: dict[str, _PausedCall] = {}

    async def forward(self, request: ForwardedRequest, client: ClientPeer, upstream: MCPUpstream) -> Result:
        """What a server answers or, if that is one that asks in the middle of a call, what the client is to be asked.

        Raises `Failed`, and `MCPError`. Whoever gives up here ends the call.
        """
        call = self._resume_call(request, upstream)
        if call is None:
            if not await _is_legacy(upstream):
                return await send_request(request, upstream)
            if any(request.params.get(key) is not None for key in ("requestState", "inputResponses")):
                raise MCPError(code=INVALID_PARAMS, message=_UNKNOWN_STATE)
            call = self._start_call(request, upstream)
        request.client_request.timeout = call.timeout
        with client.continue_request(call.progress_token, request.client_request):
            return await self._wait_for_outcome(call, upstream)

    def _start_call(self, request: ForwardedRequest, upstream: MCPUpstream) -> Call:
        principal = _current_principal()

        async def send(timeout: PausableTimeout) -> Result:
            # While its client thinks, no request of it may be under way.
            async with self._tenants.acquire(principal):
                return await send_with_timeout(upstream, request.method, request.params, timeout)

        # On stdio there is but one client; over HTTP, nobodies may be anyone.
        one = principal or (object() if request.is_over_http else "stdio")
        caller = Caller(principal, one, request.capabilities)
        call = Call(request.method, request.params, request.client_request.upstream_token, caller)
        with bind_call(call):
            call.start(send, upstream.call_timeout)
        return call

    def _resume_call(self, request: ForwardedRequest, upstream: MCPUpstream) -> Call | None:
        """The call that a request goes on with, if it names one that is its own."""
        params = request.params
        state = params.get("requestState")
        waiting = self._paused.get(state) if isinstance(state, str) else None
        if waiting is None or waiting.upstream is not upstream:
            return None
        call = waiting.call
        if call.caller.principal != _current_principal() or call.request != request_key(request.method, params):
            return None
        answers = params.get("inputResponses")
        answers = {} if answers is None else answers
        if not isinstance(answers, dict) or not all(isinstance(answer, dict) for answer in answers.values()):
            raise MCPError(code=INVALID_PARAMS, message="inputResponses is an object of results; answer again")
        del self._paused[str(state)]
        waiting.expiry_timer.cancel()
        call.resume(answers)
        return call

    async def _wait_for_outcome(self, call: Call, upstream: MCPUpstream) -> Result:
        try:
            while (result := await call.wait_for_outcome()) is None:
                if self._has_room(call):
                    return self._pause_call(call, upstream)
                call.reject_inputs(INTERNAL_ERROR, "too many calls wait for their client already; try again in a while")
            return result
        except asyncio.CancelledError:
            call.cancel(INTERNAL_ERROR, "the client has cancelled the call")
            raise

    def _has_room(self, call: Call) -> bool:
        theirs = (each for each in self._paused.values() if each.call.caller.principal == call.caller.principal)
        return sum(1 for _ in theirs) < _MAX_PAUSED_CALLS

    def _pause_call(self, call: Call, upstream: MCPUpstream) -> Result:
        state = secrets.token_urlsafe(32)
        late = asyncio.get_running_loop().call_later(self.answer_timeout, self._expire, state)
        self._paused[state] = _PausedCall(call, upstream, late)
        call.pause()
        return {"resultType": "input_required", "inputRequests": call.input_requests, "requestState": state}

    def _expire(self, state: str) -> None:
        told = f"the client did not answer within {self.answer_timeout:g} s"
        self._paused.pop(state).call.cancel(REQUEST_TIMEOUT, told)

    def close(self) -> None:
        """Nobody will come back."""
        waiting = [*self._paused.values()]
        self._paused.clear()
        for each in waiting:
            each.expiry_timer.cancel()
            each.call.cancel(INTERNAL_ERROR, "the gateway is about to end")


def _current_principal() -> str | None:
    return get_principal(get_access_token())


async def _is_legacy(upstream: MCPUpstream) -> bool:
    """Whether it may ask by its connection; of one that cannot be reached, nobody knows."""
    try:
        return not await upstream.is_modern()
    except CallError:
        return False
