"""Misbehaving handlers and transports: callers always get an answer."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from calls import RecordingBus, run_bounded
from forebay import InvalidArgument
from forebay.envelope import unwrap
from forebay.operations import CallContext, CallError, CallHandler, OperationRegistry, OperationSpec, PendingRequestMap
from forebay.operations.bus.events import context_from_event

if TYPE_CHECKING:
    from collections.abc import Callable


class UnusualError(BaseException):
    pass


def make_handler(run: Any) -> tuple[RecordingBus, PendingRequestMap, CallHandler]:
    registry, bus = OperationRegistry(), RecordingBus()
    registry.register(OperationSpec(namespace="ns", name="op"), run)
    calls = PendingRequestMap(bus)
    return bus, calls, CallHandler(registry, calls)


@pytest.mark.parametrize("error", [UnusualError, GeneratorExit])
def test_whatever_ends_a_handler_the_caller_is_told(error: type[BaseException]) -> None:
    async def fail(*_: Any) -> None:
        raise error

    async def scenario() -> None:
        _, calls, handler = make_handler(fail)
        async with handler:
            with pytest.raises(CallError, match=error.__name__) as caught:
                await calls.call("ns.op")
            assert caught.value.code == "EXECUTION_ERROR"

    run_bounded(scenario())


def test_a_handler_may_end_the_program_and_its_caller_is_told() -> None:
    def leave(*_: Any) -> None:
        raise SystemExit(3)

    bus = RecordingBus()

    async def scenario() -> None:
        registry, calls = OperationRegistry(), PendingRequestMap(bus)
        registry.register(OperationSpec(namespace="ns", name="op"), leave)
        async with CallHandler(registry, calls):
            await calls.call("ns.op")

    with pytest.raises(SystemExit):
        run_bounded(scenario())
    assert [event["message"] for event in bus.events_of("call.error")] == ["ns.op ended with SystemExit"]


def test_an_aborted_call_is_never_answered() -> None:
    entered = asyncio.Event()

    async def stubborn(*_: Any) -> str:
        entered.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "too late"
        return "never"

    async def scenario() -> None:
        bus, calls, handler = make_handler(stubborn)
        async with handler:
            waiting = asyncio.create_task(calls.call("ns.op"))
            await entered.wait()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert bus.events_of("call.aborted")
        assert bus.events_of("call.responded") == []

    run_bounded(scenario())


def test_a_request_that_comes_again_later_does_not_run_again() -> None:
    runs: list[int] = []

    async def scenario() -> None:
        bus, calls, handler = make_handler(lambda *_: runs.append(1))
        async with handler:
            await calls.call("ns.op")
            await bus.publish("call.requested", bus.events_of("call.requested")[0])
        assert len(bus.events_of("call.responded")) == len(runs) == 1

    run_bounded(scenario())


def test_a_handler_whose_closing_was_cancelled_can_be_started_again() -> None:
    async def scenario() -> None:
        entered = asyncio.Event()

        async def wait(value: Any, _: Any) -> Any:
            entered.set()
            await asyncio.sleep(60 if value else 0)
            return value

        _, calls, handler = make_handler(wait)
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

    run_bounded(scenario())


class SlowBus(RecordingBus):
    async def subscribe(self, topic: Any, receive: Any) -> Any:
        await asyncio.sleep(0.01)
        return await super().subscribe(topic, receive)


def test_it_is_started_once_and_closed_whole() -> None:
    async def scenario() -> None:
        bus = SlowBus()
        handler = CallHandler(OperationRegistry(), PendingRequestMap(bus))
        before = {topic: len(receivers) for topic, receivers in bus._receivers.items()}
        await asyncio.gather(handler.start(), handler.start())
        await handler.close()
        assert {topic: len(receivers) for topic, receivers in bus._receivers.items() if receivers} == before

    run_bounded(scenario())


def test_what_cannot_be_asked_for_is_refused_at_once() -> None:
    async def scenario() -> None:
        _, calls, _ = make_handler(lambda *_: 1)
        mistakes: list[Callable[[], Any]] = [
            lambda: calls.call(3),  # type: ignore[arg-type]
            lambda: calls.call("ns.op", identity="ada"),  # type: ignore[arg-type]
            lambda: calls.call("ns.op", timeout=10**400),
            lambda: calls.call("ns.op", timeout=float("nan")),
            lambda: calls.call("ns.op", timeout="3"),  # type: ignore[arg-type]
        ]
        for make_call in mistakes:
            with pytest.raises(InvalidArgument):
                await make_call()

    run_bounded(scenario())


@pytest.mark.parametrize("deadline", [10**400, float("nan"), float("inf"), True, "soon"])
def test_a_deadline_that_is_no_time_is_refused(deadline: Any) -> None:
    with pytest.raises(InvalidArgument, match="milliseconds"):
        context_from_event({"requestId": "a", "operationId": "ns.op", "deadline": deadline})


def test_nobody_who_answers_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        with pytest.raises(CallError):
            await PendingRequestMap().call("ns.op", timeout=0.01)

    run_bounded(scenario())
    assert "async with CallHandler(registry, calls)" in caplog.text


def test_arguments_in_the_wrong_order_are_told() -> None:
    calls, registry = PendingRequestMap(), OperationRegistry()
    with pytest.raises(InvalidArgument, match="a registry, and then"):
        CallHandler(calls, registry)  # type: ignore[arg-type]


def test_an_env_is_not_gone_through() -> None:
    from forebay.operations import build_env

    env = build_env(OperationRegistry())
    for namespace in (env, env.crm):
        with pytest.raises(TypeError):
            iter(namespace)  # type: ignore[call-overload]


def test_a_call_that_was_aborted_is_not_run_whatever_comes_first() -> None:
    runs: list[str | None] = []

    async def clean_up_slowly(_: Any, context: CallContext) -> None:
        runs.append(context.request_id)
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.02)

    async def scenario() -> None:
        bus, calls, handler = make_handler(clean_up_slowly)
        async with handler:
            request: Any = {"requestId": "early", "operationId": "ns.op", "input": None}
            await calls.abort("early")
            await bus.publish("call.requested", request)
            again: Any = {**request, "requestId": "again"}
            await bus.publish("call.requested", again)
            while not runs:
                await asyncio.sleep(0)
            await calls.abort("again")
            await bus.publish("call.requested", again)
        assert runs == ["again"]

    run_bounded(scenario())
