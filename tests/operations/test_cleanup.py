"""Cancelled callers, in every way of cancelling, leave no waiter and no running task behind."""

import asyncio
import contextlib
import contextvars
from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio
import pytest
from calls import RecordingBus, error_code_of, run_bounded, wait_for_request
from forebay.envelope import unwrap
from forebay.operations import CallContext, CallHandler, OperationRegistry, OperationSpec, PendingRequestMap, deadlines
from forebay.operations.bus.events import listen, subscribe_all
from forebay.operations.deadlines import wait_shielded

Work = Callable[[], Awaitable[Any]]


class SlowBus(RecordingBus):
    """A bus that yields to the loop several times, and delivers from a task without the publisher's context."""

    def __init__(self) -> None:
        super().__init__()
        self.subscriptions: list[str] = []
        self.may_deliver = asyncio.Event()
        self.may_deliver.set()

    async def publish(self, topic: Any, event: Any) -> None:
        await yield_to_loop()
        await self.may_deliver.wait()
        await asyncio.create_task(super().publish(topic, event), context=contextvars.Context())

    async def subscribe(self, topic: Any, receive: Any) -> Any:
        end = await super().subscribe(topic, receive)
        self.subscriptions.append(topic)

        async def unsubscribe() -> None:
            await yield_to_loop()
            await end()
            self.subscriptions.remove(topic)

        return unsubscribe


async def yield_to_loop() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def cancel_by_scope(work: Work, trigger: Work) -> None:
    """Cancel with an anyio scope, which cancels again at every step."""
    with anyio.CancelScope() as scope:
        async with asyncio.TaskGroup() as others:
            others.create_task(run_after(trigger, scope.cancel))
            await work()
    assert scope.cancelled_caught


async def cancel_task(work: Work, trigger: Work) -> None:
    task = asyncio.ensure_future(work())
    await trigger()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def cancel_by_timeout(work: Work, trigger: Work) -> None:
    async def limited() -> None:
        async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as others:
            others.create_task(run_after(trigger, lambda: limit.reschedule(0)))
            await work()

    with pytest.raises(TimeoutError):
        await limited()


async def run_after(trigger: Work, action: Callable[[], object]) -> None:
    await trigger()
    action()


all_ways = pytest.mark.parametrize("end", [cancel_by_scope, cancel_task, cancel_by_timeout])


class System:
    def __init__(self, bus: RecordingBus | None = None) -> None:
        self.bus = bus or SlowBus()
        self.calls = PendingRequestMap(self.bus)
        self.registry = OperationRegistry()
        self.handler = CallHandler(self.registry, self.calls)
        self.seen: list[str] = []
        self.started = asyncio.Event()
        self.add("wait", self.wait)

    def add(self, name: str, run: Any) -> None:
        self.registry.register(OperationSpec(namespace="ns", name=name), run)

    async def wait(self, *_: Any) -> None:
        self.seen.append("started")
        self.started.set()
        try:
            await asyncio.sleep(60)
        finally:
            await yield_to_loop()
            self.seen.append("cleaned up")


@all_ways
def test_a_call_that_is_cancelled_is_aborted_over_any_transport(end: Any) -> None:
    async def scenario() -> None:
        system = System()
        async with system.handler:
            await end(lambda: system.calls.call("ns.wait"), system.started.wait)
            request_id = await wait_for_request(system.bus)
            assert [event["requestId"] for event in system.bus.events_of("call.aborted")] == [request_id]
        assert system.seen == ["started", "cleaned up"]

    run_bounded(scenario())


@all_ways
def test_a_handler_whose_block_is_cancelled_aborts_what_runs(end: Any) -> None:
    async def scenario() -> None:
        bus = SlowBus()
        system, waiting = System(bus), list[asyncio.Task[str]]()

        async def block() -> None:
            async with system.handler:
                await asyncio.sleep(60)

        async def called() -> None:
            waiting.append(asyncio.create_task(error_code_of(system.calls.call("ns.wait"))))
            await system.started.wait()

        async with system.calls:
            await end(block, called)
            assert system.seen == ["started", "cleaned up"]
            assert await waiting[0] == "ABORTED"
        assert bus.subscriptions == []

    run_bounded(scenario())


@all_ways
def test_closing_that_is_cancelled_aborts_what_it_waited_for(end: Any) -> None:
    async def scenario() -> None:
        system = System()
        await system.handler.start()
        waiting = asyncio.create_task(error_code_of(system.calls.call("ns.wait")))
        await system.started.wait()
        await end(system.handler.close, yield_to_loop)
        assert system.seen == ["started", "cleaned up"]
        assert await waiting == "ABORTED"

    run_bounded(scenario())


