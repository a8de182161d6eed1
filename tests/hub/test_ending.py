"""`forebay serve` shuts down on time, even while a Python function is still running."""

import contextlib
import http.client
import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from forebay.store import open_store
from gateway_harness import TIMEOUT_SECONDS, parse_text
from hub_client import make_call, read_record, stepping_server
from serve_harness import serving, upstream_command, write_config
from serve_http_harness import call_tool, connect_as, is_running, serving_http, subscribe
from stores import whole
from waiting import wait_until
from wires import ERAS, LEGACY, MODERN, extract_message

pytestmark = pytest.mark.slow

MODULE = """
import asyncio
import atexit
import sys
import threading
import time

def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)

def waits() -> str:
    atexit.register(_say, "left in order")
    _say("it has begun")
    time.sleep(600)
    return "never"

async def awaits_a_thread() -> str:
    _say("it has begun")
    await asyncio.to_thread(time.sleep, 600)
    return "never"

def leaves_a_thread() -> str:
    threading.Thread(target=time.sleep, args=(600,)).start()
    _say("it has begun")
    time.sleep(600)
    return "never"

def takes_a_while(seconds: float) -> str:
    _say("it has begun")
    time.sleep(seconds)
    return "x" * 100_000

def runs_out() -> str:
    return next(iter(()))
"""

STUCK = ["waits", "awaits_a_thread", "leaves_a_thread"]


def _upstreams(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    (folder / "stuck_functions.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return {"stuck": {"python": "stuck_functions"}, "adverse": upstream_command("adverse_server.py")}


@pytest.mark.parametrize("by_signal", [pytest.param(True, marks=pytest.mark.posix), False])
@pytest.mark.parametrize("function", STUCK)
def test_a_running_function_does_not_block_shutdown(
    function: str, by_signal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_config(tmp_path, _upstreams(tmp_path, monkeypatch), shutdown_grace_seconds=0.5)
    with serving(path) as talk:
        pid = int(talk.call("pid")["content"][0]["text"])
        talk.send_request("tools/call", {"name": function, "arguments": {}})
        talk.wait_for_log("it has begun")
        if by_signal:
            talk.process.send_signal(signal.SIGTERM)
            assert talk.process.wait(TIMEOUT_SECONDS) == 0
        else:
            assert talk.close() == 0
        assert not is_running(pid)
        # Where possible Python exits normally and runs atexit handlers.
        if function == "waits":
            talk.wait_for_log("left in order")


@pytest.mark.posix
@pytest.mark.parametrize(
    ("function", "era"), [("waits", LEGACY), ("awaits_a_thread", MODERN), ("leaves_a_thread", MODERN)]
)
def test_a_running_function_does_not_block_shutdown_over_http(
    function: str, era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstreams = _upstreams(tmp_path, monkeypatch)
    # On exit this context manager stops the server and checks for exit code 0.
    with serving_http(tmp_path, upstreams, shutdown_grace_seconds=0.5) as listening:
        client = connect_as(listening.port, era, "ann")
        pid = int(call_tool(client, "pid"))
        params = {"name": function, "arguments": {}}

        def call() -> None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                client.request("tools/call", params)

        calling = threading.Thread(target=call)
        calling.start()
        listening.wait_for("it has begun")
    calling.join(TIMEOUT_SECONDS)
    assert not calling.is_alive()
    assert not is_running(pid)


@pytest.mark.posix
def test_a_result_within_the_grace_period_is_sent_and_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_config(tmp_path, _upstreams(tmp_path, monkeypatch), shutdown_grace_seconds=TIMEOUT_SECONDS)
    with serving(path) as talk:
        number = talk.send_request("tools/call", {"name": "takes_a_while", "arguments": {"seconds": 0.5}})
        talk.wait_for_log("it has begun")
        talk.process.send_signal(signal.SIGTERM)
        handle = parse_text(talk.read_response(number)["result"])["output_handle"]
        assert talk.process.wait(TIMEOUT_SECONDS) == 0
    with open_store((tmp_path / "store").as_uri()) as store:
        assert b"x" * 100_000 in whole(store, handle)


def test_a_function_that_raises_stop_iteration_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(write_config(tmp_path, _upstreams(tmp_path, monkeypatch))) as talk:
        assert talk.call("runs_out")["isError"]


@pytest.mark.posix
def test_a_subscription_over_http_does_not_block_shutdown(tmp_path: Path) -> None:
    upstreams = {"adverse": upstream_command("adverse_server.py")}
    with (
        serving_http(tmp_path, upstreams, shutdown_grace_seconds=600) as listening,
        subscribe(listening.port, "ann", toolsListChanged=True) as stream,
    ):
        listening.terminate()
        assert b'"result":' in stream.read_to_end()
        assert listening.wait() == 0
        assert "Traceback" not in listening.log


@pytest.mark.posix
@pytest.mark.parametrize("era", ERAS)
def test_a_call_in_flight_on_stdio_is_answered(era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upstreams = {**_upstreams(tmp_path, monkeypatch), "one": stepping_server(tmp_path, "one")}
    path = write_config(tmp_path, upstreams, shutdown_grace_seconds=0.2)
    with serving(path, era, capabilities={"elicitation": {}}) as talk:
        forwarded = talk.send_request("tools/call", make_call("never"))
        running = talk.send_request("tools/call", {"name": "awaits_a_thread", "arguments": {}})
        talk.wait_for_log("it has begun")
        talk.process.send_signal(signal.SIGTERM)
        answers = {message["id"]: message for message in (json.loads(talk.read_line()) for _ in range(2))}
        assert parse_text(answers[forwarded]["result"])["error"]["code"] == "upstream_failed"
        assert "is stopping" in answers[running]["error"]["message"]
        assert talk.process.wait(TIMEOUT_SECONDS) == 0


def test_a_call_in_flight_over_http_is_answered_when_its_session_ends(tmp_path: Path) -> None:
    with serving_http(tmp_path, {"one": stepping_server(tmp_path)}) as listening, ThreadPoolExecutor(1) as pool:
        client = connect_as(listening.port, LEGACY, "ann")
        calling = pool.submit(client.request, "tools/call", make_call("never"))
        wait_until(lambda: any(message.get("method") == "tools/call" for message in read_record(tmp_path)))
        client.end_session()
        response = json.loads(extract_message(calling.result(TIMEOUT_SECONDS)))
        assert "Session terminated" in response["error"]["message"]
