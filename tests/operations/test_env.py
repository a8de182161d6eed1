"""Operations as functions, and what nested calls inherit from their parent call."""

import asyncio
import copy
import dataclasses
import time
from typing import Any

import pytest
from calls import RecordingBus, error_code_of, run_bounded
from forebay.envelope import ResponseEnvelope, unwrap
from forebay.operations import (
    AccessControl,
    CallContext,
    CallError,
    CallHandler,
    Identity,
    Operation,
    OperationEnv,
    OperationRegistry,
    OperationSpec,
    PendingRequestMap,
    build_env,
)

ADA = Identity("ada", frozenset(["read"]))


def operation(namespace: str, name: str, handler: Any, **more: Any) -> Operation:
    return Operation(OperationSpec(namespace=namespace, name=name, **more), handler)


def echo(value: Any, _: CallContext) -> Any:
    return value


async def run_with_both_envs(operations: list[Operation], scenario: Any, **context: Any) -> None:
    """Run a scenario with an env that calls a registry, and with one that calls over the bus."""
    registry = OperationRegistry(operations)
    call_context = CallContext(**context)
    await scenario(build_env(registry, context=call_context))
    calls = PendingRequestMap(RecordingBus())
    async with CallHandler(registry, calls):
        await scenario(build_env(calls, context=call_context))


def test_operations_are_functions_that_return_envelopes() -> None:
    async def scenario(env: OperationEnv) -> None:
        for envelope in (await env.crm.get({"id": 7}), await env["crm"]["get"]({"id": 7})):
            assert isinstance(envelope, ResponseEnvelope)
            assert unwrap(envelope) == {"id": 7}
        assert unwrap(await env.crm.get()) is None
        get = env.crm.get
        assert [unwrap(answer) for answer in await asyncio.gather(get(1), get(2))] == [1, 2]

    run_bounded(run_with_both_envs([operation("crm", "get", echo)], scenario))


@pytest.mark.parametrize(
    ("namespace", "name"),
    [("a.b", "c"), ("a", "b.c"), ("a/b-c", "d e"), ("class", "import"), ("_caller", "_context"), ("x", "__len__")],
)
def test_any_name_is_found_by_brackets(namespace: str, name: str) -> None:
    async def scenario(env: OperationEnv) -> None:
        assert unwrap(await env[namespace][name](7)) == 7

    run_bounded(run_with_both_envs([operation(namespace, name, echo)], scenario))


def test_a_namespace_with_dots_is_found_by_attributes_too() -> None:
    async def scenario(env: OperationEnv) -> None:
        assert unwrap(await env.a.b.c(7)) == 7

    run_bounded(run_with_both_envs([operation("a.b", "c", echo)], scenario))


def test_what_is_not_there_is_told_when_it_is_called() -> None:
    async def scenario(env: OperationEnv) -> None:
        missing = env.crm.gte
        with pytest.raises(CallError, match=r"no operation 'crm\.gte'; there are crm\.get") as caught:
            await missing()
        assert caught.value.code == "OPERATION_NOT_FOUND"
        assert await error_code_of(env.nobody.knows()) == "OPERATION_NOT_FOUND"

    run_bounded(run_with_both_envs([operation("crm", "get", echo)], scenario))


def test_access_is_checked_where_a_call_is_asked_for_and_not_where_it_is_made() -> None:
    async def scenario() -> None:
        registry = OperationRegistry([operation("ns", "op", echo, access_control=AccessControl(["admin"]))])
        assert unwrap(await build_env(registry).ns.op(1)) == 1
        calls = PendingRequestMap()
        async with CallHandler(registry, calls):
            assert await error_code_of(build_env(calls).ns.op(1)) == "ACCESS_DENIED"
            admin = CallContext(identity=Identity("eve", ["admin"]))
            assert unwrap(await build_env(calls, context=admin).ns.op(1)) == 1

    run_bounded(scenario())


def chain(seen: dict[str, CallContext]) -> list[Operation]:
    """Return operations where `ns.one` calls `ns.two`, and `ns.two` calls `ns.three`."""

    async def one(value: Any, context: CallContext) -> Any:
        seen["one"] = context
        return await context.env.ns.two(value)

    async def two(value: Any, context: CallContext) -> Any:
        seen["two"] = context
        return unwrap(await context.env.ns.three(value))

    def three(value: Any, context: CallContext) -> Any:
        seen["three"] = context
        return value

    return [operation("ns", run.__name__, run) for run in (one, two, three)]


