"""Handlers and transports that do what they should not: whoever waits is always told."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from calls import Record, bounded
from forebay import InvalidArgument
from forebay.operations import CallError, CallHandler, OperationRegistry, OperationSpec, PendingRequestMap
from forebay.operations.bus.events import context_from_event
from forebay.operations.envelope import unwrap

if TYPE_CHECKING:
    from collections.abc import Callable


class Unheard(BaseException):
    pass


def side(run: Any) -> tuple[Record, PendingRequestMap, CallHandler]:
    registry, bus = OperationRegistry(), Record()
    registry.register(OperationSpec(namespace="ns", name="op"), run)
    calls = PendingRequestMap(bus)
    return bus, calls, CallHandler(registry, calls)


@pytest.mark.parametrize("error", [Unheard, GeneratorExit])
def test_whatever_ends_a_handler_the_caller_is_told(error: type[BaseException]) -> None:
    async def fail(*_: Any) -> None:
        raise error

    async def scenario() -> None:
        _, calls, handler = side(fail)
        async with handler:
            with pytest.raises(CallError, match=error.__name__) as caught:
                await calls.call("ns.op")
            assert caught.value.code == "EXECUTION_ERROR"

    bounded(scenario())


def test_a_handler_may_end_the_program_and_its_caller_is_told() -> None:
    def leave(*_: Any) -> None:
        raise SystemExit(3)

    bus = Record()

    async def scenario() -> None:
        registry, calls = OperationRegistry(), PendingRequestMap(bus)
        registry.register(OperationSpec(namespace="ns", name="op"), leave)
        async with CallHandler(registry, calls):
            await calls.call("ns.op")

    with pytest.raises(SystemExit):
        bounded(scenario())
    assert [event["message"] for event in bus.of("call.error")] == ["ns.op ended with SystemExit"]


def test_an_aborted_call_is_never_answered() -> None:
    entered = asyncio.Event()

    async def stubborn(*_: Any) -> str:
        entered.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "an answer that nobody wants any more"
        return "never"

    async def scenario() -> None:
        bus, calls, handler = side(stubborn)
        async with handler:
            waiting = asyncio.create_task(calls.call("ns.op"))
            await entered.wait()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert bus.of("call.aborted")
        assert bus.of("call.responded") == []

    bounded(scenario())


def test_a_request_that_comes_again_later_does_not_run_again() -> None:
    runs: list[int] = []

    async def scenario() -> None:
        bus, calls, handler = side(lambda *_: runs.append(1))
        async with handler:
            await calls.call("ns.op")
            await bus.publish("call.requested", bus.of("call.requested")[0])
            await asyncio.sleep(0.01)
        assert len(bus.of("call.responded")) == len(runs) == 1

    bounded(scenario())


def test_a_handler_whose_closing_was_cancelled_can_be_started_again() -> None:
    async def scenario() -> None:
        entered = asyncio.Event()

        async def wait(given: Any, _: Any) -> Any:
            entered.set()
            await asyncio.sleep(60 if given else 0)
            return given

        _, calls, handler = side(wait)
        await handler.start()
        waiting = asyncio.create_task(calls.call("ns.op", 1))
        await entered.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await handler.close()
        await handler.start()
        assert unwrap(await calls.call("ns.op", 0)) == 0
        await handler.close(timeout=0)
        with pytest.raises(CallError):
            await waiting

    bounded(scenario())


class Slow(Record):
    async def subscribe(self, topic: Any, receive: Any) -> Any:
        await asyncio.sleep(0.01)
        return await super().subscribe(topic, receive)


def test_it_is_started_once_and_closed_whole() -> None:
    async def scenario() -> None:
        bus = Slow()
        handler = CallHandler(OperationRegistry(), PendingRequestMap(bus))
        before = {topic: len(receivers) for topic, receivers in bus._receivers.items()}
        await asyncio.gather(handler.start(), handler.start())
        await handler.close()
        assert {topic: len(receivers) for topic, receivers in bus._receivers.items() if receivers} == before

    bounded(scenario())


def test_what_cannot_be_asked_for_is_refused_at_once() -> None:
    async def scenario() -> None:
        _, calls, _ = side(lambda *_: 1)
        mistakes: list[Callable[[], Any]] = [
            lambda: calls.call(3),  # type: ignore[arg-type]
            lambda: calls.call("ns.op", identity="ada"),  # type: ignore[arg-type]
            lambda: calls.call("ns.op", timeout=10**400),
            lambda: calls.call("ns.op", timeout=float("nan")),
            lambda: calls.call("ns.op", timeout="3"),  # type: ignore[arg-type]
        ]
        for wrong in mistakes:
            with pytest.raises(InvalidArgument):
                await wrong()

    bounded(scenario())


@pytest.mark.parametrize("deadline", [10**400, float("nan"), float("inf"), True, "soon"])
def test_a_deadline_that_is_no_time_is_refused(deadline: Any) -> None:
    with pytest.raises(InvalidArgument, match="milliseconds"):
        context_from_event({"requestId": "a", "operationId": "ns.op", "deadline": deadline})


def test_nobody_who_answers_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        with pytest.raises(CallError):
            await PendingRequestMap().call("ns.op", timeout=0.01)

    bounded(scenario())
    assert "async with CallHandler(registry, calls)" in caplog.text


def test_arguments_in_the_wrong_order_are_told() -> None:
    calls, registry = PendingRequestMap(), OperationRegistry()
    with pytest.raises(InvalidArgument, match="a registry, and then"):
        CallHandler(calls, registry)  # type: ignore[arg-type]


def test_an_env_is_not_gone_through() -> None:
    from forebay.operations import build_env

    env = build_env(OperationRegistry())
    for each in (env, env.crm):
        with pytest.raises(TypeError):
            iter(each)  # type: ignore[call-overload]


def test_a_call_that_was_aborted_is_not_run_whatever_comes_first() -> None:
    runs: list[int] = []

    async def cleans_up(*_: Any) -> None:
        runs.append(1)
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.02)

    async def scenario() -> None:
        bus, calls, handler = side(cleans_up)
        async with handler:
            request: Any = {"requestId": "early", "operationId": "ns.op", "input": None}
            await calls.abort("early")
            await bus.publish("call.requested", request)
            await asyncio.sleep(0.01)
            assert runs == []
            again: Any = {**request, "requestId": "again"}
            await bus.publish("call.requested", again)
            await asyncio.sleep(0.01)
            await calls.abort("again")
            await bus.publish("call.requested", again)
            await asyncio.sleep(0.05)
            assert runs == [1]

    bounded(scenario())
