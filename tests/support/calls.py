"""Buses that record or fail, and helpers to run call scenarios."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from forebay.operations import CallError, CallEvent, CallEventName, InProcessPubSub
from forebay.operations.bus.events import Receiver, Unsubscribe


def run_bounded(scenario: Awaitable[Any]) -> Any:
    """Run a scenario, and fail if it takes more than 30 seconds."""

    async def run() -> Any:
        return await asyncio.wait_for(scenario, 30)

    return asyncio.run(run())


class RecordingBus(InProcessPubSub):
    """A bus that records all published events in order."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, Any]] = []
        self.failures: list[Exception] = []
        # Tests answer calls themselves; without a subscriber the bus would log a warning.
        self._receivers["call.requested"] = {self: lambda _: None}

    async def publish(self, topic: CallEventName, event: CallEvent) -> None:
        self.events.append((topic, event))
        await super().publish(topic, event)

    async def subscribe(self, topic: CallEventName, receive: Receiver) -> Unsubscribe:
        def record_failure(event: Any) -> None:
            try:
                receive(event)
            except Exception as error:
                self.failures.append(error)
                raise

        return await super().subscribe(topic, record_failure)

    def events_of(self, topic: str) -> list[Any]:
        return [event for name, event in self.events if name == topic]


async def wait_for_request(bus: RecordingBus, number: int = 1) -> str:
    """Wait for the given number of requests, and return the id of the last one."""
    while len(bus.events_of("call.requested")) < number:
        await asyncio.sleep(0)
    request_id: str = bus.events_of("call.requested")[number - 1]["requestId"]
    return request_id


async def error_code_of(call: Awaitable[Any]) -> str:
    with pytest.raises(CallError) as caught:
        await call
    return caught.value.code


class FailingBus(RecordingBus):
    """A bus that fails for one topic."""

    def __init__(self, topic: str, error: Exception) -> None:
        super().__init__()
        self._topic = topic
        self._error = error
        self.subscription_count = 0

    async def publish(self, topic: CallEventName, event: CallEvent) -> None:
        if topic == self._topic:
            raise self._error
        await super().publish(topic, event)

    async def subscribe(self, topic: CallEventName, receive: Receiver) -> Unsubscribe:
        if topic == self._topic:
            raise self._error
        end_subscription = await super().subscribe(topic, receive)
        self.subscription_count += 1

        async def unsubscribe() -> None:
            self.subscription_count -= 1
            await end_subscription()

        return unsubscribe
