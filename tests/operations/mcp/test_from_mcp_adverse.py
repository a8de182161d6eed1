"""Servers that send invalid messages, and callers that connect, close and call at odd times."""

import asyncio
import json
import logging
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
from failing_calls import call_error, server_state
from fastmcp import FastMCP
from forebay import InvalidArgument
from forebay.envelope import unwrap
from forebay.operations import CallError, OperationRegistry, OperationSpec
from forebay.operations.mcp import connection
from forebay.operations.mcp.operations import MCPOperations, from_mcp
from mcp import Client, StdioServerParameters
from mcp_server import make_server
from process_ids import is_running
from support_paths import SUPPORT
from upstreams import TRANSPORTS, open_target, run_with_tools
from waiting import wait_until_async
from wires import LEGACY, MODERN

TEXT = {"type": "text", "text": "t"}
SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]
ENDS = [sys.executable, "-c", ""]


@pytest.fixture
def stdio() -> Any:
    with open_target("raw_server.py", "stdio") as target:
        yield target


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    "error",
    [
        {"code": -32001, "message": "Browser session expired after the purchase"},
        {"code": -32600, "message": "Session terminated"},
        {"code": -32600, "message": "Session not found"},
        {"code": -32000, "message": "Connection closed by the database"},
        {"code": -32000, "message": "Connection closed"},
    ],
)
def test_a_tools_own_words_neither_run_it_twice_nor_end_the_connection(transport: str, error: Any, era: str) -> None:
    async def test(registry: OperationRegistry, server: MCPOperations) -> None:
        before = server._shared_connection._connection
        assert (await call_error(registry, "up.refuses", {"error": error})).code == "EXECUTION_ERROR"
        assert (await server_state(registry))["refuses"] == 1
        assert server._shared_connection._connection is before

    with open_target("raw_server.py", transport) as target:
        run_with_tools(target, test, mode=era, namespace="up")


def test_a_client_of_someone_else_is_not_given_up_for_words(stdio: Any, era: str) -> None:
    async def check() -> None:
        registry = OperationRegistry()
        parameters = StdioServerParameters(command=stdio[0], args=stdio[1:])
        async with Client(parameters, mode=era) as client, from_mcp(client, namespace="up") as server:
            server.register_into(registry)
            await call_error(registry, "up.refuses", {"error": {"code": -32600, "message": "Session terminated"}})
            assert (await server_state(registry))["refuses"] == 1

    asyncio.run(asyncio.wait_for(check(), 60))


def answer_of(result: str) -> str:
    return f'{{"jsonrpc": "2.0", "id": ID, "result": {result}}}'


OK = answer_of('{"content": [], "structuredContent": {"ok": true}}')


def test_bytes_that_are_no_text_do_not_end_a_connection(stdio: Any, era: str) -> None:
    async def test(registry: OperationRegistry, _: MCPOperations) -> None:
        for line in ("caf\xe9", "not json", "5", '{"jsonrpc": "2.0", "id": 9999, "result": {}}'):
            assert unwrap(await registry.execute("up.writes", {"lines": [line, OK]})) == {"ok": True}
        envelope = await registry.execute("up.writes", {"lines": [answer_of('{"structuredContent": {"a": "\xff"}}')]})
        assert unwrap(envelope) == {"a": "\ufffd"}

    run_with_tools(stdio, test, mode=era, namespace="up")
    run_with_tools(StdioServerParameters(command=stdio[0], args=stdio[1:]), test, mode=era, namespace="up")


@pytest.mark.slow
@pytest.mark.parametrize("line", [answer_of("null"), answer_of("[1]"), answer_of('{"a": "\\ud800"}'), '{"jsonrpc": "2'])
def test_an_answer_that_cannot_be_read_is_an_error(stdio: Any, line: str, era: str) -> None:
    async def test(registry: OperationRegistry, _: MCPOperations) -> None:
        other = asyncio.create_task(registry.execute("up.waits", {}))
        error = await call_error(registry, "up.writes", {"lines": [line]})
        assert error.code == "EXECUTION_ERROR"
        assert "its answer cannot be read" in str(error)
        # An unreadable response with an id fails only its own request.
        if "ID" in line:
            assert not other.done()
            other.cancel()
        failed = (await asyncio.gather(other, return_exceptions=True))[0]
        assert isinstance(failed, asyncio.CancelledError if "ID" in line else CallError)
        assert unwrap(await registry.execute("up.writes", {"lines": [OK]})) == {"ok": True}

    run_with_tools(stdio, test, mode=era, namespace="up")
    # The same with a client that its owner has connected.

    async def with_connected_client() -> None:
        async with Client(StdioServerParameters(command=stdio[0], args=stdio[1:]), mode=era) as client:
            before = client.session._message_handler
            async with from_mcp(client, namespace="up") as server:
                registry = OperationRegistry()
                server.register_into(registry)
                await test(registry, server)
            assert client.session._message_handler is before

    asyncio.run(asyncio.wait_for(with_connected_client(), 60))


