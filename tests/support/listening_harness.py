"""Run a server as `forebay serve --http` does, and send it valid and invalid requests."""

import contextlib
import http.client
import json
import re
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fork_server import ForkedProcess, get_fork_server
from private_files import write_private
from wires import INITIALIZE_PARAMS, LEGACY, MODERN, MODERN_META, extract_message

if TYPE_CHECKING:
    import subprocess

ALICE, BOB = "alice-" + "a" * 30, "bob-" + "b" * 30
JSON = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
TIMEOUT_SECONDS = 30


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> Any:
        return json.loads(extract_message(self.body))


class HttpServer:
    """A server process. Its log is read continuously, so that it never blocks on a full pipe."""

    def __init__(self, process: "subprocess.Popen[str] | ForkedProcess") -> None:
        self.process: Any = process
        self.log = ""
        self._log_changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.port = int(self.wait_for(r"listening on http://\S+:(\d+)/mcp")[1])

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            with self._log_changed:
                self.log += line
                self._log_changed.notify_all()

    def wait_for(self, pattern: str) -> "re.Match[str]":
        """Wait until the log matches a pattern and return the match."""
        with self._log_changed:
            assert self._log_changed.wait_for(lambda: re.search(pattern, self.log), TIMEOUT_SECONDS), self.log
            found = re.search(pattern, self.log)
            assert found
            return found

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def wait(self) -> int:
        """Wait for the process to exit and return its exit code."""
        code: int = self.process.wait(TIMEOUT_SECONDS)
        self._reader.join(TIMEOUT_SECONDS)
        return code

    def request(
        self, method: str = "GET", path: str = "/mcp", body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Response:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_SECONDS)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            lower_headers = {name.lower(): value for name, value in response.getheaders()}
            return Response(response.status, lower_headers, response.read())

    def post(self, message: dict[str, Any], token: str | None = None, **headers: str) -> Response:
        bearer = {} if token is None else {"authorization": f"Bearer {token}"}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request("POST", "/mcp", json.dumps(message).encode(), JSON | bearer | named)

    def initialize(self, token: str | None = None, **headers: str) -> Response:
        """Send the request that starts a session."""
        return self.post(
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE_PARAMS}, token, **headers
        )

    def list_tools(self, token: str | None = None, **headers: str) -> Response:
        """Send a request of protocol 2026-07-28, which needs no session."""
        return self.post(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": MODERN_META}},
            token,
            **{"mcp_protocol_version": MODERN, "mcp_method": "tools/list", **headers},
        )

    def send_first_request(self, era: str, token: str | None = None, **headers: str) -> Response:
        """Send the first request of a client of this protocol era."""
        return (self.initialize if era == LEGACY else self.list_tools)(token, **headers)

    def send_raw(self, data: bytes) -> bytes:
        """Send bytes on a new connection and return everything received until it is closed."""
        with self.connect() as connection:
            connection.sendall(data)
            return read_until_closed(connection)

    @contextlib.contextmanager
    def connect(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), TIMEOUT_SECONDS) as connection:
            yield connection


def read_until_closed(connection: socket.socket) -> bytes:
    """Read from a connection until the server closes it."""
    received = b""
    # A server that closes the connection while data is still arriving may reset it.
    with contextlib.suppress(ConnectionResetError):
        while chunk := connection.recv(65536):
            received += chunk
    return received


@contextlib.contextmanager
def run_server(root: Path, script: str = "listening_server.py", **settings: Any) -> Iterator[HttpServer]:
    """Run a script of this folder that takes settings as JSON."""
    options = {"store": (root / "store").as_uri(), **settings}
    process = get_fork_server(Path(__file__).with_name(script)).start(json.dumps(options), has_stderr=True)
    server = None
    try:
        server = HttpServer(process)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(TIMEOUT_SECONDS)
        finally:
            process.kill()
            if server is not None:
                server.wait()
        # Nothing may be written to stdout, although the protocol does not use it here.
        assert process.stdout.read() == b""
        process.communicate(TIMEOUT_SECONDS)


def write_token_file(root: Path) -> str:
    """Write a file with tokens for alice and bob and return its path."""
    return str(write_private(root / "tokens", f"alice: {ALICE}\nbob: {BOB}\n"))
