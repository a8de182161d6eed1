"""A server that listens as `forebay serve --http` does, and clients of it that keep to no rules."""

import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from wires import HELLO, LEGACY, MODERN, MODERN_META, message_of

ALICE, BOB = "alice-" + "a" * 30, "bob-" + "b" * 30
JSON = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
_PATIENCE = 30


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> Any:
        return json.loads(message_of(self.body))


class Listening:
    """A process; what it logs is read as it comes, so that it never waits for us."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.logged = ""
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.port = int(self.wait_for(r"listening on http://\S+:(\d+)/mcp")[1])

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            with self._news:
                self.logged += line
                self._news.notify_all()

    def wait_for(self, pattern: str) -> "re.Match[str]":
        """What is logged, or will be."""
        with self._news:
            assert self._news.wait_for(lambda: re.search(pattern, self.logged), _PATIENCE), self.logged
            found = re.search(pattern, self.logged)
            assert found
            return found

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def ended(self) -> int:
        """The exit code, when it has one."""
        code = self.process.wait(_PATIENCE)
        self._reader.join(_PATIENCE)
        return code

    def ask(
        self, method: str = "GET", path: str = "/mcp", body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            told = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, told, response.read())

    def post(self, message: dict[str, Any], token: str | None = None, **headers: str) -> Answer:
        bearer = {} if token is None else {"authorization": f"Bearer {token}"}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("POST", "/mcp", json.dumps(message).encode(), JSON | bearer | named)

    def hello(self, token: str | None = None, **headers: str) -> Answer:
        """Begins a session."""
        return self.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}, token, **headers)

    def discover(self, token: str | None = None, **headers: str) -> Answer:
        """The same without a session."""
        return self.post(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": MODERN_META}},
            token,
            **{"mcp_protocol_version": MODERN, "mcp_method": "tools/list", **headers},
        )

    def first(self, era: str, token: str | None = None, **headers: str) -> Answer:
        """The first request of an era."""
        return (self.hello if era == LEGACY else self.discover)(token, **headers)

    def raw(self, sent: bytes) -> bytes:
        """All that comes back on one connection until it is closed."""
        with self.connected() as connection:
            connection.sendall(sent)
            return everything(connection)

    @contextlib.contextmanager
    def connected(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), _PATIENCE) as connection:
            yield connection


def everything(connection: socket.socket) -> bytes:
    """What comes until it is closed, which it has to be."""
    came = b""
    # Who is hung up on while still talking may be told so roughly.
    with contextlib.suppress(ConnectionResetError):
        while more := connection.recv(65536):
            came += more
    return came


@contextlib.contextmanager
def listening(root: Path, **settings: Any) -> Iterator[Listening]:
    told = {"store": (root / "store").as_uri(), **settings}
    command = [sys.executable, str(Path(__file__).with_name("listening_server.py")), json.dumps(told)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    server = None
    try:
        server = Listening(process)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(_PATIENCE)
        finally:
            process.kill()
            if server is not None:
                server.ended()
        assert process.stdout
        # The protocol is elsewhere, but nothing of ours is written there either.
        assert process.stdout.read() == ""
        process.stdout.close()
        assert process.stderr
        process.stderr.close()


def tokens_in(root: Path) -> str:
    """A file with a token for alice and one for bob."""
    path = root / "tokens"
    path.write_text(f"alice: {ALICE}\nbob: {BOB}\n")
    path.chmod(0o600)
    return str(path)
