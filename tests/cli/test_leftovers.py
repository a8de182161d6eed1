"""However a gateway ends, the servers that it started and their children end with it."""

import contextlib
import http.client
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from gateway_harness import TIMEOUT_SECONDS, StdioClient, connect, script, wrap
from listening_harness import HttpServer
from serve_harness import serve_command, write_config
from serve_http_harness import is_running
from waiting import wait_until
from wires import LEGACY, connect_http

pytestmark = [pytest.mark.posix, pytest.mark.slow]

GATEWAYS = ["wrap", "serve"]
SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL]


class Servers:
    """Stubborn servers that a gateway starts, by their process ids."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pids = folder / "pids"

    def command(self, *options: str, in_shell: bool = False) -> list[str]:
        command = [*script("stubborn_server.py"), str(self._pids), *options]
        # A shell that stays the parent of the server, as `npx` does.
        return ["sh", "-c", '"$@"; true', "sh", *command] if in_shell else command

    def gateway(self, kind: str, server: list[str], *options: str) -> list[str]:
        """Return the command of a gateway in front of a server."""
        if kind == "wrap":
            return wrap(self._folder / "store", *options, server=server)
        config = write_config(self._folder, {"stubborn": {"command": server[0], "args": server[1:]}})
        return [*serve_command(config), *options]

    @property
    def pids(self) -> list[int]:
        return [int(word) for word in self._pids.read_text().split()] if self._pids.exists() else []

    def wait_gone(self) -> None:
        assert self.pids
        wait_until(lambda: not any(map(is_running, self.pids)), TIMEOUT_SECONDS)

    def kill(self) -> None:
        for pid in filter(is_running, self.pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    servers = Servers(tmp_path)
    yield servers
    servers.kill()


@contextlib.contextmanager
def calling(servers: Servers, command: list[str], tool: str = "deaf") -> Iterator[StdioClient]:
    """Connect to a gateway, and call a tool that never returns."""
    with connect(*command) as client:
        try:
            client.send_request("tools/call", {"name": tool, "arguments": {}})
            client.wait_for_log("it hangs")
            yield client
        finally:
            servers.kill()


def close(client: StdioClient) -> None:
    assert client.close() == 0


def send_signal(number: int, client: StdioClient | HttpServer) -> None:
    client.process.send_signal(number)
    assert client.process.wait(TIMEOUT_SECONDS) == (-number if number == signal.SIGKILL else 0)


ENDS: dict[str, Callable[[StdioClient], None]] = {
    "close": close,
    **{signal.Signals(number).name: partial(send_signal, number) for number in SIGNALS},
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", GATEWAYS)
def test_a_server_that_hangs_ends_with_its_gateway(kind: str, end: str, servers: Servers) -> None:
    with calling(servers, servers.gateway(kind, servers.command())) as client:
        ENDS[end](client)
        servers.wait_gone()


@pytest.mark.parametrize("end", ["close", "SIGTERM", "SIGKILL"])
@pytest.mark.parametrize("kind", GATEWAYS)
def test_a_server_in_a_shell_ends_with_its_gateway(kind: str, end: str, servers: Servers) -> None:
    with calling(servers, servers.gateway(kind, servers.command(in_shell=True))) as client:
        ENDS[end](client)
        servers.wait_gone()


@pytest.mark.parametrize("option", ["closes", "leaves"])
@pytest.mark.parametrize("kind", GATEWAYS)
def test_processes_end_although_their_server_closed_its_output(kind: str, option: str, servers: Servers) -> None:
    with calling(servers, servers.gateway(kind, servers.command(option)), "hangs") as client:
        close(client)
        servers.wait_gone()


@pytest.mark.parametrize("is_killed", [False, True], ids=["closes", "killed"])
@pytest.mark.parametrize("kind", GATEWAYS)
def test_a_server_ends_with_a_client_of_the_sdk(kind: str, is_killed: bool, servers: Servers) -> None:
    command = [*script("sdk_client.py"), "deaf", *servers.gateway(kind, servers.command())]
    client = StdioClient(command)
    try:
        client.wait_for_log("it hangs")
        if is_killed:
            client.process.kill()
        else:
            close(client)
        servers.wait_gone()
    finally:
        servers.kill()
        client.kill()


@contextlib.contextmanager
def calling_over_http(servers: Servers) -> Iterator[HttpServer]:
    """Run `forebay serve --http`, and call a tool that never returns."""
    options = ["--http", "127.0.0.1:0", "--shutdown-grace-seconds", "1", "--log-level", "info"]
    command = servers.gateway("serve", servers.command(), *options)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            gateway = HttpServer(process)
            client = connect_http(gateway.port, LEGACY)

            def call() -> None:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    client.request("tools/call", {"name": "deaf", "arguments": {}})

            thread = threading.Thread(target=call)
            thread.start()
            gateway.wait_for("it hangs")
            yield gateway
        finally:
            process.kill()
            servers.kill()
        thread.join(TIMEOUT_SECONDS)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_server_ends_with_its_gateway_over_http(number: int, servers: Servers) -> None:
    with calling_over_http(servers) as gateway:
        send_signal(number, gateway)
        servers.wait_gone()


def test_a_server_that_closes_its_output_is_ended_and_restarted(servers: Servers) -> None:
    with connect(*servers.gateway("wrap", servers.command("closes"))) as client:
        try:
            first = servers.pids
            client.request("tools/call", {"name": "mute", "arguments": {}})
            wait_until(lambda: not any(map(is_running, first)), TIMEOUT_SECONDS)
            assert client.call("text")["content"][0]["text"] == "x"
            close(client)
            servers.wait_gone()
        finally:
            servers.kill()
