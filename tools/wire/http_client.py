"""A client over HTTP without any SDK: status, headers, bodies and events are recorded as they come."""

import contextlib
import http.client
import json
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

from wire.talk import CLIENT, MODERN, NEWEST_HANDSHAKE, TIMEOUT_SECONDS, ConversationFailed, Message, Talk, with_meta

_LEFT_OUT = {"date", "content-length"}
"""Headers that are not compared: the length is that of the body, checked by its reader."""


class Listener:
    """A build that listens on a port of loopback."""

    def __init__(self, talk: Talk, command: list[str]) -> None:
        self.talk = talk
        self.errors = ""
        self._news = threading.Condition()
        self.process = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**talk.env, "WIRE_TRANSCRIPT": str(talk.transcript)},
            cwd=talk.folder,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stderr or ():
            with self._news:
                self.errors += line
                self._news.notify_all()

    def port(self) -> int:
        """Return the port, once it is announced."""
        pattern = re.compile(r"listening on http://\S+:(\d+)/mcp")
        with self._news:
            self._news.wait_for(lambda: pattern.search(self.errors), TIMEOUT_SECONDS)
        if (match := pattern.search(self.errors)) is None:
            raise ConversationFailed(f"it does not listen: {self.errors[-2000:]}")
        return int(match[1])

    def finish(self) -> None:
        """Terminate the server, and record its exit code and stdout."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(TIMEOUT_SECONDS)
        output = self.process.stdout.read() if self.process.stdout else ""
        self.talk.record("end", f"{output}exit code {code}\n".encode())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_SECONDS)
        self._reader.join(TIMEOUT_SECONDS)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


@contextlib.contextmanager
def listening(talk: Talk, command: list[str]) -> Iterator[int]:
    """Run a server over HTTP, and yield its port."""
    listener = Listener(talk, command)
    try:
        yield listener.port()
        listener.finish()
    except Exception as error:
        raise ConversationFailed(f"{type(error).__name__}: {error}; stderr: {listener.errors[-2000:]}") from error
    finally:
        listener.kill()


class HTTPClient:
    """One client of a server over HTTP."""

    def __init__(
        self,
        talk: Talk,
        port: int,
        *,
        era: str = NEWEST_HANDSHAKE,
        token: str | None = None,
        capabilities: Message | None = None,
        label: str = "",
    ) -> None:
        self.talk, self.port, self.era, self.label = talk, port, era, label
        self.capabilities = capabilities or {}
        self.headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if token is not None:
            self.headers["authorization"] = f"Bearer {token}"
        self._number = 0

    def request(
        self, name: str, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> bytes:
        """Send a request, record all of its response, and return the body."""
        with self.opened(method, path, body, headers) as response:
            data = response.read()
            self._record(name, response, data)
            return data

    def _record(self, name: str, response: http.client.HTTPResponse, data: bytes) -> None:
        headers = [f"{key}: {value}" for key, value in response.getheaders() if key.lower() not in _LEFT_OUT]
        head = "\n".join([f"HTTP {response.status} {response.reason}", *headers, "", ""])
        self.talk.record(f"{self.label}{name}", head.encode() + data)

    @contextlib.contextmanager
    def opened(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request, and yield its response, whose body is not read yet."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_SECONDS)
        with contextlib.closing(connection):
            connection.request(method, path, body, self.headers if headers is None else headers)
            with contextlib.closing(connection.getresponse()) as response:
                if session := response.getheader("mcp-session-id"):
                    self.headers["mcp-session-id"] = session
                yield response

    def message(self, method: str, params: Message | None = None) -> tuple[bytes, dict[str, str]]:
        """Return the next request, and the headers that go with it."""
        self._number += 1
        params = with_meta(params, self.era, self.capabilities)
        headers = dict(self.headers)
        if self.era == MODERN:
            headers |= {"mcp-protocol-version": MODERN, "mcp-method": method}
            if name := params.get("name") or params.get("uri"):
                headers["mcp-name"] = str(name)
        return json.dumps({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}).encode(), headers

    def ask(self, method: str, params: Message | None = None, name: str | None = None) -> Any:
        """Send a request, record the response, and return the answer in it."""
        body = self.request(name or method, "POST", "/mcp", *self.message(method, params))
        return answer_in(body)

    def call(self, tool: str, name: str | None = None, /, **arguments: Any) -> Any:
        """Call a tool, and return its result."""
        name = name or f"{tool} {self.talk.normalise(json.dumps(arguments).encode()).decode()[:120]}"
        answer = self.ask("tools/call", {"name": tool, "arguments": arguments}, name)
        return answer.get("result", answer)

    def initialize(self) -> None:
        """Send the handshake, or since 2026-07-28 `server/discover`."""
        if self.era == MODERN:
            self.ask("server/discover")
            return
        hello = {"protocolVersion": self.era, "capabilities": self.capabilities, "clientInfo": CLIENT}
        self.ask("initialize", hello)
        self.headers["mcp-protocol-version"] = self.era
        self.post("initialized", {"jsonrpc": "2.0", "method": "notifications/initialized"})

    def post(self, name: str, message: Any, **headers: str) -> bytes:
        """Send any message, and record the response."""
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return self.request(name, "POST", "/mcp", json.dumps(message).encode(), {**self.headers, **named})


def read_event(response: http.client.HTTPResponse) -> bytes:
    """Return the next event of a stream that carries a message."""
    lines = b""
    while line := response.readline():
        if line.strip():
            lines += b"" if line.startswith(b":") else line
        elif b"data: {" in lines:
            return lines
        else:
            lines = b""
    raise ConversationFailed("the stream has ended")


def answer_in(body: bytes) -> Any:
    """Return the answer in a body, which is JSON or a stream of events."""
    answer: Any = {}
    for line in body.splitlines():
        data = line.removeprefix(b"data: ")
        if data.startswith(b"{"):
            message = json.loads(data)
            answer = message if "method" not in message else answer
    return answer
