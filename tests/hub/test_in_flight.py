"""Finished calls of a connection are released, whether they succeeded or failed."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from forebay.hub.calls import Call, Caller, PausableTimeout
from forebay.hub.in_flight import InFlight, bind_call
from mcp_types import JSONRPCRequest

pytestmark = pytest.mark.slow


async def _fail() -> dict[str, Any]:
    raise ValueError("its answer cannot be read")


async def _answer() -> dict[str, Any]:
    return {}


@pytest.mark.parametrize("end", [_answer, _fail])
def test_a_call_is_forgotten_when_it_is_over_also_if_no_answer_came(end: Callable[[], Awaitable[Any]]) -> None:
    async def run() -> None:
        in_flight = InFlight()

        async def send(limit: PausableTimeout) -> dict[str, Any]:
            del limit
            in_flight.on_sent(JSONRPCRequest(jsonrpc="2.0", id=7, method="tools/call"))
            return dict(await end())

        call = Call("tools/call", {"arguments": {"large": "x"}}, None, Caller(None, "stdio"))
        with bind_call(call):
            call.start(send, None)
        while not call.is_finished:
            await asyncio.sleep(0)
        reference = weakref.ref(call._task)
        del call
        await asyncio.sleep(0)
        gc.collect()
        assert reference() is None

    asyncio.run(run())
