"""Calls of operations in another process over a socket, where events are JSON."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

import pytest
from calls import error_code_of, run_bounded
from forebay.envelope import unwrap
from forebay.operations import CallError, Identity, PendingRequestMap, build_env
from socket_pubsub import SocketPubSub
from support_paths import SUPPORT
from waiting import wait_until_async

pytestmark = pytest.mark.slow

SERVER = SUPPORT.joinpath("socket_pubsub.py")


@contextlib.asynccontextmanager
async def remote_calls() -> AsyncIterator[PendingRequestMap]:
    """Yield a `PendingRequestMap` whose calls run in another process."""
    connected: asyncio.Future[SocketPubSub] = asyncio.get_running_loop().create_future()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pubsub = SocketPubSub(reader, writer)
        connected.set_result(pubsub)
        await pubsub.receive()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    child = await asyncio.create_subprocess_exec(sys.executable, SERVER, str(port))
    try:
        async with server, PendingRequestMap(pubsub := await connected, timeout=20) as calls:
            try:
                await wait_until_subscribed(calls)
                yield calls
            finally:
                pubsub.close()
        assert await child.wait() == 0
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def wait_until_subscribed(calls: PendingRequestMap) -> None:
    """Repeat a call until the other process has subscribed; earlier events are lost."""
    while True:
        with contextlib.suppress(CallError):
            await calls.call("far.echo", timeout=0.2)
            return


def test_values_and_bytes_come_back_as_they_were() -> None:
    async def scenario() -> None:
        async with remote_calls() as calls:
            for value in ({"a": [1, None, "é漢😀"]}, b"\x00\xff", {"deep": [b"\xff"]}, 2**70, {"$base64": "no"}):
                assert unwrap(await calls.call("far.echo", value)) == value
            assert unwrap(await calls.call("far.body")) == {"a": 1.5}
            answers = await asyncio.gather(*(calls.call("far.echo", number) for number in range(200)))
            assert [unwrap(answer) for answer in answers] == [*range(200)]

    run_bounded(scenario())


def test_errors_come_back_as_they_were() -> None:
    async def scenario() -> None:
        async with remote_calls() as calls:
            with pytest.raises(CallError, match=r"no operation 'far\.ecko'; there are .*far\.echo") as caught:
                await calls.call("far.ecko")
            assert caught.value.code == "OPERATION_NOT_FOUND"
            assert await error_code_of(calls.call("far.secret")) == "ACCESS_DENIED"
            assert unwrap(await calls.call("far.secret", identity=Identity("ada", ["admin"]))) == "gold"

    run_bounded(scenario())


def test_an_answer_that_cannot_be_written_is_an_error() -> None:
    async def scenario() -> None:
        async with remote_calls() as calls:
            with pytest.raises(CallError, match=r"the answer of far\.unwritable could not be sent") as caught:
                await calls.call("far.unwritable")
            assert caught.value.code == "EXECUTION_ERROR"
            with pytest.raises(CallError, match=r"not today") as caught:
                await calls.call("far.refuse")
            assert (caught.value.code, caught.value.details) == ("ACCESS_DENIED", {})
            with pytest.raises(CallError, match=r"far\.echo could not be asked for"):
                await calls.call("far.echo", object())
            assert unwrap(await calls.call("far.echo", 1)) == 1

    run_bounded(scenario())


def test_who_calls_and_by_when_is_known_there_and_in_what_is_called_from_there() -> None:
    async def scenario() -> None:
        async with remote_calls() as calls:
            env = build_env(calls)
            assert unwrap(await env.far.who()) == {"id": None, "scopes": [], "has_parent": False, "has_deadline": True}
            ada = Identity("ada", ["w", "r"])
            nested = await calls.call("far.nested", identity=ada)
            assert unwrap(nested) == {"id": "ada", "scopes": ["r", "w"], "has_parent": True, "has_deadline": True}

    run_bounded(scenario())


def test_what_nobody_waits_for_is_stopped_there() -> None:
    async def scenario() -> None:
        async with remote_calls() as calls:
            assert await error_code_of(calls.call("far.wait", timeout=1)) == "TIMEOUT"
            task = asyncio.create_task(calls.call("far.wait"))
            await asyncio.sleep(0)
            # Events keep their order, so that the first request has arrived when this call returns.
            await calls.call("far.echo")
            task.cancel()

            async def are_both_cancelled() -> bool:
                return bool(unwrap(await calls.call("far.cancelled")) == 2)

            await wait_until_async(are_both_cancelled)

    run_bounded(scenario())
