"""Client of a gateway process that wraps a server at a URL."""

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wires import INITIALIZE_PARAMS, LEGACY, make_request

_PATIENCE = 60.0


class Gateway:
    """Client on the standard streams of a gateway."""

    def __init__(self, process: "subprocess.Popen[bytes]", era: str) -> None:
        self.process, self._era, self._id, self.hello = process, era, 0, b""
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def greet(self) -> None:
        if self._era == LEGACY:
            self.hello = self.ask("initialize", INITIALIZE_PARAMS)
            self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def begin(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Send a request without waiting; return its id."""
        self._id += 1
        self.send(make_request(self._id, method, params, self._era))
        return self._id

    def line(self) -> bytes:
        """Return the next line."""
        line = self._lines.get(timeout=_PATIENCE)
        assert line, "the gateway has ended"
        return line

    def ask(self, method: str, params: dict[str, Any] | None = None) -> bytes:
        """Send a request and return its response, which must be the next line."""
        number = self.begin(method, params)
        line = self.line()
        assert json.loads(line).get("id") == number, line[:500]
        return line

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its result."""
        found: dict[str, Any] = json.loads(self.ask("tools/call", {"name": tool, "arguments": arguments}))
        return dict(found.get("result") or found)

    def rest(self) -> bytes:
        """Close the input and return everything until the gateway exits."""
        assert self.process.stdin
        self.process.stdin.close()
        lines = []
        while line := self._lines.get(timeout=_PATIENCE):
            lines.append(line)
        self.process.wait(_PATIENCE)
        return b"".join(lines)


@contextmanager
def gateway_to(
    url: str, folder: Path, era: str = LEGACY, *, options: dict[str, Any] | None = None, **settings: Any
) -> Iterator[Gateway]:
    """Run a gateway for a server at a URL, after the handshake; its log is in `log.txt`."""
    script = str(Path(__file__).with_name("wrap_script.py"))
    policy_options = {"store": (folder / "store").as_uri(), "sweep_interval": 0, **(options or {})}
    command = [sys.executable, script, json.dumps({"url": url, **settings}), json.dumps(policy_options)]
    with (folder / "log.txt").open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    try:
        gateway = Gateway(process, era)
        gateway.greet()
        yield gateway
        assert process.stdin
        process.stdin.close()
        assert process.wait(_PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe
            pipe.close()


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


def error_of(result: dict[str, Any]) -> dict[str, Any]:
    assert result["isError"], result
    return dict(json.loads(text_of(result))["error"])


def works(gateway: Gateway) -> bool:
    return text_of(gateway.call("plain")) == "plain"
