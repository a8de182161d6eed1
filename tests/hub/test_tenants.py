"""The connections of a principal: how long they last, how many there are, and that others keep working."""

import http.client
import json
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from serve_harness import upstream_command
from serve_http_harness import (
    TIMEOUT_SECONDS,
    NotificationStream,
    call_tool,
    connect_as,
    is_running,
    server_pids,
    serving_http,
    subscribe,
    write_tokens,
)
from waiting import wait_until
from wires import LEGACY, MODERN, Wire, extract_message, start_server

pytestmark = pytest.mark.slow

STATEFUL = {"keeping": upstream_command("stateful_server.py")}


def _pid(port: int, name: str) -> int:
    return int(call_tool(connect_as(port, MODERN, name), "state")["pid"])


def _wait_until_gone(pid: int) -> None:
    wait_until(lambda: not is_running(pid), TIMEOUT_SECONDS)


def _error(wire: Wire, tool: str) -> dict[str, Any]:
    return dict(json.loads(extract_message(wire.request("tools/call", {"name": tool, "arguments": {}})))["error"])


def test_upstreams_of_idle_principals_end(tmp_path: Path) -> None:
    with serving_http(tmp_path, STATEFUL, session_idle_seconds=1) as listening, ThreadPoolExecutor() as pool:
        port = listening.port
        ann, bob = _pid(port, "ann"), _pid(port, "bob")
        with subscribe(port, "ann", resourceSubscriptions=["x://1"]) as ann_hears:
            takes = pool.submit(call_tool, connect_as(port, MODERN, "bob"), "takes", seconds=4)
            # Twice as long as the idle timeout.
            for _ in range(2):
                _wait_until_gone(_pid(port, "cid"))
            assert takes.result()["pid"] == bob
            call_tool(connect_as(port, MODERN, "ann"), "update", uri="x://1")
            assert ann_hears.next()["params"]["uri"] == "x://1"
            assert _pid(port, "ann") == ann
        for pid in (ann, bob):
            _wait_until_gone(pid)
        # A returning principal gets a new server.
        assert _pid(port, "ann") not in (ann, bob)


def test_a_full_pool_closes_the_longest_idle_tenant(tmp_path: Path) -> None:
    slow = {"slow": upstream_command("stateful_server.py", "slow")}
    with serving_http(tmp_path, slow, max_principals=2) as listening:
        port = listening.port
        ann, bob = _pid(port, "ann"), _pid(port, "bob")
        assert _pid(port, "ann") == ann
        cid = _pid(port, "cid")
        # There are never more servers than allowed, not even for a moment.
        assert not is_running(bob)
        assert (_pid(port, "ann"), _pid(port, "cid")) == (ann, cid)
    assert not is_running(ann)
    assert not is_running(cid)


def test_a_full_pool_of_busy_tenants_refuses_others(tmp_path: Path) -> None:
    with serving_http(tmp_path, STATEFUL, max_principals=1) as listening:
        port = listening.port
        with subscribe(port, "ann", toolsListChanged=True):
            ann = _pid(port, "ann")
            error = _error(connect_as(port, MODERN, "bob"), "state")
            assert error["code"] == -32000
            assert "retry later" in error["message"]
            assert "max_connections" in error["message"]
            assert _pid(port, "ann") == ann
        bob = connect_as(port, MODERN, "bob")
        wait_until(lambda: b"error" not in bob.request("tools/list"), TIMEOUT_SECONDS)
        assert not is_running(ann)


def test_many_concurrent_principals_share_a_small_pool(tmp_path: Path) -> None:
    with serving_http(tmp_path, STATEFUL, max_principals=4) as listening, ThreadPoolExecutor(16) as pool:
        names = ["ann", "bob", "cid", "dan"] * 4
        pids = [*pool.map(lambda name: (name, _pid(listening.port, name)), names)]
        assert len(set(pids)) == 4


def test_a_disabled_tool_stays_disabled_after_reconnecting(tmp_path: Path) -> None:
    upstreams = {**STATEFUL, "other": upstream_command("adverse_server.py")}
    options = {"disable_tools": ["keeping", "admin"], "capabilities": {"pid": "admin"}, "session_idle_seconds": 1}
    with serving_http(tmp_path, upstreams, **options) as listening:
        ann = connect_as(listening.port, MODERN, "ann")
        text = call_tool(ann, "text", size=10)
        assert text == "x" * 10
        for _ in range(2):
            for tool in ("state", "pid"):
                assert call_tool(ann, tool)["error"]["code"] == "CAPABILITY_DISABLED"
            wait_until(lambda: not server_pids(listening.process.pid), TIMEOUT_SECONDS)


def test_the_streams_of_a_removed_token_end(tmp_path: Path) -> None:
    with serving_http(tmp_path, STATEFUL, session_idle_seconds=1) as listening:
        port = listening.port
        with ExitStack() as stack:
            ann, bob = _pid(port, "ann"), _pid(port, "bob")
            ann_hears = stack.enter_context(subscribe(port, "ann", resourceSubscriptions=["x://1"]))
            bob_hears = stack.enter_context(subscribe(port, "bob", toolsListChanged=True))
            write_tokens(tmp_path / "tokens", ["ann"])
            assert b"data: {" not in bob_hears.read_to_end()
            _wait_until_gone(bob)
            call_tool(connect_as(port, MODERN, "ann"), "update", uri="x://1")
            assert ann_hears.next()["params"]["uri"] == "x://1"
            assert _pid(port, "ann") == ann


