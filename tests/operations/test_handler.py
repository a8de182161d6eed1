"""The call handler: what it checks before it runs an operation, what it publishes, and how it closes."""

import asyncio
import contextlib
import logging
import threading
import time
from typing import Any, cast
from unittest.mock import ANY

import pytest
from calls import RecordingBus, error_code_of, run_bounded, wait_for_request
from forebay.envelope import (
    LocalResponseMeta,
    ResponseEnvelope,
    http_envelope,
    local_envelope,
    mcp_envelope,
    unwrap,
)
from forebay.operations import (
    AccessControl,
    CallContext,
    CallError,
    CallHandler,
    Identity,
    Operation,
    OperationRegistry,
    OperationSpec,
    PendingRequestMap,
    results,
)
from forebay.operations.deadlines import to_epoch_ms
from forebay.operations.results import to_envelope

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class System:
    """A registry, its handler and its callers on one bus."""

    def __init__(self) -> None:
        self.bus = RecordingBus()
        self.calls = PendingRequestMap(self.bus)
        self.registry = OperationRegistry()
        self.handler = CallHandler(self.registry, self.calls)

    def add(self, name: str, run: Any, **more: Any) -> None:
        self.registry.register(OperationSpec(namespace="ns", name=name, **more), run)

    async def send(self, **request: Any) -> tuple[str, Any]:
        """Publish a request event, and return the topic and event that answer it."""
        event: Any = {"requestId": "raw", "operationId": "ns.op", "input": None, **request}
        await self.bus.publish("call.requested", event)
        while True:
            for topic, answer in self.bus.events:
                if topic in ("call.responded", "call.error") and answer["requestId"] == event["requestId"]:
                    return topic, answer
            await asyncio.sleep(0)


def never(*_: Any) -> None:
    raise AssertionError("this must not run")


def test_what_is_not_there_is_told() -> None:
    async def scenario() -> None:
        system = System()
        system.add("bare", None)
        async with system.handler:
            for operation, message in (
                ("ns.bear", r"there is no operation 'ns\.bear'; there are ns\.bare"),
                ("ns.bare", r"^No handler registered for operation: ns\.bare$"),
            ):
                with pytest.raises(CallError, match=message) as caught:
                    await system.calls.call(operation)
                assert caught.value.code == "OPERATION_NOT_FOUND"
        assert len(system.bus.events_of("call.error")) == 2

    run_bounded(scenario())


def test_access_is_checked_before_anything_else_is() -> None:
    async def scenario() -> None:
        system = System()
        control = AccessControl(["b", "a"], ["x", "y"])
        system.add("op", lambda *_: "gold", access_control=control, input_schema=NUMBER)
        async with system.handler:
            for identity, who in ((None, "nobody in particular"), (Identity("ada", ["a", "x"]), "'ada'")):
                with pytest.raises(CallError, match=f"by {who}: it needs all of a, b and one of x, y") as caught:
                    await system.calls.call("ns.op", {"n": "wrong"}, identity=identity)
                assert caught.value.code == "ACCESS_DENIED"
            may = Identity("ada", ["a", "b", "y"])
            assert await error_code_of(system.calls.call("ns.op", {"n": "wrong"}, identity=may)) == "VALIDATION_ERROR"
            assert unwrap(await system.calls.call("ns.op", {"n": 1}, identity=may)) == "gold"
            # `execute` does not check access.
            assert unwrap(await system.registry.execute("ns.op", {"n": 1})) == "gold"

    run_bounded(scenario())


def test_nothing_runs_that_may_not() -> None:
    async def scenario() -> None:
        system = System()
        system.add("secret", never, access_control=AccessControl(["a"]))
        system.add("typed", never, input_schema=NUMBER)
        system.add("stream", never, type="subscription")
        system.add("op", never)
        async with system.handler:
            assert await error_code_of(system.calls.call("ns.secret")) == "ACCESS_DENIED"
            with pytest.raises(CallError) as caught:
                await system.calls.call("ns.typed", {"n": "x"})
            assert (caught.value.code, caught.value.details["problems"][0]["path"]) == ("VALIDATION_ERROR", "/n")
            with pytest.raises(CallError, match=r"use subscribe\(\)"):
                await system.calls.call("ns.stream")
            _, late = await system.send(deadline=to_epoch_ms(time.monotonic() - 1))
            assert late["code"] == "TIMEOUT"

    run_bounded(scenario())


