"""Pending requests: what is published for them, and how they are settled."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import jsonschema
import pytest
from calls import FailingBus, RecordingBus, error_code_of, run_bounded, wait_for_request
from forebay import InvalidArgument
from forebay.envelope import ResponseEnvelope, http_envelope, local_envelope, mcp_envelope, unwrap
from forebay.operations import (
    CALL_EVENT_SCHEMAS,
    CallError,
    CallEvent,
    CallEventName,
    Identity,
    InProcessPubSub,
    PendingRequestMap,
)
from forebay.operations.bus import pending
from hypothesis import given
from hypothesis import strategies as st

TOPICS: list[CallEventName] = [*CALL_EVENT_SCHEMAS]


def test_a_call_is_requested_with_what_it_was_given() -> None:
    async def scenario() -> None:
        bus = RecordingBus()
        calls = PendingRequestMap(bus)
        before = time.time()
        task = asyncio.create_task(
            calls.call(
                "x.y", {"a": 1}, identity=Identity("ada", ["w", "r"]), timeout=60, parent_request_id="the-parent"
            )
        )
        request_id = await wait_for_request(bus)
        event = bus.events_of("call.requested")[0]
        jsonschema.Draft202012Validator(CALL_EVENT_SCHEMAS["call.requested"]).validate(event)
        assert (before + 59) * 1000 < event.pop("deadline") <= (time.time() + 60) * 1000
        assert event == {
            "requestId": request_id,
            "operationId": "x.y",
            "input": {"a": 1},
            "parentRequestId": "the-parent",
            "identity": {"id": "ada", "scopes": ["r", "w"]},
        }
        await calls.respond(request_id, local_envelope(1, "x.y"))
        await task
        task = asyncio.create_task(calls.call("x.y"))
        bare = {"requestId": await wait_for_request(bus, 2), "operationId": "x.y", "input": None}
        assert bus.events_of("call.requested")[1] == bare
        await calls.respond(bare["requestId"] or "", local_envelope(1, "x.y"))
        await task

    run_bounded(scenario())


ANSWERS: list[ResponseEnvelope[Any]] = [
    local_envelope(None, "x.y"),
    http_envelope({"a": 1}, status_code=200, headers={"a": "b"}, content_type="application/json"),
    mcp_envelope("no", is_error=True, content=[{"type": "text", "text": "no"}]),
]


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("is_dict", [False, True])
def test_a_call_returns_the_envelope_that_answers_it(answer: ResponseEnvelope[Any], is_dict: bool) -> None:
    async def scenario() -> None:
        bus = RecordingBus()
        calls = PendingRequestMap(bus)
        task = asyncio.create_task(calls.call("x.y"))
        request_id = await wait_for_request(bus)
        await calls.respond(request_id, json.loads(answer.to_json()) if is_dict else answer)
        envelope = await task
        assert isinstance(envelope, ResponseEnvelope)
        assert envelope == answer
        event = bus.events_of("call.responded")[0]
        jsonschema.Draft202012Validator(CALL_EVENT_SCHEMAS["call.responded"]).validate(event)

    run_bounded(scenario())


@pytest.mark.parametrize("value", [None, 1, "x", {"a": 1}, {"data": 1}, {"data": 1, "meta": {"source": "ftp"}}])
def test_a_call_is_answered_with_nothing_but_an_envelope(value: Any) -> None:
    async def scenario() -> None:
        bus = RecordingBus()
        with pytest.raises(InvalidArgument, match="answered with an envelope"):
            await PendingRequestMap(bus).respond("a", value)
        assert bus.events == []

    run_bounded(scenario())


def test_what_is_told_of_an_error_is_raised() -> None:
    async def scenario() -> None:
        bus = RecordingBus()
        calls = PendingRequestMap(bus)
        task = asyncio.create_task(calls.call("x.y"))
        await calls.error(await wait_for_request(bus), "ACCESS_DENIED", "not you", {"scope": "x"})
        with pytest.raises(CallError, match=r"^not you$") as caught:
            await task
        assert (caught.value.code, caught.value.details) == ("ACCESS_DENIED", {"scope": "x"})
        jsonschema.Draft202012Validator(CALL_EVENT_SCHEMAS["call.error"]).validate(bus.events_of("call.error")[0])

    run_bounded(scenario())


def test_a_call_that_is_aborted_says_why() -> None:
    async def scenario() -> None:
        for reason, message in (("the user left", "the user left"), (None, "no reason was given")):
            bus = RecordingBus()
            calls = PendingRequestMap(bus)
            task = asyncio.create_task(calls.call("x.y"))
            await calls.abort(await wait_for_request(bus), reason)
            with pytest.raises(CallError, match=message) as caught:
                await task
            assert caught.value.code == "ABORTED"
            jsonschema.Draft202012Validator(CALL_EVENT_SCHEMAS["call.aborted"]).validate(
                bus.events_of("call.aborted")[0]
            )

    run_bounded(scenario())


@pytest.mark.slow
@pytest.mark.parametrize(
    "limit",
    [
        lambda calls: calls.call("x.y", timeout=0.2),
        lambda calls: calls.call("x.y", deadline=time.monotonic() + 0.2, timeout=60),
        lambda calls: calls.call("x.y", deadline=time.monotonic() + 60, timeout=0.2),
    ],
)
def test_a_call_whose_deadline_passes_is_late_and_the_other_side_is_told(limit: Callable[..., Any]) -> None:
    async def scenario() -> None:
        bus = RecordingBus()
        assert await error_code_of(limit(PendingRequestMap(bus))) == "TIMEOUT"
        assert bus.events_of("call.aborted") == [
            {"requestId": await wait_for_request(bus), "reason": "its deadline passed"}
        ]

    run_bounded(scenario())


def test_a_map_has_a_timeout_for_calls_that_name_none() -> None:
    async def scenario() -> None:
        bus = RecordingBus()
        assert await error_code_of(PendingRequestMap(bus, timeout=0.2).call("x.y")) == "TIMEOUT"
        assert len(bus.events_of("call.aborted")) == 1

    run_bounded(scenario())


def test_a_deadline_that_has_passed_asks_nobody() -> None:
    async def scenario() -> None:
        bus = RecordingBus()
        assert await error_code_of(PendingRequestMap(bus).call("x.y", deadline=time.monotonic() - 1)) == "TIMEOUT"
        assert await error_code_of(PendingRequestMap(bus).call("x.y", timeout=0)) == "TIMEOUT"
        assert bus.events == []

    run_bounded(scenario())


def test_a_deadline_that_never_comes_is_none() -> None:
    async def scenario() -> None:
        bus = RecordingBus()
        calls = PendingRequestMap(bus)
        task = asyncio.create_task(calls.call("x.y", timeout=float("inf")))
        await calls.respond(await wait_for_request(bus), local_envelope(1, "x.y"))
        await task
        assert "deadline" not in bus.events_of("call.requested")[0]

    run_bounded(scenario())


def test_a_caller_that_is_cancelled_aborts_its_call() -> None:
    async def scenario() -> None:
        bus = RecordingBus()
        task = asyncio.create_task(PendingRequestMap(bus).call("x.y", timeout=60))
        request_id = await wait_for_request(bus)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert bus.events_of("call.aborted") == [{"requestId": request_id, "reason": "its caller was cancelled"}]

    run_bounded(scenario())


def test_answers_that_nobody_waits_for_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        bus = RecordingBus()
        calls = PendingRequestMap(bus)
        task = asyncio.create_task(calls.call("x.y"))
        request_id = await wait_for_request(bus)
        for stranger in ("unknown", request_id.upper()):
            await calls.respond(stranger, local_envelope(2, "x.y"))
            await calls.error(stranger, "TIMEOUT", "late")
            await calls.abort(stranger)
        await calls.respond(request_id, local_envelope(1, "x.y"))
        await calls.respond(request_id, local_envelope(2, "x.y"))
        await calls.error(request_id, "TIMEOUT", "late")
        await calls.abort(request_id)
        assert unwrap(await task) == 1
        await calls.abort(request_id)

    with caplog.at_level(logging.DEBUG, "forebay"):
        run_bounded(scenario())
    assert [record for record in caplog.records if record.name == "forebay"] == []


@pytest.mark.parametrize("rubbish", [None, 7, [], {}, {"requestId": None}, {"requestId": ["a"]}, {"requestId": {}}])
def test_rubbish_on_the_bus_is_ignored(rubbish: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        bus = RecordingBus()
        calls = PendingRequestMap(bus)
        task = asyncio.create_task(calls.call("x.y"))
        request_id = await wait_for_request(bus)
        for topic in TOPICS:
            await bus.publish(topic, rubbish)
        await calls.respond(request_id, local_envelope(1, "x.y"))
        assert unwrap(await task) == 1

    run_bounded(scenario())
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("topic", "event", "code", "message"),
    [
        ("call.responded", {}, "EXECUTION_ERROR", "with no envelope"),
        ("call.responded", {"output": 7}, "EXECUTION_ERROR", "with no envelope"),
        ("call.responded", {"output": {"data": 1, "meta": {"source": "http"}}}, "EXECUTION_ERROR", "statusCode"),
        ("call.error", {}, "EXECUTION_ERROR", "nobody said why"),
        ("call.error", {"code": "OOPS", "message": "hm", "details": 7}, "EXECUTION_ERROR", "hm"),
    ],
)
def test_an_answer_that_is_not_understood_is_an_error(
    topic: CallEventName, event: dict[str, Any], code: str, message: str
) -> None:
    async def scenario() -> None:
        bus = RecordingBus()
        task = asyncio.create_task(PendingRequestMap(bus).call("x.y"))
        answer: Any = {"requestId": await wait_for_request(bus), **event}
        await bus.publish(topic, answer)
        with pytest.raises(CallError, match=message) as caught:
            await task
        assert caught.value.code == code

    run_bounded(scenario())


def test_closing_ends_what_is_waited_for() -> None:
    async def scenario() -> None:
        bus = FailingBus("nothing", ValueError())
        calls = PendingRequestMap(bus)
        tasks = [asyncio.create_task(calls.call("x.y")) for _ in range(3)]
        await wait_for_request(bus, 3)
        assert bus.subscription_count == 3
        await calls.close()
        assert [await error_code_of(task) for task in tasks] == ["ABORTED"] * 3
        request_ids = [event["requestId"] for event in bus.events_of("call.requested")]
        assert [event["requestId"] for event in bus.events_of("call.aborted")] == request_ids
        assert bus.subscription_count == 0
        assert await error_code_of(calls.call("x.y")) == "ABORTED"
        assert len(bus.events_of("call.requested")) == 3
        await calls.close()

    run_bounded(scenario())


def test_a_map_is_closed_at_the_end_of_its_block() -> None:
    async def scenario() -> None:
        bus = RecordingBus()
        async with PendingRequestMap(bus) as calls:
            task = asyncio.create_task(calls.call("x.y"))
            await wait_for_request(bus)
        assert await error_code_of(task) == "ABORTED"

    run_bounded(scenario())


@pytest.mark.parametrize("topic", ["call.requested", "call.responded"])
def test_a_transport_that_fails_is_a_call_that_failed(topic: str) -> None:
    async def scenario() -> None:
        for error in (ConnectionError("the cable is cut"), TimeoutError("the cable is cut")):
            calls = PendingRequestMap(FailingBus(topic, error))
            with pytest.raises(CallError, match=r"x\.y could not be asked for: the cable is cut") as caught:
                await calls.call("x.y", timeout=60)
            assert caught.value.code == "EXECUTION_ERROR"

    run_bounded(scenario())


@pytest.mark.slow
def test_a_transport_that_hangs_does_not_hold_a_call_longer_than_its_deadline(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Hanging(InProcessPubSub):
        async def publish(self, topic: CallEventName, event: CallEvent) -> None:
            del topic, event
            await asyncio.Event().wait()

    monkeypatch.setattr(pending, "CLEANUP_SECONDS", 0.01)
    assert run_bounded(error_code_of(PendingRequestMap(Hanging()).call("x.y", timeout=0.01))) == "TIMEOUT"
    assert "nobody could be told" in caplog.text


@pytest.mark.slow
def test_every_answer_finds_its_caller_and_no_id_comes_twice() -> None:
    async def scenario() -> None:
        bus = RecordingBus()
        maps = [PendingRequestMap(bus) for _ in range(4)]
        tasks = [asyncio.create_task(maps[number % 4].call("x.y", number)) for number in range(2000)]
        await wait_for_request(bus, len(tasks))
        events = bus.events_of("call.requested")
        assert len({event["requestId"] for event in events}) == len(tasks)
        for event in reversed(events):
            await maps[event["input"] % 3].respond(event["requestId"], local_envelope(event["input"], "x.y"))
        assert [unwrap(await task) for task in tasks] == [*range(2000)]

    run_bounded(scenario())


# A timer may fire early by the resolution of the clock, which is 16 ms on Windows.
PAST_DEADLINE_SECONDS = 0.004 + 2 * time.get_clock_info("monotonic").resolution

ACTIONS: dict[str, Callable[[PendingRequestMap, str, Any], Awaitable[Any]]] = {
    "result": lambda calls, request_id, _: calls.respond(request_id, local_envelope("result", "x.y")),
    "EXECUTION_ERROR": lambda calls, request_id, _: calls.error(request_id, "EXECUTION_ERROR", "x"),
    "ABORTED": lambda calls, request_id, _: calls.abort(request_id),
    "cancelled": lambda _, __, task: asyncio.sleep(0, task.cancel()),
    "turn": lambda *_: asyncio.sleep(0),
    "TIMEOUT": lambda *_: asyncio.sleep(PAST_DEADLINE_SECONDS),
}


@pytest.mark.slow
@given(st.lists(st.sampled_from(sorted(ACTIONS)), max_size=6), st.booleans())
def test_whatever_happens_in_whatever_order_a_call_is_settled_once(actions: list[str], has_deadline: bool) -> None:
    async def scenario() -> str:
        problems: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
        bus = RecordingBus()
        calls = PendingRequestMap(bus)
        task = asyncio.create_task(calls.call("x.y", timeout=0.003 if has_deadline else None))
        # On a busy machine the deadline may pass before the request is published.
        while not task.done() and not bus.events:
            await asyncio.sleep(0)
        request_ids = [event["requestId"] for event in bus.events_of("call.requested")]
        for action in [*actions, "result"]:
            await ACTIONS[action](calls, request_ids[0] if request_ids else "nothing", task)
        try:
            outcome: str = unwrap(await task)
        except CallError as error:
            outcome = error.code
        except asyncio.CancelledError:
            outcome = "cancelled"
        assert problems == []
        assert bus.failures == []
        aborts = [event for event in bus.events_of("call.aborted") if "reason" in event]
        assert len(aborts) == (outcome in ("cancelled", "TIMEOUT") and len(request_ids))
        return outcome

    outcome = run_bounded(scenario())
    assert outcome in {expected_outcome([*actions, "result"]), "TIMEOUT" if has_deadline else None}


def expected_outcome(actions: list[str]) -> str:
    """Return the first action, unless the caller was cancelled before the loop delivered it."""
    first = ""
    for action in actions:
        if action == "cancelled":
            return action
        if action in ("turn", "TIMEOUT"):
            if first:
                break
        else:
            first = first or action
    return first
