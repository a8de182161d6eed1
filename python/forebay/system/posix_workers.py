"""Processes that run code of this package, on POSIX: they limit themselves, and get their files over a socket.

They have an empty environment and a process group of their own: Ctrl-C is for this process.
"""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

assert sys.platform != "win32"  # noqa: S101 - for mypy

__all__ = ["PASSES_FILES", "WorkerProcess", "create_memory_file", "get_file_path", "open_target", "run_worker"]

PASSES_FILES = True
"""Whether a process gets the files themselves, not their paths."""

_FILES_FOLDER = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
_MAX_PART_BYTES = 1 << 20


class WorkerProcess:
    """A process that runs Python with some arguments, and has a socket to this process as its standard input."""

    def __init__(self, arguments: Sequence[str], *, max_memory_bytes: int, max_cpu_seconds: int) -> None:  # noqa: ARG002
        """Start the process. It sets its limits by itself."""
        with contextlib.ExitStack() as stack:
            self._socket, child_socket = map(stack.enter_context, socket.socketpair())
            self._process = subprocess.Popen(  # noqa: S603 - our own code
                [sys.executable, *arguments],
                stdin=child_socket.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                process_group=0,
            )
            child_socket.close()
            stack.pop_all()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def send(self, data: bytes, files: Sequence[int], timeout: float) -> None:
        """Send a message, and files with it if `PASSES_FILES`. Raises `TimeoutError`."""
        self._socket.settimeout(timeout)
        sent_bytes = socket.send_fds(self._socket, [data], files) if files else 0
        self._socket.sendall(data[sent_bytes:])

    def receive(self, size: int, deadline: float) -> bytes:
        """Return the next bytes. Raises `TimeoutError`, and `EOFError` if the process has closed its end."""
        data = bytearray()
        while len(data) < size:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            part = self._socket.recv(min(size - len(data), _MAX_PART_BYTES))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        self._socket.close()

    def forget(self) -> None:
        """Leave the process to the parent of this one, which was forked after it had started."""
        self._socket.close()
        self._process.returncode = 0


def run_worker(
    arguments: Sequence[str],
    data: bytes,
    files: Sequence[int],
    timeout: float,
    *,
    max_memory_bytes: int,  # noqa: ARG001 - it sets its limits by itself
    max_cpu_seconds: int,  # noqa: ARG001
) -> None:
    """Run Python with some arguments and this standard input, and wait for it. It inherits files if `PASSES_FILES`.

    Raises `subprocess.SubprocessError` if it fails or takes too long.
    """
    subprocess.run(  # noqa: S603 - our own code
        [sys.executable, *arguments],
        input=data,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
        pass_fds=files,
        timeout=timeout,
        check=True,
        process_group=0,
    )


def create_memory_file() -> int:
    """Create a file without a name, in memory if the system has such files."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("forebay")
    fd, path = tempfile.mkstemp()
    os.unlink(path)
    return fd


def get_file_path(fd: int) -> str:
    """Return the path of an open file in a process that inherits it."""
    return f"{_FILES_FOLDER}/{fd}"


@contextlib.contextmanager
def open_target(fd: int) -> Iterator[str]:
    """Give the path at which a process that inherits an empty file writes its content."""
    yield get_file_path(fd)
