"""Requests to upstreams. An upstream may require input from the connected client before it answers."""

import asyncio
import dataclasses
from collections.abc import Mapping
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY

from forebay.errors import UpstreamFailed, UpstreamTimeout
from forebay.hub.calls import PausableTimeout, get_required_capability, supports_request
from forebay.hub.client_peer import ClientPeer, ClientRequest
from forebay.hub.upstreams import UPSTREAM_ERRORS, MCPUpstream
from forebay.operations.mcp.errors import to_call_error

__all__ = ["UpstreamCallFailed", "UpstreamRequest", "resolve_inputs", "send_request", "send_with_timeout"]

_MAX_ROUNDS = 32
"""Maximum number of input-required results that a server may send before its final result."""

_RETRY_SECONDS = 0.25
"""Delay before a request is repeated when the server requires no input, only another attempt."""


@dataclasses.dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """Client request to forward to an upstream, with the client's capabilities and transport."""

    method: str
    params: dict[str, Any]
    capabilities: object
    is_over_http: bool
    client_request: ClientRequest


class UpstreamCallFailed(Exception):
    """The upstream did not answer. `error` is the error for the client."""

    def __init__(self, error: UpstreamFailed | UpstreamTimeout) -> None:
        self.error = error


async def send_request(request: UpstreamRequest, upstream: MCPUpstream, **extra_params: Any) -> dict[str, Any]:
    """Return the upstream's result, within the upstream's call timeout. Raises `UpstreamCallFailed` and `MCPError`."""
    timeout = request.client_request.timeout = PausableTimeout(upstream.call_timeout)
    return await send_with_timeout(upstream, request.method, {**request.params, **extra_params}, timeout)


async def send_with_timeout(
    upstream: MCPUpstream, method: str, params: dict[str, Any], timeout: PausableTimeout
) -> dict[str, Any]:
    """Return the upstream's result, within `timeout`. Raises `UpstreamCallFailed` and `MCPError`."""
    try:
        connection = await upstream.get_connection()
        async with timeout:
            return await connection.request(method, params, None)
    except UPSTREAM_ERRORS as error:
        call_error = to_call_error(error, f"{upstream.name}: {method}")
        if call_error.code == "TIMEOUT":
            raise UpstreamCallFailed(UpstreamTimeout(f"{call_error}; ask for less, or allow it longer")) from error
        if isinstance(error, MCPError):
            # The server answered with an error: pass it on.
            raise
        raise UpstreamCallFailed(UpstreamFailed(str(call_error))) from error


async def resolve_inputs(request: UpstreamRequest, client: ClientPeer, upstream: MCPUpstream) -> dict[str, Any]:
    """Return the upstream's final result after the client has answered all its input requests.

    Raises `UpstreamCallFailed`, and `MCPError` if the client does not answer.
    """
    result = await send_request(request, upstream)
    for _ in range(_MAX_ROUNDS):
        if result.get("resultType") != "input_required":
            return result
        requests = result.get("inputRequests") or {}
        if not isinstance(requests, Mapping) or not all(_is_input_request(request) for request in requests.values()):
            raise UpstreamCallFailed(
                UpstreamFailed(f"{upstream.name} asks its client what is no question; look at the server")
            )
        if requests:
            answers = {"inputResponses": await _collect_answers(requests, client, upstream)}
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


def _is_input_request(value: object) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("method"), str)


async def _collect_answers(requests: Mapping[str, Any], client: ClientPeer, upstream: MCPUpstream) -> dict[str, Any]:
    for request in requests.values():
        if not supports_request(client.capabilities, request["method"], request.get("params") or {}):
            capability = get_required_capability(request["method"])
            raise MCPError(
                code=MISSING_REQUIRED_CLIENT_CAPABILITY,
                message=f"{upstream.name} asks {request['method']:.64}, which this client has not said it can do",
                data={"requiredCapabilities": {} if capability is None else {capability: {}}},
            )
    tasks = [
        asyncio.create_task(client.request(request["method"], request.get("params"), upstream))
        for request in requests.values()
    ]
    try:
        return dict(zip(requests, await asyncio.gather(*tasks), strict=True))
    finally:
        # If the client refuses one request, the others are not needed.
        for task in tasks:
            task.cancel()
