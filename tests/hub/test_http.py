"""Many clients of `forebay serve` over HTTP are isolated from each other."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from forebay.wire.protocol import matches_template
from serve_harness import upstream_command, write_config
from serve_http_harness import NAMES, call_tool, connect_as, is_running, serving_config, serving_http
from waiting import wait_until
from wires import ERAS, LEGACY, MODERN, connect_http, extract_message, start_server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with start_server("raw_server.py", "http") as process:
        assert process.stdout
        url = f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        upstreams = {"adverse": upstream_command("adverse_server.py"), "raw": {"url": url}}
        with serving_http(tmp_path_factory.mktemp("serve"), upstreams) as listening:
            yield listening.port


@pytest.mark.parametrize("era", ERAS)
def test_a_handle_belongs_to_one_principal(era: str, port: int) -> None:
    ann, bob = (connect_as(port, era, name) for name in ("ann", "bob"))
    handle = call_tool(ann, "text", size=100_000)["output_handle"]
    assert len(handle) == len("oh_") + 26
    assert call_tool(ann, "output_fetch", output_handle=handle)["total"] == 100_000
    assert call_tool(bob, "output_fetch", output_handle=handle)["error"]["code"] == "output_handle_not_found"


@pytest.mark.parametrize("era", ERAS)
def test_a_large_result_of_an_http_upstream_belongs_to_its_caller(era: str, port: int) -> None:
    ann, bob = (connect_as(port, era, name) for name in ("ann", "bob"))
    result = {"content": [{"type": "text", "text": "r" * 2_000_000}]}
    handle = call_tool(ann, "says", result=result)["output_handle"]
    assert call_tool(ann, "output_fetch", output_handle=handle)["total"] == 2_000_000
    assert call_tool(bob, "output_fetch", output_handle=handle)["error"]["code"] == "output_handle_not_found"


def test_a_lone_surrogate_reaches_the_upstream_unchanged(port: int) -> None:
    assert call_tool(
        connect_as(port, MODERN, "ann"), "says", half="\ud800", result={"content": [{"type": "text", "text": "1"}]}
    )


def _pids(port: int, *clients: tuple[str, str]) -> list[Any]:
    """Return the process that answers each client. A client is a protocol version and a principal."""
    wires = [connect_as(port, era, name) for era, name in clients]
    return [call_tool(wire, "pid") for wire in wires]


def test_clients_of_a_principal_share_a_process(port: int) -> None:
    first, second, of_bob = _pids(port, (LEGACY, "ann"), (LEGACY, "ann"), (LEGACY, "bob"))
    assert first == second != of_bob
    first, second, of_bob = _pids(port, (MODERN, "ann"), (MODERN, "ann"), (MODERN, "bob"))
    assert first == second != of_bob


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("share", ["session", "all"])
def test_clients_share_a_process_as_configured(share: str, era: str, tmp_path: Path) -> None:
    upstreams = {"adverse": {**upstream_command("adverse_server.py"), "share": share}}
    with serving_http(tmp_path, upstreams) as listening:
        pids = _pids(listening.port, (era, "ann"), (era, "ann"), (era, "bob"))
        # Without sessions, all requests of a principal are one client.
        assert len({*pids}) == (1 if share == "all" else 3 if era == LEGACY else 2)


def test_concurrent_results_reach_their_callers(port: int) -> None:
    def store_and_fetch(number: int) -> None:
        name, era = NAMES[number % 4], ERAS[number % 2]
        wire = connect_as(port, era, name)
        letter = chr(ord("a") + number)
        handle = call_tool(wire, "text", size=60_000 + number, of=letter)["output_handle"]
        page = call_tool(wire, "output_fetch", output_handle=handle)
        assert (page["total"], set(page["content"])) == (60_000 + number, {letter})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(store_and_fetch, range(16)))


@pytest.mark.parametrize("era", ERAS)
def test_all_progress_comes_before_the_response(era: str, port: int) -> None:
    params = {"name": "reports", "arguments": {"steps": 50}, "_meta": {"progressToken": "mine"}}
    lines = connect_as(port, era, "ann").request("tools/call", params).splitlines()
    messages = [json.loads(line.removeprefix(b"data: ")) for line in lines if line.startswith(b"data: {")]
    assert [message["params"]["progress"] for message in messages[:-1]] == [*range(50)]
    assert messages[-1]["result"]["content"][0]["text"] == "reported"


def test_the_upstreams_of_a_principal_end_with_its_last_session(tmp_path: Path) -> None:
    with serving_http(tmp_path, {"adverse": upstream_command("adverse_server.py")}) as listening:
        first, second = (connect_as(listening.port, LEGACY, "ann") for _ in range(2))
        pid = call_tool(first, "pid")
        assert call_tool(second, "pid") == pid
        first.end_session()
        assert call_tool(second, "pid") == pid
        second.end_session()
        wait_until(lambda: not is_running(pid), 30)


def test_clients_may_use_the_same_ids_at_once_under_a_filter(tmp_path: Path) -> None:
    with serving_http(tmp_path, {"adverse": upstream_command("adverse_server.py")}, disable_tools="hangs") as listening:

        def call(letter: str) -> Any:
            # The id of each first request is 1.
            wire = connect_as(listening.port, MODERN, "ann")
            ready.wait(30)
            return [call_tool(wire, "reports", token=letter, steps=5, every=0.05), call_tool(wire, "text", of=letter)]

        ready = threading.Barrier(8)
        with ThreadPoolExecutor(8) as pool:
            assert [*pool.map(call, "abcdefgh")] == [["reported", 10 * letter] for letter in "abcdefgh"]


def test_strangers_have_processes_of_their_own(tmp_path: Path) -> None:
    upstreams = {"adverse": upstream_command("adverse_server.py")}
    for options, process_count in (([], 1), (["--allowed-hosts", "mcp.example.com", "--insecure"], 2)):
        path = write_config(tmp_path, upstreams)
        with serving_config(path, *options) as listening:
            pids = [call_tool(connect_http(listening.port, LEGACY), "pid") for _ in range(2)]
            assert len({*pids}) == process_count


def test_many_calls_to_a_server_that_dies_hangs_and_floods(tmp_path: Path) -> None:
    """Every call gets its own result, or an error that says what happened."""
    faults: dict[int, tuple[str, dict[str, Any]]] = {
        3: ("dies", {"after": 1000}),
        4: ("hangs", {}),
        5: ("floods", {"size": 2_000_000}),
        6: ("dies", {"after": 10}),
    }
    failures = {"upstream_failed", "upstream_timeout"}

    def call(port: int, number: int) -> list[bool]:
        wire, letter = connect_as(port, ERAS[number // 2 % 2], NAMES[number % 4]), chr(ord("a") + number)
        answered: list[bool] = []
        for size in (100, 60_000, 100, 60_000):
            if number in faults and len(answered) == 1:
                call_tool(wire, faults[number][0], **faults[number][1])
            result = call_tool(wire, "text", size=size, of=letter)
            is_failed = isinstance(result, dict) and "error" in result
            answered.append(not is_failed)
            if is_failed:
                assert result["error"]["code"] in failures
            else:
                assert set(result if size == 100 else result["preview"]) == {letter}
        return answered

    upstreams = {"adverse": upstream_command("adverse_server.py")}
    options = {"call_timeout_seconds": 5, "restart_delay_seconds": 0.1}
    with serving_http(tmp_path, upstreams, **options) as listening, ThreadPoolExecutor(20) as pool:
        answered = [*pool.map(lambda number: call(listening.port, number), range(20))]
        # Clients of the handshake era do not share the processes of the others, which die.
        assert all(all(answered[number]) for number in range(20) if ERAS[number // 2 % 2] == LEGACY)
        assert call(listening.port, 2) == [True] * 4


@pytest.mark.posix
def test_calls_in_flight_finish_before_shutdown(tmp_path: Path) -> None:
    def call(number: int) -> Any:
        wire = connect_as(listening.port, ERAS[number % 2], NAMES[number % 4])
        ready.wait(30)
        return call_tool(wire, "reports", token=0, steps=10, every=0.1)

    upstreams = {"adverse": upstream_command("adverse_server.py")}
    ready = threading.Barrier(9)
    with serving_http(tmp_path, upstreams) as listening, ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(call, number) for number in range(8)]
        ready.wait(30)
        time.sleep(0.5)
        listening.terminate()
        assert [call.result(30) for call in calls] == ["reported"] * 8


@pytest.mark.parametrize("era", ERAS)
def test_a_call_to_a_single_unreachable_upstream_is_an_error(era: str, tmp_path: Path) -> None:
    with serving_http(tmp_path, {"none": {"command": "false"}}) as listening:
        error = call_tool(connect_as(listening.port, era, "ann"), "any")["error"]
        assert (error["code"], "none cannot be reached" in error["message"]) == ("upstream_failed", True)


def test_the_token_file_cannot_be_read_by_reference(tmp_path: Path) -> None:
    options = {"file_refs": True, "file_roots": [str(tmp_path)]}
    with serving_http(tmp_path, {"adverse": upstream_command("adverse_server.py")}, **options) as listening:
        bob = connect_as(listening.port, MODERN, "bob")
        (tmp_path / "plain.txt").write_text("plain")
        assert call_tool(bob, "text", of={"$file": "plain.txt"}, size=5) == "plain"
        for path in tmp_path.iterdir():
            if path.name in ("tokens", "forebay.toml"):
                error = call_tool(bob, "text", of={"$file": path.name}, size=5)["error"]
                assert error["code"] == "file_ref_denied"


def test_late_progress_does_not_reach_a_later_request_with_the_same_token(tmp_path: Path) -> None:
    with serving_http(tmp_path, {"adverse": upstream_command("adverse_server.py")}) as listening:
        # This server reports with any token it is given, like one that goes on after a cancellation.
        late = {"name": "reports", "arguments": {"steps": 3, "token": 1}, "_meta": {"progressToken": 1}}
        for _ in range(2):
            answer = connect_as(listening.port, MODERN, "ann").request("tools/call", late)
            assert b"notifications/progress" not in answer


@pytest.mark.parametrize("era", ERAS)
def test_a_disabled_tool_cannot_be_called_by_any_name(era: str, tmp_path: Path) -> None:
    upstreams = {"one": upstream_command("adverse_server.py"), "two": upstream_command("adverse_server.py")}
    options = {"capabilities": {"pid": "admin"}, "disable_tools": ["admin"]}
    with serving_http(tmp_path, upstreams, **options) as listening:
        ann = connect_as(listening.port, era, "ann")
        listed = [tool["name"] for tool in json.loads(extract_message(ann.request("tools/list")))["result"]["tools"]]
        assert "one_text" in listed
        assert not [name for name in listed if "pid" in name]
        for name in ("pid", "one_pid", "two_pid"):
            answer = ann.request("tools/call", {"name": name, "arguments": {}})
            assert b"CAPABILITY_DISABLED" in answer or b"Unknown tool" in answer


def test_matching_a_template_needs_no_backtracking() -> None:
    template = "repo://{owner}/{repo}/contents/{path}/raw"
    assert matches_template(template, "repo://a/b/contents/c/d/raw")
    assert not matches_template(template, "repo://" + "/contents/" * 100_000)
    assert not matches_template(template, "repo://a/contents/raw")
    assert not matches_template("plain", "plain")
    assert matches_template("{all}", "")
