"""Whoever is cancelled, and however, leaves nobody waiting and nothing running."""

import asyncio
import contextlib
import contextvars
from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio
import pytest
from calls import Record, bounded, code_of, requested
from forebay.operations import CallContext, CallHandler, OperationRegistry, OperationSpec, PendingRequestMap, cleanup
from forebay.operations.bus.pubsub import listen, subscribe_all
from forebay.operations.cleanup import wait_shielded
from forebay.operations.envelope import unwrap

Work = Callable[[], Awaitable[Any]]


class Far(Record):
    """A bus that takes several turns for everything, and delivers from a task that knows nothing of who published."""

    def __init__(self) -> None:
        super().__init__()
        self.subscriptions: list[str] = []
        self.may_deliver = asyncio.Event()
        self.may_deliver.set()

    async def publish(self, topic: Any, event: Any) -> None:
        await turns()
        await self.may_deliver.wait()
        await asyncio.create_task(super().publish(topic, event), context=contextvars.Context())

    async def subscribe(self, topic: Any, receive: Any) -> Any:
        end = await super().subscribe(topic, receive)
        self.subscriptions.append(topic)

        async def unsubscribe() -> None:
            await turns()
            await end()
            self.subscriptions.remove(topic)

        return unsubscribe


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def in_a_scope(work: Work, moment: Work) -> None:
    """Ends by a scope of anyio, which cancels again at every step."""
    with anyio.CancelScope() as scope:
        async with asyncio.TaskGroup() as others:
            others.create_task(then(moment, scope.cancel))
            await work()
    assert scope.cancelled_caught


async def as_a_task(work: Work, moment: Work) -> None:
    task = asyncio.ensure_future(work())
    await moment()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def by_a_timeout(work: Work, moment: Work) -> None:
    async def limited() -> None:
        async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as others:
            others.create_task(then(moment, lambda: limit.reschedule(0)))
            await work()

    with pytest.raises(TimeoutError):
        await limited()


async def then(moment: Work, act: Callable[[], object]) -> None:
    await moment()
    act()


ways = pytest.mark.parametrize("end", [in_a_scope, as_a_task, by_a_timeout])


class Side:
    def __init__(self, bus: Record | None = None) -> None:
        self.bus = bus or Far()
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
            await turns()
            self.seen.append("tidied")


@ways
def test_a_call_that_is_cancelled_is_aborted_over_any_transport(end: Any) -> None:
    async def scenario() -> None:
        side = Side()
        async with side.handler:
            await end(lambda: side.calls.call("ns.wait"), side.started.wait)
            request_id = await requested(side.bus)
            assert [event["requestId"] for event in side.bus.of("call.aborted")] == [request_id]
        assert side.seen == ["started", "tidied"]

    bounded(scenario())


@ways
def test_a_handler_whose_block_is_cancelled_aborts_what_runs(end: Any) -> None:
    async def scenario() -> None:
        bus = Far()
        side, waiting = Side(bus), list[asyncio.Task[str]]()

        async def block() -> None:
            async with side.handler:
                await asyncio.sleep(60)

        async def called() -> None:
            waiting.append(asyncio.create_task(code_of(side.calls.call("ns.wait"))))
            await side.started.wait()

        async with side.calls:
            await end(block, called)
            assert side.seen == ["started", "tidied"]
            assert await waiting[0] == "ABORTED"
        assert bus.subscriptions == []

    bounded(scenario())


@ways
def test_closing_that_is_cancelled_aborts_what_it_waited_for(end: Any) -> None:
    async def scenario() -> None:
        side = Side()
        await side.handler.start()
        waiting = asyncio.create_task(code_of(side.calls.call("ns.wait")))
        await side.started.wait()
        await end(side.handler.close, turns)
        assert side.seen == ["started", "tidied"]
        assert await waiting == "ABORTED"

    bounded(scenario())


