"""The call protocol: what is published, and what comes of a call, whatever happens to it."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import jsonschema
import pytest
from documents import values
from headgate import InvalidArgument
from headgate.envelope import ResponseEnvelope, http_envelope, local_envelope, mcp_envelope, unwrap
from headgate.operations import (
    CALL_EVENT_SCHEMAS,
    CallError,
    CallEvent,
    CallEventName,
    Identity,
    InProcessPubSub,
    PendingRequestMap,
    event_from_json,
    event_to_json,
    listen,
    pending,
)
from headgate.operations.deadlines import from_wire, to_wire
from headgate.operations.pubsub import Receiver, Unsubscribe, subscribe_all
from hypothesis import given
from hypothesis import strategies as st

TOPICS: list[CallEventName] = [*CALL_EVENT_SCHEMAS]


def bounded(scenario: Awaitable[Any]) -> Any:
    async def run() -> Any:
        return await asyncio.wait_for(scenario, 30)

    return asyncio.run(run())


class Record(InProcessPubSub):
    """A bus that remembers what was published, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, Any]] = []

    async def publish(self, topic: CallEventName, event: CallEvent) -> None:
        self.events.append((topic, event))
        await super().publish(topic, event)

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


REQUESTED: dict[str, Any] = {
    "requestId": "a",
    "operationId": "x.y",
    "input": {"a": 1},
    "parentRequestId": "b",
    "deadline": 1_800_000_000_000,
    "identity": {"id": "ada", "scopes": ["x"]},
}
EVENTS: dict[CallEventName, dict[str, Any]] = {
    "call.requested": REQUESTED,
    "call.responded": {"requestId": "a", "output": local_envelope(1, "x.y").to_dict()},
    "call.error": {"requestId": "a", "code": "TIMEOUT", "message": "late", "details": {"after": 3}},
    "call.aborted": {"requestId": "a", "reason": "enough"},
}
OPTIONAL = {"parentRequestId", "deadline", "identity", "details", "reason"}


@pytest.mark.parametrize("topic", TOPICS)
def test_a_schema_takes_an_event_and_nothing_less(topic: CallEventName) -> None:
    check = jsonschema.Draft202012Validator(CALL_EVENT_SCHEMAS[topic])
    check.validate(EVENTS[topic])
    for key in EVENTS[topic]:
        less = {name: value for name, value in EVENTS[topic].items() if name != key}
        assert check.is_valid(less) == (key in OPTIONAL)


@pytest.mark.parametrize(
    ("topic", "wrong"),
    [
        ("call.requested", {"requestId": 7}),
        ("call.requested", {"deadline": "soon"}),
        ("call.requested", {"identity": {"id": "ada"}}),
        ("call.requested", {"identity": "ada"}),
        ("call.responded", {"output": {"a": 1}}),
        ("call.responded", {"output": {"data": 1, "meta": {"source": "ftp"}}}),
        ("call.error", {"code": "OOPS"}),
        ("call.error", {"details": []}),
        ("call.aborted", {"reason": 7}),
    ],
)
def test_a_schema_refuses_what_is_no_such_event(topic: CallEventName, wrong: dict[str, Any]) -> None:
    assert not jsonschema.Draft202012Validator(CALL_EVENT_SCHEMAS[topic]).is_valid({**EVENTS[topic], **wrong})


@given(values | st.binary(max_size=20) | st.dictionaries(st.sampled_from(["$base64", "$$base64", "a"]), st.binary()))
def test_events_lose_nothing_as_json(data: Any) -> None:
    events: list[Any] = [
        {"requestId": "a", "operationId": "x.y", "input": data},
        {"requestId": "a", "output": local_envelope(data, "x.y").to_dict()},
    ]
    for event in events:
        assert event_from_json(event_to_json(event)) == event
        assert event_from_json(event_to_json(event).decode()) == event


