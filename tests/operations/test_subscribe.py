"""Subscriptions: an envelope for every yield, and nothing left running behind."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from calls import run_bounded
from forebay.operations import CallContext, CallError, OperationRegistry, OperationSpec, subscribe
from forebay.operations.envelope import LocalResponseMeta, ResponseEnvelope, local_envelope, mcp_envelope, unwrap

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def registry_of(handler: Any, **more: Any) -> OperationRegistry:
    registry = OperationRegistry()
    registry.register(OperationSpec(namespace="ns", name="op", **{"type": "subscription", **more}), handler)
    return registry


async def all_of(handler: Any, value: Any = None, context: CallContext | None = None, **more: Any) -> list[Any]:
    return [envelope async for envelope in subscribe(registry_of(handler, **more), "ns.op", value, context)]


async def agen(values: Any, _: CallContext) -> AsyncIterator[Any]:
    for value in values:
        yield value


def gen(value: Any, _: CallContext) -> Iterator[Any]:
    yield from value


async def awaited(value: Any, context: CallContext) -> AsyncIterator[Any]:
    return agen(value, context)


class Counter:
    """An async iterator that is no generator, and can be closed."""

    def __init__(self, values: list[Any]) -> None:
        self._values = iter(values)
        self.is_closed = False

    def __aiter__(self) -> "Counter":
        return self

    async def __anext__(self) -> Any:
        for value in self._values:
            return value
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(
    "handler", [agen, gen, awaited, lambda value, _: Counter(value), lambda value, _: iter(value), lambda *_: Again()]
)
def test_every_yield_is_an_envelope(handler: Any) -> None:
    envelopes = run_bounded(all_of(handler, [1, None, {"a": 2}]))
    assert [unwrap(envelope) for envelope in envelopes] == [1, None, {"a": 2}]
    for envelope in envelopes:
        assert isinstance(envelope, ResponseEnvelope)
        assert isinstance(envelope.meta, LocalResponseMeta)
        assert envelope.meta.operation_id == "ns.op"


class Again:
    """Something that can be iterated over, and is no iterator itself."""

    async def __aiter__(self) -> AsyncIterator[Any]:
        for value in (1, None, {"a": 2}):
            yield value


def test_each_has_the_time_at_which_it_came() -> None:
    async def scenario() -> list[int]:
        times = []
        async for envelope in subscribe(registry_of(gen), "ns.op", range(3)):
            assert isinstance(envelope.meta, LocalResponseMeta)
            times.append(envelope.meta.timestamp)
            began = time.time_ns() // 1_000_000
            assert envelope.meta.timestamp <= began
            while time.time_ns() // 1_000_000 == began:
                await asyncio.sleep(0)
        return times

    first, second, third = run_bounded(scenario())
    assert first < second < third


def test_envelopes_pass_as_they_are() -> None:
    envelopes: list[Any] = [local_envelope(1, "someone.else"), mcp_envelope("no", is_error=True)]
    value = [*envelopes, *(envelope.to_dict() for envelope in envelopes)]
    told = run_bounded(all_of(agen, value))
    assert told == envelopes * 2
    assert told[0] is envelopes[0]


def test_the_output_schema_is_for_every_yield(caplog: pytest.LogCaptureFixture) -> None:
    schema = {"properties": {"n": {"minimum": 5}}}
    with caplog.at_level(logging.WARNING, "forebay"):
        run_bounded(all_of(agen, [{"n": 1}, {"n": 7}, {"n": 2}], output_schema=schema))
    assert caplog.text.count("'/n'") == 2


def test_the_input_is_checked_before_the_handler_sees_it() -> None:
    def never(*_: Any) -> None:
        raise AssertionError("this must not run")

    with pytest.raises(CallError) as caught:
        run_bounded(all_of(never, {"n": "x"}, input_schema=NUMBER))
    assert caught.value.code == "VALIDATION_ERROR"
    assert caught.value.details["problems"][0]["path"] == "/n"


def test_who_subscribes_with_nothing_means_an_empty_object() -> None:
    def told(value: Any, _: CallContext) -> Iterator[Any]:
        yield value

    assert [unwrap(one) for one in run_bounded(all_of(told, input_schema={"type": "object"}))] == [{}]


@pytest.mark.parametrize("kind", ["query", "mutation"])
def test_what_is_no_subscription_says_what_to_use(kind: str) -> None:
    with pytest.raises(CallError, match=rf"ns\.op is a {kind}; use execute\(\)") as caught:
        run_bounded(all_of(agen, [], type=kind))
    assert caught.value.code == "VALIDATION_ERROR"


def test_what_is_not_there_is_told() -> None:
    async def scenario() -> None:
        await anext(subscribe(registry_of(agen), "ns.po"))

    with pytest.raises(CallError, match=r"there are ns\.op") as caught:
        run_bounded(scenario())
    assert caught.value.code == "OPERATION_NOT_FOUND"


@pytest.mark.parametrize("value", [None, 7, [1], "text", {"a": 1}])
def test_a_handler_that_does_not_yield_is_told(value: Any) -> None:
    with pytest.raises(CallError, match="has to yield") as caught:
        run_bounded(all_of(lambda *_: value))
    assert caught.value.code == "EXECUTION_ERROR"


def fails_at_once(*_: Any) -> Any:
    raise RuntimeError("the disk is on fire")


async def fails_later(*_: Any) -> AsyncIterator[Any]:
    yield 1
    raise RuntimeError("the disk is on fire")


def fails_later_too(*_: Any) -> Iterator[Any]:
    yield 1
    raise RuntimeError("the disk is on fire")


async def fails_at_the_end(*_: Any) -> AsyncIterator[Any]:
    try:
        yield 1
    finally:
        raise RuntimeError("the disk is on fire")


@pytest.mark.parametrize("handler", [fails_at_once, fails_later, fails_later_too, fails_at_the_end])
def test_what_is_raised_is_a_call_error(handler: Any) -> None:
    seen: list[Any] = []

    async def scenario() -> None:
        envelopes = subscribe(registry_of(handler), "ns.op")
        while True:
            seen.append(unwrap(await anext(envelopes)))

    with pytest.raises(CallError, match=r"ns\.op failed: the disk is on fire") as caught:
        run_bounded(scenario())
    assert caught.value.code == "EXECUTION_ERROR"
    assert seen == ([] if handler is fails_at_once else [1])


def test_what_is_raised_while_it_is_closed_is_one_too() -> None:
    async def scenario() -> None:
        envelopes = subscribe(registry_of(fails_at_the_end), "ns.op")
        await anext(envelopes)
        with pytest.raises(CallError, match="the disk is on fire"):
            await envelopes.aclose()

    run_bounded(scenario())


class Unreadable:
    def model_dump(self, **_: Any) -> Any:
        raise RuntimeError("the disk is on fire")


def test_what_cannot_be_made_to_fit_is_a_call_error_and_the_generator_is_closed() -> None:
    async def scenario() -> None:
        counter = Counter([Unreadable()])
        with pytest.raises(CallError, match=r"ns\.op failed: the disk is on fire"):
            await anext(subscribe(registry_of(lambda *_: counter, output_schema=NUMBER), "ns.op"))
        assert counter.is_closed

    run_bounded(scenario())


def test_an_error_that_is_a_call_error_stays_one() -> None:
    async def deny(*_: Any) -> AsyncIterator[Any]:
        yield 1
        raise CallError("ACCESS_DENIED", "no more", {"scope": "x"})

    with pytest.raises(CallError, match="no more") as caught:
        run_bounded(all_of(deny))
    assert (caught.value.code, caught.value.details) == ("ACCESS_DENIED", {"scope": "x"})


def endless(seen: list[str]) -> list[Any]:
    async def asynchronous(*_: Any) -> AsyncIterator[Any]:
        try:
            while True:
                yield 1
                await asyncio.sleep(0)
        finally:
            seen.append("closed")

    def synchronous(*_: Any) -> Iterator[Any]:
        try:
            while True:
                yield 1
        finally:
            seen.append("closed")

    return [asynchronous, synchronous]


@pytest.mark.parametrize("kind", [0, 1])
def test_closing_closes_the_generator_of_the_handler(kind: int) -> None:
    async def scenario() -> None:
        seen: list[str] = []
        async with contextlib.aclosing(subscribe(registry_of(endless(seen)[kind]), "ns.op")) as envelopes:
            async for _ in envelopes:
                break
            assert seen == []
        assert seen == ["closed"]

    run_bounded(scenario())


def test_closing_closes_an_iterator_that_can_be_closed() -> None:
    async def scenario() -> None:
        counter = Counter([1, 2])
        async with contextlib.aclosing(subscribe(registry_of(lambda *_: counter), "ns.op")) as envelopes:
            assert unwrap(await anext(envelopes)) == 1
            assert not counter.is_closed
        assert counter.is_closed

    run_bounded(scenario())


@pytest.mark.parametrize("kind", [0, 1])
def test_whoever_consumes_can_be_cancelled(kind: int) -> None:
    """Also if the generator never waits for anything."""

    async def scenario() -> None:
        seen: list[str] = []

        async def consume() -> None:
            async for _ in subscribe(registry_of(endless(seen)[kind]), "ns.op"):
                pass

        task = asyncio.create_task(consume())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == ["closed"]

    run_bounded(scenario())


def test_a_deadline_ends_it_and_closes_the_generator() -> None:
    seen: list[str] = []

    async def slow(*_: Any) -> AsyncIterator[Any]:
        try:
            yield 1
            await asyncio.sleep(60)
        finally:
            seen.append("closed")

    async def scenario() -> None:
        envelopes = subscribe(registry_of(slow), "ns.op", None, CallContext(deadline=time.monotonic() + 0.2))
        assert unwrap(await anext(envelopes)) == 1
        with pytest.raises(CallError) as caught:
            await anext(envelopes)
        assert caught.value.code == "TIMEOUT"

    run_bounded(scenario())
    assert seen == ["closed"]


def test_a_deadline_that_has_passed_starts_nothing() -> None:
    with pytest.raises(CallError) as caught:
        run_bounded(all_of(fails_at_once, None, CallContext(deadline=time.monotonic() - 1)))
    assert caught.value.code == "TIMEOUT"


def test_its_handler_can_call_other_operations() -> None:
    async def scenario() -> None:
        async def twice(values: Any, context: CallContext) -> AsyncIterator[Any]:
            for value in values:
                yield await context.env.ns.double(value)

        registry = registry_of(twice)
        registry.register(OperationSpec(namespace="ns", name="double"), lambda value, _: value * 2)
        assert [unwrap(envelope) async for envelope in subscribe(registry, "ns.op", [1, 2])] == [2, 4]

    run_bounded(scenario())
