"""Clients that listen: what happens at the servers is told to those who asked for it, in the newest version."""

import asyncio
import collections
import contextlib
import logging
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND

from forebay.hub.upstreams import MCPUpstream
from forebay.operations.errors import CallError
from forebay.operations.mcp.errors import ConnectionLost, HTTPStatusError, SessionExpired

if TYPE_CHECKING:
    from forebay.operations.mcp.connection import ClientConnection

__all__ = ["Subscriptions"]

_log = logging.getLogger("forebay")

_MIN_DELAY_SECONDS, _MAX_DELAY_SECONDS = 0.5, 30.0
"""Seconds before a server is listened to again that has stopped talking, or was not there."""

_UNSUPPORTED_CODES = (METHOD_NOT_FOUND, INVALID_REQUEST, INVALID_PARAMS)
"""It does no such thing, and will not."""

_FAILURES = (CallError, MCPError, ConnectionLost, HTTPStatusError, SessionExpired, TimeoutError)


class Subscriptions:
    """What servers are asked to tell, for as long as anyone of a scope wants to hear it."""

    def __init__(self, upstreams: Iterable[MCPUpstream]) -> None:
        self._upstreams = [_UpstreamSubscriptions(upstream) for upstream in upstreams]

    @contextlib.contextmanager
    def listen(self, params: Mapping[str, Any]) -> Iterator[None]:
        """While a client listens, so do we: servers tell nobody else."""
        asked = params.get("notifications")
        # That other tools are listed is heard of in any case.
        wanted = (
            {key: value for key, value in asked.items() if key != "toolsListChanged"} if isinstance(asked, dict) else {}
        )
        with contextlib.ExitStack() as leaving:
            for followed in self._upstreams if wanted else ():
                leaving.enter_context(followed.listen(wanted))
            yield

    def close(self) -> None:
        for followed in self._upstreams:
            followed.close()


class _UpstreamSubscriptions:
    """One server. What it is to tell is a stream for each who listens or, before there were any, resources."""

    def __init__(self, upstream: MCPUpstream) -> None:
        self._upstream = upstream
        self._listener_counts: collections.Counter[str] = collections.Counter()
        """How many want each resource."""
        self._subscribed: dict[str, ClientConnection] = {}
        """By which connection the server was told that a resource is wanted."""
        self._updating: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def listen(self, asked: dict[str, Any]) -> Iterator[None]:
        listening = self._start_task(self._keep_listening(asked))
        try:
            yield
        finally:
            listening.cancel()

    async def _keep_listening(self, asked: dict[str, Any]) -> None:
        """Until it is cancelled, or refused: a server that is not there may come, and one that ends may come back."""
        delay = _MIN_DELAY_SECONDS
        while True:
            began = time.monotonic()
            try:
                await self._listen_once(asked)
            except _FAILURES as error:
                _log.debug("forebay: %s cannot be listened to: %s", self._upstream.name, error)
                if isinstance(error, MCPError) and error.error.code in _UNSUPPORTED_CODES:
                    return
            if time.monotonic() - began > _MAX_DELAY_SECONDS:
                delay = _MIN_DELAY_SECONDS
            await asyncio.sleep(delay)
            delay = min(2 * delay, _MAX_DELAY_SECONDS)

    async def _listen_once(self, asked: dict[str, Any]) -> None:
        if await self._upstream.is_modern():
            connection = await self._upstream.connection()
            await connection.request("subscriptions/listen", {"notifications": dict(asked)}, None)
        else:
            uris = asked.get("resourceSubscriptions") or ()
            await self._hold_resources([*dict.fromkeys(uri for uri in uris if isinstance(uri, str))])

    async def _hold_resources(self, uris: list[str]) -> None:
        """Until it is cancelled."""
        self._listener_counts.update(uris)
        try:
            while True:
                for uri in uris:
                    self._schedule_update(uri)
                # There may be another connection by then, to a server that was told nothing.
                await asyncio.sleep(_MAX_DELAY_SECONDS)
        finally:
            self._listener_counts.subtract(uris)
            for uri in uris:
                self._schedule_update(uri)

    def _schedule_update(self, uri: str) -> None:
        if uri not in self._updating:
            self._updating.add(uri)
            self._start_task(self._update_resource(uri))

    async def _update_resource(self, uri: str) -> None:
        """Until the server knows whether a resource is wanted: that may change while it is told."""
        try:
            with self._log_failures():
                while await self._update_once(uri):
                    pass
        finally:
            self._updating.remove(uri)
            if not self._listener_counts[uri]:
                del self._listener_counts[uri]
                self._subscribed.pop(uri, None)

    async def _update_once(self, uri: str) -> bool:
        """`False` if it knows already."""
        connection = await self._upstream.connection()
        is_wanted, is_told = self._listener_counts[uri] > 0, self._subscribed.get(uri) is connection
        if is_wanted and not is_told:
            await connection.request("resources/subscribe", {"uri": uri}, self._upstream.call_timeout)
            self._subscribed[uri] = connection
        elif is_told and not is_wanted:
            del self._subscribed[uri]
            await connection.request("resources/unsubscribe", {"uri": uri}, self._upstream.call_timeout)
        return is_wanted != is_told

    @contextlib.contextmanager
    def _log_failures(self) -> Iterator[None]:
        try:
            yield
        except _FAILURES as error:
            _log.debug("forebay: %s cannot be listened to: %s", self._upstream.name, error)

    def _start_task(self, step: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(step)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def close(self) -> None:
        for task in [*self._tasks]:
            task.cancel()
