"""Publishing and subscribing to call events, in this process or over any transport with topics.

A transport such as Redis or NATS implements the two methods of `PubSub`, and sends events with `event_to_json` and
`event_from_json`.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias

from forebay.operations.bus.events import CallEvent, CallEventName
from forebay.operations.cleanup import wait_bounded, wait_shielded

__all__ = ["InProcessPubSub", "PubSub", "Receiver", "Unsubscribe", "listen", "subscribe_all"]

_log = logging.getLogger("forebay")

Receiver: TypeAlias = Callable[[Any], None]
"""A callback for events, which must return at once. Slower consumers use `listen`."""

Unsubscribe: TypeAlias = Callable[[], Awaitable[None]]
"""Ends a subscription. A second call does nothing."""


class PubSub(Protocol):
    """A transport with topics. Each subscriber receives events on its own event loop."""

    async def publish(self, topic: CallEventName, event: CallEvent) -> None:
        """Send an event to all subscribers. Raises if it cannot be sent."""
        ...

    async def subscribe(self, topic: CallEventName, receive: Receiver) -> Unsubscribe:
        """Call `receive` with every event published after this returns."""
        ...


class InProcessPubSub:
    """Topics within one event loop. `publish` delivers events before it returns, so there is no queue."""

    def __init__(self) -> None:
        self._receivers: dict[str, dict[object, Receiver]] = {}

    async def publish(self, topic: CallEventName, event: CallEvent) -> None:
        """Call all receivers with an event. An exception of a receiver is logged and does not stop the others."""
        if topic == "call.requested" and not self._receivers.get(topic):
            _log.warning("forebay: nobody answers this call; start one with `async with CallHandler(registry, calls)`")
        for receive in [*self._receivers.get(topic, {}).values()]:
            try:
                receive(event)
            except Exception:
                _log.warning("forebay: a subscriber to %s failed", topic, exc_info=True)

    async def subscribe(self, topic: CallEventName, receive: Receiver) -> Unsubscribe:
        """Call `receive` with every later event of a topic."""
        receivers, key = self._receivers.setdefault(topic, {}), object()
        receivers[key] = receive

        async def unsubscribe() -> None:
            receivers.pop(key, None)

        return unsubscribe


async def subscribe_all(pubsub: PubSub, receivers: Mapping[CallEventName, Receiver]) -> Unsubscribe:
    """Subscribe to several topics; to none of them if one fails."""
    subscriptions: list[Unsubscribe] = []

    async def unsubscribe() -> None:
        # Concurrently, so that a subscription that hangs does not delay the others.
        ending = [wait_bounded(subscriptions.pop()()) for _ in range(len(subscriptions))]
        for outcome in await asyncio.gather(*ending, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    try:
        for topic, receive in receivers.items():
            subscriptions.append(await pubsub.subscribe(topic, receive))
    except BaseException:
        await wait_shielded(unsubscribe())
        raise
    return unsubscribe


@contextlib.asynccontextmanager
async def listen(pubsub: PubSub, topic: CallEventName, *, limit: int = 1024) -> AsyncIterator[AsyncIterator[Any]]:
    """Iterate over the events of a topic. Up to `limit` events are queued; further ones are dropped and logged."""
    queue: asyncio.Queue[Any] = asyncio.Queue(limit)
    has_dropped = False

    def receive(event: Any) -> None:
        nonlocal has_dropped
        if not queue.full():
            queue.put_nowait(event)
        elif not has_dropped:
            has_dropped = True
            _log.warning("forebay: a listener to %s is %d events behind, and misses some", topic, limit)

    async def events() -> AsyncIterator[Any]:
        while True:
            yield await queue.get()

    unsubscribe = await pubsub.subscribe(topic, receive)
    try:
        yield events()
    finally:
        await wait_shielded(unsubscribe())
