"""Clients without any SDK: they speak JSON-RPC with a server on stdio, a line a message."""

import contextlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from scenarios import CLIENT, Failed

PATIENCE = 60


class Peer:
    """Speaks JSON-RPC with a server on stdio, after the handshake that the protocol had until 2025-11-25."""

    name = "handshake"
    lists_change = True

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._id = 0
        self.notified: list[str] = []
        self.begin()

    def begin(self) -> None:
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT})
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ask(self, method: str, params: dict[str, Any]) -> bytes:
        """The line of an answer; what comes before it that is none is a notification."""
        self._id += 1
        self._send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        assert self._process.stdout  # noqa: S101 - it is a pipe
        while line := self._process.stdout.readline():
            message = json.loads(line)
            if message.get("id") == self._id:
                return line
            self.notified.append(str(message.get("method")))
        raise Failed("the server has ended")

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin  # noqa: S101 - it is a pipe
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def listing(self) -> bytes:
        return self.ask("tools/list", {})

    def tools(self) -> list[str]:
        return [tool["name"] for tool in json.loads(self.listing())["result"]["tools"]]

    def call(self, tool: str, **arguments: Any) -> Any:
        """What a tool says; an error as the structure that it has."""
        result = json.loads(self.ask("tools/call", {"name": tool, "arguments": arguments}))["result"]
        return json.loads(result["content"][0]["text"])


class Stateless(Peer):
    """Says with every request who it is and which version it speaks."""

    name = "2026-07-28"
    lists_change = False

    def begin(self) -> None:
        about = {"protocolVersion": self.name, "clientInfo": CLIENT, "clientCapabilities": {}}
        self._meta = {f"io.modelcontextprotocol/{key}": value for key, value in about.items()}

    def ask(self, method: str, params: dict[str, Any]) -> bytes:
        return super().ask(method, {**params, "_meta": self._meta})


@contextlib.contextmanager
def talking(asked: Sequence[str], speaks: type[Peer] = Peer) -> Iterator[Peer]:
    """A client of a server that is started for it, and ends with it."""
    with subprocess.Popen(asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: S603
        try:
            yield speaks(process)
            process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
