"""`forebay serve --http` before servers of this folder, and clients of several principals."""

import http.client
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from listening_harness import JSON, Listening
from serve_harness import config, serve_command
from wires import MODERN, Wire, message_of, request, wired_to

__all__ = [
    "NAMES",
    "Stream",
    "called",
    "eventually",
    "is_running",
    "listens",
    "serving_http",
    "token",
    "wire",
    "write_tokens",
]

NAMES = ["ann", "bob", "cid", "dan"]

_PATIENCE = 60


def token(name: str) -> str:
    return name + "x" * 30


def write_tokens(path: Path, names: list[str]) -> None:
    path.write_text("".join(f"{name}: {token(name)}\n" for name in names))
    path.chmod(0o600)


@contextmanager
def serving_http(folder: Path, upstreams: dict[str, dict[str, Any]], **options: Any) -> Iterator[Listening]:
    """One that ends well when it is told to, unless it has before; its tokens are in the folder."""
    write_tokens(folder / "tokens", NAMES)
    command = serve_command(config(folder, upstreams, **options))
    listen = ["--http", "127.0.0.1:0", "--token-file", str(folder / "tokens"), "--log-level", "info"]
    with subprocess.Popen([*command, *listen], stderr=subprocess.PIPE, text=True) as gateway:
        try:
            listening = Listening(gateway)
            yield listening
            listening.terminate()
            assert listening.ended() == 0
        finally:
            gateway.kill()


def wire(port: int, era: str, name: str) -> Wire:
    return wired_to(port, era, token(name))


def called(wire: Wire, tool: str, **arguments: Any) -> Any:
    """What a call of a tool that answers with one text says."""
    answer = json.loads(message_of(wire.ask("tools/call", {"name": tool, "arguments": arguments})))
    text = answer["result"]["content"][0]["text"]
    try:
        return json.loads(text)
    except ValueError:
        return text


class Stream:
    """What one who listens is told."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def next(self) -> dict[str, Any]:
        """What comes next, with its method and what it is of."""
        deadline = time.monotonic() + _PATIENCE
        while not (line := self._response.readline()).startswith(b"data: {"):
            assert line, "the stream has ended"
            # It is kept open by lines that say nothing.
            assert time.monotonic() < deadline
        return dict(json.loads(line.removeprefix(b"data: ")))

    def rest(self) -> bytes:
        """All until it ends, which it has to."""
        came, deadline = b"", time.monotonic() + _PATIENCE
        while line := self._response.readline():
            came += line
            assert time.monotonic() < deadline
        return came


@contextmanager
def listens(port: int, name: str, **wanted: Any) -> Iterator[Stream]:
    """Someone who listens, as one does since 2026-07-28; it is acknowledged."""
    asked = request(1, "subscriptions/listen", {"notifications": wanted}, MODERN)
    headers = {"authorization": f"Bearer {token(name)}", "mcp-protocol-version": MODERN, "mcp-method": asked["method"]}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)
    with closing(connection):
        connection.request("POST", "/mcp", json.dumps(asked), JSON | headers)
        with closing(connection.getresponse()) as response:
            stream = Stream(response)
            assert stream.next()["method"] == "notifications/subscriptions/acknowledged"
            yield stream


def eventually(is_so: Callable[..., object], *of: Any) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not is_so(*of):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
