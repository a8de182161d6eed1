"""Failures of MCP servers: error messages, cancellation and reconnecting."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from failing_calls import call_error, server_state
from forebay import InvalidArgument
from forebay.envelope import unwrap
from forebay.operations import CallContext, CallError, OperationRegistry
from forebay.operations.mcp.operations import MCPOperations, from_mcp
from forebay.operations.mcp.targets import Refusals, resolve_target
from forebay.operations.registry import run_handler
from http_api import Answer, http_api
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_server import make_server
from mcp_types import JSONRPCResponse, Tool
from upstreams import TRANSPORTS, open_target, run_with_tools
from waiting import wait_until_async
from wires import LEGACY, start_server

pytestmark = pytest.mark.slow

# Windows has one way to end a process, which cannot be refused.
KILL = signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL


@pytest.fixture(params=TRANSPORTS)
def raw(request: pytest.FixtureRequest) -> Any:
    with open_target("raw_server.py", request.param) as target:
        yield target


def test_errors_of_the_protocol_are_told(raw: Any, era: str) -> None:
    async def test(registry: OperationRegistry, _: MCPOperations) -> None:
        async def refused(**error: Any) -> CallError:
            return await call_error(registry, "up.refuses", {"error": error})

        pid = (await server_state(registry))["pid"]
        error = await refused(code=-32603, message="out of paper", data={"tray": 2})
        assert (error.code, error.details) == ("EXECUTION_ERROR", {"code": -32603, "data": {"tray": 2}})
        assert "up.refuses failed: out of paper" in str(error)
        error = await refused(code=-32603, message="m" * 5000, data="d" * 5000)
        assert (len(str(error)) < 1100, error.details) == (True, {"code": -32603})
        # The SDK's code for a lost connection, sent by a server, does not cause a reconnect.
        assert (await refused(code=-32000, message="busy")).details == {"code": -32000}
        assert (await refused(code=-32602, message="Unknown tool: refuses")).code == "OPERATION_NOT_FOUND"
        assert (await refused(code=-32602, message="no such colour")).code == "EXECUTION_ERROR"
        # After a header mismatch, tools are listed again and the call is repeated once.
        before = (await server_state(registry))["refuses"]
        assert (await refused(code=-32020, message="header mismatch")).details == {"code": -32020}
        after = await server_state(registry)
        assert (after["refuses"] - before, after["pid"]) == (2, pid)

    run_with_tools(raw, test, mode=era, namespace="up")


def test_a_tool_that_the_server_does_not_know_is_not_found(era: str) -> None:
    async def test(registry: OperationRegistry, server: MCPOperations) -> None:
        gone = server._to_operation("up", Tool(name="gone", input_schema={"type": "object"}))
        with pytest.raises(CallError, match=r"up\.gone is not there any more") as caught:
            await run_handler(gone, {}, CallContext())
        assert caught.value.code == "OPERATION_NOT_FOUND"
        # A tool error with another message is a result.
        assert (await registry.execute("up.failing", {})).is_error

    run_with_tools(make_server(), test, mode=era, namespace="up")


def test_a_deadline_is_kept_and_told_to_the_server(raw: Any, era: str) -> None:
    async def test(registry: OperationRegistry, server: MCPOperations) -> None:
        error = await call_error(registry, "up.waits", deadline=time.monotonic() + 0.3)
        assert error.code == "TIMEOUT"
        await wait_until_cancelled(registry)
        # A call whose deadline has passed is not sent.
        assert (await call_error(registry, "up.waits", deadline=time.monotonic() - 1)).code == "TIMEOUT"
        waits = next(operation for operation in server.operations if operation.spec.name == "waits")
        late: Any = waits.handler({}, CallContext(deadline=time.monotonic() - 1))
        with pytest.raises(CallError, match="its deadline has passed"):
            await late
        assert (await server_state(registry))["waits"] == 1

    run_with_tools(raw, test, mode=era, namespace="up")


def test_cancelling_is_passed_on(raw: Any, era: str) -> None:
    async def test(registry: OperationRegistry, _: MCPOperations) -> None:
        call = asyncio.create_task(registry.execute("up.waits", {}))
        await wait_until_waiting(registry, 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await wait_until_cancelled(registry)

    run_with_tools(raw, test, mode=era, namespace="up")


async def wait_until_waiting(registry: OperationRegistry, count: int) -> int:
    """Wait until `count` calls of `waits` are in flight; return the id of the server process."""

    async def is_waiting() -> bool:
        return int((await server_state(registry))["waits"]) >= count

    await wait_until_async(is_waiting)
    return int((await server_state(registry))["pid"])


async def wait_until_cancelled(registry: OperationRegistry) -> None:
    async def is_cancelled() -> bool:
        return bool((await server_state(registry))["cancelled"])

    await wait_until_async(is_cancelled)


def test_a_process_that_dies_in_mid_call_is_started_again_by_the_next(era: str) -> None:
    async def test(registry: OperationRegistry, _: MCPOperations) -> None:
        before = (await server_state(registry))["pid"]
        error = await call_error(registry, "up.dies")
        assert (error.code, error.details["code"]) == ("EXECUTION_ERROR", -32000)
        assert "the next call connects again" in str(error)
        # Concurrent calls share one new process.
        several = await asyncio.gather(*(server_state(registry) for _ in range(8)))
        assert len({state["pid"] for state in several}) == 1
        assert several[0]["pid"] != before

    with open_target("raw_server.py", "stdio") as target:
        run_with_tools(target, test, mode=era, namespace="up")


def test_calls_that_are_under_way_fail_when_the_process_is_killed(era: str) -> None:
    async def test(registry: OperationRegistry, _: MCPOperations) -> None:
        calls = [asyncio.create_task(registry.execute("up.waits", {})) for _ in range(3)]
        pid = await wait_until_waiting(registry, 3)
        os.kill(pid, KILL)
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, CallError)
            assert error.code == "EXECUTION_ERROR"
        assert (await server_state(registry))["pid"] != pid

    with open_target("raw_server.py", "stdio") as target:
        run_with_tools(target, test, mode=era, namespace="up")


def test_a_process_that_died_in_between_costs_no_call(era: str) -> None:
    async def test(registry: OperationRegistry, server: MCPOperations) -> None:
        before = (await server_state(registry))["pid"]
        os.kill(before, KILL)
        assert server._shared_connection._connection is not None
        lost = server._shared_connection._connection
        await wait_until_async(lambda: not lost.is_open)
        assert (await server_state(registry))["pid"] != before

    with open_target("raw_server.py", "stdio") as target:
        run_with_tools(target, test, mode=era, namespace="up")


def test_a_server_over_http_may_start_again(era: str) -> None:
    async def check() -> None:
        registry = OperationRegistry()
        with start_server("changing_server.py", "http") as process:
            assert process.stdout
            port = int(process.stdout.readline())
            url = f"http://127.0.0.1:{port}/mcp"
            server = await from_mcp(url, mode=era, connect_attempts=2).connect()
            server.register_into(registry)
            await registry.execute("changing.add", {"name": "new"})
            await wait_until_async(lambda: "changing.new" in registry)
            process.kill()
        error = await call_error(registry, "changing.text", {"size": 1})
        assert error.code == "EXECUTION_ERROR"
        # The server is still down, and the call fails in time.
        assert (await call_error(registry, "changing.text", {"size": 1})).code == "EXECUTION_ERROR"
        with start_server("changing_server.py", "http", str(port)) as process:
            assert process.stdout
            process.stdout.readline()
            assert len(unwrap(await registry.execute("changing.text", {"size": 3}))[0]["text"]) == 3
            # The tools are listed again.
            assert "changing.new" not in registry
            await registry.execute("changing.add", {"name": "newer"})
            await wait_until_async(lambda: "changing.newer" in registry)
            await server.close()
            process.kill()

    asyncio.run(asyncio.wait_for(check(), 60))


def test_a_session_that_was_forgotten_is_begun_anew() -> None:
    async def check() -> None:
        registry = OperationRegistry()
        with start_server("changing_server.py", "http") as process:
            assert process.stdout
            port = int(process.stdout.readline())
            server = await from_mcp(f"http://127.0.0.1:{port}/mcp", mode=LEGACY).connect()
            server.register_into(registry)
            process.kill()
            process.wait()
            with start_server("changing_server.py", "http", str(port)) as again:
                assert again.stdout
                again.stdout.readline()
                assert len(unwrap(await registry.execute("changing.text", {"size": 3}))[0]["text"]) == 3
                await server.close()
                again.kill()

    asyncio.run(asyncio.wait_for(check(), 60))


def test_over_a_transport_of_someone_else_a_forgotten_session_costs_a_call() -> None:
    async def check() -> None:
        registry = OperationRegistry()
        with start_server("changing_server.py", "http") as process:
            assert process.stdout
            port = int(process.stdout.readline())
            server = from_mcp(lambda: streamable_http_client(f"http://127.0.0.1:{port}/mcp"), mode=LEGACY)
            (await server.connect()).register_into(registry)
            process.kill()
            process.wait()
            with start_server("changing_server.py", "http", str(port)) as again:
                assert again.stdout
                again.stdout.readline()
                # It may have run, so it is not repeated; the next call reconnects.
                assert (await call_error(registry, "changing.text", {"size": 3})).code == "EXECUTION_ERROR"
                assert len(unwrap(await registry.execute("changing.text", {"size": 3}))[0]["text"]) == 3
                await server.close()
                again.kill()

    asyncio.run(asyncio.wait_for(check(), 60))


@pytest.mark.parametrize("target", [["/does/not/exist"], ["true"], "http://127.0.0.1:9/mcp"])
def test_a_server_that_cannot_be_reached_is_told(target: Any) -> None:
    async def check() -> None:
        with pytest.raises(CallError) as caught:
            await from_mcp(target).connect()
        assert caught.value.code == "EXECUTION_ERROR"

    asyncio.run(asyncio.wait_for(check(), 60))


def test_a_server_that_says_nothing_is_given_up() -> None:
    async def check() -> None:
        with pytest.raises(CallError) as caught:
            await from_mcp([sys.executable, "-c", "import time; time.sleep(60)"], connect_timeout=0.2).connect()
        assert caught.value.code == "TIMEOUT"

    asyncio.run(asyncio.wait_for(check(), 60))


def test_attempts_to_connect_again_have_an_end(tmp_path: Path) -> None:
    script, starts = tmp_path / "server.py", tmp_path / "starts"
    start = f"with open({str(starts)!r}, 'ab') as file:\n    file.write(b'.')\n"
    script.write_text(
        f"import os, runpy, sys\n{start}sys.argv = sys.argv[1:]\nsys.path[0] = os.path.dirname(sys.argv[0])\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )

    async def test(registry: OperationRegistry, _: MCPOperations) -> None:
        script.write_text(f"{start}raise SystemExit(1)\n")
        await call_error(registry, "up.dies")
        errors = await asyncio.gather(*(call_error(registry, "up.told") for _ in range(4)))
        assert {error.code for error in errors} == {"EXECUTION_ERROR"}
        assert len(starts.read_text()) == 1 + 3
        # A deadline ends the attempts to connect too.
        assert (await call_error(registry, "up.told", deadline=time.monotonic() + 0.01)).code == "TIMEOUT"

    with open_target("raw_server.py", "stdio") as target:
        run_with_tools(
            [sys.executable, str(script), *target[1:]], test, mode=LEGACY, namespace="up", connect_attempts=3
        )


def test_what_was_closed_stays_closed() -> None:
    async def check() -> None:
        server = await from_mcp(make_server(), namespace="up").connect()
        operation = server.operations[0]
        await server.close()
        await server.close()
        for again in (run_handler(operation, {}, CallContext()), server.connect(), server.refresh()):
            with pytest.raises(CallError, match="was closed"):
                await again

    asyncio.run(check())


@pytest.mark.parametrize("wrong", [{"connect_attempts": 0}, {"connect_timeout": 0}, {"call_timeout": 0}])
def test_limits_that_cannot_be_kept_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="must be more than 0"):
        from_mcp(make_server(), **wrong)


def test_http_errors_that_nobody_takes_are_bounded() -> None:
    async def run(url: str) -> None:
        refusals: Refusals = {}
        async with resolve_target(url, "auto").make_transport(refusals) as (_, writer):
            for number in range(300):
                # A response, to which nobody waits for an answer.
                await writer.send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=number, result={})))
            await wait_until_async(lambda: 299 in refusals)
        assert len(refusals) <= 256

    with http_api() as api:
        api.default_answer = Answer(status=400)
        asyncio.run(run(f"{api.url}/mcp"))
