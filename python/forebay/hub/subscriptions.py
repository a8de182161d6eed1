"""Subscriptions to resources and changed lists: those of clients, and those that the hub opens at servers for them."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from forebay.errors import UpstreamFailed, UpstreamTimeout
from forebay.store.threads import wait_all
from forebay.wire.errors import RequestFailed
from forebay.wire.lazy_json import dump, open_container, to_text
from forebay.wire.messages import INVALID_REQUEST
from forebay.wire.protocol import ACKNOWLEDGED_METHOD, LIST_CHANGED_KEYS, SUBSCRIPTION_ID_KEY, UPDATED_METHOD

if TYPE_CHECKING:
    from forebay.hub.connection import ServerConnection
    from forebay.proxy.message_queue import Reply

__all__ = ["Listener", "ResourceSubscriptions", "check_subscription_count", "subscribe"]

_log = logging.getLogger("forebay")


_ACCEPT_SECONDS = 2.0
"""How long a new subscription waits for the servers, which may be slow or away."""

_MAX_SUBSCRIPTIONS = 1000
"""Maximum number of resources of a `subscriptions/listen`, and of those that a session is subscribed to at a server."""

_MAX_EARLY_EVENTS = 64
"""Maximum number of notifications that wait for the acknowledgement of a subscription."""

_OnNotification = Callable[[str, Mapping[str, Any]], None]


def check_subscription_count(count: int) -> None:
    """Raise `RequestFailed` if a client has too many subscriptions."""
    if count > _MAX_SUBSCRIPTIONS:
        text = f"a client has at most {_MAX_SUBSCRIPTIONS:,} subscriptions to resources; ask for fewer of them"
        raise RequestFailed(INVALID_REQUEST, text)


class ResourceSubscriptions:
    """The subscriptions to resources at a server of the handshake era, each shared by all its subscribers."""

    def __init__(self, connection: "ServerConnection") -> None:
        self._connection = connection
        self.subscribers: dict[str, dict[object, None]] = {}
        """Who wants updates of each URI."""
        self._subscribed: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def add(self, uri: str, subscriber: object) -> None:
        """Add a subscriber, and subscribe at the server before the first one.

        Raises `RequestFailed` if the server refuses, or the subscriber has too many subscriptions, and
        `UpstreamTimeout`.
        """
        count = sum(subscriber in subscribers for subscribers in self.subscribers.values())
        check_subscription_count(count + 1)
        self.subscribers.setdefault(uri, {})[subscriber] = None
        try:
            await asyncio.shield(self._update_soon(uri))
        except (RequestFailed, UpstreamTimeout):
            # Otherwise each restart would subscribe again, in vain.
            self.remove(uri, subscriber)
            raise

    def remove(self, uri: str, subscriber: object) -> "asyncio.Task[None]":
        """Remove a subscriber, and unsubscribe at the server after the last one. Return the task that does it."""
        subscribers = self.subscribers.get(uri, {})
        subscribers.pop(subscriber, None)
        if not subscribers:
            self.subscribers.pop(uri, None)
        return self._update_soon(uri)

    def remove_all(self, subscriber: object) -> None:
        for uri in [uri for uri, subscribers in self.subscribers.items() if subscriber in subscribers]:
            self.remove(uri, subscriber)

    def is_subscriber(self, uri: str, subscriber: object) -> bool:
        """Return whether a subscriber wants updates of a resource or of one that contains it."""
        return any(
            (uri == subscribed or uri.startswith(f"{subscribed.rstrip('/')}/")) and subscriber in subscribers
            for subscribed, subscribers in self.subscribers.items()
        )

    def restore(self) -> None:
        """Subscribe again on a new connection."""
        self._subscribed.clear()
        for uri in self.subscribers:
            self._update_soon(uri)

    def _update_soon(self, uri: str) -> "asyncio.Task[None]":
        task = self._tasks.get(uri)
        if task is None:
            task = self._tasks[uri] = asyncio.create_task(self._update(uri))
            task.add_done_callback(lambda task: self._on_updated(uri, task))
        return task

    def _on_updated(self, uri: str, task: "asyncio.Task[None]") -> None:
        del self._tasks[uri]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.debug("forebay: %s: the subscription to %.256s: %s", self._connection.name, uri, error)

    async def _update(self, uri: str) -> None:
        """Subscribe or unsubscribe until the server's state is what the subscribers want, who may change meanwhile."""
        request = partial(self._connection.request, params={"uri": uri}, timeout=self._connection.call_timeout)
        while (is_wanted := uri in self.subscribers) != (uri in self._subscribed):
            if is_wanted:
                await request("resources/subscribe")
                self._subscribed.add(uri)
            else:
                self._subscribed.discard(uri)
                await request("resources/unsubscribe")