def test_calls_that_are_asked_for_keep_their_parents_identity_and_deadline() -> None:
    async def scenario() -> None:
        seen: dict[str, CallContext] = {}
        bus = RecordingBus()
        calls = PendingRequestMap(bus)
        async with CallHandler(OperationRegistry(chain(seen)), calls):
            assert unwrap(await calls.call("ns.one", 7, identity=ADA, timeout=60)) == 7
        one, two, three = (seen[name] for name in ("one", "two", "three"))
        assert (one.parent_request_id, two.parent_request_id, three.parent_request_id) == (
            None,
            one.request_id,
            two.request_id,
        )
        assert len({one.request_id, two.request_id, three.request_id}) == 3
        assert one.identity == two.identity == three.identity == ADA
        deadlines = [event["deadline"] for event in bus.events_of("call.requested")]
        assert deadlines == sorted(deadlines, reverse=True)
        assert deadlines[0] - deadlines[2] < 1000

    run_bounded(scenario())


def test_calls_that_are_made_directly_keep_them_too() -> None:
    async def scenario() -> None:
        seen: dict[str, CallContext] = {}
        registry = OperationRegistry(chain(seen))
        deadline = time.monotonic() + 60
        context = CallContext("the-request", "the-parent", ADA, deadline)
        assert unwrap(await registry.execute("ns.one", 7, context)) == 7
        assert (seen["one"].request_id, seen["one"].parent_request_id) == ("the-request", "the-parent")
        for name in ("two", "three"):
            # Direct nested calls have no id, so their parent is the nearest call that has one.
            assert (seen[name].request_id, seen[name].parent_request_id) == (None, "the-request")
        assert {context.deadline for context in seen.values()} == {deadline}
        assert {context.identity for context in seen.values()} == {ADA}

    run_bounded(scenario())


def test_an_operation_that_nobody_asked_for_can_call_others() -> None:
    seen: dict[str, CallContext] = {}
    assert unwrap(run_bounded(OperationRegistry(chain(seen)).execute("ns.one", 7))) == 7
    assert {context.parent_request_id for context in seen.values()} == {None}


def test_a_nested_deadline_may_be_earlier_and_is_never_later() -> None:
    async def scenario(env: OperationEnv) -> None:
        now = time.monotonic()
        for options, latest in (
            ({}, now + 50),
            ({"timeout": 20}, now + 30),
            ({"timeout": 500}, now + 50),
            ({"deadline": now + 10}, now + 10),
            ({"deadline": now + 500}, now + 50),
            ({"deadline": now + 40, "timeout": 20}, now + 30),
        ):
            deadline = unwrap(await env.ns.deadline(**options))
            # Converted to wall-clock time and back, so not exactly equal.
            assert latest - 20 < deadline < latest + 0.001

    deadline_of = operation("ns", "deadline", lambda _, context: context.deadline)
    run_bounded(run_with_both_envs([deadline_of], scenario, deadline=time.monotonic() + 50))


def test_a_deadline_that_was_made_earlier_stays_so_further_down() -> None:
    async def scenario() -> None:
        seen: dict[str, CallContext] = {}
        registry = OperationRegistry(chain(seen))
        now = time.monotonic()
        # As in a handler that builds an env from its own context.
        env = build_env(registry, context=registry.bind_context(CallContext(deadline=now + 60)))
        await env.ns.one(deadline=now + 30)
        assert [seen[name].deadline for name in ("one", "two", "three")] == [now + 30] * 3

    run_bounded(scenario())


@pytest.mark.slow
def test_a_nested_call_that_is_late_is_cancelled() -> None:
    async def scenario(env: OperationEnv) -> None:
        assert await error_code_of(env.ns.wait(timeout=0.2)) == "TIMEOUT"
        assert seen.pop() == "cancelled"

    async def wait(*_: Any) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    seen: list[str] = []
    run_bounded(run_with_both_envs([operation("ns", "wait", wait)], scenario))


def test_nothing_is_called_once_the_deadline_has_passed() -> None:
    async def scenario(env: OperationEnv) -> None:
        assert await error_code_of(env.ns.op()) == "TIMEOUT"

    seen: list[Any] = []
    run_bounded(
        run_with_both_envs([operation("ns", "op", lambda *_: seen.append(1))], scenario, deadline=time.monotonic() - 1)
    )
    assert seen == []


def test_a_context_keeps_the_operations_that_it_was_given() -> None:
    async def scenario() -> None:
        others = OperationRegistry([operation("ns", "two", lambda *_: "others")])
        registry = OperationRegistry(chain({}))
        context = CallContext(env=build_env(others))
        assert unwrap(await registry.execute("ns.one", 7, context)) == "others"

    run_bounded(scenario())


def test_a_context_without_operations_says_how_to_get_some() -> None:
    with pytest.raises(CallError, match="build_env") as caught:
        _ = CallContext().env.crm.get
    assert caught.value.code == "OPERATION_NOT_FOUND"


def test_an_env_survives_whoever_looks_into_it() -> None:
    context = OperationRegistry().bind_context(None)
    assert not hasattr(context.env, "__wrapped__")
    assert not hasattr(context.env.crm, "__wrapped__")
    assert repr(context.env.crm.get) == "<operation crm.get>"
    assert dataclasses.replace(context, request_id="a").env is context.env
    assert repr(copy.copy(context)) == repr(context)
    assert CallContext() == context
