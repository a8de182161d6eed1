"""A client's request on its way to a server, and what becomes of it if that does not answer."""

import asyncio
import dataclasses
from typing import Any

from mcp.shared.exceptions import MCPError

from headgate.errors import UpstreamFailed, UpstreamTimeout
from headgate.gateway.serving.sources import MCPUpstream
from headgate.operations.errors import CallError
from headgate.operations.mcp.failures import ConnectionLost, HTTPRefused, SessionForgotten
from headgate.operations.mcp.results import error_of

__all__ = ["Failed", "Request", "sent"]


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """As the server is to have it, and what is known of the client."""

    method: str
    params: dict[str, Any]
    capabilities: object
    is_over_http: bool

    @property
    def token(self) -> object:
        """By which its progress is reported."""
        return (self.params.get("_meta") or {}).get("progressToken")


class Failed(Exception):
    """An upstream did not answer."""

    def __init__(self, error: UpstreamFailed | UpstreamTimeout) -> None:
        self.error = error


async def sent(
    upstream: MCPUpstream, method: str, params: dict[str, Any], limit: asyncio.Timeout | None = None
) -> dict[str, Any]:
    """What a server answers within its time, or within a limit that may be moved. Raises `Failed`, and `MCPError`."""
    try:
        connection = await upstream.connection()
        if limit is None:
            return await connection.request(method, params, upstream.call_timeout)
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