def test_what_is_no_json_is_no_event() -> None:
    with pytest.raises(InvalidArgument, match="not JSON"):
        event_from_json(b"{")


def test_deadlines_are_milliseconds_on_the_wire() -> None:
    before = time.time()
    told = to_wire(time.monotonic() + 60)
    assert isinstance(told, int)
    assert int((before + 59) * 1000) <= told <= (time.time() + 60) * 1000
    deadline = time.monotonic() + 60
    assert deadline - 1 < from_wire(to_wire(deadline)) < deadline + 0.001


def test_a_subscriber_that_fails_keeps_nothing_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        bus, seen = InProcessPubSub(), list[Any]()

        def fail(_: Any) -> None:
            raise RuntimeError("the disk is on fire")

        for receive in (seen.append, fail, seen.append):
            await bus.subscribe("call.aborted", receive)
        await bus.publish("call.aborted", {"requestId": "a"})
        await bus.publish("call.error", {"requestId": "b", "code": "TIMEOUT", "message": ""})
        assert seen == [{"requestId": "a"}] * 2

    bounded(scenario())
    assert "a subscriber to call.aborted failed" in caplog.text
    assert "the disk is on fire" in caplog.text


def test_whoever_unsubscribed_receives_nothing() -> None:
    async def scenario() -> None:
        bus, seen = InProcessPubSub(), list[Any]()
        once, twice = [await bus.subscribe("call.aborted", seen.append) for _ in range(2)]
        await once()
        await once()
        await bus.publish("call.aborted", {"requestId": "a"})
        await twice()
        await bus.publish("call.aborted", {"requestId": "b"})
        assert seen == [{"requestId": "a"}]

    bounded(scenario())


def test_a_listener_that_is_slow_holds_nobody_up_and_keeps_no_more_than_its_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        bus, seen = InProcessPubSub(), list[Any]()
        async with listen(bus, "call.aborted", limit=3) as events:
            await bus.subscribe("call.aborted", seen.append)
            for number in range(10):
                await bus.publish("call.aborted", {"requestId": str(number)})
            assert len(seen) == 10
            assert [(await anext(events))["requestId"] for _ in range(3)] == ["0", "1", "2"]
            await bus.publish("call.aborted", {"requestId": "later"})
            assert (await anext(events))["requestId"] == "later"
        await bus.publish("call.aborted", {"requestId": "last"})
        assert len(seen) == 12

    bounded(scenario())
    assert caplog.text.count("3 events behind") == 1


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


def test_all_topics_are_subscribed_to_or_none() -> None:
    async def scenario() -> None:
        bus = Broken("call.aborted", ConnectionError("gone"))
        with pytest.raises(ConnectionError):
            await subscribe_all(bus, {"call.error": print, "call.aborted": print})
        assert bus.open == 0
        unsubscribe = await subscribe_all(bus, {"call.error": print, "call.responded": print})
        assert bus.open == 2
        await unsubscribe()
        await unsubscribe()
        assert bus.open == 0

    bounded(scenario())


def test_a_call_is_requested_with_what_it_was_given() -> None:
    async def scenario() -> None:
        bus = Record()
        calls = PendingRequestMap(bus)
        before = time.time()
        task = asyncio.create_task(
            calls.call(
                "x.y", {"a": 1}, identity=Identity("ada", ["w", "r"]), timeout=60, parent_request_id="the-parent"
            )
        )
        request_id = await requested(bus)
        event = bus.of("call.requested")[0]
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
        bare = {"requestId": await requested(bus, 2), "operationId": "x.y", "input": None}
        assert bus.of("call.requested")[1] == bare
        await calls.respond(bare["requestId"] or "", local_envelope(1, "x.y"))
        await task

    bounded(scenario())