@pytest.mark.slow
def test_a_call_without_a_deadline_has_an_end(stdio: Any, era: str) -> None:
    async def test(registry: OperationRegistry, _: MCPOperations) -> None:
        assert (await call_error(registry, "up.waits")).code == "TIMEOUT"

    run_with_tools(stdio, test, mode=era, namespace="up", call_timeout=0.2)
    assert from_mcp(stdio)._call_timeout == 300


def make_logged_command(script: Path, arguments: list[str]) -> tuple[list[str], Path]:
    """Return a command that writes its process id to a file and runs another script, and that file."""
    starts = script.with_suffix(".pids")
    starts.touch()
    script.write_text(
        "import os, runpy, sys\n"
        f"with open({str(starts)!r}, 'a') as file:\n"
        "    print(os.getpid(), file=file)\n"
        "sys.argv = sys.argv[1:]\n"
        "sys.path[0] = os.path.dirname(sys.argv[0])\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    return [sys.executable, str(script), *arguments], starts


def running_pids(starts: Path) -> list[str]:
    return [pid for pid in starts.read_text().split() if is_running(int(pid))]


@pytest.mark.slow
def test_closing_while_it_connects_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text("import time; time.sleep(60)")
    command, starts = make_logged_command(tmp_path / "server.py", [str(tmp_path / "sleeps.py")])

    async def check() -> None:
        before = asyncio.all_tasks()
        server = from_mcp(command, namespace="up")
        connecting = asyncio.create_task(server.connect())
        await wait_until_async(lambda: starts.read_text() != "")
        await server.close()
        with pytest.raises(CallError, match="was closed") as caught:
            await connecting
        assert caught.value.code == "ABORTED"
        assert asyncio.all_tasks() == before

    asyncio.run(asyncio.wait_for(check(), 60))
    assert not running_pids(starts)


def test_connecting_again_while_connected_starts_nothing(tmp_path: Path, stdio: Any) -> None:
    command, starts = make_logged_command(tmp_path / "server.py", stdio[1:])

    async def check() -> None:
        server = from_mcp(command, namespace="up", mode=LEGACY)
        await asyncio.gather(server.connect(), server.connect())
        async with server:
            assert len(starts.read_text().split()) == 1

    asyncio.run(asyncio.wait_for(check(), 60))
    assert not running_pids(starts)


@pytest.mark.slow
def test_calls_that_wait_for_a_connection_are_aborted_by_closing(stdio: Any) -> None:
    async def test(registry: OperationRegistry, server: MCPOperations) -> None:
        await call_error(registry, "up.dies")
        server._shared_connection._target = from_mcp(SLEEPS)._shared_connection._target
        calls = [asyncio.create_task(registry.execute("up.told", {})) for _ in range(3)]
        await wait_until_async(
            lambda: (
                server._shared_connection._connect_task is not None
                and not server._shared_connection._connect_task.done()
            )
        )
        cancelled = calls.pop()
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert cancelled.cancelled()
        await server.close()
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, CallError)
            assert error.code == "ABORTED"

    run_with_tools(stdio, test, mode=LEGACY, namespace="up")


def test_a_call_that_is_under_way_is_aborted_by_closing(stdio: Any, era: str) -> None:
    async def test(registry: OperationRegistry, server: MCPOperations) -> None:
        call = asyncio.create_task(registry.execute("up.waits", {}))

        async def is_waiting() -> bool:
            return bool((await server_state(registry))["waits"])

        await wait_until_async(is_waiting)
        await server.close()
        with pytest.raises(CallError, match="may or may not have run") as caught:
            await call
        assert caught.value.code == "ABORTED"

    run_with_tools(stdio, test, mode=era, namespace="up")


def test_asking_for_the_tools_has_an_end(stdio: Any) -> None:
    async def test(_: OperationRegistry, server: MCPOperations) -> None:
        server._shared_connection.timeout = 0.000001
        with pytest.raises(CallError, match="the list of tools") as caught:
            await server.refresh()
        assert caught.value.code == "TIMEOUT"

    run_with_tools(stdio, test, mode=LEGACY, namespace="up")


