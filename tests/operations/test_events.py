"""Call events: their JSON form, their schemas, and their delivery."""

import time
from typing import Any

import jsonschema
import pytest
from calls import FailingBus, run_bounded
from documents import values
from forebay import InvalidArgument
from forebay.envelope import local_envelope
from forebay.operations import (
    CALL_EVENT_SCHEMAS,
    CallEventName,
    InProcessPubSub,
    event_from_json,
    event_to_json,
    listen,
)
from forebay.operations.bus.events import subscribe_all
from forebay.operations.deadlines import DeadlineScope, from_epoch_ms, to_epoch_ms
from hypothesis import given
from hypothesis import strategies as st

TOPICS: list[CallEventName] = [*CALL_EVENT_SCHEMAS]


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


@pytest.mark.slow
@given(values | st.binary(max_size=20) | st.dictionaries(st.sampled_from(["$base64", "$$base64", "a"]), st.binary()))
def test_events_lose_nothing_as_json(data: Any) -> None:
    events: list[Any] = [
        {"requestId": "a", "operationId": "x.y", "input": data},
        {"requestId": "a", "output": local_envelope(data, "x.y").to_dict()},
    ]
    for event in events:
        assert event_from_json(event_to_json(event)) == event
        assert event_from_json(event_to_json(event).decode()) == event


@pytest.mark.parametrize("data", [b"{", '["\ud800"]'])
def test_what_is_no_json_is_no_event(data: bytes | str) -> None:
    with pytest.raises(InvalidArgument, match="not JSON"):
        event_from_json(data)


def test_deadlines_are_milliseconds_on_the_wire() -> None:
    before = time.time()
    deadline_ms = to_epoch_ms(time.monotonic() + 60)
    assert isinstance(deadline_ms, int)
    assert int((before + 59) * 1000) <= deadline_ms <= (time.time() + 60) * 1000
    deadline = time.monotonic() + 60
    assert deadline - 1 < from_epoch_ms(to_epoch_ms(deadline)) < deadline + 0.001


def test_what_takes_too_long_for_another_reason_is_not_blamed_on_the_deadline() -> None:
    async def scenario() -> None:
        async with DeadlineScope(time.monotonic() + 60, "x.y"):
            raise TimeoutError("the cable is cut")

    with pytest.raises(TimeoutError, match="the cable is cut"):
        run_bounded(scenario())


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

    run_bounded(scenario())
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

    run_bounded(scenario())


def test_a_listener_that_is_slow_holds_nobody_up_and_keeps_no_more_than_its_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        bus, seen = FailingBus("nothing", ValueError()), list[Any]()
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
        assert bus.subscription_count == 1

    run_bounded(scenario())
    assert caplog.text.count("3 events behind") == 1


def test_all_topics_are_subscribed_to_or_none() -> None:
    async def scenario() -> None:
        bus = FailingBus("call.aborted", ConnectionError("gone"))
        with pytest.raises(ConnectionError):
            await subscribe_all(bus, {"call.error": print, "call.aborted": print})
        assert bus.subscription_count == 0
        unsubscribe = await subscribe_all(bus, {"call.error": print, "call.responded": print})
        assert bus.subscription_count == 2
        await unsubscribe()
        await unsubscribe()
        assert bus.subscription_count == 0

    run_bounded(scenario())
