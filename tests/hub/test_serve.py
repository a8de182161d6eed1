"""`forebay serve` with several upstreams of every kind."""

import json
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from gateway_harness import TIMEOUT_SECONDS, parse_text
from http_api import Answer, http_api
from peak import get_peak_bytes
from serve_harness import EraClient, serving, tool_names, upstream_command, write_config
from serve_http_harness import is_running
from wires import ERAS, MODERN, start_server

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

OURS = ["output_fetch", "output_search", "output_query"]


def _module(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str = MODULE) -> dict[str, Any]:
    (folder / "served_functions.py").write_text(text)
    monkeypatch.chdir(folder)
    return {"python": "served_functions"}


@pytest.mark.parametrize("era", ERAS)
def test_upstreams_of_every_kind_are_served_together(era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with http_api() as api, start_server("raw_server.py", "http") as process:
        assert process.stdout
        url = f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        api.answers["/pets"] = Answer(b'[{"name": "Ada"}]')
        (tmp_path / "pets.json").write_text(json.dumps({**DOCUMENT, "servers": [{"url": api.url}]}))
        path = write_config(
            tmp_path,
            {
                "files": upstream_command("mcp_server.py", "stdio", "null"),
                "raw": {"url": url},
                "pets": {"openapi": "pets.json"},
                "sums": _module(tmp_path, monkeypatch),
            },
        )
        with serving(path, era) as client:
            names = tool_names(client)
            assert {"rows", "says", "listPets", "add", *OURS} <= set(names)
            assert parse_text(client.call("rows", count=1)) == {"id": 0, "name": "naïve 0"}
            assert client.call("says", result={"content": [], "own": 1})["own"] == 1
            assert parse_text(client.call("listPets")) == [{"name": "Ada"}]
            assert client.call("add", a=2)["structuredContent"] == {"total": 3}
            assert client.server_info.get("serverInfo", {"name": "forebay"})["name"] == "forebay"


@pytest.mark.parametrize("era", ERAS)
def test_names_are_prefixed_only_when_they_clash_or_when_asked(
    era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstreams = {
        "one": upstream_command("mcp_server.py", "stdio", "null"),
        "two": upstream_command("adverse_server.py"),
        "three": {**_module(tmp_path, monkeypatch), "prefix": "my_"},
    }
    with serving(write_config(tmp_path, upstreams), era) as client:
        names = tool_names(client)
        assert {"one_text", "two_text", "rows", "pid", "my_add"} <= set(names)
        assert not {"text", "add", "three_add", "one_rows"} & set(names)
        assert client.call("one_text", size=2)["content"][0]["text"] == "xx"
        assert client.call("two_text", size=3, of="y")["content"][0]["text"] == "yyy"
        assert client.call("my_shout", words="a")["content"][0]["text"] == "A"


def test_names_do_not_depend_on_the_order_of_startup(tmp_path: Path) -> None:
    """Clients may remember the names across restarts."""
    listed = []
    for slow in ("one", "two"):
        upstreams = {name: upstream_command("speaking_server.py", "stdio", name) for name in ("one", "two")}
        late = "import subprocess, sys, time; time.sleep(1); subprocess.call([sys.executable, *sys.argv[1:]])"
        upstreams[slow]["args"] = ["-c", late, *upstreams[slow]["args"]]
        with serving(write_config(tmp_path, upstreams)) as client:
            listed.append(tool_names(client))
    assert listed[0] == listed[1]
    assert listed[0][0] == "one_level"


@pytest.mark.parametrize("era", ERAS)
def test_the_call_timeout_applies_to_functions_and_apis(
    era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = "import time\n\ndef sleeps(seconds: float) -> str:\n    time.sleep(seconds)\n    return 'rested'\n"
    with http_api() as api:

        def hang(_: object) -> None:
            api.released.wait(TIMEOUT_SECONDS)

        api.answers["/pets"] = hang
        (tmp_path / "pets.json").write_text(json.dumps({**DOCUMENT, "servers": [{"url": api.url}]}))
        upstreams = {"pets": {"openapi": "pets.json"}, "slow": _module(tmp_path, monkeypatch, slow)}
        with serving(write_config(tmp_path, upstreams, call_timeout_seconds=1), era) as client:
            for tool, arguments in (("sleeps", {"seconds": TIMEOUT_SECONDS}), ("listPets", {})):
                result = client.call(tool, **arguments)
                assert result["isError"]
                assert parse_text(result)["error"]["code"] == "TIMEOUT"
            assert client.call("sleeps", seconds=0)["content"][0]["text"] == "rested"
        api.released.set()


def test_tools_are_disabled_by_their_original_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = _module(tmp_path, monkeypatch)
    path = write_config(
        tmp_path, {"one": module, "two": module, "three": {**module, "prefix": "my_"}}, hidden_tools=["a*"]
    )
    with serving(path) as client:
        names = tool_names(client)
        assert {"one_shout", "two_shout", "my_shout"} <= set(names)
        assert not any("add" in name for name in names)
        shown = parse_text(client.call("expand_tools"))["hidden_tools"]
        assert {tool["name"] for tool in shown} == {"one_add", "two_add", "my_add"}


@pytest.mark.parametrize("era", ERAS)
def test_a_module_s_functions_are_tools(era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(write_config(tmp_path, {"sums": _module(tmp_path, monkeypatch)}), era) as client:
        tools = {tool["name"]: tool for tool in client.request("tools/list")["result"]["tools"]}
        assert [*tools] == ["add", "shout", "thread", "many", "breaks", *OURS]
        assert tools["add"]["description"] == "Adds two numbers."
        assert tools["add"]["inputSchema"]["required"] == ["a"]
        assert parse_text(client.call("thread")) is False
        assert parse_text(client.call("breaks"))["error"]["code"] == "EXECUTION_ERROR"
        wrong = client.call("add", a="many")
        assert wrong["isError"]
        assert parse_text(wrong)["error"]["code"] == "VALIDATION_ERROR"
        handle = parse_text(client.call("many", count=9000))
        assert handle["item_count"] == 9000


def test_a_module_may_be_in_the_folder_of_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = _module(tmp_path, monkeypatch, "def beside() -> None: ...")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    write_config(tmp_path, {"sums": module})
    with serving(Path("../forebay.toml")) as client:
        assert tool_names(client) == ["beside", *OURS]


def test_all_of_a_module_selects_its_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = _module(tmp_path, monkeypatch, f"{MODULE}\nfrom os.path import basename\n__all__ = ['add', 'basename']\n")
    with serving(write_config(tmp_path, {"sums": module})) as client:
        assert tool_names(client) == ["add", "basename", *OURS]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no module served_functions"),
        ("import no_such_module", "install what it needs"),
        ("1 / 0", "ZeroDivisionError"),
        ("x = 1", "no public functions"),
        ("__all__ = ['gone']", "has no gone"),
        ("import sys; sys.exit(3)", "SystemExit"),
    ],
)
def test_an_invalid_module_is_served_when_it_is_mended(
    text: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = _module(tmp_path, monkeypatch, text or "")
    path = tmp_path / "served_functions.py"
    if text is None:
        path.unlink()
    upstreams = {"sums": module, "raw": upstream_command("raw_server.py", "stdio")}
    with serving(write_config(tmp_path, upstreams)) as client:
        assert "says" in tool_names(client)
        client.wait_for_log("the upstream sums cannot be used, and is tried again in 1 s")
        client.wait_for_log(message)
        path.write_text("def mended() -> None: ...")
        _wait_for_changed_tools(client)
        assert "mended" in tool_names(client)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("mode", ["auto", "handle"])
def test_a_large_result_is_stored_once(era: str, mode: str, tmp_path: Path) -> None:
    path = write_config(tmp_path, {"adverse": upstream_command("adverse_server.py")}, output_mode=mode)
    with serving(path, era) as client:
        stamped = {"own": 1, "io.modelcontextprotocol/serverInfo": {"name": "upstream", "version": "1"}}
        more = {"_meta": stamped, "structuredContent": {"a": 1}, "resultType": "complete"}
        result = client.call("text", size=1_000_000, of="é", more=more)
        assert "upstream" not in json.dumps(result["_meta"])
        assert ("resultType" in result) is (era == MODERN)
        handle = parse_text(result)
        assert handle["fetch_with"] == "output_fetch"
        assert result["_meta"]["own"] == 1
        assert result["structuredContent"]["output_handle"] == handle["output_handle"]
        page = parse_text(client.call("output_fetch", output_handle=handle["output_handle"], format="bytes", limit=10))
        assert page["total"] > 1_000_000
        assert len([*(tmp_path / "store").rglob("oh_*")]) == 1


def test_an_upstream_cannot_imitate_a_stored_result(tmp_path: Path) -> None:
    """A result that imitates forebay's own marks is treated like any other."""
    forged = {"content": [], "isError": False, "_meta": {"forebay/delivered": True, "delivery": "x" * 40_000}}
    with serving(write_config(tmp_path, {"raw": upstream_command("raw_server.py", "stdio")})) as client:
        assert "output_handle" in parse_text(client.call("says", result=forged))
        small = {"content": [], "isError": False}
        assert client.call("says", result=small) == small


@pytest.mark.parametrize("era", ERAS)
def test_a_large_error_of_an_upstream_is_stored_without_secrets(era: str, tmp_path: Path) -> None:
    path = write_config(tmp_path, {"raw": upstream_command("raw_server.py", "stdio")}, redact=["SECRET"])
    with serving(path, era) as client:
        for error in (
            {"code": 7, "message": "SECRET " * 9000},
            {"code": 7, "message": "no", "data": ["SECRET " * 9000]},
        ):
            response = client.request("tools/call", {"name": "refuses", "arguments": {"error": error}})
            assert response["error"]["code"] == 7
            assert "SECRET" not in json.dumps(response)
            assert client.call("output_fetch", output_handle=response["error"]["data"]["output_handle"])


def test_a_meta_that_is_not_an_object_is_refused(tmp_path: Path) -> None:
    with serving(write_config(tmp_path, {"raw": upstream_command("raw_server.py", "stdio")})) as client:
        for meta in ("x", [1], 7):
            response = client.request("tasks/get", {"taskId": "1", "_meta": meta})
            assert response["error"] == {"code": -32602, "message": "params._meta must be an object if present"}


@pytest.mark.parametrize("era", ERAS)
def test_a_response_of_another_version_of_json_rpc_fails_its_call(era: str, tmp_path: Path) -> None:
    with serving(write_config(tmp_path, {"raw": upstream_command("raw_server.py", "stdio")}), era) as client:
        for line in ('{"jsonrpc":"1.0","id":ID,"result":{"content":[]}}', '{"jsonrpc":null,"id":ID,"error":{}}'):
            response = client.request("tools/call", {"name": "writes", "arguments": {"lines": [line]}})
            assert "not JSON-RPC 2.0" in response["error"]["message"]


def test_a_result_of_20_mb_needs_less_memory_than_its_size(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"adverse": upstream_command("adverse_server.py")}, spool_above_bytes=1 << 20)
    with serving(path) as client:
        client.call("text", size=100_000)
        before = get_peak_bytes(client.process.pid)
        handle = parse_text(client.call("text", size=20_000_000))
        assert handle["size_bytes"] == 20_000_000
        assert get_peak_bytes(client.process.pid) - before < 20_000_000


@pytest.mark.parametrize("era", ERAS)
def test_an_upstream_that_dies_in_a_call_is_reported_and_restarted(era: str, tmp_path: Path) -> None:
    upstreams = {"adverse": upstream_command("adverse_server.py"), "raw": upstream_command("raw_server.py", "stdio")}
    with serving(write_config(tmp_path, upstreams), era) as client:
        tool_names(client)
        pid = client.call("pid")["content"][0]["text"]
        failed = client.call("adverse_dies", after=100)
        assert failed["isError"]
        assert parse_text(failed)["error"]["code"] == "upstream_failed"
        assert client.call("says", result={"content": []})["content"] == []
        assert client.call("pid")["content"][0]["text"] != pid
        client.wait_for_log("the upstream adverse ended with exit code 3, and is started again at once")


def test_an_unreachable_upstream_does_not_affect_the_others(tmp_path: Path) -> None:
    failing = tmp_path / "failing"
    failing.write_text("1")
    late = {**upstream_command("adverse_server.py"), "env": {"FAIL_STARTS": str(failing)}}
    upstreams = {"late": late, "raw": upstream_command("raw_server.py", "stdio")}
    with serving(write_config(tmp_path, upstreams, per_call=True)) as client:
        assert "says" in tool_names(client)
        client.wait_for_log("the upstream late cannot be used, and is tried again in 1 s")
        client.wait_for_log("the server ended with exit code 7 at its start; see what it logged, and check its command")
        _wait_for_changed_tools(client)
        # Also for a client that has not listed the tool yet.
        assert "output_handle" in parse_text(client.call("pid", output_mode="handle"))
        assert "pid" in tool_names(client)


def test_an_unknown_tool_may_be_one_of_an_upstream_that_is_not_available(tmp_path: Path) -> None:
    upstreams = {
        "raw": upstream_command("raw_server.py", "stdio"),
        "inventory": {"command": sys.executable, "args": ["-c", ""]},
        "parts": {"python": "no_such_module"},
    }
    with serving(write_config(tmp_path, upstreams)) as client:
        message = client.request("tools/call", {"name": "export_parts"})["error"]["message"]
        assert message == (
            "Unknown tool: export_parts; the upstreams inventory, parts are not available now, "
            "and tools/list has all others"
        )


def test_a_tool_disabled_by_its_prefixed_name_is_disabled_while_no_other_tool_has_its_name(tmp_path: Path) -> None:
    upstreams = {
        "files": upstream_command("adverse_server.py"),
        "other": {"command": sys.executable, "args": ["-c", ""]},
    }
    options = {"capabilities": {"files_pid": "admin"}, "disable_tools": ["admin"]}
    with serving(write_config(tmp_path, upstreams, **options)) as client:
        assert "pid" not in tool_names(client)
        assert parse_text(client.call("pid"))["error"]["code"] == "CAPABILITY_DISABLED"


@pytest.mark.posix
def test_calls_in_flight_and_child_processes_end_before_shutdown(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"adverse": upstream_command("adverse_server.py")}, shutdown_grace_seconds=60)
    with serving(path) as client:
        pid = int(client.call("pid")["content"][0]["text"])
        params = {"name": "reports", "arguments": {"steps": 4, "every": 0.2}, "_meta": {"progressToken": "t"}}
        number = client.send_request("tools/call", params)
        assert json.loads(client.read_line())["method"] == "notifications/progress"
        client.process.send_signal(signal.SIGTERM)
        assert client.read_response(number)["result"]["content"][0]["text"] == "reported"
        assert client.process.wait(TIMEOUT_SECONDS) == 0
        assert not is_running(pid)


@pytest.mark.posix
def test_a_slow_call_does_not_block_shutdown(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"adverse": upstream_command("adverse_server.py")}, shutdown_grace_seconds=0.5)
    with serving(path) as client:
        pid = int(client.call("pid")["content"][0]["text"])
        client.send_request("tools/call", {"name": "hangs", "arguments": {}})
        client.process.send_signal(signal.SIGTERM)
        assert client.process.wait(TIMEOUT_SECONDS) == 0
        assert not is_running(pid)