class Listener:
    """Request `subscriptions/listen` of a client, and the notifications that it wants.

    Raises `RequestFailed` if it wants updates of too many resources.
    """

    def __init__(self, request_id: object, params: Mapping[str, Any], reply: "Reply") -> None:
        self._meta = {SUBSCRIPTION_ID_KEY: request_id}
        self._reply = reply
        wanted = _open_notifications(params)
        self._list_keys = {key for key in LIST_CHANGED_KEYS.values() if wanted.get(key) is True}
        self.uris = _find_uris(wanted)
        check_subscription_count(len(self.uris))
        self._is_acknowledged = False
        self._early_events: deque[tuple[str, Mapping[str, Any]]] = deque(maxlen=_MAX_EARLY_EVENTS)
        self._has_ended = asyncio.Event()

    def acknowledge(self, uris: list[str]) -> None:
        """Tell the client what it will get, of resources only these. This is the first message of the stream."""
        honored: dict[str, Any] = dict.fromkeys(sorted(self._list_keys), True)
        if uris:
            honored["resourceSubscriptions"] = uris
        self._is_acknowledged = True
        self._send(ACKNOWLEDGED_METHOD, {"notifications": honored})
        for method, params in self._early_events:
            self.publish(method, params)

    def publish(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification, if the client wants it."""
        if not self._is_acknowledged:
            self._early_events.append((method, params))
        elif method == UPDATED_METHOD:
            uri = to_text(params.get("uri"))
            if uri in self.uris:
                self._send(method, {"uri": uri})
        elif LIST_CHANGED_KEYS.get(method) in self._list_keys:
            self._send(method, {})

    def _send(self, method: str, params: Mapping[str, Any]) -> None:
        self._reply.send(dump({"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": self._meta}}), method)

    def end(self) -> None:
        self._has_ended.set()

    async def wait_ended(self) -> dict[str, Any]:
        """Wait for `end`, and return the result of the request."""
        await self._has_ended.wait()
        return {"_meta": self._meta}


def _open_notifications(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a subscription, or its acknowledgement, is about."""
    notifications = open_container(params.get("notifications"))
    return notifications if isinstance(notifications, Mapping) else {}


def _find_uris(notifications: Mapping[str, Any]) -> list[str]:
    uris = open_container(notifications.get("resourceSubscriptions"))
    texts = map(to_text, uris) if isinstance(uris, list) else ()
    return [*dict.fromkeys(uri for uri in texts if uri is not None)]


@contextlib.asynccontextmanager
async def subscribe(
    uris: "Mapping[ServerConnection, list[str]]", subscriber: object, on_notification: _OnNotification
) -> AsyncIterator[set[str]]:
    """Subscribe to resources of servers of either era, and wait a moment. Yield those that were refused until then.

    In the handshake era, updates reach all clients of a connection; since 2026-07-28, `on_notification` gets them.
    """
    refused: set[str] = set()
    answers: list[asyncio.Event] = []
    tasks: list[asyncio.Task[None]] = []
    for connection, wanted in uris.items():
        answers.append(asyncio.Event())
        subscribing = _keep_subscribed(connection, wanted, subscriber, on_notification, refused, answers[-1])
        tasks.append(asyncio.create_task(subscribing))
    try:
        await wait_all(answers, _ACCEPT_SECONDS)
        yield refused
    finally:
        for task in tasks:
            task.cancel()
        for connection in uris:
            connection.subscriptions.remove_all(subscriber)


async def _keep_subscribed(
    connection: "ServerConnection",
    uris: list[str],
    subscriber: object,
    on_notification: _OnNotification,
    refused: set[str],
    answered: asyncio.Event,
) -> None:
    # The server may be about to connect for the first time, so that its era is not known yet.
    await connection.wait_connected()
    if connection.is_modern:

        def handle(method: str, params: Mapping[str, Any]) -> None:
            if method == ACKNOWLEDGED_METHOD:
                refused.update({*uris}.difference(_find_uris(_open_notifications(params))))
                answered.set()
            else:
                on_notification(method, params)

        await connection.keep_listening({"notifications": {"resourceSubscriptions": uris}}, handle)
        refused.update(uris)
    else:
        for uri in uris:
            try:
                await connection.subscriptions.add(uri, subscriber)
            except (RequestFailed, UpstreamTimeout):
                refused.add(uri)
            except UpstreamFailed:
                # The server is gone, and gets the subscription when it is back.
                pass
    answered.set()