ANSWERS: list[ResponseEnvelope[Any]] = [
    local_envelope(None, "x.y"),
    http_envelope({"a": 1}, status_code=200, headers={"a": "b"}, content_type="application/json"),
    mcp_envelope("no", is_error=True, content=[{"type": "text", "text": "no"}]),
]


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("is_dict", [False, True])
def test_a_call_returns_the_envelope_that_answers_it(answer: ResponseEnvelope[Any], is_dict: bool) -> None:
    async def scenario() -> None:
        bus = Record()
        calls = PendingRequestMap(bus)
        task = asyncio.create_task(calls.call("x.y"))
        request_id = await requested(bus)
        await calls.respond(request_id, json.loads(answer.to_json()) if is_dict else answer)
        envelope = await task
        assert isinstance(envelope, ResponseEnvelope)
        assert envelope == answer
        event = bus.of("call.responded")[0]
        jsonschema.Draft202012Validator(CALL_EVENT_SCHEMAS["call.responded"]).validate(event)

    bounded(scenario())


@pytest.mark.parametrize("value", [None, 1, "x", {"a": 1}, {"data": 1}, {"data": 1, "meta": {"source": "ftp"}}])
def test_a_call_is_answered_with_nothing_but_an_envelope(value: Any) -> None:
    async def scenario() -> None:
        bus = Record()
        with pytest.raises(InvalidArgument, match="answered with an envelope"):
            await PendingRequestMap(bus).respond("a", value)
        assert bus.events == []

    bounded(scenario())


def test_what_is_told_of_an_error_is_raised() -> None:
    async def scenario() -> None:
        bus = Record()
        calls = PendingRequestMap(bus)
        task = asyncio.create_task(calls.call("x.y"))
        await calls.error(await requested(bus), "ACCESS_DENIED", "not you", {"scope": "x"})
        with pytest.raises(CallError, match=r"^not you$") as caught:
            await task
        assert (caught.value.code, caught.value.details) == ("ACCESS_DENIED", {"scope": "x"})
        jsonschema.Draft202012Validator(CALL_EVENT_SCHEMAS["call.error"]).validate(bus.of("call.error")[0])

    bounded(scenario())


def test_a_call_that_is_aborted_says_why() -> None:
    async def scenario() -> None:
        for reason, told in (("the user left", "the user left"), (None, "no reason was given")):
            bus = Record()
            calls = PendingRequestMap(bus)
            task = asyncio.create_task(calls.call("x.y"))
            await calls.abort(await requested(bus), reason)
            with pytest.raises(CallError, match=told) as caught:
                await task
            assert caught.value.code == "ABORTED"
            jsonschema.Draft202012Validator(CALL_EVENT_SCHEMAS["call.aborted"]).validate(bus.of("call.aborted")[0])

    bounded(scenario())


@pytest.mark.parametrize(
    "limit",
    [
        lambda calls: calls.call("x.y", timeout=0.02),
        lambda calls: calls.call("x.y", deadline=time.monotonic() + 0.02, timeout=60),
        lambda calls: calls.call("x.y", deadline=time.monotonic() + 60, timeout=0.02),
    ],
)
def test_a_call_whose_deadline_passes_is_late_and_the_other_side_is_told(limit: Callable[..., Any]) -> None:
    async def scenario() -> None:
        bus = Record()
        assert await code_of(limit(PendingRequestMap(bus))) == "TIMEOUT"
        assert bus.of("call.aborted") == [{"requestId": await requested(bus), "reason": "its deadline passed"}]

    bounded(scenario())


def test_a_map_has_a_timeout_for_calls_that_name_none() -> None:
    async def scenario() -> None:
        bus = Record()
        assert await code_of(PendingRequestMap(bus, timeout=0.02).call("x.y")) == "TIMEOUT"
        assert len(bus.of("call.aborted")) == 1

    bounded(scenario())


