"""The end of a server process and its children."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from forebay.outputs.policy import OutputPolicy
from forebay.proxy import stdio
from forebay.proxy.process_group import Grace
from forebay.proxy.relay import Relay
from forebay.proxy.stdio import Process, StdioUpstream
from forebay.system import posix_processes
from forebay.system.processes import ProcessGroup
from forebay.wire.framing import LineReader, Message, create_spool
from serve_http_harness import is_running
from waiting import wait_until

pytestmark = [pytest.mark.posix, pytest.mark.slow]

TIMEOUT_SECONDS = 60

# Prints its process id, and that of a child which writes a file when it gets SIGTERM.
PARENT = """
import os, signal, sys, time
child = os.fork()
if child == 0:
    def on_term(*_):
        open(sys.argv[1], "w").write("asked")
        os._exit(0)
    signal.signal(signal.SIGTERM, on_term)
    os.write(1, f"{os.getppid()} {os.getpid()}\\n".encode())
    while True:
        time.sleep(3600)
if "leaves" in sys.argv:
    os.read(0, 1)
    os._exit(0)
while True:
    time.sleep(3600)
"""


def start(*command: str) -> ProcessGroup:
    return ProcessGroup(command, env=None, cwd=None)


def read_line(group: ProcessGroup) -> str:
    assert group.server.stdout
    line = b""
    while not line.endswith(b"\n"):
        chunk = group.server.stdout.read(1)
        assert chunk
        line += chunk
    return line.decode()


@pytest.fixture
def started() -> Iterator[list[int]]:
    """Processes that must not outlive the test."""
    pids: list[int] = []
    yield pids
    for pid in filter(is_running, pids):
        os.kill(pid, signal.SIGKILL)


def close(group: ProcessGroup) -> None:
    group.end()
    group.server.wait(TIMEOUT_SECONDS)
    # Closes the pipes.
    with group.server:
        pass


@pytest.mark.parametrize("option", ["stays", "leaves"])
def test_children_get_sigterm_first(option: str, started: list[int], tmp_path: Path) -> None:
    group = start(sys.executable, "-c", PARENT, str(tmp_path / "asked"), option)
    started += map(int, read_line(group).split())
    if option == "leaves":
        assert group.server.stdin
        group.server.stdin.close()
        group.server.wait(TIMEOUT_SECONDS)
    close(group)
    assert (tmp_path / "asked").read_text() == "asked"
    wait_until(lambda: not any(map(is_running, started)), TIMEOUT_SECONDS)


def test_a_server_that_leaves_its_group_is_ended(started: list[int]) -> None:
    code = "import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(3600)"
    group = start(sys.executable, "-c", code)
    started.append(int(read_line(group)))
    close(group)
    assert group.server.returncode == -signal.SIGTERM


def test_a_signal_of_the_server_to_its_group_does_not_end_the_guard(started: list[int]) -> None:
    group = start("sh", "-c", "trap '' TERM; echo $$; read line; kill -TERM 0; echo done; sleep 3600")
    started.append(int(read_line(group)))
    guard = os.getpgid(started[0])
    assert group.server.stdin
    group.server.stdin.write(b"\n")
    assert read_line(group) == "done\n"
    assert is_running(guard)
    close(group)
    assert not is_running(guard)


def test_a_command_that_cannot_be_started_leaves_no_guard() -> None:
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    before = children.read_text()
    with pytest.raises(FileNotFoundError):
        start("no-such-command")
    assert children.read_text() == before


def test_servers_run_without_a_shell(
    started: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(posix_processes, "_SHELL", "/no/such/shell")
    group = start(sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(3600)")
    started.append(int(read_line(group)))
    assert "/no/such/shell" in caplog.text
    close(group)
    assert group.server.returncode == -signal.SIGTERM


def test_the_time_of_a_shutdown_is_shared() -> None:
    grace = Grace(100)
    assert grace.remaining_seconds == 100
    grace.start()
    wait_until(lambda: grace.remaining_seconds < 100)
    over = Grace(0)
    over.start()
    assert over.remaining_seconds == 0
    assert Grace(None).seconds > 0


class Client:
    """A client that ignores what it receives."""

    def send(self, raw: Message, /) -> None: ...


def test_a_server_that_restarts_during_the_shutdown_is_ended(
    started: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    is_starting, may_start = threading.Event(), threading.Event()
    exits = [sys.executable, "-c", "print('{}', flush=True)"]
    sleeps = [sys.executable, "-c", "import time; time.sleep(3600)"]

    def start_later(_: Any, **options: Any) -> Process:
        is_starting.set()
        assert may_start.wait(TIMEOUT_SECONDS)
        process = Process(sleeps, **options)
        started.append(process._group.server.pid)
        return process

    first = Process(exits)
    monkeypatch.setattr(stdio, "Process", start_later)
    with closing(OutputPolicy(store=tmp_path.as_uri(), sweep_interval=0)) as policy:
        make_reader = partial(LineReader, spool_above_bytes=1 << 20, make_spool=partial(create_spool, policy.store))
        upstream = StdioUpstream(first, exits, make_reader=make_reader, grace=Grace(0.1))
        thread = threading.Thread(target=upstream.run, args=(Relay(policy, Client(), upstream),))
        thread.start()
        assert is_starting.wait(TIMEOUT_SECONDS)
        upstream.close()
        may_start.set()
        thread.join(TIMEOUT_SECONDS)
        assert not thread.is_alive()
        assert not is_running(started[0])
