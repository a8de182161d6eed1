"""Calls that are paused until the client sends the answer to an input request in another request (2026-07-28)."""

import asyncio
import dataclasses
import secrets

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, REQUEST_TIMEOUT

from forebay.adapters.mcp import get_principal
from forebay.hub.calls import Call, Caller, PausableTimeout, Result, make_request_key
from forebay.hub.client_peer import ClientPeer
from forebay.hub.in_flight import bind_call
from forebay.hub.requests import UpstreamRequest, send_request, send_with_timeout
from forebay.hub.tenants import TenantPool
from forebay.hub.upstreams import MCPUpstream
from forebay.operations.errors import CallError

__all__ = ["PausedCalls"]

_MAX_PAUSED_CALLS = 32
"""Maximum number of paused calls of one principal."""

_UNKNOWN_STATE_MESSAGE = "this requestState is not known, or not any more; make the call again without it"


@dataclasses.dataclass(eq=False, frozen=True, slots=True)
class _PausedCall:
    """Paused call, its upstream, and the timer that cancels it."""

    call: Call
    upstream: MCPUpstream
    expiry_timer: asyncio.TimerHandle


class PausedCalls:
    """The paused calls of all clients by `requestState`. Each state can be used once, to continue its call."""

    def __init__(self, tenants: TenantPool, answer_timeout: float) -> None:
        self._tenants = tenants
        self.answer_timeout = answer_timeout
        """Seconds that a client may take to answer."""
        self._paused: dict[str, _PausedCall] = {}

    async def forward(self, request: UpstreamRequest, client: ClientPeer, upstream: MCPUpstream) -> Result:
        """Return the server's result or, if a legacy server asks for input, an input-required result.

        Raises `UpstreamCallFailed` and `MCPError`. If this task is cancelled, the call is cancelled, too.
        """
        call = self._resume_call(request, upstream)
        if call is None:
            if not await _is_legacy(upstream):
                return await send_request(request, upstream)
            if any(request.params.get(key) is not None for key in ("requestState", "inputResponses")):
                raise MCPError(code=INVALID_PARAMS, message=_UNKNOWN_STATE_MESSAGE)
            call = self._start_call(request, upstream)
        request.client_request.timeout = call.timeout
        with client.continue_request(call.progress_token, request.client_request):
            return await self._wait_for_outcome(call, upstream)

    def _start_call(self, request: UpstreamRequest, upstream: MCPUpstream) -> Call:
        principal = _get_current_principal()

        async def send(timeout: PausableTimeout) -> Result:
            # Keep the tenant open while the call is paused and no request is in flight.
            async with self._tenants.acquire(principal, request.capabilities):
                return await send_with_timeout(upstream, request.method, request.params, timeout)

        # On stdio there is one client. Over HTTP, each anonymous request may come from another client.
        identity = principal or (object() if request.is_over_http else "stdio")
        caller = Caller(principal, identity, request.capabilities)
        call = Call(request.method, request.params, request.client_request.upstream_progress_token, caller)
        with bind_call(call):
            call.start(send, upstream.call_timeout)
        return call

    def _resume_call(self, request: UpstreamRequest, upstream: MCPUpstream) -> Call | None:
        """Resume and return the paused call that a request continues; `None` if the principal has no such call."""
        params = request.params
        state = params.get("requestState")
        paused = self._paused.get(state) if isinstance(state, str) else None
        if paused is None or paused.upstream is not upstream:
            return None
        call = paused.call
        if call.caller.principal != _get_current_principal() or call.request_key != make_request_key(
            request.method, params
        ):
            return None
        answers = params.get("inputResponses")
        answers = {} if answers is None else answers
        if not isinstance(answers, dict) or not all(isinstance(answer, dict) for answer in answers.values()):
            raise MCPError(code=INVALID_PARAMS, message="inputResponses is an object of results; answer again")
        del self._paused[str(state)]
        paused.expiry_timer.cancel()
        call.resume(answers)
        return call

    async def _wait_for_outcome(self, call: Call, upstream: MCPUpstream) -> Result:
        try:
            while (result := await call.wait_for_outcome()) is None:
                if self._can_pause(call):
                    return self._pause_call(call, upstream)
                call.reject_inputs(INTERNAL_ERROR, "too many calls wait for their client already; try again in a while")
            return result
        except asyncio.CancelledError:
            call.cancel(INTERNAL_ERROR, "the client has cancelled the call")
            raise

    def _can_pause(self, call: Call) -> bool:
        principal = call.caller.principal
        count = sum(paused.call.caller.principal == principal for paused in self._paused.values())
        return count < _MAX_PAUSED_CALLS

    def _pause_call(self, call: Call, upstream: MCPUpstream) -> Result:
        state = secrets.token_urlsafe(32)
        timer = asyncio.get_running_loop().call_later(self.answer_timeout, self._expire, state)
        self._paused[state] = _PausedCall(call, upstream, timer)
        call.pause()
        return {"resultType": "input_required", "inputRequests": call.input_requests, "requestState": state}

    def _expire(self, state: str) -> None:
        message = f"the client did not answer within {self.answer_timeout:g} s"
        self._paused.pop(state).call.cancel(REQUEST_TIMEOUT, message)

    def close(self) -> None:
        """Cancel all paused calls."""
        paused_calls = [*self._paused.values()]
        self._paused.clear()
        for paused in paused_calls:
            paused.expiry_timer.cancel()
            paused.call.cancel(INTERNAL_ERROR, "the gateway is about to end")


def _get_current_principal() -> str | None:
    return get_principal(get_access_token())


async def _is_legacy(upstream: MCPUpstream) -> bool:
    """Return whether the upstream uses a version before 2026-07-28; `False` if it is unreachable."""
    try:
        return not await upstream.is_modern()
    except CallError:
        return False
