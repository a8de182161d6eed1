"""Failures of server, client and store: each gives a structured error or the complete result, and nothing hangs."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from forebay import open_store
from gateway_harness import ADVERSE, TIMEOUT_SECONDS, connect, parse_text, script, wrap
from peak import get_peak_bytes
from waiting import wait_until

pytestmark = pytest.mark.slow

# Calls take longer on a busy machine than the default allows.
PATIENT = ("--shutdown-grace-seconds", "60")


def error_code(result: dict[str, object]) -> str:
    assert result["isError"] is True
    return str(parse_text(result)["error"]["code"])


@pytest.mark.parametrize("after", [0, 100, 100_000, 20_000_000])
def test_a_server_that_ends_within_a_response_is_restarted(after: int, tmp_path: Path) -> None:
    with connect(*wrap(tmp_path)) as talk:
        before = talk.call("pid")["content"][0]["text"]
        assert error_code(talk.call("dies", after=after)) == "upstream_failed"
        assert talk.call("pid")["content"][0]["text"] != before
        # The handshake is repeated to the new process.
        assert parse_text(talk.call("told"))[:2] == ["initialize", "notifications/initialized"]


def test_subscriptions_are_repeated_to_a_restarted_server(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path)) as talk:
        talk.request("logging/setLevel", {"level": "error"})
        talk.request("resources/subscribe", {"uri": "file:///a"})
        talk.call("dies", after=10)
        assert parse_text(talk.call("told"))[:4] == [
            "initialize",
            "notifications/initialized",
            "logging/setLevel",
            "resources/subscribe",
        ]


def test_a_refused_subscription_does_not_prevent_a_restart(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, server=[*script("raw_server.py"), "stdio"])) as talk:
        for method, params in (("logging/setLevel", {"level": "error"}), ("resources/subscribe", {"uri": "file:///a"})):
            assert talk.request(method, params)["error"]["code"] == -32601
        before = talk.call("told")["structuredContent"]["pid"]
        assert error_code(talk.call("dies")) == "upstream_failed"
        assert talk.call("told")["structuredContent"]["pid"] != before


def test_all_pending_requests_fail_when_the_server_ends(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path)) as talk:
        waiting = {talk.send_request("tools/call", {"name": "hangs"}) for _ in range(5)}
        waiting.add(talk.send_request("tools/call", {"name": "dies", "arguments": {"after": 1}}))
        answers = [json.loads(talk.read_line()) for _ in waiting]
        assert {answer["id"] for answer in answers} == waiting
        assert {error_code(answer["result"]) for answer in answers} == {"upstream_failed"}


def test_messages_wait_for_a_restarting_server(tmp_path: Path) -> None:
    failing = tmp_path / "failing"
    failing.write_text("0")
    with connect(*wrap(tmp_path / "store"), env={**os.environ, "FAIL_STARTS": str(failing)}) as talk:
        failing.write_text("3")
        talk.call("dies", after=10)

        def is_back() -> bool:
            result = talk.call("pid")
            assert not result["isError"] or error_code(result) == "upstream_failed"
            return not result["isError"]

        wait_until(is_back, TIMEOUT_SECONDS)
        assert failing.read_text() == "0"


def test_a_server_that_cannot_start_ends_the_gateway(tmp_path: Path) -> None:
    failing = tmp_path / "failing"
    failing.write_text("100")
    env = {**os.environ, "FAIL_STARTS": str(failing)}
    with connect(*wrap(tmp_path / "store"), env=env, handshake=False) as talk:
        answer = talk.request("initialize", {})
        assert answer["error"]["data"]["code"] == "upstream_failed"
        assert "at its start" in answer["error"]["message"]
        assert talk.is_closed()
        assert talk.process.wait(TIMEOUT_SECONDS) == 7


@pytest.mark.posix
@pytest.mark.parametrize(("does", "status", "words"), [("exit 7", 7, "exit code 7"), ("kill -9 $$", 137, "signal 9")])
def test_requests_to_a_server_without_restart_are_errors(does: str, status: int, words: str, tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, server=["sh", "-c", does]), handshake=False) as talk:
        # Both before and after the exit is noticed.
        told = talk.request("initialize", {})["error"]["message"]
        assert words in told
        assert "retry later" not in told
        assert talk.is_closed()
        assert talk.process.wait(TIMEOUT_SECONDS) == status


@pytest.mark.posix
def test_requests_after_closed_input_name_the_exit_code(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    server = ["sh", "-c", 'exec 0<&-; touch "$1"; sleep 0.5; exit 7', "sh", str(closed)]
    with connect(*wrap(tmp_path / "store", server=server), handshake=False) as talk:
        wait_until(closed.exists)
        assert "exit code 7" in talk.request("initialize", {})["error"]["message"]


def test_an_unknown_command_is_an_error(tmp_path: Path) -> None:
    done = subprocess.run(wrap(tmp_path, server=["/no/such/server"]), capture_output=True, timeout=TIMEOUT_SECONDS)
    assert done.returncode != 0
    assert done.stdout == b""
    assert b"/no/such/server" in done.stderr


def test_a_hanging_call_is_a_timeout_error(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, "--call-timeout-seconds", "0.5")) as talk:
        error = parse_text(talk.call("hangs"))["error"]
        assert error["code"] == "upstream_timeout"
        assert error["message"].startswith("hangs took longer than 0.5 s (call_timeout_seconds); ask for less")
        wait_until(lambda: "notifications/cancelled" in parse_text(talk.call("told")), TIMEOUT_SECONDS)


@pytest.mark.parametrize("token", [5, "x" * 2000, 1 << 70])
def test_progress_restarts_the_timeout(token: object, tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, "--call-timeout-seconds", "1")) as talk:
        arguments = {"steps": 6, "token": token, "every": 0.4}
        params = {"name": "reports", "arguments": arguments, "_meta": {"progressToken": token}}
        assert talk.request("tools/call", params)["result"]["content"][0]["text"] == "reported"


def test_much_output_on_standard_error_blocks_nothing(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path)) as talk:
        assert talk.call("floods", size=5_000_000)["content"][0]["text"] == "flooded"


def test_invalid_messages_are_not_forwarded(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path)) as talk:
        number = talk.send_request("tools/call", {"name": "babbles"})
        assert json.loads(talk.read_line())["id"] == number
        talk.wait_for_log("Listening on stdio")


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc": "2.0", "id": ID, "result": {"content": [], "structuredContent": {"x": NaN}}}',
        '{"result": {"content": [], "structuredContent": {"x": NaN}}, "jsonrpc": "2.0", "id": ID}',
        '{"result": Infinity, "id": ID}',
        '{"result": [{"id": "other"}, NaN], "jsonrpc": "2.0", "id": ID}',
    ],
)
def test_an_unreadable_response_is_an_error(line: str, tmp_path: Path) -> None:
    with connect(*wrap(tmp_path)) as talk:
        assert error_code(talk.call("writes", line=line)) == "upstream_failed"
        assert talk.request("future/write", {"line": line})["error"]["data"]["code"] == "upstream_failed"


def test_an_unreadable_server_request_is_not_a_response(tmp_path: Path) -> None:
    asked = '{"jsonrpc": "2.0", "id": ID, "method": "sampling/createMessage", "params": {"x": NaN}}'
    with connect(*wrap(tmp_path)) as talk:
        talk.send_request("tools/call", {"name": "writes", "arguments": {"line": asked}})
        talk.wait_for_log("not a JSON-RPC message")
        assert talk.is_silent()


@pytest.mark.posix
@pytest.mark.parametrize("is_id_first", [True, False])
def test_a_request_that_cannot_be_spooled_gets_an_error(is_id_first: bool, tmp_path: Path) -> None:
    limited = ["sh", "-c", 'ulimit -f 20000; exec "$0" "$@"', *wrap(tmp_path)]
    with connect(*limited) as talk:
        about = {"jsonrpc": "2.0", "id": "large"}
        asked = {"method": "tools/call", "params": {"name": "text", "arguments": {"x": "x" * 30_000_000}}}
        talk.send({**about, **asked} if is_id_first else {**asked, **about})
        answer = json.loads(talk.read_line())
        assert (answer["id"], answer["error"]["data"]["code"]) == ("large", "store_full")


def test_invalid_utf_8_is_stored_unchanged(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path)) as talk:
        descriptor = parse_text(talk.call("invalid", size=100_000))
    with open_store(tmp_path.as_uri()) as store, store.open(descriptor["output_handle"]) as file:
        assert file.read() == b"\xff\xfe" * 50_000


def test_a_line_of_100_mb_is_stored_in_little_memory(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path)) as talk:
        descriptor = parse_text(talk.call("text", size=100_000_000))
        assert descriptor["size_bytes"] == 100_000_000
        assert get_peak_bytes(talk.process.pid) < 128 << 20
    with open_store(tmp_path.as_uri()) as store, store.open(descriptor["output_handle"]) as file:
        assert all(piece == b"x" * len(piece) for piece in iter(lambda: file.read(1 << 20), b""))


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_repeated_large_response_is_stored_too(size: int, tmp_path: Path) -> None:
    with connect(*wrap(tmp_path)) as talk:
        number = talk.send_request("tools/call", {"name": "twice", "arguments": {"size": size}})
        for _ in range(2):
            line = talk.read_line()
            assert json.loads(line)["id"] == number
            assert len(line) <= 4096


def test_an_answer_after_cancellation_is_neither_sent_nor_stored(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path)) as talk:
        number = talk.send_request("tools/call", {"name": "late", "arguments": {"size": 100_000}})
        talk.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        assert talk.request("ping")["result"] == {}
        assert talk.is_silent()
    with open_store(tmp_path.as_uri()) as store:
        assert list(store.list()) == []


def test_a_full_store_is_an_error_with_a_preview(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, "--quota-bytes", "100000")) as talk:
        result = talk.call("text", size=400_000, of=os.urandom(200_000).hex())
        assert error_code(result) == "store_full"
        assert len(parse_text(result)["preview"]) > 100
        assert parse_text(result)["note"].startswith("the tool has run")
        assert talk.call("text")["content"][0]["text"] == "x" * 10


def test_a_removed_store_does_not_end_the_gateway(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with connect(*wrap(store)) as talk:
        talk.call("text", size=100_000)
        store.rename(tmp_path / "elsewhere")
        store.write_text("in the way")
        result = talk.call("text", size=100_000)
        assert error_code(result) == "store_unavailable"
        assert talk.call("text")["content"][0]["text"] == "x" * 10


@pytest.mark.posix
def test_calls_in_flight_finish_before_shutdown(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, *PATIENT)) as talk:
        params = {"name": "reports", "arguments": {"steps": 4, "token": 1, "every": 0.25}}
        number = talk.send_request("tools/call", params)
        talk.read_line()
        talk.process.send_signal(signal.SIGTERM)
        assert talk.read_response(number)["result"]["content"][0]["text"] == "reported"
        assert talk.is_closed()
        assert talk.process.wait(TIMEOUT_SECONDS) == 0


def test_calls_in_flight_are_answered_after_the_client_closed_its_output(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, *PATIENT)) as talk:
        number = talk.send_request("tools/call", {"name": "text", "arguments": {"size": 5_000_000}})
        assert talk.process.stdin
        talk.process.stdin.close()
        assert parse_text(talk.read_response(number)["result"])["size_bytes"] == 5_000_000
        assert talk.process.wait(TIMEOUT_SECONDS) == 0


def test_the_gateway_ends_when_the_client_is_gone(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    with subprocess.Popen(wrap(tmp_path), stdin=subprocess.PIPE, stdout=theirs) as process:
        os.close(theirs)
        os.close(ours)
        assert process.stdin
        # The output is closed, though the input stays open.
        process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        process.stdin.flush()
        assert process.wait(TIMEOUT_SECONDS) == 0


def test_the_adverse_server_itself() -> None:
    with connect(*ADVERSE) as talk:
        assert talk.call("text", size=3)["content"][0]["text"] == "xxx"
