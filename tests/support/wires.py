"""Servers as a client without any SDK has them: requests and the bytes that come back, over stdio and over HTTP."""

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

LEGACY, MODERN = "legacy", "2026-07-28"
ERAS = [LEGACY, MODERN]

# What weighs in a message otherwise than alone.
NASTY = ['"', "\\", "\x01", "\x1f", "😀", "é", "\ud7ff", "</script>", "\n", "a"]

# Every kind of answer that servers under test have in common.
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

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "wire", "version": "1"}}
MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Wire(Protocol):
    hello: bytes
    """What a handshake is answered with, where there is one."""
    notified: list[bytes]
    """What came unasked before an answer; over HTTP nobody listens for it."""

    def ask(self, method: str, params: dict[str, Any] | None = None) -> bytes:
        """What a request is answered with, as it came."""


def message_of(answer: bytes) -> bytes:
    """The JSON-RPC message of an answer, without what a transport puts around it."""
    (line,) = [line for line in answer.splitlines() if line.removeprefix(b"data: ").startswith(b"{")]
    return line.removeprefix(b"data: ")


class _Stdio:
    def __init__(self, process: "subprocess.Popen[bytes]", era: str) -> None:
        self._process, self._era, self._id, self.hello = process, era, 0, b""
        self.notified: list[bytes] = []
        if era == LEGACY:
            self.hello = self.ask("initialize", HELLO)
            self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ask(self, method: str, params: dict[str, Any] | None = None) -> bytes:
        self._id += 1
        self._send(request(self._id, method, params, self._era))
        assert self._process.stdout
        line = self._process.stdout.readline()
        while b'"method":"notifications/' in line[:256]:
            self.notified.append(line)
            line = self._process.stdout.readline()
        # Two servers that ended would say the same.
        assert line, "the server has ended"
        return line

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()


class _Http:
    def __init__(self, port: int, era: str, token: str | None) -> None:
        self._port, self._era, self._id, self.hello = port, era, 0, b""
        self.notified: list[bytes] = []
        self._headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        if era == LEGACY:
            self.hello = self.ask("initialize", HELLO)
            self._headers["mcp-protocol-version"] = "2025-11-25"
            self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ask(self, method: str, params: dict[str, Any] | None = None) -> bytes:
        self._id += 1
        return self._post(request(self._id, method, params, self._era))

    def _post(self, message: dict[str, Any]) -> bytes:
        headers = dict(self._headers)
        if self._era == MODERN:
            # Intermediaries may go by these, so that the newest version wants them.
            headers |= {"mcp-protocol-version": MODERN, "mcp-method": message["method"]}
            if name := message["params"].get("name") or message["params"].get("uri"):
                headers["mcp-name"] = name
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        with closing(connection):
            connection.request("POST", "/mcp", json.dumps(message), headers)
            response = connection.getresponse()
            if session := response.getheader("mcp-session-id"):
                self._headers["mcp-session-id"] = session
            return response.read()


def request(number: int, method: str, params: dict[str, Any] | None, era: str) -> dict[str, Any]:
    params = params or {}
    meta = {"_meta": {**MODERN_META, **params.get("_meta", {})}} if era == MODERN else {}
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, **meta}}


@contextmanager
def started(script: str, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A server of this folder, as a process; it ends with its input, or is told to."""
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        if "http" in arguments:
            process.terminate()
        process.communicate(timeout=30)


class Servers:
    """Servers by what they were told. One over HTTP serves every test; one on stdio has a single client."""

    def __init__(self, script: str) -> None:
        self._script = script
        self._running = ExitStack()
        self._ports: dict[tuple[str, ...], int] = {}
        self.close = self._running.close

    def port(self, options: dict[str, Any] | None, *more: str) -> int:
        told = (json.dumps(options), *more)
        if told not in self._ports:
            process = self._running.enter_context(started(self._script, "http", *told))
            assert process.stdout
            self._ports[told] = int(process.stdout.readline())
        return self._ports[told]

    @contextmanager
    def wired(self, options: dict[str, Any] | None, era: str, transport: str = "stdio") -> Iterator[Wire]:
        if transport == "http":
            yield wired_to(self.port(options), era)
            return
        with started(self._script, transport, json.dumps(options)) as process:
            yield _Stdio(process, era)


def wired_to(port: int, era: str, token: str | None = None) -> Wire:
    """A wire to a server that runs already."""
    return _Http(port, era, token)