@pytest.mark.parametrize("turns_before", range(1, 4))
def test_a_call_that_comes_while_it_is_closed_is_told_so(turns_before: int) -> None:
    async def scenario() -> None:
        system = System(RecordingBus())
        await system.handler.start()
        closing = asyncio.create_task(system.handler.close(timeout=0))
        waiting = asyncio.create_task(error_code_of(system.calls.call("ns.wait")))
        for _ in range(turns_before):
            await asyncio.sleep(0)
        closing.cancel()
        assert await waiting == "ABORTED"

    run_bounded(scenario())


def test_an_answer_that_is_on_its_way_arrives_although_it_is_closed_meanwhile() -> None:
    async def scenario() -> None:
        bus = SlowBus()
        system = System(bus)

        def answer(*_: Any) -> int:
            bus.may_deliver.clear()
            return 7

        system.add("op", answer)
        await system.handler.start()
        waiting = asyncio.create_task(system.calls.call("ns.op"))
        while bus.may_deliver.is_set():
            await asyncio.sleep(0)
        await yield_to_loop()
        closing = asyncio.create_task(system.handler.close(timeout=0))
        await yield_to_loop()
        bus.may_deliver.set()
        await closing
        assert unwrap(await waiting) == 7

    run_bounded(scenario())


@all_ways
def test_a_map_whose_block_is_cancelled_aborts_its_calls(end: Any) -> None:
    async def scenario() -> None:
        bus = SlowBus()
        system, waiting = System(bus), list[asyncio.Task[str]]()

        async def block() -> None:
            async with system.calls:
                waiting.append(asyncio.create_task(error_code_of(system.calls.call("ns.wait"))))
                await asyncio.sleep(60)

        async with system.handler:
            await end(block, system.started.wait)
            assert await waiting[0] == "ABORTED"
            assert len(bus.events_of("call.aborted")) == 1
            assert bus.subscriptions == ["call.requested", "call.aborted"]

    run_bounded(scenario())


@all_ways
def test_subscriptions_that_are_cancelled_are_ended(end: Any) -> None:
    async def scenario() -> None:
        bus, reached = SlowBus(), asyncio.Event()

        async def listening() -> None:
            async with listen(bus, "call.error"):
                reached.set()
                await asyncio.sleep(60)

        await end(listening, reached.wait)
        assert bus.subscriptions == []
        reached.clear()

        class Stuck(SlowBus):
            async def subscribe(self, topic: Any, receive: Any) -> Any:
                if topic == "call.error":
                    reached.set()
                    await asyncio.sleep(60)
                return await super().subscribe(topic, receive)

        stuck = Stuck()
        receivers: Any = dict.fromkeys(["call.responded", "call.error"], lambda _: None)
        await end(lambda: subscribe_all(stuck, receivers), reached.wait)
        assert stuck.subscriptions == []

    run_bounded(scenario())


@all_ways
def test_what_never_ends_is_given_up(end: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "CLEANUP_SECONDS", 0.02)

    async def scenario() -> None:
        ended = asyncio.Event()

        async def hang() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        await end(lambda: wait_shielded(hang()), yield_to_loop)
        assert ended.is_set()

    run_bounded(scenario())


async def ignore_cancellation(until: asyncio.Event) -> None:
    """Wait for the event whatever happens, like a transport that retries forever."""
    while not until.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await until.wait()


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "CLEANUP_SECONDS", 0.02)
    monkeypatch.setattr(deadlines, "_CANCEL_GRACE_SECONDS", 0.02)