@pytest.mark.parametrize(
    "envelope",
    [
        local_envelope(1, "someone.else"),
        http_envelope({"a": 1}, status_code=201, headers={}, content_type="application/json"),
        mcp_envelope("it is on fire", is_error=True),
    ],
)
def test_an_envelope_is_the_answer_also_if_it_says_that_a_tool_failed(envelope: Any) -> None:
    async def scenario() -> None:
        system = System()
        system.add("op", lambda *_: envelope)
        async with system.handler:
            assert await system.calls.call("ns.op") == envelope
        assert [topic for topic, _ in system.bus.events] == ["call.requested", "call.responded"]

    run_bounded(scenario())


def test_what_is_returned_is_wrapped_and_held_against_its_schema(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        system = System()
        system.add("op", lambda *_: {"n": "x"}, output_schema={"properties": {"n": {"minLength": 5}}})
        async with system.handler:
            envelope = await system.calls.call("ns.op")
            assert isinstance(envelope.meta, LocalResponseMeta)
            assert (envelope.data, envelope.meta.operation_id) == ({"n": "x"}, "ns.op")

    with caplog.at_level(logging.WARNING, "forebay"):
        run_bounded(scenario())
    assert "'/n'" in caplog.text


class Unreadable:
    def model_dump(self, **_: Any) -> Any:
        raise RuntimeError("the disk is on fire")


def test_what_is_raised_is_published_as_an_error() -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the disk is on fire")

    def deny(*_: Any) -> None:
        raise CallError("ACCESS_DENIED", "not you", {"scope": "x"})

    async def cancel(*_: Any) -> None:
        raise asyncio.CancelledError

    async def scenario() -> None:
        system = System()
        for run in (fail, deny, cancel):
            system.add(run.__name__, run)
        system.add("broken", lambda *_: {"data": 1, "meta": {"source": "local"}})
        system.add("unreadable", lambda *_: Unreadable(), output_schema=NUMBER)
        async with system.handler:
            with pytest.raises(CallError, match=r"ns\.fail failed: the disk is on fire"):
                await system.calls.call("ns.fail")
            with pytest.raises(CallError, match="not you") as caught:
                await system.calls.call("ns.deny")
            assert (caught.value.code, caught.value.details) == ("ACCESS_DENIED", {"scope": "x"})
            assert await error_code_of(system.calls.call("ns.cancel")) == "ABORTED"
            assert await error_code_of(system.calls.call("ns.broken")) == "EXECUTION_ERROR"
            assert await error_code_of(system.calls.call("ns.unreadable")) == "EXECUTION_ERROR"
        assert [event["code"] for event in system.bus.events_of("call.error")] == [
            "EXECUTION_ERROR",
            "ACCESS_DENIED",
            "ABORTED",
            "EXECUTION_ERROR",
            "EXECUTION_ERROR",
        ]
        assert system.bus.events_of("call.responded") == []

    run_bounded(scenario())


def test_a_handler_knows_the_call_that_it_answers() -> None:
    async def scenario() -> None:
        system, seen = System(), list[CallContext]()
        system.add("op", lambda _, context: seen.append(context))
        async with system.handler:
            deadline = time.monotonic() + 60
            await system.calls.call(
                "ns.op", identity=Identity("ada", ["x"]), deadline=deadline, parent_request_id="the-parent"
            )
        context = seen[0]
        assert context.request_id == await wait_for_request(system.bus)
        assert context.parent_request_id == "the-parent"
        assert context.identity == Identity("ada", frozenset(["x"]))
        assert context.deadline is not None
        assert deadline - 1 < context.deadline < deadline + 0.001

    run_bounded(scenario())


def waiting_handler(seen: list[str]) -> Any:
    async def wait(*_: Any) -> None:
        seen.append("started")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    return wait


def test_a_deadline_that_passes_meanwhile_cancels_the_handler() -> None:
    async def scenario() -> None:
        system, seen = System(), list[str]()
        system.add("op", waiting_handler(seen))
        async with system.handler:
            topic, event = await system.send(deadline=to_epoch_ms(time.monotonic() + 0.2))
        assert (topic, event["code"], seen) == ("call.error", "TIMEOUT", ["started", "cancelled"])

    run_bounded(scenario())


def test_whoever_is_late_cleans_up_undisturbed_when_its_caller_gives_up_for_that() -> None:
    async def scenario() -> None:
        system, seen = System(), list[str]()

        async def clean_up(*_: Any) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                while not system.bus.events_of("call.aborted"):
                    await asyncio.sleep(0)
                await asyncio.sleep(0)
                seen.append("cleaned up")

        system.add("op", clean_up)
        async with system.handler:
            # On a busy machine, the operation takes a moment to begin.
            assert await error_code_of(system.calls.call("ns.op", timeout=1)) == "TIMEOUT"
        assert seen == ["cleaned up"]
        assert system.bus.events_of("call.error") == []

    run_bounded(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("is_closed", [True, False])
def test_whoever_is_cancelled_cleans_up_undisturbed_by_its_deadline(is_closed: bool) -> None:
    async def scenario() -> None:
        system, seen = System(), list[str]()

        async def clean_up(_: Any, context: CallContext) -> None:
            seen.append("started")
            try:
                await asyncio.sleep(60)
            finally:
                seen.append("cancelled")
                await asyncio.sleep(cast("float", context.deadline) - time.monotonic() + 0.05)
                seen.append("cleaned up")

        system.add("op", clean_up)
        await system.handler.start()
        task = asyncio.create_task(error_code_of(system.calls.call("ns.op", timeout=0.5)))
        request_id = await wait_for_request(system.bus)
        while not seen:
            await asyncio.sleep(0)
        if not is_closed:
            await system.calls.abort(request_id)
        await system.handler.close(timeout=0 if is_closed else None)
        assert seen == ["started", "cancelled", "cleaned up"]
        assert await task == ("TIMEOUT" if is_closed else "ABORTED")

    run_bounded(scenario())


def test_an_abort_cancels_the_handler_and_is_not_answered() -> None:
    async def scenario() -> None:
        system, seen = System(), list[str]()
        system.add("op", waiting_handler(seen))
        async with system.handler:
            task = asyncio.create_task(system.calls.call("ns.op"))
            request_id = await wait_for_request(system.bus)
            while not seen:
                await asyncio.sleep(0)
            await system.calls.abort(request_id, "the user left")
            with pytest.raises(CallError, match="the user left"):
                await task
        assert seen == ["started", "cancelled"]
        assert [topic for topic, _ in system.bus.events] == ["call.requested", "call.aborted"]

    run_bounded(scenario())


def test_whoever_cancels_a_call_cancels_all_that_is_done_for_it() -> None:
    async def scenario() -> None:
        system, seen = System(), list[str]()
        system.add("inner", waiting_handler(seen))
        system.add("outer", lambda value, context: context.env.ns.inner(value))
        async with system.handler:
            task = asyncio.create_task(system.calls.call("ns.outer"))
            while not seen:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while len(seen) < 2:
                await asyncio.sleep(0)
        assert len(system.bus.events_of("call.aborted")) == 2

    run_bounded(scenario())


def test_calls_run_side_by_side() -> None:
    async def scenario() -> None:
        system, meeting = System(), asyncio.Barrier(20)
        system.add("op", lambda *_: meeting.wait())
        async with system.handler:
            answers = await asyncio.gather(*(system.calls.call("ns.op") for _ in range(20)))
        assert sorted(unwrap(answer) for answer in answers) == [*range(20)]

    run_bounded(scenario())


def test_a_request_that_comes_twice_runs_once() -> None:
    async def scenario() -> None:
        system, seen = System(), list[str]()
        system.add("op", waiting_handler(seen))
        async with system.handler:
            for _ in range(3):
                await system.bus.publish("call.requested", {"requestId": "a", "operationId": "ns.op", "input": None})
            while not seen:
                await asyncio.sleep(0)
            await system.calls.abort("a")
        assert seen == ["started", "cancelled"]

    run_bounded(scenario())


@pytest.mark.parametrize(
    "wrong",
    [
        {"identity": "ada"},
        {"identity": {"id": "ada"}},
        {"identity": {"id": "ada", "scopes": [7]}},
        {"identity": {"id": "ada", "scopes": "admin"}},
        {"deadline": "soon"},
        {"deadline": True},
        {"deadline": float("nan")},
        {"parentRequestId": ["a"]},
    ],
)
def test_a_request_that_is_none_is_refused(wrong: Any) -> None:
    async def scenario() -> None:
        system = System()
        system.add("op", never)
        async with system.handler:
            topic, event = await system.send(**wrong)
            assert (topic, event["code"]) == ("call.error", "VALIDATION_ERROR")
            assert next(iter(wrong)) in event["message"]

    run_bounded(scenario())


def test_a_request_that_cannot_be_answered_is_told_to_whoever_runs_this(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        system = System()
        async with system.handler:
            rubbish: list[Any] = [{}, 7, {"requestId": "a"}, {"requestId": ["a"], "operationId": "ns.op"}]
            for event in rubbish:
                await system.bus.publish("call.requested", event)
                await system.bus.publish("call.aborted", event)

    run_bounded(scenario())
    assert caplog.text.count("was ignored") == 4


def test_only_the_latest_calls_are_remembered_as_settled() -> None:
    async def scenario() -> None:
        system = System()
        system.add("op", lambda *_: "ran")
        async with system.handler:
            for number in range(4097):
                await system.bus.publish("call.aborted", {"requestId": f"aborted {number}"})
            remembered: Any = {"requestId": "aborted 4096", "operationId": "ns.op", "input": None}
            await system.bus.publish("call.requested", remembered)
            assert await system.send(requestId="aborted 0") == ("call.responded", ANY)
        assert [event["requestId"] for event in system.bus.events_of("call.responded")] == ["aborted 0"]

    run_bounded(scenario())


def test_an_answer_that_no_transport_takes_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class MuteBus(RecordingBus):
        async def publish(self, topic: Any, event: Any) -> None:
            if topic in ("call.responded", "call.error"):
                raise ConnectionError("the broker is gone")
            await super().publish(topic, event)

    async def scenario() -> None:
        calls = PendingRequestMap(MuteBus())
        registry = OperationRegistry([Operation(OperationSpec(namespace="ns", name="op"), lambda *_: "ran")])
        async with CallHandler(registry, calls):
            with pytest.raises(CallError) as caught:
                await calls.call("ns.op", timeout=0.5)
            assert caught.value.code == "TIMEOUT"

    run_bounded(scenario())
    assert "the answer of ns.op could not be sent" in caplog.text
    assert "the broker is gone" in caplog.text


def test_closing_waits_for_what_runs_and_for_what_that_calls_but_takes_no_more() -> None:
    async def scenario() -> None:
        system, may_finish = System(), asyncio.Event()

        async def outer(value: Any, context: CallContext) -> Any:
            await may_finish.wait()
            return await context.env.ns.inner(value)

        system.add("outer", outer)
        system.add("inner", lambda value, _: value)
        await system.handler.start()
        await system.handler.start()
        task = asyncio.create_task(system.calls.call("ns.outer", 7))
        await wait_for_request(system.bus)
        closing = asyncio.create_task(system.handler.close())
        await asyncio.sleep(0)
        assert await error_code_of(system.calls.call("ns.inner")) == "ABORTED"
        may_finish.set()
        await closing
        assert unwrap(await task) == 7
        assert await error_code_of(system.calls.call("ns.inner", timeout=0.02)) == "TIMEOUT"
        async with system.handler:
            assert unwrap(await system.calls.call("ns.inner", 8)) == 8

    run_bounded(scenario())


@pytest.mark.parametrize("seconds", [0, 0.01])
def test_closing_aborts_what_takes_longer(seconds: float) -> None:
    async def scenario() -> None:
        system, seen = System(), list[str]()
        system.add("op", waiting_handler(seen))
        await system.handler.start()
        task = asyncio.create_task(system.calls.call("ns.op"))
        await wait_for_request(system.bus)
        await system.handler.close(timeout=seconds)
        assert seen == ["started", "cancelled"]
        assert await error_code_of(task) == "ABORTED"

    run_bounded(scenario())


def test_closing_waits_for_what_was_aborted_to_clean_up() -> None:
    async def scenario() -> None:
        system, seen = System(), list[str]()

        async def clean_up(*_: Any) -> None:
            seen.append("started")
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.02)
                seen.append("cleaned up")

        system.add("op", clean_up)
        await system.handler.start()
        await system.bus.publish("call.requested", {"requestId": "a", "operationId": "ns.op", "input": None})
        while not seen:
            await asyncio.sleep(0)
        await system.calls.abort("a")
        await system.handler.close(timeout=0)
        assert seen == ["started", "cleaned up"]

    run_bounded(scenario())


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_call_whose_result_is_just_made_to_fit_can_be_aborted(
    is_closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, may_finish = threading.Event(), threading.Event()

    def held(result: Any, spec: OperationSpec) -> ResponseEnvelope[Any]:
        started.set()
        may_finish.wait(30)
        return to_envelope(result, spec)

    async def scenario() -> None:
        system = System()
        system.add("op", lambda *_: [1] * 30_000, output_schema={"type": "array"})
        await system.handler.start()
        call = asyncio.create_task(system.calls.call("ns.op", timeout=60))
        try:
            request_id = await wait_for_request(system.bus)
            while not started.is_set():
                await asyncio.sleep(0)
            if not is_closed:
                await system.calls.abort(request_id)
            await system.handler.close(timeout=0)
            assert await error_code_of(call) == "ABORTED"
            assert system.bus.failures == []
        finally:
            may_finish.set()

    monkeypatch.setattr(results, "to_envelope", held)
    run_bounded(scenario())


def test_a_block_that_fails_does_not_wait() -> None:
    async def scenario() -> None:
        system, seen = System(), list[str]()
        system.add("op", waiting_handler(seen))
        with contextlib.suppress(ZeroDivisionError):
            async with system.handler:
                task = asyncio.create_task(system.calls.call("ns.op"))
                await wait_for_request(system.bus)
                raise ZeroDivisionError
        assert await error_code_of(task) == "ABORTED"

    run_bounded(scenario())