@pytest.mark.parametrize("turns_before", range(1, 4))
def test_a_call_that_comes_while_it_is_closed_is_told_so(turns_before: int) -> None:
    async def scenario() -> None:
        side = Side(Record())
        await side.handler.start()
        closing = asyncio.create_task(side.handler.close(timeout=0))
        waiting = asyncio.create_task(code_of(side.calls.call("ns.wait")))
        for _ in range(turns_before):
            await asyncio.sleep(0)
        closing.cancel()
        assert await waiting == "ABORTED"

    bounded(scenario())


def test_an_answer_that_is_on_its_way_arrives_although_it_is_closed_meanwhile() -> None:
    async def scenario() -> None:
        bus = Far()
        side = Side(bus)

        def answer(*_: Any) -> int:
            bus.may_deliver.clear()
            return 7

        side.add("op", answer)
        await side.handler.start()
        waiting = asyncio.create_task(side.calls.call("ns.op"))
        while bus.may_deliver.is_set():
            await asyncio.sleep(0)
        await turns()
        closing = asyncio.create_task(side.handler.close(timeout=0))
        await asyncio.sleep(0.02)
        bus.may_deliver.set()
        await closing
        assert unwrap(await waiting) == 7

    bounded(scenario())


@ways
def test_a_map_whose_block_is_cancelled_aborts_its_calls(end: Any) -> None:
    async def scenario() -> None:
        bus = Far()
        side, waiting = Side(bus), list[asyncio.Task[str]]()

        async def block() -> None:
            async with side.calls:
                waiting.append(asyncio.create_task(code_of(side.calls.call("ns.wait"))))
                await asyncio.sleep(60)

        async with side.handler:
            await end(block, side.started.wait)
            assert await waiting[0] == "ABORTED"
            assert len(bus.of("call.aborted")) == 1
            assert bus.subscriptions == ["call.requested", "call.aborted"]

    bounded(scenario())


@ways
def test_subscriptions_that_are_cancelled_are_ended(end: Any) -> None:
    async def scenario() -> None:
        bus, reached = Far(), asyncio.Event()

        async def listening() -> None:
            async with listen(bus, "call.error"):
                reached.set()
                await asyncio.sleep(60)

        await end(listening, reached.wait)
        assert bus.subscriptions == []
        reached.clear()

        class Stuck(Far):
            async def subscribe(self, topic: Any, receive: Any) -> Any:
                if topic == "call.error":
                    reached.set()
                    await asyncio.sleep(60)
                return await super().subscribe(topic, receive)

        stuck = Stuck()
        receivers: Any = dict.fromkeys(["call.responded", "call.error"], lambda _: None)
        await end(lambda: subscribe_all(stuck, receivers), reached.wait)
        assert stuck.subscriptions == []

    bounded(scenario())


@ways
def test_what_never_ends_is_given_up(end: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup, "CLEANUP_SECONDS", 0.02)

    async def scenario() -> None:
        ended = asyncio.Event()

        async def hang() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        await end(lambda: wait_shielded(hang()), turns)
        assert ended.is_set()

    bounded(scenario())


async def deaf(until: asyncio.Event) -> None:
    """As a transport is that tries again whatever happens."""
    while not until.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await until.wait()


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup, "CLEANUP_SECONDS", 0.02)
    monkeypatch.setattr(cleanup, "_CANCEL_GRACE_SECONDS", 0.02)


