"""With a bus that loses, repeats, delays and reorders events, calls run once and nothing is left behind."""

import asyncio
import contextvars
import random
from typing import Any

import pytest
from calls import run_bounded
from forebay.envelope import unwrap
from forebay.operations import (
    CallContext,
    CallError,
    CallHandler,
    InProcessPubSub,
    OperationRegistry,
    OperationSpec,
    PendingRequestMap,
)
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.slow


class UnreliableBus(InProcessPubSub):
    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng
        self.deliveries: set[asyncio.Task[None]] = set()

    async def publish(self, topic: Any, event: Any) -> None:
        for _ in range(self.rng.choice([0, 1, 1, 1, 1, 2, 3])):
            delivery = asyncio.create_task(self.deliver(topic, event), context=contextvars.Context())
            self.deliveries.add(delivery)
            delivery.add_done_callback(self.deliveries.discard)
        await yield_to_loop(self.rng.randrange(3))

    async def deliver(self, topic: Any, event: Any) -> None:
        await yield_to_loop(self.rng.choice([0, 1, 2, 5, 40]))
        await super().publish(topic, event)


async def yield_to_loop(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


class Crowd:
    """Callers of an operation that calls itself; some of them are cancelled."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.bus = UnreliableBus(rng)
        self.calls = PendingRequestMap(self.bus)
        self.registry = OperationRegistry()
        self.handler = CallHandler(self.registry, self.calls)
        self.registry.register(OperationSpec(namespace="ns", name="op"), self.op)
        self.started: list[str | None] = []
        self.ended: list[str | None] = []

    async def op(self, depth: int, context: CallContext) -> int:
        self.started.append(context.request_id)
        try:
            await yield_to_loop(self.rng.randrange(8))
            if depth:
                inner = (context.env.ns.op(depth - 1) for _ in range(self.rng.randrange(3)))
                await asyncio.gather(*inner, return_exceptions=True)
            return depth
        finally:
            self.ended.append(context.request_id)

    async def call(self) -> str:
        depth = self.rng.randrange(3)
        task = asyncio.create_task(self.calls.call("ns.op", depth, timeout=self.rng.choice([0.002, 0.05])))
        if self.rng.random() < 0.3:
            await yield_to_loop(self.rng.randrange(15))
            task.cancel()
        try:
            return "correct" if unwrap(await task) == depth else "wrong"
        except CallError as error:
            return error.code
        except asyncio.CancelledError:
            return "cancelled"


@given(st.integers(0, 2**32), st.sampled_from([None, 0, 0.01]), st.integers(0, 40))
def test_whatever_a_bus_does_calls_run_once_and_nothing_is_left(seed: int, timeout: float | None, turns: int) -> None:
    async def scenario() -> None:
        problems: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
        before = asyncio.all_tasks()
        crowd = Crowd(random.Random(seed))
        await crowd.handler.start()
        callers = [asyncio.create_task(crowd.call()) for _ in range(6)]
        await yield_to_loop(turns)
        await crowd.handler.close(timeout=timeout)
        assert {*await asyncio.gather(*callers)} <= {"correct", "TIMEOUT", "ABORTED", "cancelled"}
        await crowd.calls.close()
        while crowd.bus.deliveries:
            await asyncio.wait(crowd.bus.deliveries)
        assert sorted(map(str, crowd.started)) == sorted(map(str, crowd.ended))
        assert len({*crowd.started}) == len(crowd.started)
        assert not any(crowd.bus._receivers.values())
        assert asyncio.all_tasks() == before
        assert problems == []

    run_bounded(scenario())
