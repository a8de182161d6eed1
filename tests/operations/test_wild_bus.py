"""A bus that loses, repeats, delays and reorders: whatever it does, calls run once, and nothing is left behind."""

import asyncio
import contextvars
import random
from typing import Any

import pytest
from calls import bounded
from forebay.operations import (
    CallContext,
    CallError,
    CallHandler,
    InProcessPubSub,
    OperationRegistry,
    OperationSpec,
    PendingRequestMap,
)
from forebay.operations.envelope import unwrap
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.slow


class Wild(InProcessPubSub):
    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance
        self.on_their_way: set[asyncio.Task[None]] = set()

    async def publish(self, topic: Any, event: Any) -> None:
        for _ in range(self.chance.choice([0, 1, 1, 1, 1, 2, 3])):
            delivery = asyncio.create_task(self.deliver(topic, event), context=contextvars.Context())
            self.on_their_way.add(delivery)
            delivery.add_done_callback(self.on_their_way.discard)
        await turns(self.chance.randrange(3))

    async def deliver(self, topic: Any, event: Any) -> None:
        await turns(self.chance.choice([0, 1, 2, 5, 40]))
        await super().publish(topic, event)


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


class Crowd:
    """Callers of an operation that calls itself, some of whom leave early."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.bus = Wild(chance)
        self.calls = PendingRequestMap(self.bus)
        self.registry = OperationRegistry()
        self.handler = CallHandler(self.registry, self.calls)
        self.registry.register(OperationSpec(namespace="ns", name="op"), self.op)
        self.begun: list[str | None] = []
        self.ended: list[str | None] = []

    async def op(self, depth: int, context: CallContext) -> int:
        self.begun.append(context.request_id)
        try:
            await turns(self.chance.randrange(8))
            if depth:
                inner = (context.env.ns.op(depth - 1) for _ in range(self.chance.randrange(3)))
                await asyncio.gather(*inner, return_exceptions=True)
            return depth
        finally:
            self.ended.append(context.request_id)

    async def call(self) -> str:
        depth = self.chance.randrange(3)
        task = asyncio.create_task(self.calls.call("ns.op", depth, timeout=self.chance.choice([0.002, 0.05])))
        if self.chance.random() < 0.3:
            await turns(self.chance.randrange(15))
            task.cancel()
        try:
            return "its own" if unwrap(await task) == depth else "another's"
        except CallError as error:
            return error.code
        except asyncio.CancelledError:
            return "cancelled"


@given(st.integers(0, 2**32), st.sampled_from([None, 0, 0.01]), st.integers(0, 40))
def test_whatever_a_bus_does_calls_run_once_and_nothing_is_left(seed: int, within: float | None, when: int) -> None:
    async def scenario() -> None:
        problems: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
        before = asyncio.all_tasks()
        crowd = Crowd(random.Random(seed))
        await crowd.handler.start()
        callers = [asyncio.create_task(crowd.call()) for _ in range(6)]
        await turns(when)
        await crowd.handler.close(timeout=within)
        assert {*await asyncio.gather(*callers)} <= {"its own", "TIMEOUT", "ABORTED", "cancelled"}
        await crowd.calls.close()
        while crowd.bus.on_their_way:
            await asyncio.wait(crowd.bus.on_their_way)
        assert sorted(map(str, crowd.begun)) == sorted(map(str, crowd.ended))
        assert len({*crowd.begun}) == len(crowd.begun)
        assert not any(crowd.bus._receivers.values())
        assert asyncio.all_tasks() == before
        assert problems == []

    bounded(scenario())
