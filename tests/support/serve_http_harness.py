"""Run `forebay serve --http` in front of test servers, with clients of several principals."""

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from listening_harness import JSON, HttpServer
from private_files import write_private
from process_ids import find_children, is_running
from serve_harness import serve_command, write_config
from wires import MODERN, HttpWire, Wire, connect_http, extract_message, make_request

__all__ = [
    "NAMES",
    "TIMEOUT_SECONDS",
    "NotificationStream",
    "call_tool",
    "connect_as",
    "is_running",
    "listen",
    "server_pids",
    "serving_http",
    "subscribe",
    "token",
    "write_tokens",
]

NAMES = ["ann", "bob", "cid", "dan"]

TIMEOUT_SECONDS = 60


def token(name: str) -> str:
    return name + "x" * 30


def write_tokens(path: Path, names: list[str]) -> None:
    write_private(path, "".join(f"{name}: {token(name)}\n" for name in names))


@contextmanager
def serving_http(folder: Path, upstreams: dict[str, dict[str, Any]], **options: Any) -> Iterator[HttpServer]:
    """Run the server with tokens for `NAMES`, and check that it exits with 0."""
    write_tokens(folder / "tokens", NAMES)
    path = write_config(folder, upstreams, **options)
    with serving_config(path, "--token-file", str(folder / "tokens")) as listening:
        yield listening


@contextmanager
def serving_config(path: Path, *options: str) -> Iterator[HttpServer]:
    """Run the server with a forebay.toml of `write_config`, and check that it exits with 0.

    Windows has no signal for that: it ends the server.
    """
    command = [*serve_command(path), "--http", "127.0.0.1:0", "--log-level", "info", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as gateway:
        try:
            listening = HttpServer(gateway)
            yield listening
            listening.terminate()
            assert listening.wait() == (1 if sys.platform == "win32" else 0)
        finally:
            gateway.kill()


def connect_as(port: int, era: str, name: str) -> HttpWire:
    return connect_http(port, era, token(name))


def call_tool(wire: Wire, tool: str, **arguments: Any) -> Any:
    """Call a tool and return its text, parsed if it is JSON."""
    response = json.loads(extract_message(wire.request("tools/call", {"name": tool, "arguments": arguments})))
    text = response["result"]["content"][0]["text"]
    try:
        return json.loads(text)
    except ValueError:
        return text


class NotificationStream:
    """The notifications of a subscription."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def next(self) -> dict[str, Any]:
        """Return the next notification."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not (line := self._response.readline()).startswith(b"data: {"):
            assert line, "the stream has ended"
            # Keep-alive comments arrive in the meantime.
            assert time.monotonic() < deadline
        return dict(json.loads(line.removeprefix(b"data: ")))

    def read_to_end(self) -> bytes:
        """Read until the server closes the stream."""
        received, deadline = b"", time.monotonic() + TIMEOUT_SECONDS
        while line := self._response.readline():
            received += line
            assert time.monotonic() < deadline
        return received


@contextmanager
def subscribe(port: int, name: str, **filters: Any) -> Iterator[NotificationStream]:
    """Send `subscriptions/listen` and yield the stream after its acknowledgement."""
    message = make_request(1, "subscriptions/listen", {"notifications": filters}, MODERN)
    headers = {
        "authorization": f"Bearer {token(name)}",
        "mcp-protocol-version": MODERN,
        "mcp-method": message["method"],
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    with closing(connection):
        connection.request("POST", "/mcp", json.dumps(message), JSON | headers)
        with closing(connection.getresponse()) as response:
            stream = NotificationStream(response)
            assert stream.next()["method"] == "notifications/subscriptions/acknowledged"
            yield stream


@contextmanager
def listen(port: int, wire: HttpWire) -> Iterator[NotificationStream]:
    """Yield the notifications of a session that belong to none of its requests."""
    headers = {**wire.headers, "accept": "text/event-stream"}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)) as connection:
        connection.request("GET", "/mcp", headers=headers)
        with closing(connection.getresponse()) as response:
            assert response.status == 200
            yield NotificationStream(response)


def server_pids(gateway_pid: int) -> list[int]:
    """Return the processes of the servers that a gateway has started, without the guards that lead their groups."""
    return [pid for pid in find_children(gateway_pid) if not _leads_group(pid)]


def _leads_group(pid: int) -> bool:
    if sys.platform == "win32":
        return False
    with suppress(ProcessLookupError):
        return os.getpgid(pid) == pid
    return False
