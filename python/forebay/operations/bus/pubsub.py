"""How events get from one to the other: in this process, or over whatever has topics.

A transport such as Redis or NATS needs two methods, and `event_to_json` and `event_from_json` for what it sends.
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
"""Takes an event, and returns at once: `listen` is for whoever takes longer."""

Unsubscribe: TypeAlias = Callable[[], Awaitable[None]]
"""Ends a subscription. A second time does nothing."""


class PubSub(Protocol):
    """Everyone who subscribed to a topic receives what is published to it, on the event loop that they run on."""

    async def publish(self, topic: CallEventName, event: CallEvent) -> None:
        """Hands an event on. Raises if it cannot be: whoever called is told then."""
        ...

    async def subscribe(self, topic: CallEventName, receive: Receiver) -> Unsubscribe:
        """Has `receive` called with every event that is published after this returned."""
        ...


class InProcessPubSub:
    """Topics of one event loop. Events are delivered before `publish` returns, so there is no queue to run full."""

    def __init__(self) -> None:
        self._receivers: dict[str, dict[object, Receiver]] = {}

    async def publish(self, topic: CallEventName, event: CallEvent) -> None:
        """Hands an event to everyone. One that raises is logged, and keeps it from nobody."""
        if topic == "call.requested" and not self._receivers.get(topic):
            _log.warning("forebay: nobody answers this call; start one with `async with CallHandler(registry, calls)`")
        for receive in [*self._receivers.get(topic, {}).values()]:
            try:
                receive(event)
            except Exception:
                _log.warning("forebay: a subscriber to %s failed", topic, exc_info=True)

    async def subscribe(self, topic: CallEventName, receive: Receiver) -> Unsubscribe:
        """Has `receive` called with every event of a topic, from now on."""
        receivers, key = self._receivers.setdefault(topic, {}), object()
        receivers[key] = receive

        async def unsubscribe() -> None:
            receivers.pop(key, None)

        return unsubscribe


async def subscribe_all(pubsub: PubSub, receivers: Mapping[CallEventName, Receiver]) -> Unsubscribe:
    """Subscribes to several topics, or to none of them if one cannot be subscribed to."""
    ends: list[Unsubscribe] = []

    async def unsubscribe() -> None:
        # Side by side, so that one that hangs keeps nobody from the others.
        leaving = [wait_bounded(ends.pop()()) for _ in range(len(ends))]
        for outcome in await asyncio.gather(*leaving, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    try:
        for topic, receive in receivers.items():
            ends.append(await pubsub.subscribe(topic, receive))
    except BaseException:
        await wait_shielded(unsubscribe())
        raise
    return unsubscribe


@contextlib.asynccontextmanager
async def listen(pubsub: PubSub, topic: CallEventName, *, limit: int = 1024) -> AsyncIterator[AsyncIterator[Any]]:
    """Events to iterate over, however long each of them takes. Whoever is `limit` of them behind misses the next."""
    waiting: asyncio.Queue[Any] = asyncio.Queue(limit)
    has_missed = False

    def receive(event: Any) -> None:
        nonlocal has_missed
        if not waiting.full():
            waiting.put_nowait(event)
        elif not has_missed:
            has_missed = True
            _log.warning("forebay: a listener to %s is %d events behind, and misses some", topic, limit)

    async def events() -> AsyncIterator[Any]:
        while True:
            yield await waiting.get()

    unsubscribe = await pubsub.subscribe(topic, receive)
    try:
        yield events()
    finally:
        await wait_shielded(unsubscribe())