def test_another_event_loop_is_told_so(stdio: Any) -> None:
    registry, server = OperationRegistry(), from_mcp(stdio, namespace="up")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.connect(), loop).result(30)
    server.register_into(registry)

    async def elsewhere() -> None:
        assert "another event loop" in str(await call_error(registry, "up.told"))
        await server.close()
        assert len(registry) == 0

    asyncio.run(asyncio.wait_for(elsewhere(), 60))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_what_is_left_of_a_loop_that_ended_can_be_closed() -> None:
    registry, server = OperationRegistry(), from_mcp(make_server(), namespace="up")
    asyncio.run(server.connect())
    server.register_into(registry)

    async def elsewhere() -> None:
        assert "another event loop" in str(await call_error(registry, "up.text", {"size": 1}))
        await server.close()

    asyncio.run(asyncio.wait_for(elsewhere(), 60))
    assert len(registry) == 0


def test_one_bad_tool_hides_no_other(stdio: Any, era: str, caplog: pytest.LogCaptureFixture) -> None:
    schema = {"type": "object"}
    bad = [{"name": "no_schema"}, {"name": None, "inputSchema": schema}, 7, {"name": "odd", "inputSchema": True}]
    twice = [{"name": "twice", "inputSchema": schema, "description": text} for text in ("first", "second")]

    async def test(registry: OperationRegistry, _: MCPOperations) -> None:
        assert {"up.says", "up.told", "up.last"} <= {spec.id for spec in registry}
        assert not {"up.no_schema", "up.odd"} & {spec.id for spec in registry}
        spec = registry.get_spec("up.twice")
        assert spec is not None
        assert spec.description == "first"

    more = json.dumps([*bad, *twice, {"name": "last", "inputSchema": schema}])
    with caplog.at_level(logging.WARNING, "forebay"):
        run_with_tools([*stdio, more], test, mode=era, namespace="up")
    for name in ("no_schema", "odd", "lists two tools 'twice'"):
        assert name in caplog.text


def test_a_storm_of_changes_is_not_followed_one_by_one(stdio: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_LISTING_INTERVAL_SECONDS", 3600.0)
    changed = '{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}'

    async def test(registry: OperationRegistry, _: MCPOperations) -> None:
        page_count = (await server_state(registry))["listed"]
        for _each in range(20):
            await registry.execute("up.writes", {"lines": [changed, OK]})

        async def is_listed_again() -> bool:
            return bool((await server_state(registry))["listed"] >= 2 * page_count)

        await wait_until_async(is_listed_again)
        for _each in range(20):
            await registry.execute("up.writes", {"lines": [changed, OK]})
        assert (await server_state(registry))["listed"] == 2 * page_count

    run_with_tools(stdio, test, mode=LEGACY, namespace="up")


class _RefusingServer(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(int(self.path.strip("/").partition("?")[0]))
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


async def connect_error(target: Any, **options: Any) -> CallError:
    with pytest.raises(CallError) as caught:
        await from_mcp(target, **options).connect()
    assert "may or may not" not in str(caught.value)
    return caught.value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "says"),
    [(404, "there is no MCP server at"), (401, "HTTP 401"), (429, "HTTP 429"), (500, "HTTP 500")],
)
def test_a_status_is_told_with_the_url_and_without_its_secrets(status: int, says: str, era: str) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _RefusingServer) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        place = f"127.0.0.1:{server.server_port}/{status}"
        error = asyncio.run(asyncio.wait_for(connect_error(f"http://user:pass@{place}?key=secret", mode=era), 60))
        server.shutdown()
    assert error.details == {"status": status}
    assert says in str(error)
    assert f"http://{place}" in str(error)
    assert not any(secret in str(error) for secret in ("pass", "secret"))


@pytest.mark.slow
def test_a_server_that_cannot_be_connected_is_named() -> None:
    async def check() -> None:
        assert f"the command {sys.executable} -c ended before it answered" in str(await connect_error(ENDS))
        assert "the command /does/not/exist cannot be started" in str(await connect_error(["/does/not/exist"]))
        assert "http://127.0.0.1:9/mcp cannot be connected" in str(await connect_error("http://127.0.0.1:9/mcp"))
        late = await connect_error([*SLEEPS, "61"], connect_timeout=0.1)
        assert (late.code, f"{sys.executable} -c did not answer" in str(late)) == ("TIMEOUT", True)
        assert "connect_timeout" in str(late)
        # Later arguments may be secrets.
        assert "61" not in str(late)
        for word in ("--token=s3cret", "API_KEY=s3cret"):
            assert "s3cret" not in str(await connect_error([*ENDS, word]))

    asyncio.run(asyncio.wait_for(check(), 60))


def test_a_lost_connection_that_cannot_be_made_again_is_no_call_that_may_have_run(stdio: Any) -> None:
    async def test(registry: OperationRegistry, server: MCPOperations) -> None:
        assert "may or may not have run" in str(await call_error(registry, "up.dies"))
        server._shared_connection._target = from_mcp(ENDS)._shared_connection._target
        error = await call_error(registry, "up.told")
        assert f"the command {sys.executable} -c ended" in str(error)

    run_with_tools(stdio, test, mode=LEGACY, namespace="up", connect_attempts=1)