def test_a_deadline_that_has_passed_asks_nobody() -> None:
    async def scenario() -> None:
        bus = Record()
        assert await code_of(PendingRequestMap(bus).call("x.y", deadline=time.monotonic() - 1)) == "TIMEOUT"
        assert await code_of(PendingRequestMap(bus).call("x.y", timeout=0)) == "TIMEOUT"
        assert bus.events == []

    bounded(scenario())


def test_a_deadline_that_never_comes_is_none() -> None:
    async def scenario() -> None:
        bus = Record()
        calls = PendingRequestMap(bus)
        task = asyncio.create_task(calls.call("x.y", timeout=float("inf")))
        await calls.respond(await requested(bus), local_envelope(1, "x.y"))
        await task
        assert "deadline" not in bus.of("call.requested")[0]

    bounded(scenario())


def test_a_caller_that_is_cancelled_aborts_its_call() -> None:
    async def scenario() -> None:
        bus = Record()
        task = asyncio.create_task(PendingRequestMap(bus).call("x.y", timeout=60))
        request_id = await requested(bus)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert bus.of("call.aborted") == [{"requestId": request_id, "reason": "its caller was cancelled"}]

    bounded(scenario())


def test_answers_that_nobody_waits_for_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        bus = Record()
        calls = PendingRequestMap(bus)
        task = asyncio.create_task(calls.call("x.y"))
        request_id = await requested(bus)
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

    with caplog.at_level(logging.DEBUG, "headgate"):
        bounded(scenario())
    assert [record for record in caplog.records if record.name == "headgate"] == []


@pytest.mark.parametrize("rubbish", [None, 7, [], {}, {"requestId": None}, {"requestId": ["a"]}, {"requestId": {}}])
def test_rubbish_on_the_bus_is_ignored(rubbish: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        bus = Record()
        calls = PendingRequestMap(bus)
        task = asyncio.create_task(calls.call("x.y"))
        request_id = await requested(bus)
        for topic in TOPICS:
            await bus.publish(topic, rubbish)
        await calls.respond(request_id, local_envelope(1, "x.y"))
        assert unwrap(await task) == 1

    bounded(scenario())
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("topic", "event", "code", "told"),
    [
        ("call.responded", {}, "EXECUTION_ERROR", "with no envelope"),
        ("call.responded", {"output": 7}, "EXECUTION_ERROR", "with no envelope"),
        ("call.responded", {"output": {"data": 1, "meta": {"source": "http"}}}, "EXECUTION_ERROR", "statusCode"),
        ("call.error", {}, "EXECUTION_ERROR", "nobody said why"),
        ("call.error", {"code": "OOPS", "message": "hm", "details": 7}, "EXECUTION_ERROR", "hm"),
    ],
)
def test_an_answer_that_is_not_understood_is_an_error(
    topic: CallEventName, event: dict[str, Any], code: str, told: str
) -> None:
    async def scenario() -> None:
        bus = Record()
        task = asyncio.create_task(PendingRequestMap(bus).call("x.y"))
        answer: Any = {"requestId": await requested(bus), **event}
        await bus.publish(topic, answer)
        with pytest.raises(CallError, match=told) as caught:
            await task
        assert caught.value.code == code

    bounded(scenario())


def test_closing_ends_what_is_waited_for() -> None:
    async def scenario() -> None:
        bus = Broken("nothing", ValueError())
        calls = PendingRequestMap(bus)
        tasks = [asyncio.create_task(calls.call("x.y")) for _ in range(3)]
        await requested(bus, 3)
        assert bus.open == 3
        await calls.close()
        assert [await code_of(task) for task in tasks] == ["ABORTED"] * 3
        asked = [event["requestId"] for event in bus.of("call.requested")]
        assert [event["requestId"] for event in bus.of("call.aborted")] == asked
        assert bus.open == 0
        assert await code_of(calls.call("x.y")) == "ABORTED"
        assert len(bus.of("call.requested")) == 3
        await calls.close()

    bounded(scenario())


