"""Servers end with the gateway, even if it is killed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forebay.system import files
from forebay.system.processes import ProcessGroup
from waiting import wait_until

pytestmark = pytest.mark.slow

# The server and its child each lock a file for as long as they run.
SERVER = """
import os, subprocess, sys, time
from pathlib import Path
from forebay.system import files

folder = files.open_folder(sys.argv[1])
if sys.argv[2] == "server":
    subprocess.Popen([sys.executable, "-c", sys.argv[3], sys.argv[1], "child"], stdin=subprocess.DEVNULL)
fd = files.open_file(sys.argv[2], os.O_RDWR | os.O_CREAT | files.SAFE_OPEN_FLAGS, folder)
files.lock(fd)
Path(sys.argv[1], sys.argv[2] + " is ready").touch()
while True:
    time.sleep(3600)
"""

GATEWAY = """
import sys, time
from forebay.system.processes import ProcessGroup

group = ProcessGroup(sys.argv[1:], env=None, cwd=None)
while True:
    time.sleep(3600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    fd = files.open_folder(tmp_path)
    yield fd
    os.close(fd)


def is_running(name: str, folder: int) -> bool:
    """Return whether the process with this name still holds its lock."""
    fd = files.open_file(name, os.O_RDWR | files.SAFE_OPEN_FLAGS, folder)
    try:
        files.lock(fd, wait=False)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def wait_until_ready(path: Path) -> None:
    wait_until(lambda: all((path / f"{name} is ready").exists() for name in ("server", "child")), 60)


def make_command(path: Path) -> list[str]:
    return [sys.executable, "-c", SERVER, str(path), "server", SERVER]


def test_a_killed_gateway_leaves_no_server(tmp_path: Path, folder: int) -> None:
    with subprocess.Popen([sys.executable, "-c", GATEWAY, *make_command(tmp_path)]) as gateway:
        wait_until_ready(tmp_path)
        assert is_running("server", folder)
        assert is_running("child", folder)
        gateway.kill()
    wait_until(lambda: not is_running("server", folder) and not is_running("child", folder), 60)


def test_a_group_ends_with_all_its_processes(tmp_path: Path, folder: int) -> None:
    group = ProcessGroup(make_command(tmp_path), env=None, cwd=None)
    wait_until_ready(tmp_path)
    group.end()
    with group.server:
        group.server.wait(60)
    wait_until(lambda: not is_running("server", folder) and not is_running("child", folder), 60)


def test_a_command_that_does_not_exist_is_not_found() -> None:
    with pytest.raises(FileNotFoundError):
        ProcessGroup(["no-such-command"], env=None, cwd=None)


@pytest.mark.skipif(sys.platform != "win32", reason="needs the shell of Windows")
def test_a_batch_file_is_found_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "serve.cmd").write_text("@echo started %1\n")
    env = {**os.environ, "PATH": f"{tmp_path};{os.environ['PATH']}"}
    group = ProcessGroup(["serve", "a b"], env=env, cwd=None)
    assert group.server.stdout
    assert group.server.stdout.read() == b'started "a b"\r\n'
    group.end()
    with group.server:
        group.server.wait(60)
