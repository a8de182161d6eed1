"""Subscriptions: one envelope for each value, and generators that are always closed."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from calls import run_bounded
from forebay.envelope import LocalResponseMeta, ResponseEnvelope, local_envelope, mcp_envelope, unwrap
from forebay.operations import CallContext, CallError, OperationRegistry, OperationSpec, subscribe

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def make_registry(handler: Any, **more: Any) -> OperationRegistry:
    registry = OperationRegistry()
    registry.register(OperationSpec(namespace="ns", name="op", **{"type": "subscription", **more}), handler)
    return registry


async def collect(handler: Any, value: Any = None, context: CallContext | None = None, **more: Any) -> list[Any]:
    return [envelope async for envelope in subscribe(make_registry(handler, **more), "ns.op", value, context)]


async def async_generator(values: Any, _: CallContext) -> AsyncIterator[Any]:
    for value in values:
        yield value


def generator(value: Any, _: CallContext) -> Iterator[Any]:
    yield from value


async def coroutine_of_generator(value: Any, context: CallContext) -> AsyncIterator[Any]:
    return async_generator(value, context)


class Counter:
    """An async iterator with `aclose` that is not a generator."""

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
    "handler",
    [
        async_generator,
        generator,
        coroutine_of_generator,
        lambda value, _: Counter(value),
        lambda value, _: iter(value),
        lambda *_: AsyncIterableOnly(),
    ],
)
def test_every_yield_is_an_envelope(handler: Any) -> None:
    envelopes = run_bounded(collect(handler, [1, None, {"a": 2}]))
    assert [unwrap(envelope) for envelope in envelopes] == [1, None, {"a": 2}]
    for envelope in envelopes:
        assert isinstance(envelope, ResponseEnvelope)
        assert isinstance(envelope.meta, LocalResponseMeta)
        assert envelope.meta.operation_id == "ns.op"


class AsyncIterableOnly:
    """An async iterable that is not an iterator."""

    async def __aiter__(self) -> AsyncIterator[Any]:
        for value in (1, None, {"a": 2}):
            yield value


def test_each_has_the_time_at_which_it_came() -> None:
    async def scenario() -> list[int]:
        times = []
        async for envelope in subscribe(make_registry(generator), "ns.op", range(3)):
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
    results = run_bounded(collect(async_generator, value))
    assert results == envelopes * 2
    assert results[0] is envelopes[0]


def test_the_output_schema_is_for_every_yield(caplog: pytest.LogCaptureFixture) -> None:
    schema = {"properties": {"n": {"minimum": 5}}}
    with caplog.at_level(logging.WARNING, "forebay"):
        run_bounded(collect(async_generator, [{"n": 1}, {"n": 7}, {"n": 2}], output_schema=schema))
    assert caplog.text.count("'/n'") == 2


def test_the_input_is_checked_before_the_handler_sees_it() -> None:
    def never(*_: Any) -> None:
        raise AssertionError("this must not run")

    with pytest.raises(CallError) as caught:
        run_bounded(collect(never, {"n": "x"}, input_schema=NUMBER))
    assert caught.value.code == "VALIDATION_ERROR"
    assert caught.value.details["problems"][0]["path"] == "/n"


def test_who_subscribes_with_nothing_means_an_empty_object() -> None:
    def yield_input(value: Any, _: CallContext) -> Iterator[Any]:
        yield value

    assert [unwrap(envelope) for envelope in run_bounded(collect(yield_input, input_schema={"type": "object"}))] == [{}]


@pytest.mark.parametrize("kind", ["query", "mutation"])
def test_what_is_no_subscription_says_what_to_use(kind: str) -> None:
    with pytest.raises(CallError, match=rf"ns\.op is a {kind}; use execute\(\)") as caught:
        run_bounded(collect(async_generator, [], type=kind))
    assert caught.value.code == "VALIDATION_ERROR"


def test_what_is_not_there_is_told() -> None:
    async def scenario() -> None:
        await anext(subscribe(make_registry(async_generator), "ns.po"))

    with pytest.raises(CallError, match=r"there are ns\.op") as caught:
        run_bounded(scenario())
    assert caught.value.code == "OPERATION_NOT_FOUND"


@pytest.mark.parametrize("value", [None, 7, [1], "text", {"a": 1}])
def test_a_handler_that_does_not_yield_is_told(value: Any) -> None:
    with pytest.raises(CallError, match="has to yield") as caught:
        run_bounded(collect(lambda *_: value))
    assert caught.value.code == "EXECUTION_ERROR"


def fail_at_call(*_: Any) -> Any:
    raise RuntimeError("the disk is on fire")


async def fail_in_async_generator(*_: Any) -> AsyncIterator[Any]:
    yield 1
    raise RuntimeError("the disk is on fire")


def fail_in_generator(*_: Any) -> Iterator[Any]:
    yield 1
    raise RuntimeError("the disk is on fire")


async def fail_while_closing(*_: Any) -> AsyncIterator[Any]:
    try:
        yield 1
    finally:
        raise RuntimeError("the disk is on fire")


@pytest.mark.parametrize("handler", [fail_at_call, fail_in_async_generator, fail_in_generator, fail_while_closing])
def test_what_is_raised_is_a_call_error(handler: Any) -> None:
    seen: list[Any] = []

    async def scenario() -> None:
        envelopes = subscribe(make_registry(handler), "ns.op")
        while True:
            seen.append(unwrap(await anext(envelopes)))

    with pytest.raises(CallError, match=r"ns\.op failed: the disk is on fire") as caught:
        run_bounded(scenario())
    assert caught.value.code == "EXECUTION_ERROR"
    assert seen == ([] if handler is fail_at_call else [1])


def test_what_is_raised_while_it_is_closed_is_one_too() -> None:
    async def scenario() -> None:
        envelopes = subscribe(make_registry(fail_while_closing), "ns.op")
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
            await anext(subscribe(make_registry(lambda *_: counter, output_schema=NUMBER), "ns.op"))
        assert counter.is_closed

    run_bounded(scenario())


def test_an_error_that_is_a_call_error_stays_one() -> None:
    async def deny(*_: Any) -> AsyncIterator[Any]:
        yield 1
        raise CallError("ACCESS_DENIED", "no more", {"scope": "x"})

    with pytest.raises(CallError, match="no more") as caught:
        run_bounded(collect(deny))
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
        async with contextlib.aclosing(subscribe(make_registry(endless(seen)[kind]), "ns.op")) as envelopes:
            async for _ in envelopes:
                break
            assert seen == []
        assert seen == ["closed"]

    run_bounded(scenario())


def test_closing_closes_an_iterator_that_can_be_closed() -> None:
    async def scenario() -> None:
        counter = Counter([1, 2])
        async with contextlib.aclosing(subscribe(make_registry(lambda *_: counter), "ns.op")) as envelopes:
            assert unwrap(await anext(envelopes)) == 1
            assert not counter.is_closed
        assert counter.is_closed

    run_bounded(scenario())


@pytest.mark.parametrize("kind", [0, 1])
def test_whoever_consumes_can_be_cancelled(kind: int) -> None:
    """Also if the generator never awaits."""

    async def scenario() -> None:
        seen: list[str] = []
        received = asyncio.Event()

        async def consume() -> None:
            async for _ in subscribe(make_registry(endless(seen)[kind]), "ns.op"):
                received.set()

        task = asyncio.create_task(consume())
        await received.wait()
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
        envelopes = subscribe(make_registry(slow), "ns.op", None, CallContext(deadline=time.monotonic() + 0.2))
        assert unwrap(await anext(envelopes)) == 1
        with pytest.raises(CallError) as caught:
            await anext(envelopes)
        assert caught.value.code == "TIMEOUT"

    run_bounded(scenario())
    assert seen == ["closed"]


def test_a_deadline_that_has_passed_starts_nothing() -> None:
    with pytest.raises(CallError) as caught:
        run_bounded(collect(fail_at_call, None, CallContext(deadline=time.monotonic() - 1)))
    assert caught.value.code == "TIMEOUT"


def test_its_handler_can_call_other_operations() -> None:
    async def scenario() -> None:
        async def twice(values: Any, context: CallContext) -> AsyncIterator[Any]:
            for value in values:
                yield await context.env.ns.double(value)

        registry = make_registry(twice)
        registry.register(OperationSpec(namespace="ns", name="double"), lambda value, _: value * 2)
        assert [unwrap(envelope) async for envelope in subscribe(registry, "ns.op", [1, 2])] == [2, 4]

    run_bounded(scenario())