def test_hanging_calls_do_not_affect_other_principals(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool, start_server("raw_server.py", "http") as process, ExitStack() as stack:
        assert process.stdout
        url = f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        listening = stack.enter_context(serving_http(tmp_path, {"raw": {"url": url}}, shutdown_grace_seconds=0))
        ann, bob = (connect_as(listening.port, MODERN, name) for name in ("ann", "bob"))
        for _ in range(64):
            threading.Thread(target=_hang, args=(ann,), daemon=True).start()
        wait_until(lambda: pool.submit(_count_waiting, bob).result(60) == 64, TIMEOUT_SECONDS)


def _hang(wire: Wire) -> None:
    # Windows ends the gateway at once.
    with suppress(OSError, http.client.HTTPException):
        wire.request("tools/call", {"name": "waits", "arguments": {}})


def _count_waiting(wire: Wire) -> int:
    response = json.loads(extract_message(wire.request("tools/call", {"name": "told", "arguments": {}})))
    return int(response["result"]["structuredContent"]["waits"])


def test_listeners_do_not_delay_calls(tmp_path: Path) -> None:
    speaking = start_server("speaking_server.py", "http", "one", "modern")
    with ThreadPoolExecutor() as pool, speaking as process, ExitStack() as stack:
        assert process.stdout
        url = f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        listening = stack.enter_context(serving_http(tmp_path, {"one": {"url": url}}, shutdown_grace_seconds=0))
        for _ in range(70):
            stack.enter_context(subscribe(listening.port, "ann", resourceSubscriptions=["one://1"]))
        ann = connect_as(listening.port, MODERN, "ann")
        assert pool.submit(call_tool, ann, "update").result(60) == "one"


def test_a_listener_gets_notifications_of_a_restarted_server(tmp_path: Path) -> None:
    upstreams = {"one": upstream_command("speaking_server.py", "stdio", "one", "modern")}
    with serving_http(tmp_path, upstreams) as listening:
        ann = connect_as(listening.port, MODERN, "ann")
        with subscribe(listening.port, "ann", resourceSubscriptions=["one://1", "one://2"]) as hears:
            _wait_for_update(ann, hears, 1)
            (child,) = server_pids(listening.process.pid)
            os.kill(child, signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
            _wait_for_update(ann, hears, 2)


def test_a_listener_gets_notifications_of_a_late_server(tmp_path: Path) -> None:
    flag, later = tmp_path / "flag", upstream_command("speaking_server.py", "stdio", "one", "modern")
    command = [later["command"], *later["args"]]
    starts = f"import os, subprocess; os.path.exists({str(flag)!r}) and subprocess.call({command!r})"
    with serving_http(tmp_path, {"one": {"command": sys.executable, "args": ["-c", starts]}}) as listening:
        ann = connect_as(listening.port, MODERN, "ann")
        with subscribe(listening.port, "ann", resourceSubscriptions=["one://1"]) as hears:
            flag.touch()
            _wait_for_update(ann, hears, 1)


def _wait_for_update(ann: Wire, stream: NotificationStream, number: int) -> None:
    """Update a resource repeatedly until a notification arrives: the subscription is restored some time later."""
    is_received = threading.Event()

    def update() -> None:
        while not is_received.wait(0.1):
            ann.request("tools/call", {"name": "update", "arguments": {"of": number}})

    updating = threading.Thread(target=update)
    updating.start()
    try:
        while stream.next()["params"]["uri"] != f"one://{number}":
            pass
    finally:
        is_received.set()
        updating.join()


def test_one_principal_cannot_listen_on_all_connections(tmp_path: Path) -> None:
    with serving_http(tmp_path, STATEFUL, max_connections=8) as listening, ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(subscribe(listening.port, "ann", toolsListChanged=True))
        refused = json.loads(connect_as(listening.port, MODERN, "ann").request("tools/list"))["error"]
        assert "max_connections" in refused["message"]
        assert _pid(listening.port, "bob")
        stack.close()
        wait_until(
            lambda: b"max_connections" not in connect_as(listening.port, MODERN, "ann").request("tools/list"),
            TIMEOUT_SECONDS,
        )


def test_servers_of_ended_sessions_count_until_they_have_ended(tmp_path: Path) -> None:
    stubborn = {"slow": {**upstream_command("stateful_server.py", "slow"), "share": "session"}}
    with serving_http(tmp_path, stubborn, max_sessions=8, shutdown_grace_seconds=60) as listening:
        counts = []
        for _ in range(4):
            wire = connect_as(listening.port, LEGACY, "ann")
            assert call_tool(wire, "state")["level"] == "debug"
            counts.append(len(server_pids(listening.process.pid)))
            wire.end_session()
        # A principal may have two of eight sessions.
        assert max(counts) == 2
