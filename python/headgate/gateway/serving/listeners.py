"""Clients that listen: what happens at the servers is told to those who asked for it, in the newest version."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any

from mcp.shared.exceptions import MCPError

from headgate.gateway.serving.scope import Scope
from headgate.gateway.serving.sources import MCPUpstream
from headgate.operations.errors import CallError
from headgate.operations.mcp.failures import ConnectionLost, HTTPRefused, SessionForgotten

__all__ = ["listening_behind"]

_log = logging.getLogger("headgate")


@contextlib.asynccontextmanager
async def listening_behind(scope: Scope, params: Mapping[str, Any]) -> AsyncIterator[None]:
    """While a client listens, so do we: servers tell nobody else."""
    asked = params.get("notifications")
    # That other tools are listed is heard of in any case.
    wanted = (
        {key: value for key, value in asked.items() if key != "toolsListChanged"} if isinstance(asked, dict) else {}
    )
    tasks = [asyncio.create_task(_listen(upstream, wanted)) for upstream in scope.upstreams.values() if wanted]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


async def _listen(upstream: MCPUpstream, wanted: dict[str, Any]) -> None:
    try:
        for request in await _requests(upstream, wanted):
            await request
    except (CallError, MCPError, ConnectionLost, HTTPRefused, SessionForgotten) as error:
        _log.debug("headgate: %s cannot be listened to: %s", upstream.name, error)


async def _requests(upstream: MCPUpstream, wanted: dict[str, Any]) -> list[Coroutine[Any, Any, Any]]:
    """What makes a server tell: a stream or, before there were any, a subscription to each resource."""
    connection = await upstream.connection()
    if await upstream.is_modern():
        return [connection.request("subscriptions/listen", {"notifications": dict(wanted)}, None)]
    uris = [uri for uri in wanted.get("resourceSubscriptions") or () if isinstance(uri, str)]
    return [connection.request("resources/subscribe", {"uri": uri}, upstream.call_timeout) for uri in uris]
