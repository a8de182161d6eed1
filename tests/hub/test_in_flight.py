"""Calls that a connection knows of: those that are over are kept by nobody, whatever became of them."""

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


async def _unreadable() -> dict[str, Any]:
    raise ValueError("its answer cannot be read")


async def _answered() -> dict[str, Any]:
    return {}


@pytest.mark.parametrize("end", [_answered, _unreadable])
def test_a_call_is_forgotten_when_it_is_over_also_if_no_answer_came(end: Callable[[], Awaitable[Any]]) -> None:
    async def run() -> None:
        under_way = InFlight()

        async def send(limit: PausableTimeout) -> dict[str, Any]:
            del limit
            under_way.on_sent(JSONRPCRequest(jsonrpc="2.0", id=7, method="tools/call"))
            return dict(await end())

        call = Call("tools/call", {"arguments": {"large": "x"}}, None, Caller(None, "stdio"))
        with bind_call(call):
            call.start(send, None)
        while not call.is_finished:
            await asyncio.sleep(0)
        kept = weakref.ref(call._task)
        del call
        await asyncio.sleep(0)
        gc.collect()
        assert kept() is None

    asyncio.run(run())