def test_mistakes_are_told_at_once() -> None:
    with pytest.raises(InvalidArgument, match=r"give a command as a list, such as \['npx', 'my-server'\]"):
        from_mcp("npx my-server")
    with pytest.raises(InvalidArgument, match="namespace"):
        from_mcp(make_server(), namespace="a b")
    with pytest.raises(InvalidArgument, match=r"async with from_mcp\(\.\.\.\)"):
        from_mcp(make_server()).register_into(OperationRegistry())


def test_closing_leaves_what_others_registered() -> None:
    async def check() -> None:
        registry = OperationRegistry()
        async with from_mcp(make_server(), namespace="up") as server:
            server.register_into(registry)
            registry.unregister("up.text")
            registry.register(OperationSpec(namespace="up", name="text"), lambda *_: "mine")
        assert [spec.id for spec in registry] == ["up.text"]

    asyncio.run(asyncio.wait_for(check(), 60))


def test_a_fastmcp_server_is_taken(era: str) -> None:
    server = FastMCP("fast")

    @server.tool
    def double(n: int) -> int:
        return 2 * n

    async def test(registry: OperationRegistry, _: MCPOperations) -> None:
        assert unwrap(await registry.execute("fast.double", {"n": 4}))["result"] == 8

    run_with_tools(server, test, mode=era)


def test_a_scope_that_is_cancelled_leaves_nothing_behind(tmp_path: Path, stdio: Any) -> None:
    """anyio cancels again at every step, even while the connection closes."""
    command, starts = make_logged_command(tmp_path / "server.py", stdio[1:])
    registry = OperationRegistry()

    async def check() -> None:
        before = asyncio.all_tasks()
        with anyio.CancelScope() as scope:
            async with from_mcp(command, namespace="up", mode=LEGACY) as server:
                server.register_into(registry)
                scope.cancel()
                await anyio.sleep(60)
        assert len(registry) == 0
        assert asyncio.all_tasks() == before

    asyncio.run(asyncio.wait_for(check(), 60))
    assert not running_pids(starts)


def test_connecting_in_vain_takes_nothing_from_whoever_is_connected(stdio: Any) -> None:
    async def test(registry: OperationRegistry, server: MCPOperations) -> None:
        upstream = server._shared_connection._target
        await call_error(registry, "up.dies")
        server._shared_connection._target = from_mcp(["false"])._shared_connection._target
        with pytest.raises(CallError):
            await server.connect()
        server._shared_connection._target = upstream
        assert "up.told" in registry
        assert (await registry.execute("up.told", {})).meta.source == "mcp"

    run_with_tools(stdio, test, mode=LEGACY, namespace="up")


def test_an_error_of_the_transport_ends_no_call(stdio: Any, era: str) -> None:
    async def test(registry: OperationRegistry, server: MCPOperations) -> None:
        call = asyncio.create_task(registry.execute("up.waits", {}))
        while (await server_state(registry))["waits"] == 0:
            await asyncio.sleep(0)
        open_connection = server._shared_connection._connection
        assert open_connection is not None
        await open_connection.client.session._message_handler(ConnectionError("a stream of events broke off"))
        assert unwrap(await registry.execute("up.writes", {"lines": [OK]})) == {"ok": True}
        assert not call.done()
        call.cancel()

    run_with_tools(stdio, test, mode=era, namespace="up")


def test_a_server_without_a_name_has_the_default_namespace() -> None:
    # Since protocol version 2026-07-28, a server may leave out its name.
    script = f"import sys; sys.path.insert(0, {str(SUPPORT)!r}); import raw_server; raw_server.INFO = None; "
    script += "raw_server.main()"

    async def test(registry: OperationRegistry, server: MCPOperations) -> None:
        assert (server.namespace, "mcp.says" in registry) == ("mcp", True)

    run_with_tools([sys.executable, "-c", script, "stdio"], test, mode=MODERN)


def test_whoever_overhears_can_leave_in_any_order() -> None:
    async def check() -> None:
        messages: list[str] = []

        def make_observer(name: str) -> Any:
            async def observer(_: Any) -> None:
                messages.append(name)

            return observer

        async with Client(make_server(), message_handler=make_observer("own")) as client:
            session = client.session
            own = session._message_handler
            stops = [connection.observe_messages(session, make_observer(name)) for name in ("first", "middle", "last")]
            await session._message_handler(RuntimeError("told"))
            assert messages == ["last", "middle", "first", "own"]
            stops[1]()
            stops[1]()
            messages.clear()
            await session._message_handler(RuntimeError("told"))
            assert messages == ["last", "first", "own"]
            stops[0]()
            stops[2]()
            assert session._message_handler is own

    asyncio.run(asyncio.wait_for(check(), 60))
