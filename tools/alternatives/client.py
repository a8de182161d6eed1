"""An MCP client on stdio that records the size and the duration of every response."""

import contextlib
import dataclasses
import json
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

__all__ = ["CallFailed", "Client", "Reply", "connect"]

TIMEOUT_SECONDS = 1800
"""Maximum time that a server runs. One library takes minutes for its first response."""


class CallFailed(Exception):
    """A server ended, or answered a request with an error."""


@dataclasses.dataclass(frozen=True)
class Reply:
    """The response to a call of a tool."""

    blocks: tuple[str, ...]
    """The texts of the content."""
    seconds: float
    """From the request to the last byte of the response."""

    @property
    def text(self) -> str:
        """The first text."""
        return self.blocks[0]

    @property
    def size(self) -> int:
        """Size of all texts in bytes: what a model reads. The message is larger, because JSON escapes the texts."""
        return sum(len(block.encode()) for block in self.blocks)


class Client:
    """A client of protocol 2025-06-18, which every server and gateway here speaks."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.replies: list[Reply] = []
        """The response of every call, in order."""
        self._stdin = cast("IO[bytes]", process.stdin)
        self._stdout = cast("IO[bytes]", process.stdout)
        self._id = 0
        info = {"name": "alternatives", "version": "1"}
        self._request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info})
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, tool: str, **arguments: Any) -> Reply:
        """Call a tool. Raises `CallFailed` if the result is an error."""
        line, seconds = self._request("tools/call", {"name": tool, "arguments": arguments})
        result = json.loads(line)["result"]
        reply = Reply(tuple(block["text"] for block in result["content"]), seconds)
        if result.get("isError"):
            raise CallFailed(f"{tool}: {reply.text[:300]}")
        self.replies.append(reply)
        return self.replies[-1]

    def _request(self, method: str, params: Mapping[str, Any]) -> tuple[bytes, float]:
        """Send a request, and return the line of its response and the seconds until it arrived."""
        self._id += 1
        self._send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        start = time.perf_counter()
        while line := self._stdout.readline():
            # Measured before the line is parsed: the time of this client's parser does not count.
            seconds = time.perf_counter() - start
            message = json.loads(line)
            if message.get("id") == self._id and "method" not in message:
                if "error" in message:
                    raise CallFailed(f"{method}: {message['error']}")
                return line, seconds
        raise CallFailed(f"{method}: the server ended")

    def _send(self, message: Mapping[str, Any]) -> None:
        self._stdin.write(json.dumps(message).encode() + b"\n")
        self._stdin.flush()


@contextlib.contextmanager
def connect(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[Client]:
    """Start a server, yield a client that is connected to it, and stop the server."""
    with (folder / "stderr.txt").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=folder, env=dict(environment)
        )
    with process:
        timer = threading.Timer(TIMEOUT_SECONDS, process.kill)
        timer.start()
        try:
            yield Client(process)
        finally:
            timer.cancel()
            process.kill()
