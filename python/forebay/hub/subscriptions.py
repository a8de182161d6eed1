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
from forebay.operations.mcp.failures import ConnectionLost, HTTPRefused, SessionForgotten

if TYPE_CHECKING:
    from forebay.operations.mcp.connection import Connection

__all__ = ["Subscriptions"]

_log = logging.getLogger("forebay")

_FIRST_DELAY, _LONGEST_DELAY = 0.5, 30.0
"""Seconds before a server is listened to again that has stopped talking, or was not there."""

_REFUSALS = (METHOD_NOT_FOUND, INVALID_REQUEST, INVALID_PARAMS)
"""It does no such thing, and will not."""

_FAILURES = (CallError, MCPError, ConnectionLost, HTTPRefused, SessionForgotten, TimeoutError)


class Subscriptions:
    """What servers are asked to tell, for as long as anyone of a scope wants to hear it."""

    def __init__(self, upstreams: Iterable[MCPUpstream]) -> None:
        self._followed = [_Followed(upstream) for upstream in upstreams]

    @contextlib.contextmanager
    def wanted(self, params: Mapping[str, Any]) -> Iterator[None]:
        """While a client listens, so do we: servers tell nobody else."""
        asked = params.get("notifications")
        # That other tools are listed is heard of in any case.
        wanted = (
            {key: value for key, value in asked.items() if key != "toolsListChanged"} if isinstance(asked, dict) else {}
        )
        with contextlib.ExitStack() as leaving:
            for followed in self._followed if wanted else ():
                leaving.enter_context(followed.wanted(wanted))
            yield

    def close(self) -> None:
        for followed in self._followed:
            followed.close()


class _Followed:
    """One server. What it is to tell is a stream for each who listens or, before there were any, resources."""

    def __init__(self, upstream: MCPUpstream) -> None:
        self._upstream = upstream
        self._wanted: collections.Counter[str] = collections.Counter()
        """How many want each resource."""
        self._told: dict[str, Connection] = {}
        """By which connection the server was told that a resource is wanted."""
        self._being_told: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def wanted(self, asked: dict[str, Any]) -> Iterator[None]:
        listening = self._soon(self._listen(asked))
        try:
            yield
        finally:
            listening.cancel()

    async def _listen(self, asked: dict[str, Any]) -> None:
        """Until it is cancelled, or refused: a server that is not there may come, and one that ends may come back."""
        delay = _FIRST_DELAY
        while True:
            began = time.monotonic()
            try:
                await self._heard(asked)
            except _FAILURES as error:
                _log.debug("forebay: %s cannot be listened to: %s", self._upstream.name, error)
                if isinstance(error, MCPError) and error.error.code in _REFUSALS:
                    return
            if time.monotonic() - began > _LONGEST_DELAY:
                delay = _FIRST_DELAY
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_DELAY)

    async def _heard(self, asked: dict[str, Any]) -> None:
        if await self._upstream.is_modern():
            connection = await self._upstream.connection()
            await connection.request("subscriptions/listen", {"notifications": dict(asked)}, None)
        else:
            uris = asked.get("resourceSubscriptions") or ()
            await self._want([*dict.fromkeys(uri for uri in uris if isinstance(uri, str))])

    async def _want(self, uris: list[str]) -> None:
        """Until it is cancelled."""
        self._wanted.update(uris)
        try:
            while True:
                for uri in uris:
                    self._tell(uri)
                # There may be another connection by then, to a server that was told nothing.
                await asyncio.sleep(_LONGEST_DELAY)
        finally:
            self._wanted.subtract(uris)
            for uri in uris:
                self._tell(uri)

    def _tell(self, uri: str) -> None:
        if uri not in self._being_told:
            self._being_told.add(uri)
            self._soon(self._told_all(uri))

    async def _told_all(self, uri: str) -> None:
        """Until the server knows whether a resource is wanted: that may change while it is told."""
        try:
            with self._noted():
                while await self._told_once(uri):
                    pass
        finally:
            self._being_told.remove(uri)
            if not self._wanted[uri]:
                del self._wanted[uri]
                self._told.pop(uri, None)

    async def _told_once(self, uri: str) -> bool:
        """`False` if it knows already."""
        connection = await self._upstream.connection()
        is_wanted, is_told = self._wanted[uri] > 0, self._told.get(uri) is connection
        if is_wanted and not is_told:
            await connection.request("resources/subscribe", {"uri": uri}, self._upstream.call_timeout)
            self._told[uri] = connection
        elif is_told and not is_wanted:
            del self._told[uri]
            await connection.request("resources/unsubscribe", {"uri": uri}, self._upstream.call_timeout)
        return is_wanted != is_told

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except _FAILURES as error:
            _log.debug("forebay: %s cannot be listened to: %s", self._upstream.name, error)

    def _soon(self, step: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(step)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def close(self) -> None:
        for task in [*self._tasks]:
            task.cancel()
