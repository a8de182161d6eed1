"""Calls and subscriptions in flight on a connection: finished calls are released, duplicates are recognized."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from forebay.hub.calls import Call, Caller, PausableTimeout
from forebay.hub.in_flight import InFlight, OpenSubscriptions, bind_call
from mcp_types import JSONRPCNotification, JSONRPCRequest
from waiting import wait_until_async


async def _fail() -> dict[str, Any]:
    raise ValueError("its answer cannot be read")


async def _answer() -> dict[str, Any]:
    return {}


@pytest.mark.slow
@pytest.mark.parametrize("end", [_answer, _fail])
def test_a_finished_call_is_released(end: Callable[[], Awaitable[Any]]) -> None:
    async def run() -> None:
        in_flight = InFlight()

        async def send(timeout: PausableTimeout) -> dict[str, Any]:
            del timeout
            in_flight.on_sent(JSONRPCRequest(jsonrpc="2.0", id=7, method="tools/call"))
            return dict(await end())

        call = Call("tools/call", {"arguments": {"large": "x"}}, None, Caller(None, "stdio"))
        with bind_call(call):
            call.start(send, None)
        await asyncio.wait([call._task])
        reference = weakref.ref(call._task)
        del call

        def is_released() -> bool:
            gc.collect()
            return reference() is None

        await wait_until_async(is_released, 5)

    asyncio.run(run())


def make_notification(subscription: Any) -> JSONRPCNotification:
    meta = {"io.modelcontextprotocol/subscriptionId": subscription}
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/tools/list_changed", params={"_meta": meta})


@pytest.mark.parametrize("unknown", [[1], {"a": 1}, None, 3], ids=repr)
def test_a_notification_on_a_second_subscription_is_a_duplicate(unknown: Any) -> None:
    subscriptions = OpenSubscriptions()
    for number in (1, 2):
        params = {"notifications": {"toolsListChanged": True}}
        subscriptions.on_sent(JSONRPCRequest(jsonrpc="2.0", id=number, method="subscriptions/listen", params=params))
    duplicates = [subscriptions.is_duplicate(make_notification(number)) for number in (1, 2, unknown)]
    assert duplicates == [False, True, False]
