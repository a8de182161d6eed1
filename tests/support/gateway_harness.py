"""Clients of `forebay wrap` without an SDK, which send and receive bytes."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from waiting import wait_until
from wires import INITIALIZE_PARAMS, LEGACY, make_request

TIMEOUT_SECONDS = 60

_MEASURED_EXIT_SECONDS = 10


def script(name: str) -> list[str]:
    """Return the command of a server script of this folder."""
    return [sys.executable, str(Path(__file__).with_name(name))]


ADVERSE = script("adverse_server.py")


class StdioClient:
    """A client of a server process, with or without the gateway."""

    def __init__(self, command: list[str], env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
        )
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self.may_read = threading.Event()
        """Clear this event to stop reading standard output, except for what is buffered here."""
        self.may_read.set()
        self._errors: list[bytes] = []
        self._number = 0
        self._readers = [threading.Thread(target=target) for target in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.may_read.wait()
            self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self._errors.append(line[:10_000])

    @property
    def log(self) -> str:
        return b"".join(self._errors).decode(errors="replace")

    def wait_for_log(self, words: str) -> None:
        """Wait until words appear on standard error; raise `AssertionError` on timeout."""
        wait_until(lambda: words in self.log, TIMEOUT_SECONDS)

    def send(self, message: dict[str, Any] | bytes) -> None:
        assert self.process.stdin
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def initialize(self) -> dict[str, Any]:
        response = self.request("initialize", INITIALIZE_PARAMS)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return response

    def send_request(self, method: str, params: dict[str, Any] | None = None) -> int:
        self._number += 1
        self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params or {}})
        return self._number

    def read_line(self, seconds: float = TIMEOUT_SECONDS) -> bytes:
        """Return the next line."""
        line = self._lines.get(timeout=seconds)
        assert line is not None, f"the process has ended: {self.log[-2000:]}"
        return line

    def is_closed(self, seconds: float = TIMEOUT_SECONDS) -> bool:
        """Return whether the output ends here."""
        return self._lines.get(timeout=seconds) is None

    def is_silent(self, seconds: float = 0.3) -> bool:
        """Return True if no line arrives for a while; raise otherwise."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            return True
        raise AssertionError(f"unexpected line: {line[:200] if line else line!r}")

    def read_response(self, number: int) -> dict[str, Any]:
        """Return the response to a request and skip other messages before it."""
        while True:
            message = json.loads(self.read_line())
            if message.get("id") == number and "method" not in message:
                return dict(message)

    def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        return self.read_response(self.send_request(method, params))

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its result."""
        response = self.request("tools/call", {"name": tool, "arguments": arguments})
        return dict(response["result"])

    def close(self) -> int:
        """Close the input, as clients do, and return the exit code."""
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(TIMEOUT_SECONDS)

    def kill(self) -> None:
        """Kill the process if it is still running, and release its pipes."""
        if "COVERAGE_PROCESS_CONFIG" in os.environ:
            # A process that is killed does not write what was measured in it.
            assert self.process.stdin
            with suppress(OSError, subprocess.TimeoutExpired):
                self.process.stdin.close()
                self.process.wait(_MEASURED_EXIT_SECONDS)
        self.process.kill()
        self.process.wait(TIMEOUT_SECONDS)
        self.may_read.set()
        for reader in self._readers:
            reader.join(TIMEOUT_SECONDS)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe
            with suppress(OSError):
                pipe.close()


def parse_text(result: dict[str, Any]) -> Any:
    """Return the text of a result's first block, parsed as JSON."""
    return json.loads(result["content"][0]["text"])


@contextmanager
def connect(*command: str, env: dict[str, str] | None = None, handshake: bool = True) -> Iterator[StdioClient]:
    client = StdioClient(list(command), env)
    try:
        if handshake:
            client.initialize()
        yield client
    finally:
        client.kill()


def wrap(store: Path, *options: str, server: list[str] = ADVERSE) -> list[str]:
    """Return the command of the gateway in front of a server."""
    return [sys.executable, "-m", "forebay", "wrap", "--store", store.as_uri(), *options, "--", *server]


class Gateway(StdioClient):
    """A client of a gateway in front of an HTTP server."""

    def __init__(self, command: list[str], era: str) -> None:
        super().__init__(command)
        self.era = era
        self.initialize_response = b""

    def initialize(self) -> dict[str, Any]:
        self.initialize_response = self.request_line("initialize", INITIALIZE_PARAMS)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return dict(json.loads(self.initialize_response))

    def send_request(self, method: str, params: dict[str, Any] | None = None) -> int:
        self._number += 1
        self.send(make_request(self._number, method, params, self.era))
        return self._number

    def request_line(self, method: str, params: dict[str, Any] | None = None) -> bytes:
        """Send a request and return the bytes of its response, which must be the next line."""
        number = self.send_request(method, params)
        line = self.read_line()
        assert json.loads(line).get("id") == number, line[:500]
        return line

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its result, or the whole response if that is an error."""
        response = json.loads(self.request_line("tools/call", {"name": tool, "arguments": arguments}))
        return dict(response.get("result") or response)

    def close_and_read(self) -> bytes:
        """Close the input and return all lines until the gateway exits."""
        self.close()
        return b"".join(iter(lambda: self._lines.get(timeout=TIMEOUT_SECONDS) or b"", b""))


@contextmanager
def gateway_to(
    url: str, folder: Path, era: str = LEGACY, *, options: dict[str, Any] | None = None, **settings: Any
) -> Iterator[Gateway]:
    """Run a gateway for a server at a URL, and yield a client after the handshake. The gateway must exit with 0."""
    policy_options = {"store": (folder / "store").as_uri(), "sweep_interval": 0, **(options or {})}
    arguments = [json.dumps({"url": url, **settings}), json.dumps(policy_options)]
    gateway = Gateway([*script("wrap_script.py"), *arguments], era)
    try:
        if era == LEGACY:
            gateway.initialize()
        yield gateway
        assert gateway.close() == 0
    finally:
        gateway.kill()


def result_text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


def result_error(result: dict[str, Any]) -> dict[str, Any]:
    """Return the error in a tool result."""
    assert result["isError"], result
    return dict(parse_text(result)["error"])


def is_working(gateway: Gateway) -> bool:
    return result_text(gateway.call("plain")) == "plain"
