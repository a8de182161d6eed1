"""Servers under test, reached by the SDK's client in this process, or by lines of JSON in another one."""

import json
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
from headgate.servers.mcp import Headgate
from mcp import Client
from mcp_server import make_server
from mcp_types import CallToolResult, TextContent

LEGACY, MODERN = "legacy", "2026-07-28"
ERAS = [LEGACY, MODERN]

Test = Callable[[Client, Headgate], Coroutine[Any, Any, None]]

NASTY = ['"', "\\", "\x01", "\x1f", "😀", "é", "\ud7ff", "</script>", "\n", "a"]


def serve(test: Test, root: Path, era: str, server: Any = None, **options: Any) -> None:
    """Runs a test against a server in this process."""
    gate = Headgate(root.as_uri(), **{"sweep_interval": 0, **options})
    server = gate.install(make_server() if server is None else server)

    async def run() -> None:
        async with Client(server, mode=era) as client:
            await test(client, gate)

    try:
        anyio.run(run)
    finally:
        gate.close()


def told(result: CallToolResult) -> Any:
    """What the first block says, as JSON."""
    return json.loads(text_of(result))


def text_of(result: CallToolResult) -> str:
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


class Wire:
    """A server as a client without any SDK has it: lines of JSON."""

    def __init__(self, options: dict[str, Any] | None) -> None:
        command = [sys.executable, str(Path(__file__).with_name("mcp_server.py")), json.dumps(options)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._id = 0

    def ask(self, method: str, params: dict[str, Any] | None = None, *, era: str = LEGACY) -> bytes:
        """The line that a request is answered with."""
        self._id += 1
        params = dict(params or {})
        if era == MODERN:
            params["_meta"] = {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            }
        self._send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        assert self._process.stdout
        return self._process.stdout.readline()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def shake_hands(self) -> bytes:
        answer = self.ask(
            "initialize",
            {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "wire", "version": "1"}},
        )
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def close(self) -> None:
        self._process.communicate(timeout=30)


@contextmanager
def wired(options: dict[str, Any] | None) -> Iterator[Wire]:
    wire = Wire(options)
    try:
        yield wire
    finally:
        wire.close()
