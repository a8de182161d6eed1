"""A client of `forebay wrap` without any SDK: what it sends and what comes back are bytes."""

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "wire", "version": "1"}}
PATIENCE = 60


def script(name: str) -> list[str]:
    """The command of a server in this folder."""
    return [sys.executable, str(Path(__file__).with_name(name))]


ADVERSE = script("adverse_server.py")


class Talk:
    """One client's talk with a server, or with the gateway before it."""

    def __init__(self, command: list[str], env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
        )
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._errors: list[bytes] = []
        self._number = 0
        self._readers = [threading.Thread(target=target) for target in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self._errors.append(line[:1000])

    @property
    def log(self) -> str:
        return b"".join(self._errors).decode(errors="replace")

    def has_logged(self, words: str) -> bool:
        """Whether it says so on standard error, sooner or later."""
        deadline = time.monotonic() + PATIENCE
        while words not in self.log and time.monotonic() < deadline:
            time.sleep(0.01)
        return words in self.log

    def send(self, message: dict[str, Any] | bytes) -> None:
        assert self.process.stdin
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def hello(self) -> dict[str, Any]:
        answer = self.ask("initialize", HELLO)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def request(self, method: str, params: dict[str, Any] | None = None) -> int:
        self._number += 1
        self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params or {}})
        return self._number

    def line(self, seconds: float = PATIENCE) -> bytes:
        """The next line that comes."""
        line = self._lines.get(timeout=seconds)
        assert line is not None, f"it has ended: {self.log[-2000:]}"
        return line

    def is_over(self, seconds: float = PATIENCE) -> bool:
        """Whether nothing more comes."""
        return self._lines.get(timeout=seconds) is None

    def nothing(self, seconds: float = 0.3) -> bool:
        """Whether nothing comes for a while."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            return True
        raise AssertionError(f"nothing was to come, and did: {line[:200] if line else line!r}")

    def answer(self, number: int) -> dict[str, Any]:
        """The answer to a request; whatever comes before it is passed over."""
        while True:
            message = json.loads(self.line())
            if message.get("id") == number and "method" not in message:
                return dict(message)

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        return self.answer(self.request(method, params))

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The result of a call."""
        answer = self.ask("tools/call", {"name": tool, "arguments": arguments})
        return dict(answer["result"])

    def close(self) -> int:
        """Ends it as clients do, by saying no more."""
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """Ends it at once, if it has not ended."""
        self.process.kill()
        self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe
            with suppress(OSError):
                pipe.close()


def said(result: dict[str, Any]) -> Any:
    """What a result of one text says."""
    return json.loads(result["content"][0]["text"])


@contextmanager
def talking(*command: str, env: dict[str, str] | None = None, is_greeted: bool = True) -> Iterator[Talk]:
    talk = Talk(list(command), env)
    try:
        if is_greeted:
            talk.hello()
        yield talk
    finally:
        talk.kill()


def wrap(store: Path, *options: str, server: list[str] = ADVERSE) -> list[str]:
    """The command of the gateway before a server."""
    return [sys.executable, "-m", "forebay", "wrap", "--store", store.as_uri(), *options, "--", *server]
