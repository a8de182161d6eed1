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
from waiting import wait_until_async

pytestmark = pytest.mark.slow


async def _fail() -> dict[str, Any]:
    raise ValueError("its answer cannot be read")


async def _answer() -> dict[str, Any]:
    return {}


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

        await wait_until_async(is_released)

    asyncio.run(run())
