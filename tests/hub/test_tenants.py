"""How long the connections of a principal last, how many there may be, and what they leave to others."""

import json
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from serve_harness import command_of
from serve_http_harness import Stream, called, eventually, is_running, listens, serving_http, wire, write_tokens
from wires import MODERN, Wire, message_of, started

pytestmark = pytest.mark.slow

KEEPING = {"keeping": command_of("keeping_server.py")}


def _pid(port: int, name: str) -> int:
    return int(called(wire(port, MODERN, name), "state")["pid"])


def _is_gone(pid: int) -> bool:
    return not is_running(pid)


def _error(wire: Wire, tool: str) -> dict[str, Any]:
    return dict(json.loads(message_of(wire.ask("tools/call", {"name": tool, "arguments": {}})))["error"])


def test_servers_of_who_is_idle_end_and_those_in_use_do_not(tmp_path: Path) -> None:
    with serving_http(tmp_path, KEEPING, session_idle_seconds=1) as listening, ThreadPoolExecutor() as pool:
        port = listening.port
        ann, bob = _pid(port, "ann"), _pid(port, "bob")
        with listens(port, "ann", resourceSubscriptions=["x://1"]) as ann_hears:
            takes = pool.submit(called, wire(port, MODERN, "bob"), "takes", seconds=4)
            # Twice as long as those in use would have lasted.
            for _ in range(2):
                eventually(_is_gone, _pid(port, "cid"))
            assert takes.result()["pid"] == bob
            called(wire(port, MODERN, "ann"), "update", uri="x://1")
            assert ann_hears.next()["params"]["uri"] == "x://1"
            assert _pid(port, "ann") == ann
        for pid in (ann, bob):
            eventually(_is_gone, pid)
        # Whoever comes back is served.
        assert _pid(port, "ann") not in (ann, bob)


def test_of_too_many_the_one_that_was_idle_for_longest_is_closed(tmp_path: Path) -> None:
    slow = {"slow": command_of("keeping_server.py", "slow")}
    with serving_http(tmp_path, slow, max_principals=2) as listening:
        port = listening.port
        ann, bob = _pid(port, "ann"), _pid(port, "bob")
        assert _pid(port, "ann") == ann
        cid = _pid(port, "cid")
        # There are never more of them, not even for a moment.
        assert not is_running(bob)
        assert (_pid(port, "ann"), _pid(port, "cid")) == (ann, cid)
    assert not is_running(ann)
    assert not is_running(cid)


def test_one_in_use_is_not_closed_for_another_who_is_told_what_to_do(tmp_path: Path) -> None:
    with serving_http(tmp_path, KEEPING, max_principals=1) as listening:
        port = listening.port
        with listens(port, "ann", toolsListChanged=True):
            ann = _pid(port, "ann")
            error = _error(wire(port, MODERN, "bob"), "state")
            assert error["code"] == -32000
            assert "try again" in error["message"]
            assert "max_connections" in error["message"]
            assert _pid(port, "ann") == ann
        bob = wire(port, MODERN, "bob")
        eventually(lambda: b"error" not in bob.ask("tools/list"))
        assert not is_running(ann)


def test_many_who_come_at_once_are_all_served_by_as_few_as_there_may_be(tmp_path: Path) -> None:
    with serving_http(tmp_path, KEEPING, max_principals=4) as listening, ThreadPoolExecutor(16) as pool:
        names = ["ann", "bob", "cid", "dan"] * 4
        pids = [*pool.map(lambda name: (name, _pid(listening.port, name)), names)]
        assert len(set(pids)) == 4


def test_a_tool_that_is_switched_off_stays_so_when_the_connections_are_closed(tmp_path: Path) -> None:
    upstreams = {**KEEPING, "other": command_of("adverse_server.py")}
    options = {"disable_tools": ["keeping", "admin"], "capabilities": {"pid": "admin"}, "session_idle_seconds": 1}
    with serving_http(tmp_path, upstreams, **options) as listening:
        ann = wire(listening.port, MODERN, "ann")
        told = called(ann, "text", size=10)
        assert told == "x" * 10
        for _ in range(2):
            for tool in ("state", "pid"):
                assert called(ann, tool)["error"]["code"] == "CAPABILITY_DISABLED"
            eventually(lambda: not _children(listening.process.pid))


def _children(pid: int) -> list[str]:
    # Each thread has those that it started.
    return [child for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]