@all_ways
@pytest.mark.usefixtures("short_timeouts")
def test_what_does_not_listen_is_left_alone(end: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        until = asyncio.Event()
        await end(lambda: wait_shielded(ignore_cancellation(until)), yield_to_loop)
        assert "is left alone" in caplog.text
        until.set()
        await yield_to_loop()
        assert not deadlines._abandoned_tasks

    run_bounded(scenario())


@pytest.mark.usefixtures("short_timeouts")
def test_a_transport_that_does_not_listen_holds_no_caller_up() -> None:
    async def scenario() -> None:
        until = asyncio.Event()

        class StubbornBus(RecordingBus):
            async def publish(self, topic: Any, event: Any) -> None:
                await super().publish(topic, event)
                if topic == "call.aborted":
                    await ignore_cancellation(until)

        calls = PendingRequestMap(StubbornBus())
        assert await error_code_of(calls.call("ns.op", timeout=0.02)) == "TIMEOUT"
        waiting = asyncio.create_task(error_code_of(calls.call("ns.op")))
        await wait_for_request(cast("RecordingBus", calls.pubsub), 2)
        await calls.close()
        assert await waiting == "ABORTED"
        until.set()

    run_bounded(scenario())


@pytest.mark.usefixtures("short_timeouts")
def test_a_subscription_that_does_not_end_keeps_nobody_from_the_others() -> None:
    async def scenario() -> None:
        until = asyncio.Event()

        class StubbornBus(SlowBus):
            async def subscribe(self, topic: Any, receive: Any) -> Any:
                end = await super().subscribe(topic, receive)
                return (lambda: ignore_cancellation(until)) if topic in ("call.error", "call.aborted") else end

        bus = StubbornBus()
        system = System(bus)
        await system.handler.start()
        waiting = asyncio.create_task(error_code_of(system.calls.call("ns.wait")))
        await system.started.wait()
        for close in (system.handler.close(timeout=0), system.calls.close()):
            with pytest.raises(TimeoutError, match="given up"):
                await close
        assert await waiting == "ABORTED"
        assert {*bus.subscriptions} == {"call.error", "call.aborted"}
        until.set()

    run_bounded(scenario())


def test_waiting_in_a_scope_that_was_cancelled_costs_nothing() -> None:
    async def scenario() -> None:
        loop, scheduled = cast("Any", asyncio.get_running_loop()), list[Any]()
        call_soon = loop.call_soon

        def count_callback(callback: Any, *more: Any, **options: Any) -> Any:
            scheduled.append(callback)
            return call_soon(callback, *more, **options)

        loop.call_soon = count_callback
        await cancel_by_scope(lambda: wait_shielded(asyncio.sleep(0.2)), yield_to_loop)
        assert len(scheduled) < 100

    run_bounded(scenario())


def test_what_is_raised_at_the_end_is_raised() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_bounded(wait_shielded(fail()))


def close_directly(system: System) -> Awaitable[None]:
    return system.handler.close(timeout=0)


def close_in_task(system: System) -> Awaitable[None]:
    return asyncio.create_task(system.handler.close(timeout=0))


@pytest.mark.parametrize("close", [close_directly, close_in_task])
@pytest.mark.parametrize("bus", [RecordingBus, SlowBus])
@pytest.mark.parametrize("depth", [0, 2])
def test_an_operation_can_close_what_it_runs_in(close: Any, bus: Any, depth: int) -> None:
    async def scenario() -> None:
        system = System(bus())

        async def op(value: int, context: CallContext) -> str:
            if value:
                return f"outer {unwrap(await context.env.ns.op(value - 1))}"
            await close(system)
            assert system.seen == ["started", "cleaned up"]
            return "closed"

        system.add("op", op)
        await system.handler.start()
        waiting = asyncio.create_task(error_code_of(system.calls.call("ns.wait")))
        await system.started.wait()
        assert unwrap(await system.calls.call("ns.op", depth)) == "outer " * depth + "closed"
        assert await waiting == "ABORTED"
        assert await error_code_of(system.calls.call("ns.op", 0, timeout=0.02)) == "TIMEOUT"

    run_bounded(scenario())


def test_operations_that_all_close_what_they_run_in_do_not_wait_for_each_other() -> None:
    async def scenario() -> None:
        system, meeting = System(), asyncio.Barrier(3)

        async def op(value: Any, _: Any) -> Any:
            await meeting.wait()
            await system.handler.close()
            return value

        system.add("op", op)
        async with system.handler:
            answers = await asyncio.gather(*(system.calls.call("ns.op", number) for number in range(3)))
            assert [unwrap(answer) for answer in answers] == [0, 1, 2]

    run_bounded(scenario())


def test_closing_from_outside_waits_also_for_an_operation_that_closes() -> None:
    async def scenario() -> None:
        system, entered, may_finish = System(), asyncio.Event(), asyncio.Event()

        async def op(*_: Any) -> None:
            await system.handler.close()
            entered.set()
            await may_finish.wait()
            system.seen.append("done")

        system.add("op", op)
        await system.handler.start()
        waiting = asyncio.create_task(system.calls.call("ns.op"))
        await entered.wait()
        closing = asyncio.create_task(system.handler.close())
        await yield_to_loop()
        may_finish.set()
        await closing
        assert system.seen == ["done"]
        await waiting

    run_bounded(scenario())
