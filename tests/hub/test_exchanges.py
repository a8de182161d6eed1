"""Requests in flight on a connection: each ends once, whatever the server sends, and is released then."""

import asyncio
import gc
import json
import weakref
from typing import Any

import pytest
from forebay.errors import UpstreamFailed, UpstreamTimeout
from forebay.hub.exchanges import Exchange, Exchanges
from forebay.wire.messages import parse
from hypothesis import given
from hypothesis import strategies as st

STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "resolve", "fail", "fail_all", "cancel"]), st.integers(1, 8)), max_size=30
)


@given(STEPS)
def test_each_request_ends_once(steps: list[tuple[str, int]]) -> None:
    asyncio.run(_compare(steps))


async def _compare(steps: list[tuple[str, int]]) -> None:
    """Compare with a naive version: the requests that are open, and how each has ended."""
    exchanges = Exchanges("one", lambda _exchange, _reason: None)
    made: dict[int, Exchange] = {}
    naive_open: set[int] = set()
    naive_ends: dict[int, object] = {}
    settled: list[int] = []
    for action, number in steps:
        if action == "add":
            exchange = exchanges.new("tools/call")
            made[exchange.id] = exchange
            exchanges.add(exchange)
            exchanges.call_when_settled(exchange.id, lambda exchange_id=exchange.id: settled.append(exchange_id))  # type: ignore[misc]
            naive_open.add(exchange.id)
        elif action == "fail_all":
            exchanges.fail_all(UpstreamFailed("gone"))
            naive_ends |= dict.fromkeys(naive_open, "gone")
            naive_open.clear()
        elif number in made:
            was_open = number in naive_open
            naive_open.discard(number)
            if action == "cancel":
                exchanges.cancel(made[number], "the client has cancelled the request")
                made[number].future.cancel()
            elif action == "resolve":
                exchanges.resolve(made[number], "result")
            else:
                exchanges.fail(made[number], UpstreamFailed("failed"))
            if was_open and action != "cancel":
                naive_ends[number] = "result" if action == "resolve" else "failed"
        await asyncio.sleep(0)
        assert {exchange.id for exchange in exchanges} == naive_open
        assert sorted(settled) == sorted(made.keys() - naive_open)
    ends: dict[int, object] = {}
    for number, exchange in made.items():
        if exchange.future.done() and not exchange.future.cancelled():
            error = exchange.future.exception()
            ends[number] = exchange.future.result() if error is None else str(error)
    assert ends == naive_ends


@pytest.mark.parametrize("request_id", ["true", '"1"', "null", "[1]", "{}", "2", "1e999", "1" * 50, "1.5"])
def test_only_the_id_of_a_request_finds_it(request_id: str) -> None:
    async def run() -> None:
        exchanges = Exchanges("one", lambda _exchange, _reason: None)
        exchanges.add(exchanges.new("ping"))
        assert exchanges.find(1) is not None
        message: Any = parse(f'{{"id":{request_id}}}'.encode())
        assert message is None or exchanges.find(message["id"]) is None

    asyncio.run(run())


def test_a_finished_request_is_released() -> None:
    async def run() -> None:
        exchanges = Exchanges("one", lambda _exchange, _reason: None)
        exchange = exchanges.new("tools/call")
        exchange.timeout = 3600
        exchanges.add(exchange)
        exchanges.restart_timer(exchange)
        exchanges.call_when_settled(exchange.id, lambda: None)
        reference = weakref.ref(exchange.future)
        exchanges.resolve(exchange, json.loads("{}"))
        del exchange
        await asyncio.sleep(0)
        gc.collect()
        assert reference() is None

    asyncio.run(run())


def test_a_paused_request_does_not_expire() -> None:
    async def run() -> None:
        cancelled: list[str] = []
        exchanges = Exchanges("one", lambda _, reason: cancelled.append(reason))
        tenant: Any = object()
        exchange, other = exchanges.new("tools/call"), exchanges.new("tools/call")
        exchange.tenant, exchange.tool = tenant, "slow"
        for added in (exchange, other):
            added.timeout = 0.01
            exchanges.add(added)
            exchanges.restart_timer(added)
        with exchanges.paused(tenant):
            with exchanges.paused(tenant):
                pass
            with pytest.raises(UpstreamTimeout):
                await asyncio.wait_for(other.future, 60)
            await asyncio.sleep(0.05)
            assert not exchange.future.done()
        with pytest.raises(UpstreamTimeout, match=r"^slow took longer than 0.01 s \(call_timeout_seconds\); ask"):
            await asyncio.wait_for(exchange.future, 60)
        assert cancelled == ["timeout", "timeout"]

    asyncio.run(run())
