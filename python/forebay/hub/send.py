"""A client's request on its way to a server, and what becomes of it if that does not answer."""

import dataclasses
from typing import Any

from mcp.shared.exceptions import MCPError

from forebay.errors import UpstreamFailed, UpstreamTimeout
from forebay.hub.client_peer import Asking
from forebay.hub.timeouts import Limit
from forebay.hub.upstreams import MCPUpstream
from forebay.operations.errors import CallError
from forebay.operations.mcp.failures import ConnectionLost, HTTPRefused, SessionForgotten
from forebay.operations.mcp.results import error_of

__all__ = ["Failed", "Request", "asked", "sent"]


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """As the server is to have it, and what is known of the client."""

    method: str
    params: dict[str, Any]
    capabilities: object
    is_over_http: bool
    asking: Asking


class Failed(Exception):
    """An upstream did not answer."""

    def __init__(self, error: UpstreamFailed | UpstreamTimeout) -> None:
        self.error = error


async def asked(request: Request, upstream: MCPUpstream, **more: Any) -> dict[str, Any]:
    """What a server answers within its time. Raises `Failed`, and `MCPError`."""
    limit = request.asking.limit = Limit(upstream.call_timeout)
    return await sent(upstream, request.method, {**request.params, **more}, limit)


async def sent(upstream: MCPUpstream, method: str, params: dict[str, Any], limit: Limit) -> dict[str, Any]:
    """The same within a limit."""
    try:
        connection = await upstream.connection()
        async with limit:
            return await connection.request(method, params, None)
    except (CallError, ConnectionLost, HTTPRefused, SessionForgotten, TimeoutError, MCPError) as error:
        told = error_of(error, f"{upstream.name}: {method}")
        if told.code == "TIMEOUT":
            raise Failed(UpstreamTimeout(f"{told}; ask for less, or allow it longer")) from error
        if isinstance(error, MCPError):
            # The server has answered, if not as anyone would like.
            raise
        raise Failed(UpstreamFailed(str(told))) from error