def test_a_map_is_closed_at_the_end_of_its_block() -> None:
    async def scenario() -> None:
        bus = Record()
        async with PendingRequestMap(bus) as calls:
            task = asyncio.create_task(calls.call("x.y"))
            await requested(bus)
        assert await code_of(task) == "ABORTED"

    bounded(scenario())


@pytest.mark.parametrize("topic", ["call.requested", "call.responded"])
def test_a_transport_that_fails_is_a_call_that_failed(topic: str) -> None:
    async def scenario() -> None:
        for error in (ConnectionError("the cable is cut"), TimeoutError("the cable is cut")):
            calls = PendingRequestMap(Broken(topic, error))
            with pytest.raises(CallError, match=r"x\.y could not be asked for: the cable is cut") as caught:
                await calls.call("x.y", timeout=60)
            assert caught.value.code == "EXECUTION_ERROR"

    bounded(scenario())


def test_a_transport_that_hangs_does_not_hold_a_call_longer_than_its_deadline(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Hanging(InProcessPubSub):
        async def publish(self, topic: CallEventName, event: CallEvent) -> None:
            del topic, event
            await asyncio.Event().wait()

    monkeypatch.setattr(pending, "_FAREWELL", 0.01)
    assert bounded(code_of(PendingRequestMap(Hanging()).call("x.y", timeout=0.01))) == "TIMEOUT"
    assert "nobody could be told" in caplog.text


def test_every_answer_finds_its_caller_and_no_id_comes_twice() -> None:
    async def scenario() -> None:
        bus = Record()
        maps = [PendingRequestMap(bus) for _ in range(4)]
        tasks = [asyncio.create_task(maps[number % 4].call("x.y", number)) for number in range(2000)]
        await requested(bus, len(tasks))
        events = bus.of("call.requested")
        assert len({event["requestId"] for event in events}) == len(tasks)
        for event in reversed(events):
            await maps[event["input"] % 3].respond(event["requestId"], local_envelope(event["input"], "x.y"))
        assert [unwrap(await task) for task in tasks] == [*range(2000)]

    bounded(scenario())


ACTIONS: dict[str, Callable[[PendingRequestMap, str, Any], Awaitable[Any]]] = {
    "result": lambda calls, request_id, _: calls.respond(request_id, local_envelope("result", "x.y")),
    "EXECUTION_ERROR": lambda calls, request_id, _: calls.error(request_id, "EXECUTION_ERROR", "x"),
    "ABORTED": lambda calls, request_id, _: calls.abort(request_id),
    "cancelled": lambda _, __, task: asyncio.sleep(0, task.cancel()),
    "turn": lambda *_: asyncio.sleep(0),
    "TIMEOUT": lambda *_: asyncio.sleep(0.004),
}


@given(st.lists(st.sampled_from(sorted(ACTIONS)), max_size=6), st.booleans())
def test_whatever_happens_in_whatever_order_a_call_is_settled_once(actions: list[str], has_deadline: bool) -> None:
    async def scenario() -> str:
        problems: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
        bus = Record()
        calls = PendingRequestMap(bus)
        task = asyncio.create_task(calls.call("x.y", timeout=0.003 if has_deadline else None))
        await requested(bus)
        for action in [*actions, "result"]:
            await ACTIONS[action](calls, bus.of("call.requested")[0]["requestId"], task)
        try:
            outcome: str = unwrap(await task)
        except CallError as error:
            outcome = error.code
        except asyncio.CancelledError:
            outcome = "cancelled"
        assert problems == []
        withdrawn = [event for event in bus.of("call.aborted") if "reason" in event]
        assert len(withdrawn) == (outcome in ("cancelled", "TIMEOUT"))
        return outcome

    outcome = bounded(scenario())
    assert outcome in {winner([*actions, "result"]), "TIMEOUT" if has_deadline else None}


def winner(actions: list[str]) -> str:
    """What came first, unless its caller was cancelled before the loop came round to tell it."""
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
