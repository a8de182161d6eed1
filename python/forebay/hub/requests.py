"""Servers that ask by an answer, for a client with a connection: it is asked in the middle of its request."""

import asyncio
import dataclasses
from collections.abc import Mapping
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY

from forebay.errors import UpstreamFailed, UpstreamTimeout
from forebay.hub.calls import PausableTimeout, required_capability, supports_request
from forebay.hub.client_peer import ClientPeer, ClientRequest
from forebay.hub.upstreams import MCPUpstream
from forebay.operations.errors import CallError
from forebay.operations.mcp.errors import ConnectionLost, HTTPStatusError, SessionExpired, to_call_error

__all__ = ["ForwardedRequest", "UpstreamCallFailed", "resolve_inputs", "send_request", "send_with_timeout"]

_MAX_ROUNDS = 32
"""How often a server may ask for more input before it answers."""

_RETRY_SECONDS = 0.25
"""Seconds before a server is asked again that wants to know nothing, only more time."""


@dataclasses.dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """As the server is to have it, and what is known of the client."""

    method: str
    params: dict[str, Any]
    capabilities: object
    is_over_http: bool
    client_request: ClientRequest


class UpstreamCallFailed(Exception):
    """An upstream did not answer."""

    def __init__(self, error: UpstreamFailed | UpstreamTimeout) -> None:
        self.error = error


async def send_request(request: ForwardedRequest, upstream: MCPUpstream, **more: Any) -> dict[str, Any]:
    """What a server answers within its time. Raises `Failed`, and `MCPError`."""
    timeout = request.client_request.timeout = PausableTimeout(upstream.call_timeout)
    return await send_with_timeout(upstream, request.method, {**request.params, **more}, timeout)


async def send_with_timeout(
    upstream: MCPUpstream, method: str, params: dict[str, Any], timeout: PausableTimeout
) -> dict[str, Any]:
    """The same within a limit."""
    try:
        connection = await upstream.connection()
        async with timeout:
            return await connection.request(method, params, None)
    except (CallError, ConnectionLost, HTTPStatusError, SessionExpired, TimeoutError, MCPError) as error:
        told = to_call_error(error, f"{upstream.name}: {method}")
        if told.code == "TIMEOUT":
            raise UpstreamCallFailed(UpstreamTimeout(f"{told}; ask for less, or allow it longer")) from error
        if isinstance(error, MCPError):
            # The server has answered, if not as anyone would like.
            raise
        raise UpstreamCallFailed(UpstreamFailed(str(told))) from error


async def resolve_inputs(request: ForwardedRequest, client: ClientPeer, upstream: MCPUpstream) -> dict[str, Any]:
    """What a server answers in the end. Raises `Failed`, and `MCPError` for what the client does not answer."""
    result = await send_request(request, upstream)
    for _ in range(_MAX_ROUNDS):
        if result.get("resultType") != "input_required":
            return result
        questions = result.get("inputRequests") or {}
        if not isinstance(questions, Mapping) or not all(_is_input_request(each) for each in questions.values()):
            raise UpstreamCallFailed(
                UpstreamFailed(f"{upstream.name} asks its client what is no question; look at the server")
            )
        if questions:
            answers = {"inputResponses": await _collect_answers(questions, client, upstream)}
        else:
            answers = {}
            await asyncio.sleep(_RETRY_SECONDS)
        state = {"requestState": result["requestState"]} if "requestState" in result else {}
        result = await send_request(request, upstream, **answers, **state)
    raise UpstreamCallFailed(
        UpstreamFailed(
            f"{upstream.name} has asked its client {_MAX_ROUNDS} times and still does not answer; call it otherwise"
        )
    )


def _is_input_request(asked: object) -> bool:
    return isinstance(asked, Mapping) and isinstance(asked.get("method"), str)


async def _collect_answers(asked: Mapping[str, Any], client: ClientPeer, upstream: MCPUpstream) -> dict[str, Any]:
    for question in asked.values():
        if not supports_request(client.capabilities, question["method"], question.get("params") or {}):
            wanted = required_capability(question["method"])
            raise MCPError(
                code=MISSING_REQUIRED_CLIENT_CAPABILITY,
                message=f"{upstream.name} asks {question['method']:.64}, which this client has not said it can do",
                data={"requiredCapabilities": {} if wanted is None else {wanted: {}}},
            )
    client_request = (client.request(each["method"], each.get("params"), upstream) for each in asked.values())
    tasks = [asyncio.create_task(one) for one in client_request]
    try:
        return dict(zip(asked, await asyncio.gather(*tasks), strict=True))
    finally:
        # If one is refused, nobody needs the others.
        for task in tasks:
            task.cancel()
