"""The memory of `forebay serve` is bounded, whatever its clients and its servers do."""

import contextlib
import itertools
import json
import platform
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gateway_harness import TIMEOUT_SECONDS, parse_text
from hub_client import stepping_server
from peak import get_peak_bytes
from serve_harness import EraClient, serving, tool_names, upstream_command, write_config
from serve_http_harness import NAMES, call_tool, connect_as, serving_http
from waiting import wait_until
from wires import ERAS, LEGACY

MAX_GROWTH_BYTES = 96 << 20

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory figures from /proc"),
]

HEAP_BYTES = 64 << 20
"""Address space that glibc reserves for each heap other than the first one."""


def count_heaps(pid: int) -> int:
    """Return the number of heaps that glibc has created for threads of a process."""
    ranges = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        addresses, access = line.split()[:2]
        start, end = (int(address, 16) for address in addresses.split("-"))
        ranges.append((start, end, access))
    return sum(
        start % HEAP_BYTES == 0 and (access, next_access) == ("rw-p", "---p") and next_end == start + HEAP_BYTES
        for (start, end, access), (next_start, next_end, next_access) in itertools.pairwise(ranges)
        if end == next_start
    )


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no heaps for threads")
def test_threads_share_few_heaps(tmp_path: Path) -> None:
    with serving_http(tmp_path, {"one": upstream_command("adverse_server.py")}) as server:
        # Each session has a connection of its own to the upstream, with threads of its own.
        for wire in [connect_as(server.port, LEGACY, name) for name in NAMES]:
            assert call_tool(wire, "text", size=100_000)["size_bytes"] == 100_000
        assert count_heaps(server.process.pid) <= 1


UNREAD_MESSAGE = "the client does not read what it is sent"


def start_sending(client: EraClient, send: Callable[[], object], count: int) -> threading.Thread:
    """Send messages in a thread, because the gateway may stop reading them."""

    def run() -> None:
        # The gateway may end meanwhile.
        with contextlib.suppress(OSError):
            for _ in range(count):
                send()

    client.may_read.clear()
    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("era", ERAS)
def test_requests_wait_while_the_client_does_not_read_answers(era: str, tmp_path: Path) -> None:
    count, params = 4000, {"name": "text", "arguments": {"size": 30_000}}
    path = write_config(tmp_path, {"one": upstream_command("adverse_server.py")})
    with serving(path, era) as client:
        client.request("tools/call", params)
        start = get_peak_bytes(client.process.pid)
        sending = start_sending(client, lambda: client.send_request("tools/call", params), count)
        client.wait_for_log(UNREAD_MESSAGE)
        # All calls are answered once it reads.
        client.may_read.set()
        numbers = sorted(json.loads(client.read_line())["id"] for _ in range(count))
        assert numbers == [*range(numbers[0], numbers[0] + count)]
        sending.join()
        assert get_peak_bytes(client.process.pid) - start <= MAX_GROWTH_BYTES


def test_requests_wait_while_the_client_does_not_read_errors(tmp_path: Path) -> None:
    unreadable = {"jsonrpc": "1", "id": "x" * 10_000, "method": "ping"}
    with serving(write_config(tmp_path, {"one": upstream_command("adverse_server.py")})) as client:
        start = get_peak_bytes(client.process.pid)
        sending = start_sending(client, lambda: client.send(unreadable), 10_000)
        client.wait_for_log(UNREAD_MESSAGE)
        client.may_read.set()
        assert all(json.loads(client.read_line())["id"] == unreadable["id"] for _ in range(10_000))
        sending.join()
        assert get_peak_bytes(client.process.pid) - start <= MAX_GROWTH_BYTES


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("notifications/progress", "progress and log messages are dropped"),
        ("notifications/resources/updated", "they are dropped until it does"),
    ],
)
def test_a_client_that_does_not_read_notifications_misses_some(method: str, words: str, tmp_path: Path) -> None:
    done = tmp_path / "done"
    with serving(write_config(tmp_path, {"one": upstream_command("flooding_server.py", str(done))})) as client:
        tool_names(client)
        start = get_peak_bytes(client.process.pid)
        client.may_read.clear()
        arguments = {"method": method, "count": 100_000}
        params = {"name": "flood", "arguments": arguments, "_meta": {"progressToken": "t"}}
        number = client.send_request("tools/call", params)
        wait_until(done.exists, 120)
        client.wait_for_log(words)
        client.may_read.set()
        assert client.read_response(number)["result"]["content"]
        # Once it reads, it gets notifications again.
        arguments["count"] = 1
        client.send_request("tools/call", params)
        assert json.loads(client.read_line())["method"] == method
        assert get_peak_bytes(client.process.pid) - start <= MAX_GROWTH_BYTES