def test_who_is_not_let_in_any_more_is_not_told_anything_either(tmp_path: Path) -> None:
    with serving_http(tmp_path, KEEPING, session_idle_seconds=1) as listening:
        port = listening.port
        with ExitStack() as stack:
            ann, bob = _pid(port, "ann"), _pid(port, "bob")
            ann_hears = stack.enter_context(listens(port, "ann", resourceSubscriptions=["x://1"]))
            bob_hears = stack.enter_context(listens(port, "bob", toolsListChanged=True))
            write_tokens(tmp_path / "tokens", ["ann"])
            assert b"data: {" not in bob_hears.rest()
            eventually(_is_gone, bob)
            called(wire(port, MODERN, "ann"), "update", uri="x://1")
            assert ann_hears.next()["params"]["uri"] == "x://1"
            assert _pid(port, "ann") == ann


def test_calls_that_hang_are_nobody_else_s_trouble(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool, started("raw_server.py", "http") as process, ExitStack() as stack:
        assert process.stdout
        url = f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        listening = stack.enter_context(serving_http(tmp_path, {"raw": {"url": url}}, shutdown_grace_seconds=0))
        ann, bob = (wire(listening.port, MODERN, name) for name in ("ann", "bob"))
        for _ in range(64):
            threading.Thread(target=_hang, args=(ann,), daemon=True).start()
        eventually(lambda: pool.submit(_waiting, bob).result(60) == 64)


def _hang(wire: Wire) -> None:
    wire.ask("tools/call", {"name": "waits", "arguments": {}})


def _waiting(wire: Wire) -> int:
    told = json.loads(message_of(wire.ask("tools/call", {"name": "told", "arguments": {}})))
    return int(told["result"]["structuredContent"]["waits"])


def test_who_listens_does_not_keep_calls_waiting(tmp_path: Path) -> None:
    speaking = started("speaking_server.py", "http", "one", "modern")
    with ThreadPoolExecutor() as pool, speaking as process, ExitStack() as stack:
        assert process.stdout
        url = f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        listening = stack.enter_context(serving_http(tmp_path, {"one": {"url": url}}, shutdown_grace_seconds=0))
        for _ in range(70):
            stack.enter_context(listens(listening.port, "ann", resourceSubscriptions=["one://1"]))
        ann = wire(listening.port, MODERN, "ann")
        assert pool.submit(called, ann, "update").result(60) == "one"


def test_who_listens_hears_a_server_that_is_started_again(tmp_path: Path) -> None:
    upstreams = {"one": command_of("speaking_server.py", "stdio", "one", "modern")}
    with serving_http(tmp_path, upstreams) as listening:
        ann = wire(listening.port, MODERN, "ann")
        with listens(listening.port, "ann", resourceSubscriptions=["one://1", "one://2"]) as hears:
            _heard_in_the_end(ann, hears, 1)
            (child,) = _children(listening.process.pid)
            os.kill(int(child), signal.SIGKILL)
            _heard_in_the_end(ann, hears, 2)


def test_who_listens_hears_a_server_that_comes_late(tmp_path: Path) -> None:
    flag, later = tmp_path / "flag", command_of("speaking_server.py", "stdio", "one", "modern")
    command = [later["command"], *later["args"]]
    starts = f"import os; os.path.exists({str(flag)!r}) and os.execv({command[0]!r}, {command!r})"
    with serving_http(tmp_path, {"one": {"command": sys.executable, "args": ["-c", starts]}}) as listening:
        ann = wire(listening.port, MODERN, "ann")
        with listens(listening.port, "ann", resourceSubscriptions=["one://1"]) as hears:
            flag.touch()
            _heard_in_the_end(ann, hears, 1)


def _heard_in_the_end(ann: Wire, hears: Stream, number: int) -> None:
    """What is updated again and again is heard of: a server is listened to again after a while, not at once."""
    heard = threading.Event()

    def update() -> None:
        while not heard.wait(0.1):
            ann.ask("tools/call", {"name": "update", "arguments": {"of": number}})

    updating = threading.Thread(target=update)
    updating.start()
    try:
        while hears.next()["params"]["uri"] != f"one://{number}":
            pass
    finally:
        heard.set()
        updating.join()


def test_who_listens_on_many_connections_leaves_some_to_others(tmp_path: Path) -> None:
    with serving_http(tmp_path, KEEPING, max_connections=8) as listening, ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(listens(listening.port, "ann", toolsListChanged=True))
        refused = json.loads(wire(listening.port, MODERN, "ann").ask("tools/list"))["error"]
        assert "max_connections" in refused["message"]
        assert _pid(listening.port, "bob")
        stack.close()
        eventually(lambda: b"max_connections" not in wire(listening.port, MODERN, "ann").ask("tools/list"))
