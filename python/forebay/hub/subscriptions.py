"""Subscriptions at upstreams for clients that listen to notifications (2026-07-28)."""

import asyncio
import collections
import contextlib
import logging
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND

from forebay.hub.upstreams import UPSTREAM_ERRORS, MCPUpstream

if TYPE_CHECKING:
    from forebay.operations.mcp.connection import ClientConnection

__all__ = ["Subscriptions"]

_log = logging.getLogger("forebay")

_MIN_DELAY_SECONDS, _MAX_DELAY_SECONDS = 0.5, 30.0
"""Backoff before a lost or failed subscription is opened again."""

_UNSUPPORTED_CODES = (METHOD_NOT_FOUND, INVALID_REQUEST, INVALID_PARAMS)
"""Errors that mean the server does not support subscriptions."""


class Subscriptions:
    """The subscriptions of one tenant at all its upstreams."""

    def __init__(self, upstreams: Iterable[MCPUpstream]) -> None:
        self._upstreams = [_UpstreamSubscriptions(upstream) for upstream in upstreams]

    @contextlib.contextmanager
    def listen(self, params: Mapping[str, Any]) -> Iterator[None]:
        """Subscribe at the upstreams while a client listens."""
        requested = params.get("notifications")
        # Changes of the tool list need no subscription here, because each connection observes them anyway.
        upstream_filter = (
            {key: value for key, value in requested.items() if key != "toolsListChanged"}
            if isinstance(requested, dict)
            else {}
        )
        with contextlib.ExitStack() as stack:
            for upstream in self._upstreams if upstream_filter else ():
                stack.enter_context(upstream.listen(upstream_filter))
            yield

    def close(self) -> None:
        for upstream in self._upstreams:
            upstream.close()


class _UpstreamSubscriptions:
    """The subscriptions at one server: a stream for each listener or, on legacy servers, resource subscriptions."""

    def __init__(self, upstream: MCPUpstream) -> None:
        self._upstream = upstream
        self._listener_counts: collections.Counter[str] = collections.Counter()
        """Number of listeners by resource URI."""
        self._subscribed_connections: dict[str, ClientConnection] = {}
        """The connection on which each resource is subscribed."""
        self._updating_uris: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def listen(self, subscription_filter: dict[str, Any]) -> Iterator[None]:
        listen_task = self._start_task(self._keep_listening(subscription_filter))
        try:
            yield
        finally:
            listen_task.cancel()

    async def _keep_listening(self, subscription_filter: dict[str, Any]) -> None:
        """Keep a subscription open, with retries, until this task is cancelled or the server refuses subscriptions."""
        delay = _MIN_DELAY_SECONDS
        while True:
            started = time.monotonic()
            try:
                await self._listen_once(subscription_filter)
            except UPSTREAM_ERRORS as error:
                _log.debug("forebay: %s cannot be listened to: %s", self._upstream.name, error)
                if isinstance(error, MCPError) and error.error.code in _UNSUPPORTED_CODES:
                    return
            if time.monotonic() - started > _MAX_DELAY_SECONDS:
                delay = _MIN_DELAY_SECONDS
            await asyncio.sleep(delay)
            delay = min(2 * delay, _MAX_DELAY_SECONDS)

    async def _listen_once(self, subscription_filter: dict[str, Any]) -> None:
        if await self._upstream.is_modern():
            connection = await self._upstream.get_connection()
            await connection.request("subscriptions/listen", {"notifications": dict(subscription_filter)}, None)
        else:
            uris = subscription_filter.get("resourceSubscriptions") or ()
            await self._keep_subscribed([*dict.fromkeys(uri for uri in uris if isinstance(uri, str))])

    async def _keep_subscribed(self, uris: list[str]) -> None:
        """Keep resources of a legacy server subscribed until this task is cancelled."""
        self._listener_counts.update(uris)
        try:
            while True:
                for uri in uris:
                    self._schedule_update(uri)
                # Repeat this, because a new connection starts without the subscriptions.
                await asyncio.sleep(_MAX_DELAY_SECONDS)
        finally:
            self._listener_counts.subtract(uris)
            for uri in uris:
                self._schedule_update(uri)

    def _schedule_update(self, uri: str) -> None:
        if uri not in self._updating_uris:
            self._updating_uris.add(uri)
            self._start_task(self._update_resource(uri))

    async def _update_resource(self, uri: str) -> None:
        """Subscribe or unsubscribe until the server's state matches the listeners, who may change meanwhile."""
        try:
            with self._log_failures():
                while await self._update_once(uri):
                    pass
        finally:
            self._updating_uris.remove(uri)
            if not self._listener_counts[uri]:
                del self._listener_counts[uri]
                self._subscribed_connections.pop(uri, None)

    async def _update_once(self, uri: str) -> bool:
        """Send a subscribe or unsubscribe request if one is needed; return whether one was sent."""
        connection = await self._upstream.get_connection()
        is_wanted, is_subscribed = self._listener_counts[uri] > 0, self._subscribed_connections.get(uri) is connection
        if is_wanted and not is_subscribed:
            await connection.request("resources/subscribe", {"uri": uri}, self._upstream.call_timeout)
            self._subscribed_connections[uri] = connection
        elif is_subscribed and not is_wanted:
            del self._subscribed_connections[uri]
            await connection.request("resources/unsubscribe", {"uri": uri}, self._upstream.call_timeout)
        return is_wanted != is_subscribed

    @contextlib.contextmanager
    def _log_failures(self) -> Iterator[None]:
        try:
            yield
        except UPSTREAM_ERRORS as error:
            _log.debug("forebay: %s cannot be listened to: %s", self._upstream.name, error)

    def _start_task(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def close(self) -> None:
        for task in [*self._tasks]:
            task.cancel()
