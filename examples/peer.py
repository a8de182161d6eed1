"""JSON-RPC clients for servers on stdio, written without an SDK."""

import contextlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from scenarios import CLIENT, Failed

TIMEOUT_SECONDS = 60


class Peer:
    """A client that starts with the `initialize` handshake of protocol 2025-11-25 and earlier."""

    name = "handshake"
    has_list_changes = True

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._id = 0
        self.notifications: list[str] = []
        self.initialize()

    def initialize(self) -> None:
        self.request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT})
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def request(self, method: str, params: dict[str, Any]) -> bytes:
        """Send a request and return the line of its response; record the notifications that precede it."""
        self._id += 1
        self._send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        assert self._process.stdout  # noqa: S101 - it is a pipe
        while line := self._process.stdout.readline():
            message = json.loads(line)
            if message.get("id") == self._id:
                return line
            self.notifications.append(str(message.get("method")))
        raise Failed("the server has ended")

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin  # noqa: S101 - it is a pipe
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def list_tools(self) -> bytes:
        return self.request("tools/list", {})

    def tool_names(self) -> list[str]:
        return [tool["name"] for tool in json.loads(self.list_tools())["result"]["tools"]]

    def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool and return its result, or its error, parsed as JSON."""
        result = json.loads(self.request("tools/call", {"name": tool, "arguments": arguments}))["result"]
        return json.loads(result["content"][0]["text"])


class Stateless(Peer):
    """A client of protocol 2026-07-28, which sends its version and client info with every request."""

    name = "2026-07-28"
    has_list_changes = False

    def initialize(self) -> None:
        client_info = {"protocolVersion": self.name, "clientInfo": CLIENT, "clientCapabilities": {}}
        self._meta = {f"io.modelcontextprotocol/{key}": value for key, value in client_info.items()}

    def request(self, method: str, params: dict[str, Any]) -> bytes:
        return super().request(method, {**params, "_meta": self._meta})


@contextlib.contextmanager
def connect(command: Sequence[str], peer_class: type[Peer] = Peer) -> Iterator[Peer]:
    """Start a server, yield a client of it, and stop the server."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: S603
        try:
            yield peer_class(process)
            process.communicate(timeout=TIMEOUT_SECONDS)
        finally:
            process.kill()