@pytest.mark.posix
def test_a_client_that_does_not_read_does_not_delay_the_end(tmp_path: Path) -> None:
    params = {"name": "text", "arguments": {"size": 30_000}}
    path = write_config(tmp_path, {"one": upstream_command("adverse_server.py")}, shutdown_grace_seconds=0.5)
    with serving(path) as client:
        sending = start_sending(client, lambda: client.send_request("tools/call", params), 4000)
        client.wait_for_log(UNREAD_MESSAGE)
        client.process.send_signal(signal.SIGTERM)
        assert client.process.wait(TIMEOUT_SECONDS) == 0
        sending.join()


def test_requests_of_a_server_that_the_client_does_not_answer_are_limited(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"one": upstream_command("flooding_server.py", str(tmp_path / "done"))})
    with serving(path, LEGACY, capabilities={"sampling": {}}) as client:
        tool_names(client)
        start = get_peak_bytes(client.process.pid)
        arguments = {"method": "sampling/createMessage", "count": 20_000}
        number = client.send_request("tools/call", {"name": "flood", "arguments": arguments})
        requests: list[Any] = []
        while (message := json.loads(client.read_line())).get("id") != number or "method" in message:
            requests.append(message)
        assert message["result"]["content"]
        assert 0 < len(requests) < 1000
        assert get_peak_bytes(client.process.pid) - start <= MAX_GROWTH_BYTES


def test_answers_and_cancellations_pass_requests_that_wait(tmp_path: Path) -> None:
    """With 128 unanswered requests, further ones wait. If all of them wait for the client, it must be heard."""
    count, waiting_count = 128, 3000
    params = {"name": "asks", "arguments": {"method": "roots/list", "params": {}}}
    path = write_config(tmp_path, {"one": upstream_command("asking_server.py")})
    with serving(path, LEGACY, capabilities={"roots": {}}) as client:
        tool_names(client)
        start = get_peak_bytes(client.process.pid)
        calls = [client.send_request("tools/call", params) for _ in range(count)]
        questions = [json.loads(client.read_line()) for _ in range(count)]
        assert {question["method"] for question in questions} == {"roots/list"}
        large = {"name": "heard", "arguments": {"unused": "x" * 1000}}
        waiting = [client.send_request("tools/call", large) for _ in range(waiting_count)]
        # Neither a call that waits nor one in flight is answered after its cancellation.
        for cancelled in (waiting.pop(), calls.pop()):
            client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": cancelled}})
        for question in questions:
            client.send({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}})
        answered = [json.loads(client.read_line()) for _ in range(len(calls) + len(waiting))]
        assert sorted(message["id"] for message in answered) == sorted(calls + waiting)
        assert get_peak_bytes(client.process.pid) - start <= MAX_GROWTH_BYTES


def test_answers_pass_large_calls_in_flight(tmp_path: Path) -> None:
    """A server's question must not wait for an answer that is not read because the calls are large."""
    params = {"name": "steps", "arguments": {"steps": [{"ask": 1}], "unused": "x" * 6_000_000}}
    path = write_config(tmp_path, {"one": stepping_server(tmp_path)})
    with serving(path, LEGACY, capabilities={"elicitation": {}}) as client:
        calls = [client.send_request("tools/call", params) for _ in range(3)]
        for question in [json.loads(client.read_line()) for _ in calls]:
            client.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
        answered = [json.loads(client.read_line()) for _ in calls]
        assert sorted(message["id"] for message in answered) == calls
        assert all(parse_text(message["result"]) == [{"action": "decline"}] for message in answered)