@ways
@pytest.mark.usefixtures("no_patience")
def test_what_does_not_listen_is_left_alone(end: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        until = asyncio.Event()
        await end(lambda: wait_shielded(deaf(until)), turns)
        assert "is left alone" in caplog.text
        until.set()
        await turns()
        assert not cleanup._abandoned_tasks

    bounded(scenario())


@pytest.mark.usefixtures("no_patience")
def test_a_transport_that_does_not_listen_holds_no_caller_up() -> None:
    async def scenario() -> None:
        until = asyncio.Event()

        class Deaf(Record):
            async def publish(self, topic: Any, event: Any) -> None:
                await super().publish(topic, event)
                if topic == "call.aborted":
                    await deaf(until)

        calls = PendingRequestMap(Deaf())
        assert await code_of(calls.call("ns.op", timeout=0.02)) == "TIMEOUT"
        waiting = asyncio.create_task(code_of(calls.call("ns.op")))
        await requested(cast("Record", calls.pubsub), 2)
        await calls.close()
        assert await waiting == "ABORTED"
        until.set()

    bounded(scenario())


@pytest.mark.usefixtures("no_patience")
def test_a_subscription_that_does_not_end_keeps_nobody_from_the_others() -> None:
    async def scenario() -> None:
        until = asyncio.Event()

        class Deaf(Far):
            async def subscribe(self, topic: Any, receive: Any) -> Any:
                end = await super().subscribe(topic, receive)
                return (lambda: deaf(until)) if topic in ("call.error", "call.aborted") else end

        bus = Deaf()
        side = Side(bus)
        await side.handler.start()
        waiting = asyncio.create_task(code_of(side.calls.call("ns.wait")))
        await side.started.wait()
        for close in (side.handler.close(timeout=0), side.calls.close()):
            with pytest.raises(TimeoutError, match="given up"):
                await close
        assert await waiting == "ABORTED"
        assert {*bus.subscriptions} == {"call.error", "call.aborted"}
        until.set()

    bounded(scenario())


def test_waiting_in_a_scope_that_was_cancelled_costs_nothing() -> None:
    async def scenario() -> None:
        loop, scheduled = cast("Any", asyncio.get_running_loop()), list[Any]()
        call_soon = loop.call_soon

        def counted(callback: Any, *more: Any, **options: Any) -> Any:
            scheduled.append(callback)
            return call_soon(callback, *more, **options)

        loop.call_soon = counted
        await in_a_scope(lambda: wait_shielded(asyncio.sleep(0.2)), turns)
        assert len(scheduled) < 100

    bounded(scenario())


def test_what_is_raised_at_the_end_is_raised() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        bounded(wait_shielded(fail()))


def closing_at_once(side: Side) -> Awaitable[None]:
    return side.handler.close(timeout=0)


def closing_in_a_task(side: Side) -> Awaitable[None]:
    return asyncio.create_task(side.handler.close(timeout=0))


@pytest.mark.parametrize("close", [closing_at_once, closing_in_a_task])
@pytest.mark.parametrize("bus", [Record, Far])
@pytest.mark.parametrize("depth", [0, 2])
def test_an_operation_can_close_what_it_runs_in(close: Any, bus: Any, depth: int) -> None:
    async def scenario() -> None:
        side = Side(bus())

        async def op(given: int, context: CallContext) -> str:
            if given:
                return f"outer {unwrap(await context.env.ns.op(given - 1))}"
            await close(side)
            assert side.seen == ["started", "tidied"]
            return "closed"

        side.add("op", op)
        await side.handler.start()
        waiting = asyncio.create_task(code_of(side.calls.call("ns.wait")))
        await side.started.wait()
        assert unwrap(await side.calls.call("ns.op", depth)) == "outer " * depth + "closed"
        assert await waiting == "ABORTED"
        assert await code_of(side.calls.call("ns.op", 0, timeout=0.02)) == "TIMEOUT"

    bounded(scenario())


def test_operations_that_all_close_what_they_run_in_do_not_wait_for_each_other() -> None:
    async def scenario() -> None:
        side, meeting = Side(), asyncio.Barrier(3)

        async def op(given: Any, _: Any) -> Any:
            await meeting.wait()
            await side.handler.close()
            return given

        side.add("op", op)
        async with side.handler:
            answers = await asyncio.gather(*(side.calls.call("ns.op", number) for number in range(3)))
            assert [unwrap(each) for each in answers] == [0, 1, 2]

    bounded(scenario())


def test_closing_from_outside_waits_also_for_an_operation_that_closes() -> None:
    async def scenario() -> None:
        side, entered, may_go = Side(), asyncio.Event(), asyncio.Event()

        async def op(*_: Any) -> None:
            await side.handler.close()
            entered.set()
            await may_go.wait()
            side.seen.append("done")

        side.add("op", op)
        await side.handler.start()
        waiting = asyncio.create_task(side.calls.call("ns.op"))
        await entered.wait()
        closing = asyncio.create_task(side.handler.close())
        await turns()
        may_go.set()
        await closing
        assert side.seen == ["done"]
        await waiting

    bounded(scenario())
