"""Buses that remember and fail, and scenarios that end."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from forebay.operations import CallError, CallEvent, CallEventName, InProcessPubSub
from forebay.operations.bus.pubsub import Receiver, Unsubscribe


def bounded(scenario: Awaitable[Any]) -> Any:
    async def run() -> Any:
        return await asyncio.wait_for(scenario, 30)

    return asyncio.run(run())


class Record(InProcessPubSub):
    """A bus that remembers what was published, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, Any]] = []
        self.failures: list[Exception] = []
        # It is there to answer by hand: otherwise the bus would tell that nobody does.
        self._receivers["call.requested"] = {self: lambda _: None}

    async def publish(self, topic: CallEventName, event: CallEvent) -> None:
        self.events.append((topic, event))
        await super().publish(topic, event)

    async def subscribe(self, topic: CallEventName, receive: Receiver) -> Unsubscribe:
        def noted(event: Any) -> None:
            try:
                receive(event)
            except Exception as error:
                self.failures.append(error)
                raise

        return await super().subscribe(topic, noted)

    def of(self, topic: str) -> list[Any]:
        return [event for name, event in self.events if name == topic]


async def requested(bus: Record, number: int = 1) -> str:
    """The id of a request, once it is there."""
    while len(bus.of("call.requested")) < number:
        await asyncio.sleep(0)
    request_id: str = bus.of("call.requested")[number - 1]["requestId"]
    return request_id


async def code_of(call: Awaitable[Any]) -> str:
    with pytest.raises(CallError) as caught:
        await call
    return caught.value.code


class Broken(Record):
    """A transport that fails at one topic."""

    def __init__(self, topic: str, error: Exception) -> None:
        super().__init__()
        self._topic = topic
        self._error = error
        self.open = 0

    async def publish(self, topic: CallEventName, event: CallEvent) -> None:
        if topic == self._topic:
            raise self._error
        await super().publish(topic, event)

    async def subscribe(self, topic: CallEventName, receive: Receiver) -> Unsubscribe:
        if topic == self._topic:
            raise self._error
        end = await super().subscribe(topic, receive)
        self.open += 1

        async def unsubscribe() -> None:
            self.open -= 1
            await end()

        return unsubscribe
