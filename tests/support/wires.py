"""Clients without an SDK that return response bytes unchanged, over stdio and over HTTP."""

import http.client
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

from fork_server import ForkedProcess, get_fork_server

LEGACY, MODERN = "legacy", "2026-07-28"
ERAS = [LEGACY, MODERN]

# Characters whose size changes in a JSON message.
NASTY = ['"', "\\", "\x01", "\x1f", "😀", "é", "\ud7ff", "</script>", "\n", "a"]

# Calls for every kind of result that the test servers have in common.
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("rows", {}),
    ("rows", {"count": 500}),
    ("text", {}),
    ("text", {"size": 50_000, "of": '"'}),
    ("json_text", {"count": 5000}),
    ("image", {}),
    ("audio", {}),
    ("blob", {}),
    ("several", {"size": 20_000}),
    ("failing", {"size": 50_000}),
    ("breaking", {}),
    ("with_meta", {}),
    ("unknown", {}),
    ("rows", {"count": "no number"}),
]

INITIALIZE_PARAMS = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "wire", "version": "1"},
}
MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Wire(Protocol):
    initialize_response: bytes
    """The response to `initialize`; empty in the modern era."""
    notifications: list[bytes]
    """Notifications received before responses; always empty over HTTP."""

    def request(self, method: str, params: dict[str, Any] | None = None) -> bytes:
        """Send a request and return the bytes of its response."""


def extract_message(body: bytes) -> bytes:
    """Return the JSON-RPC message of a response, without the framing of the transport."""
    (line,) = [line for line in body.splitlines() if line.removeprefix(b"data: ").startswith(b"{")]
    return line.removeprefix(b"data: ")


class StdioWire:
    def __init__(
        self,
        process: "subprocess.Popen[bytes] | ForkedProcess",
        era: str,
        client: str = "wire",
        capabilities: dict[str, Any] | None = None,
    ) -> None:
        self._process, self._era, self._id, self.initialize_response = process, era, 0, b""
        self.notifications: list[bytes] = []
        if era == LEGACY:
            client_info = {"name": client, "version": "1"}
            params = {**INITIALIZE_PARAMS, "clientInfo": client_info, "capabilities": capabilities or {}}
            self.initialize_response = self.request("initialize", params)
            self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def request(self, method: str, params: dict[str, Any] | None = None) -> bytes:
        self._id += 1
        self._send(make_request(self._id, method, params, self._era))
        assert self._process.stdout
        line = self._process.stdout.readline()
        while b'"method":"notifications/' in line[:256]:
            self.notifications.append(line)
            line = self._process.stdout.readline()
        # Otherwise two servers that both ended would compare equal.
        assert line, "the server has ended"
        return line

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()


class HttpWire:
    def __init__(self, port: int, era: str, token: str | None) -> None:
        self._port, self._era, self._id, self.initialize_response = port, era, 0, b""
        self.notifications: list[bytes] = []
        self.headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if token is not None:
            self.headers["authorization"] = f"Bearer {token}"
        if era == LEGACY:
            self.initialize_response = self.request("initialize", INITIALIZE_PARAMS)
            # Older SDKs offer an older version.
            version = re.search(rb'"protocolVersion": ?"([^"]+)"', self.initialize_response)
            self.headers["mcp-protocol-version"] = version[1].decode() if version else "2025-11-25"
            self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def request(self, method: str, params: dict[str, Any] | None = None) -> bytes:
        self._id += 1
        return self._post(make_request(self._id, method, params, self._era))

    def end_session(self) -> None:
        """End the session, if this era has one."""
        if "mcp-session-id" in self.headers:
            with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)) as connection:
                connection.request("DELETE", "/mcp", headers=self.headers)
                connection.getresponse().read()

    def _post(self, message: dict[str, Any]) -> bytes:
        headers = dict(self.headers)
        if self._era == MODERN:
            # The newest version requires these headers for intermediaries.
            headers |= {"mcp-protocol-version": MODERN, "mcp-method": message["method"]}
            if name := message["params"].get("name") or message["params"].get("uri"):
                headers["mcp-name"] = name
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        with closing(connection):
            connection.request("POST", "/mcp", json.dumps(message), headers)
            response = connection.getresponse()
            if session := response.getheader("mcp-session-id"):
                self.headers["mcp-session-id"] = session
            return response.read()


def parse_without_note(body: bytes) -> Any:
    """Parse a response to `initialize` or `server/discover`, without the sentence that forebay adds to instructions."""
    message = json.loads(extract_message(body))
    own, note, _ = message["result"].pop("instructions", "").partition("A result that is too large is stored")
    assert note, "there is no sentence about handles"
    return {**message, "result": {**message["result"], **({"instructions": own.rstrip("\n")} if own else {})}}


def make_request(number: int, method: str, params: dict[str, Any] | None, era: str) -> dict[str, Any]:
    params = params or {}
    meta = {"_meta": {**MODERN_META, **params.get("_meta", {})}} if era == MODERN else {}
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, **meta}}


@contextmanager
def start_server(
    script: str, *arguments: str, python: str = sys.executable, log: int | IO[bytes] = subprocess.DEVNULL
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a server script of this folder. It ends with its input, or over HTTP by a signal."""
    command = [python, str(Path(__file__).with_name(script)), *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    try:
        yield process
    finally:
        if "http" in arguments:
            process.terminate()
        process.communicate(timeout=30)


class Servers:
    """Servers by their options. An HTTP server is shared by all tests; a stdio server has a single client."""

    def __init__(self, script: str) -> None:
        self._running = ExitStack()
        self._forks = get_fork_server(Path(__file__).with_name(script))
        self._ports: dict[tuple[str, ...], int] = {}
        self.close = self._running.close

    def port(self, options: dict[str, Any] | None, *more: str) -> int:
        arguments = (json.dumps(options), *more)
        if arguments not in self._ports:
            process = self._running.enter_context(self._start("http", *arguments))
            self._ports[arguments] = int(process.stdout.readline())
        return self._ports[arguments]

    @contextmanager
    def connect(self, options: dict[str, Any] | None, era: str, transport: str = "stdio") -> Iterator[Wire]:
        if transport == "http":
            yield connect_http(self.port(options), era)
            return
        with self._start(transport, json.dumps(options)) as process:
            yield StdioWire(process, era)

    @contextmanager
    def _start(self, transport: str, *arguments: str) -> Iterator[ForkedProcess]:
        process = self._forks.start(transport, *arguments)
        try:
            yield process
        finally:
            if transport == "http":
                process.terminate()
            process.communicate(timeout=30)


def connect_http(port: int, era: str, token: str | None = None) -> HttpWire:
    """Connect to a running HTTP server."""
    return HttpWire(port, era, token)
