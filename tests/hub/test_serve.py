"""Several upstreams of every kind behind one server."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from gateway_harness import PATIENCE, Talk, said
from http_api import Answer, http_api
from serve_harness import command_of, config, serving, tool_names
from wires import ERAS, MODERN, started

pytestmark = pytest.mark.slow

MODULE = '''
"""Functions for tests."""
import asyncio
import threading
from pydantic import BaseModel

_hidden = 1

class Sum(BaseModel):
    total: int

def add(a: int, b: int = 1) -> Sum:
    """Adds two numbers."""
    return Sum(total=a + b)

async def shout(words: str) -> str:
    await asyncio.sleep(0)
    return words.upper()

def thread() -> bool:
    return threading.current_thread() is threading.main_thread()

def many(count: int) -> list[dict[str, int]]:
    return [{"id": number} for number in range(count)]

def breaks() -> None:
    raise RuntimeError("it broke")

def _private() -> int:
    return 1
'''

DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Pets", "version": "1"},
    "paths": {
        "/pets": {"get": {"operationId": "listPets", "responses": {"200": {"description": "all"}}}},
        "/text": {"get": {"operationId": "text", "responses": {"200": {"description": "clashes"}}}},
    },
}

OURS = ["output_fetch", "output_search"]


def _module(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str = MODULE) -> dict[str, Any]:
    (folder / "served_functions.py").write_text(text)
    monkeypatch.chdir(folder)
    return {"python": "served_functions"}


@pytest.mark.parametrize("era", ERAS)
def test_upstreams_of_every_kind_are_served_as_one(era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with http_api() as api, started("raw_server.py", "http") as process:
        assert process.stdout
        url = f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        api.answers["/pets"] = Answer(b'[{"name": "Ada"}]')
        (tmp_path / "pets.json").write_text(json.dumps({**DOCUMENT, "servers": [{"url": api.url}]}))
        path = config(
            tmp_path,
            {
                "files": command_of("mcp_server.py", "stdio", "null"),
                "raw": {"url": url},
                "pets": {"openapi": "pets.json"},
                "sums": _module(tmp_path, monkeypatch),
            },
        )
        with serving(path, era) as talk:
            names = tool_names(talk)
            assert {"rows", "says", "listPets", "add", *OURS} <= set(names)
            assert said(talk.call("rows", count=1)) == {"id": 0, "name": "naïve 0"}
            assert talk.call("says", result={"content": [], "own": 1})["own"] == 1
            assert said(talk.call("listPets")) == [{"name": "Ada"}]
            assert talk.call("add", a=2)["structuredContent"] == {"total": 3}
            assert talk.greeting.get("serverInfo", {"name": "forebay"})["name"] == "forebay"


@pytest.mark.parametrize("era", ERAS)
def test_names_are_prefixed_only_when_they_clash_or_when_asked(
    era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstreams = {
        "one": command_of("mcp_server.py", "stdio", "null"),
        "two": command_of("adverse_server.py"),
        "three": {**_module(tmp_path, monkeypatch), "prefix": "my_"},
    }
    with serving(config(tmp_path, upstreams), era) as talk:
        names = tool_names(talk)
        assert {"one_text", "two_text", "rows", "pid", "my_add"} <= set(names)
        assert not {"text", "add", "three_add", "one_rows"} & set(names)
        assert talk.call("one_text", size=2)["content"][0]["text"] == "xx"
        assert talk.call("two_text", size=3, of="y")["content"][0]["text"] == "yyy"
        assert talk.call("my_shout", words="a")["content"][0]["text"] == "A"


def test_names_do_not_depend_on_which_server_is_up_first(tmp_path: Path) -> None:
    """A client may remember them longer than we run."""
    listed = []
    for slow in ("one", "two"):
        upstreams = {name: command_of("speaking_server.py", "stdio", name) for name in ("one", "two")}
        late = "import os, sys, time; time.sleep(1); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
        upstreams[slow]["args"] = ["-c", late, *upstreams[slow]["args"]]
        with serving(config(tmp_path, upstreams)) as talk:
            listed.append(tool_names(talk))
    assert listed[0] == listed[1]
    assert listed[0][0] == "one_level"


@pytest.mark.parametrize("era", ERAS)
def test_calls_of_functions_and_of_apis_may_take_no_longer_than_others(
    era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = "import time\n\ndef sleeps(seconds: float) -> str:\n    time.sleep(seconds)\n    return 'rested'\n"
    with http_api() as api:

        def hang(_: object) -> None:
            api.released.wait(PATIENCE)

        api.answers["/pets"] = hang
        (tmp_path / "pets.json").write_text(json.dumps({**DOCUMENT, "servers": [{"url": api.url}]}))
        upstreams = {"pets": {"openapi": "pets.json"}, "slow": _module(tmp_path, monkeypatch, slow)}
        with serving(config(tmp_path, upstreams, call_timeout_seconds=1), era) as talk:
            for tool, arguments in (("sleeps", {"seconds": PATIENCE}), ("listPets", {})):
                result = talk.call(tool, **arguments)
                assert result["isError"]
                assert said(result)["error"]["code"] == "TIMEOUT"
            assert talk.call("sleeps", seconds=0)["content"][0]["text"] == "rested"
        api.released.set()


def test_tools_are_hidden_by_what_their_own_server_calls_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = _module(tmp_path, monkeypatch)
    path = config(tmp_path, {"one": module, "two": module, "three": {**module, "prefix": "my_"}}, hidden_tools=["a*"])
    with serving(path) as talk:
        names = tool_names(talk)
        assert {"one_shout", "two_shout", "my_shout"} <= set(names)
        assert not any("add" in name for name in names)
        shown = said(talk.call("expand_tools"))["hidden_tools"]
        assert {each["name"] for each in shown} == {"one_add", "two_add", "my_add"}


@pytest.mark.parametrize("era", ERAS)
def test_a_module_s_functions_are_tools(era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(config(tmp_path, {"sums": _module(tmp_path, monkeypatch)}), era) as talk:
        tools = {tool["name"]: tool for tool in talk.ask("tools/list")["result"]["tools"]}
        assert [*tools] == ["add", "shout", "thread", "many", "breaks", *OURS]
        assert tools["add"]["description"] == "Adds two numbers."
        assert tools["add"]["inputSchema"]["required"] == ["a"]
        assert said(talk.call("thread")) is False
        assert said(talk.call("breaks"))["error"]["code"] == "EXECUTION_ERROR"
        wrong = talk.call("add", a="many")
        assert wrong["isError"]
        assert said(wrong)["error"]["code"] == "VALIDATION_ERROR"
        handle = said(talk.call("many", count=9000))
        assert handle["item_count"] == 9000


def test_a_module_may_be_beside_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = _module(tmp_path, monkeypatch, "def beside() -> None: ...")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    config(tmp_path, {"sums": module})
    with serving(Path("../forebay.toml")) as talk:
        assert tool_names(talk) == ["beside", *OURS]


def test_a_module_s_all_says_what_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = _module(tmp_path, monkeypatch, f"{MODULE}\nfrom os.path import basename\n__all__ = ['add', 'basename']\n")
    with serving(config(tmp_path, {"sums": module})) as talk:
        assert tool_names(talk) == ["add", "basename", *OURS]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "there is no module served_functions"),
        ("import no_such_module", "install what it needs"),
        ("1 / 0", "ZeroDivisionError"),
        ("x = 1", "no public functions"),
        ("__all__ = ['gone']", "has no gone"),
    ],
)
def test_a_module_that_cannot_be_served_is_said_at_once(
    text: str | None, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = _module(tmp_path, monkeypatch, text or "")
    if text is None:
        (tmp_path / "served_functions.py").unlink()
    with pytest.raises(AssertionError, match=told), serving(config(tmp_path, {"sums": module})):
        pass


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("mode", ["auto", "handle"])
def test_a_large_result_is_stored_once(era: str, mode: str, tmp_path: Path) -> None:
    path = config(tmp_path, {"adverse": command_of("adverse_server.py")}, output_mode=mode)
    with serving(path, era) as talk:
        stamped = {"own": 1, "io.modelcontextprotocol/serverInfo": {"name": "upstream", "version": "1"}}
        more = {"_meta": stamped, "structuredContent": {"a": 1}, "resultType": "complete"}
        result = talk.call("text", size=1_000_000, of="é", more=more)
        assert "upstream" not in json.dumps(result["_meta"])
        assert ("resultType" in result) is (era == MODERN)
        handle = said(result)
        assert handle["fetch_with"] == "output_fetch"
        assert result["_meta"]["own"] == 1
        assert result["structuredContent"]["output_handle"] == handle["output_handle"]
        page = said(talk.call("output_fetch", output_handle=handle["output_handle"], format="bytes", limit=10))
        assert page["total"] > 1_000_000
        assert len([*(tmp_path / "store").rglob("oh_*")]) == 1


def test_nothing_that_an_upstream_says_passes_for_delivered(tmp_path: Path) -> None:
    """A result as forebay itself would have made it is a result like any other."""
    forged = {"content": [], "isError": False, "_meta": {"forebay/delivered": True, "delivery": "x" * 40_000}}
    with serving(config(tmp_path, {"raw": command_of("raw_server.py", "stdio")})) as talk:
        assert "output_handle" in said(talk.call("says", result=forged))
        small = {"content": [], "isError": False}
        assert talk.call("says", result=small) == small


def test_a_result_of_20_mb_is_not_in_memory_more_than_twice(tmp_path: Path) -> None:
    path = config(tmp_path, {"adverse": command_of("adverse_server.py")}, spool_above_bytes=1 << 20)
    with serving(path) as talk:
        talk.call("text", size=100_000)
        before = _peak(talk)
        handle = said(talk.call("text", size=20_000_000))
        assert handle["size_bytes"] == 20_000_000
        assert _peak(talk) - before < 16 << 20


def _peak(talk: Talk) -> int:
    status = Path(f"/proc/{talk.process.pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))


@pytest.mark.parametrize("era", ERAS)
def test_an_upstream_that_dies_in_a_call_is_told_and_started_again(era: str, tmp_path: Path) -> None:
    upstreams = {"adverse": command_of("adverse_server.py"), "raw": command_of("raw_server.py", "stdio")}
    with serving(config(tmp_path, upstreams), era) as talk:
        tool_names(talk)
        pid = talk.call("pid")["content"][0]["text"]
        failed = talk.call("adverse_dies", after=100)
        assert failed["isError"]
        assert said(failed)["error"]["code"] == "upstream_failed"
        assert talk.call("says", result={"content": []})["content"] == []
        assert talk.call("pid")["content"][0]["text"] != pid


def test_an_upstream_that_cannot_be_reached_does_not_keep_the_others(tmp_path: Path) -> None:
    failing = tmp_path / "failing"
    failing.write_text("1")
    late = {**command_of("adverse_server.py"), "env": {"FAIL_STARTS": str(failing)}}
    upstreams = {"late": late, "raw": command_of("raw_server.py", "stdio")}
    with serving(config(tmp_path, upstreams, per_call=True)) as talk:
        assert "says" in tool_names(talk)
        assert talk.has_logged("the upstream late cannot be reached, and is tried again")
        deadline = time.monotonic() + PATIENCE
        while b"notifications/tools/list_changed" not in talk.line():
            assert time.monotonic() < deadline
        # Also by who has not listed it yet.
        assert "output_handle" in said(talk.call("pid", output_mode="handle"))
        assert "pid" in tool_names(talk)


def test_calls_in_flight_finish_before_it_ends_and_so_do_its_children(tmp_path: Path) -> None:
    with serving(config(tmp_path, {"adverse": command_of("adverse_server.py")})) as talk:
        pid = int(talk.call("pid")["content"][0]["text"])
        number = talk.request("tools/call", {"name": "reports", "arguments": {"steps": 4, "token": "t", "every": 0.2}})
        time.sleep(0.1)
        talk.process.send_signal(signal.SIGTERM)
        assert talk.answer(number)["result"]["content"][0]["text"] == "reported"
        assert talk.process.wait(PATIENCE) == 0
        assert not _is_alive(pid)


def test_a_call_that_takes_too_long_does_not_keep_it(tmp_path: Path) -> None:
    path = config(tmp_path, {"adverse": command_of("adverse_server.py")}, shutdown_grace_seconds=0.5)
    with serving(path) as talk:
        pid = int(talk.call("pid")["content"][0]["text"])
        talk.request("tools/call", {"name": "hangs", "arguments": {}})
        talk.process.send_signal(signal.SIGTERM)
        assert talk.process.wait(PATIENCE) == 0
        assert not _is_alive(pid)


def test_it_ends_with_its_client_whose_last_requests_are_answered(tmp_path: Path) -> None:
    with serving(config(tmp_path, {"adverse": command_of("adverse_server.py")})) as talk:
        arguments = {"steps": 3, "token": "t", "every": 0.1}
        numbers = [talk.request("tools/call", {"name": "reports", "arguments": arguments}) for _ in range(5)]
        assert talk.close() == 0
        answered = [json.loads(talk.line()) for _ in numbers]
        assert sorted(answer["id"] for answer in answered) == numbers
        assert {answer["result"]["content"][0]["text"] for answer in answered} == {"reported"}


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("era", ERAS)
def test_a_tool_is_for_what_its_upstream_is_for(era: str, tmp_path: Path) -> None:
    upstreams = {"one": command_of("mcp_server.py", "stdio", "null"), "two": command_of("adverse_server.py")}
    with serving(config(tmp_path, upstreams, disable_tools=["two"]), era) as talk:
        names = tool_names(talk)
        assert "one_text" in names
        assert not {"two_text", "pid"} & set(names)
        denied = said(talk.call("pid"))["error"]
        assert (denied["code"], denied["capability"]) == ("CAPABILITY_DISABLED", "two")


def test_a_capability_that_no_upstream_is_is_an_error(tmp_path: Path) -> None:
    with serving(config(tmp_path, {"one": command_of("adverse_server.py")}, tools_only=["won"])) as talk:
        assert tool_names(talk) == OURS
        assert talk.has_logged("there are core, one")


def test_a_command_that_is_none_is_said_at_once(tmp_path: Path) -> None:
    path = config(tmp_path, {"one": {"command": "no-such-command"}})
    with pytest.raises(AssertionError, match="the upstream one needs no-such-command"), serving(path):
        pass
