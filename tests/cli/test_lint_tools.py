"""`forebay lint-tools`, and the client without any SDK that it asks servers with."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import run
from forebay.errors import UpstreamFailed, UpstreamTimeout
from forebay.outputs.capabilities import META_KEY
from forebay.proxy.probe import ServerProbe, list_tools
from running import command
from support_paths import SUPPORT

pytestmark = pytest.mark.slow

RAW = [sys.executable, str(SUPPORT.joinpath("raw_server.py")), "stdio"]

# Calls `answer` with each message, and writes what it returns.
SCRIPT = """
import json, sys
def say(**message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    number, method, params = message.get("id"), message.get("method"), message.get("params") or {}
"""

HANDSHAKE = """
    if method == "initialize": say(id=number, result={})
"""

# Refuses `initialize`, as servers of 2026-07-28 may, and requires the protocol version in each request.
MODERN = """
    if method == "initialize": say(id=number, error={"code": -32601, "message": "no"})
    if method == "tools/list": say(id=number, result={"tools": [{"name": m["io.modelcontextprotocol/protocolVersion"]}
        for m in [params["_meta"]]]})
"""

# Sends a request before it answers, and a line that is not a message.
CURIOUS = """
    if method == "tools/list":
        print("hello", flush=True)
        print("[1]", flush=True)
        say(method="notifications/message", params={})
        say(id=number, method="ping")
        pong = json.loads(sys.stdin.readline())
        say(id="r", method="roots/list")
        refused = json.loads(sys.stdin.readline())
        say(id=999, result={"tools": []})
        say(id=number, result={"tools": [{"name": json.dumps([pong, refused])}]})
"""

ENDING = """
    if method == "tools/list": sys.exit(3)
"""

FAILING = """
    if method == "tools/list": say(id=number, error={"code": -32000, "message": "out of order"})
"""

EMPTY = """
    if method == "tools/list": say(id=number, result=7)
"""

AROUND = """
    if method == "tools/list": say(id=number, result={"tools": [{"name": str(number)}], "nextCursor": "again"})
"""


def server(*parts: str) -> list[str]:
    return [sys.executable, "-c", SCRIPT + "".join(parts)]


def test_all_pages_are_asked_for() -> None:
    names = [tool["name"] for tool in list_tools(RAW)]
    assert names[:3] == ["says", "says_a_number", "refuses"]
    assert names[-1] == "x" * 300
    assert [tool["name"] for tool in list_tools(server(HANDSHAKE, AROUND))] == ["2", "3"]


def test_a_server_without_a_handshake_is_asked_in_the_newest_version() -> None:
    assert list_tools(server(MODERN)) == [{"name": "2026-07-28"}]


def test_a_server_that_asks_is_answered() -> None:
    (tool,) = list_tools(server(HANDSHAKE, CURIOUS))
    pong, refused = json.loads(tool["name"])
    assert (pong["id"], pong["result"]) == (2, {})
    assert (refused["id"], refused["error"]["code"]) == ("r", -32601)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (server(HANDSHAKE, ENDING), "ended before it answered tools/list"),
        (server(HANDSHAKE, FAILING), "out of order"),
        (server(HANDSHAKE, EMPTY), "with no result"),
        ([sys.executable, "-c", ""], "ended before it answered initialize"),
        (["no-such-command"], "cannot be started"),
        ([""], "cannot be started"),
    ],
)
def test_a_server_that_fails_is_told_of(command: list[str], expected: str) -> None:
    with pytest.raises(UpstreamFailed, match=expected):
        list_tools(command)


@pytest.mark.posix
def test_a_server_that_hangs_is_given_up_and_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    write_pid = f"open({str(pid)!r}, 'w').write(str(os.getpid()))"
    hanging = f"import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); {write_pid}; time.sleep(600)"
    with pytest.raises(UpstreamTimeout, match=r"did not answer initialize within 5 s"):
        list_tools([sys.executable, "-c", hanging], timeout=5)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_anything_can_be_asked() -> None:
    with ServerProbe(RAW) as asking:
        result = asking.request("tools/call", {"name": "says", "arguments": {"result": {"content": []}}})
        assert result == {"content": []}
        with pytest.raises(UpstreamFailed, match="no resources/list"):
            asking.request("resources/list")


def test_tools_that_say_what_they_are_for_pass() -> None:
    report = run("lint-tools", "--", *command("browser_server.py", "--plain")).json
    assert report["tools"] == sum(report["capabilities"].values())
    assert report["capabilities"] | {"core": 0} == {
        "core": 0,
        "crawl": 6,
        "profile": 2,
        "recording": 4,
        "storage": 2,
        "totp": 1,
        "workflow": 6,
    }


def test_tools_that_do_not_are_named() -> None:
    done = run("lint-tools", "--capability", "says*=core", "--", *RAW)
    assert done.code == 1
    assert done.error["code"] == "tool_without_capability"
    assert "6 of 8 tools have no capability of their own" in done.error["message"]
    assert run("lint-tools", "--capability", "says*=talk", "--capability", "*=core", "--", *RAW).json == {
        "tools": 8,
        "capabilities": {"core": 6, "talk": 2},
    }


OWN = [{"name": "a", "_meta": {META_KEY: "x"}}, {"name": "b"}]


@pytest.mark.parametrize("saved", [OWN, {"tools": OWN}, {"jsonrpc": "2.0", "id": 1, "result": {"tools": OWN}}])
def test_what_was_saved_is_as_good_as_a_server(saved: Any, tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps(saved))
    assert "and count as core: b;" in run("lint-tools", "--saved", str(file)).error["message"]
    report = run("lint-tools", "--saved", str(file), "--capability", "b=y").json
    assert report == {"tools": 2, "capabilities": {"x": 1, "y": 1}}


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        ([], 2, "name one server"),
        (["--saved", "x", "--", "y"], 2, "name one server"),
        (["--capability", "x", "--", "y"], 2, "PATTERN=NAME"),
        (["--capability", "=x", "--", "y"], 2, "PATTERN=NAME"),
        (["--saved", "nowhere.json"], 1, "nowhere.json cannot be read"),
        (["--saved", __file__], 1, "is not JSON"),
        (["--", "no-such-command"], 1, "cannot be started"),
    ],
)
def test_wrong_usage_is_told(args: list[str], code: int, says: str) -> None:
    done = run("lint-tools", *args)
    assert done.code == code
    assert says in done.error["message"]


@pytest.mark.parametrize("text", ["7", '{"tools": 7}', '{"result": {"tools": [1]}}'])
def test_what_is_no_list_of_tools_is_told(text: str, tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    file.write_text(text)
    assert "is no list of tools" in run("lint-tools", "--saved", str(file)).error["message"]


def test_its_help_fits_on_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, run("lint-tools", "--help").out.decode().splitlines())) <= 80


def test_neither_the_filter_nor_the_client_needs_an_sdk() -> None:
    code = (
        "import sys, forebay.outputs.capabilities, forebay.proxy.probe, forebay.outputs.policy;"
        "print([name for name in ('mcp', 'mcp_types', 'pydantic', 'httpx2', 'anyio') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
