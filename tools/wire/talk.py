"""A conversation: what it runs, and the record of every exchange."""

import contextlib
import dataclasses
import json
import queue
import re
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from wire.build import Build, script
from wire.normalise import Normaliser

TIMEOUT_SECONDS = 90.0
MODERN = "2026-07-28"
NEWEST_HANDSHAKE = "2025-11-25"
CLIENT = {"name": "wire", "version": "1"}

Message = dict[str, Any]

_SDK_ID = re.compile(rb'("(?:id|requestId|progressToken)": ?)(?:\d+|"listen-\d+")')


@dataclasses.dataclass(frozen=True)
class Exchange:
    """The bytes received for one request, raw and normalised."""

    name: str
    raw: bytes
    data: bytes


class ConversationFailed(Exception):
    """A conversation that stopped before its end."""


class Talk:
    """One conversation with one build, in its own folder."""

    def __init__(self, build: Build, folder: Path) -> None:
        self.build, self.folder = build, folder
        self.exchanges: list[Exchange] = []
        self.normalise = Normaliser(build, folder)
        self.env = build.environment(folder)
        self._names: dict[str, int] = {}
        self.store = (folder / "store").as_uri()

    def record(self, name: str, raw: bytes) -> None:
        """Add an exchange; a name that was used before gets a number."""
        count = self._names[name] = self._names.get(name, 0) + 1
        name = name if count == 1 else f"{name} ({count})"
        self.exchanges.append(Exchange(name, raw, self.normalise(raw)))

    def file(self, name: str, content: str | bytes) -> Path:
        """Write a file into the conversation's folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def toml(self, upstreams: dict[str, Message], **options: Any) -> Path:
        """Write a configuration for `serve`."""
        options.setdefault("store", self.store)
        lines = [f"{key} = {_toml(value)}" for key, value in options.items()]
        for name, upstream in upstreams.items():
            lines += [f"[upstreams.{name}]", *(f"{key} = {_toml(value)}" for key, value in upstream.items())]
        return self.file("gateway.toml", "\n".join(lines) + "\n")

    @property
    def transcript(self) -> Path:
        """The file where upstreams note what they receive."""
        return self.folder / "transcript"

    def record_transcript(self, *, has_sdk: bool = False) -> None:
        """Record what the upstreams have received.

        If the build uses the SDK (`has_sdk`), the SDK sends requests of its own at any time. Then the order, the ids of
        requests and the end of a subscription are not compared.
        """
        lines = self.transcript.read_bytes().splitlines(keepends=True) if self.transcript.exists() else []
        if has_sdk:
            lines = [_SDK_ID.sub(rb"\1<id>", line) for line in lines if b'"caller cancelled"' not in line]
            lines = sorted(map(self.normalise, lines))
        self.record("upstream received", b"".join(lines))

    def wait_for_upstream(self, text: bytes) -> None:
        """Wait until an upstream has received a text."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not self.transcript.exists() or text not in self.transcript.read_bytes():
            if time.monotonic() > deadline:
                raise ConversationFailed(f"no upstream has received {text!r}")
            time.sleep(0.02)

    def upstream(self, *arguments: str) -> list[str]:
        """Return the command of the neutral server, on stdio."""
        return [*script("upstream.py"), "stdio", *arguments]

    @contextlib.contextmanager
    def http_upstream(self, *arguments: str, program: str = "upstream.py") -> Iterator[str]:
        """Run a server over HTTP, and yield its URL."""
        env = {**self.env, "WIRE_TRANSCRIPT": str(self.transcript)}
        command = [*script(program), "http", *arguments]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            cwd=self.folder,
        )
        with process:
            try:
                if process.stdout is None or process.stdin is None:
                    raise ConversationFailed("no pipes")
                yield f"http://127.0.0.1:{int(process.stdout.readline())}"
            finally:
                process.kill()

    def run(self, *arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> bytes:
        """Run a command to its end, and return its exit code, stdout and stderr."""
        done = subprocess.run(
            self.build.command(*arguments),
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            # Wide enough that no line of help is wrapped: the wrapping would depend on the length of the package name.
            env={**self.env, "COLUMNS": "5000", **(env or {})},
            cwd=self.folder,
            check=False,
        )
        return b"exit code %d\n" % done.returncode + done.stdout + b"\n--- stderr\n" + done.stderr

    @contextlib.contextmanager
    def wrap(self, *options: str, server: Sequence[str] | None = None, **client: Any) -> Iterator["StdioClient"]:
        """Run `wrap` in front of the neutral server, or of another command."""
        command = self.build.command("wrap", "--store", self.store, *options, "--", *(server or self.upstream()))
        with self.stdio(command, **client) as running:
            yield running

    @contextlib.contextmanager
    def stdio(self, command: list[str], **options: Any) -> Iterator["StdioClient"]:
        """Run a server on stdio, and end it as clients do."""
        client = StdioClient(self, command, **options)
        try:
            yield client
            client.finish()
        except Exception as error:
            raise ConversationFailed(f"{type(error).__name__}: {error}; stderr: {client.errors[-2000:]!r}") from error
        finally:
            client.kill()


def _toml(value: Any) -> str:
    # JSON is valid TOML, except for objects.
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value)