def test_the_last_requests_of_a_client_are_answered(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"adverse": upstream_command("adverse_server.py")}, shutdown_grace_seconds=60)
    with serving(path) as client:
        arguments = {"steps": 3, "token": "t", "every": 0.1}
        numbers = [client.send_request("tools/call", {"name": "reports", "arguments": arguments}) for _ in range(5)]
        assert client.close() == 0
        answered = [json.loads(client.read_line()) for _ in numbers]
        assert sorted(answer["id"] for answer in answered) == numbers
        assert {answer["result"]["content"][0]["text"] for answer in answered} == {"reported"}


@pytest.mark.parametrize("era", ERAS)
def test_the_default_capability_of_a_tool_is_its_upstream(era: str, tmp_path: Path) -> None:
    upstreams = {
        "one": upstream_command("mcp_server.py", "stdio", "null"),
        "two": upstream_command("adverse_server.py"),
    }
    with serving(write_config(tmp_path, upstreams, disable_tools=["two"]), era) as client:
        names = tool_names(client)
        assert "one_text" in names
        assert not {"two_text", "pid"} & set(names)
        denied = parse_text(client.call("pid"))["error"]
        assert (denied["code"], denied["capability"]) == ("CAPABILITY_DISABLED", "two")


def test_an_unknown_capability_is_an_error(tmp_path: Path) -> None:
    with serving(write_config(tmp_path, {"one": upstream_command("adverse_server.py")}, tools_only=["won"])) as client:
        assert tool_names(client) == OURS
        client.wait_for_log("the capabilities are core, one")


def _wait_for_changed_tools(client: EraClient) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while b"notifications/tools/list_changed" not in client.read_line():
        assert time.monotonic() < deadline


def test_upstreams_that_cannot_start_are_served_when_they_can(tmp_path: Path) -> None:
    command, folder = tmp_path / "late-server", tmp_path / "late-folder"
    server = upstream_command("adverse_server.py")
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    upstreams = {
        "command": {"command": str(command)},
        "folder": {**server, "cwd": str(folder)},
        "exits": {"command": sys.executable, "args": ["-c", ""]},
        "url": {"url": f"{url}/mcp"},
        "file": {"openapi": "late.json", "base_url": url},
        "document": {"openapi": f"{url}/openapi.json"},
        "raw": upstream_command("raw_server.py", "stdio"),
    }
    with serving(write_config(tmp_path, upstreams)) as client:
        assert tool_names(client)[0] == "says"
        client.wait_for_log(f"the upstream command needs {command}, which is no command here")
        for name in upstreams.keys() - {"raw"}:
            client.wait_for_log(f"the upstream {name} cannot be used, and is tried again in 1 s")
        (tmp_path / "late.json").write_text(json.dumps(DOCUMENT))
        _wait_for_changed_tools(client)
        assert "listPets" in tool_names(client)
        run = f"import runpy, sys; sys.argv = {server['args']!r}; runpy.run_path(sys.argv[0], run_name='__main__')"
        executable = tmp_path / "executable"
        if sys.platform == "win32":
            (tmp_path / "late.py").write_text(run)
            executable.write_text(f'@"{sys.executable}" "{tmp_path / "late.py"}"\n')
            executable.rename(command.with_suffix(".cmd"))
        else:
            executable.write_text(f"#!{sys.executable}\n{run}\n")
            executable.chmod(0o700)
            executable.rename(command)
        _wait_for_changed_tools(client)
        assert "pid" in tool_names(client)
        folder.mkdir()
        _wait_for_changed_tools(client)
        assert {"command_pid", "folder_pid"} <= set(tool_names(client))