def with_meta(params: Message | None, era: str, capabilities: Message) -> Message:
    """Return the parameters of a request with the `_meta` that its protocol version requires."""
    if era != MODERN:
        return params or {}
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": CLIENT,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }
    return {**(params or {}), "_meta": {**meta, **(params or {}).get("_meta", {})}}


def handle_of(result: Message) -> str:
    """Return the handle of a descriptor."""
    return str(json.loads(result["content"][0]["text"])["output_handle"])


class StdioClient:
    """A client on stdio without any SDK: every line that comes back is recorded."""

    def __init__(
        self,
        talk: Talk,
        command: list[str],
        *,
        era: str = NEWEST_HANDSHAKE,
        capabilities: Message | None = None,
        env: dict[str, str] | None = None,
    ) -> None:
        self.talk, self.era, self.capabilities = talk, era, capabilities or {}
        self._number = 0
        self._is_over = False
        self.errors = b""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**talk.env, "WIRE_TRANSCRIPT": str(talk.transcript), **(env or {})},
            cwd=talk.folder,
        )
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._lines.put(line)
        self._lines.put(b"")

    def _read_errors(self) -> None:
        for line in self._process.stderr or ():
            self.errors += line

    def send(self, message: Message | bytes | list[Any]) -> None:
        """Write one line."""
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        if self._process.stdin is None:
            raise ConversationFailed("no stdin")
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def receive(self) -> bytes:
        """Return the next line."""
        try:
            line = self._lines.get(timeout=TIMEOUT_SECONDS)
        except queue.Empty:
            raise ConversationFailed("nothing came") from None
        if not line:
            self._is_over = True
            raise ConversationFailed(f"it has ended with {self._process.wait(TIMEOUT_SECONDS)}")
        return line

    def send_and_record(self, name: str, message: Message | bytes | list[Any], count: int = 1) -> list[Any]:
        """Send a message, and record the next `count` lines."""
        self.send(message)
        return self.record_lines(name, count)

    def record_lines(self, name: str, count: int, *, is_sorted: bool = False) -> list[Any]:
        """Record the next lines."""
        lines = [self.receive() for _ in range(count)]
        if is_sorted:
            lines.sort(key=self.talk.normalise)
        self.talk.record(name, b"".join(lines))
        return [json.loads(line) for line in lines]

    def send_request(self, method: str, params: Message | None = None, request_id: Any = None) -> Any:
        """Send a request without waiting for its answer, and return its id."""
        self._number += 1
        request_id = self._number if request_id is None else request_id
        params = with_meta(params, self.era, self.capabilities)
        self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        return request_id

    def notify(self, method: str, params: Message | None = None) -> None:
        message: Message = {"jsonrpc": "2.0", "method": method}
        self.send(message if params is None else {**message, "params": params})

    def ask(self, method: str, params: Message | None = None, name: str | None = None, request_id: Any = None) -> Any:
        """Send a request, record all lines up to its response, and return the response."""
        request_id = self.send_request(method, params, request_id)
        return self.record_until(request_id, name or method)

    def record_until(self, request_id: Any, name: str) -> Any:
        """Record all lines up to the response to a request, and return the response."""
        lines: list[bytes] = []
        while True:
            lines.append(self.receive())
            message = json.loads(lines[-1])
            if message.get("id") == request_id and "method" not in message:
                self.talk.record(name, b"".join(lines))
                return message

    def call(self, tool: str, name: str | None = None, /, **arguments: Any) -> Any:
        """Call a tool, and return its result."""
        name = name or f"{tool} {json.dumps(self.talk.normalise(json.dumps(arguments).encode()).decode())[:120]}"
        answer = self.ask("tools/call", {"name": tool, "arguments": arguments}, name)
        return answer.get("result", answer)

    def initialize(self) -> None:
        """Send the handshake, or since 2026-07-28 `server/discover`."""
        if self.era == MODERN:
            self.ask("server/discover")
            return
        hello = {"protocolVersion": self.era, "capabilities": self.capabilities, "clientInfo": CLIENT}
        self.ask("initialize", hello)
        self.notify("notifications/initialized")

    def wait_for_end(self) -> None:
        """Record all lines until the server exits by itself."""
        self._record_end()

    def finish(self) -> None:
        """Close stdin, and record the remaining lines and the exit code."""
        if self._is_over:
            return
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._record_end()

    def _record_end(self) -> None:
        lines: list[bytes] = []
        while not self._is_over:
            line = self._lines.get(timeout=TIMEOUT_SECONDS)
            self._is_over = not line
            lines.append(line)
        code = self._process.wait(TIMEOUT_SECONDS)
        self.talk.record("end", b"".join(lines) + f"exit code {code}\n".encode())

    def kill(self) -> None:
        """End the process if it has not ended."""
        self._process.kill()
        self._process.wait(TIMEOUT_SECONDS)
        for thread in self._threads:
            thread.join(TIMEOUT_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
