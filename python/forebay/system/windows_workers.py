"""Processes that run code of this package, on Windows: a job limits them, and they get the paths of their files.

A worker has a job of its own, which ends it with this process and allows it no other processes. Of the environment it
has what the libraries of the system need. It is detached from the console: Ctrl-C is for this process.
"""

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

assert sys.platform == "win32"  # noqa: S101 - for mypy

from forebay.system.windows_api import check_result, get_handle, kernel32
from forebay.system.windows_files import create_private_folder, create_temporary
from forebay.system.windows_jobs import CREATE_SUSPENDED, Job
from forebay.system.windows_pipes import count_available

__all__ = ["PASSES_FILES", "WorkerProcess", "create_memory_file", "get_file_path", "open_target", "run_worker"]

PASSES_FILES = False
"""Whether a process gets the files themselves, not their paths."""

_KILLED_CODE = 1
_MAX_PART_BYTES = 64 << 10
_MAX_PATH_CHARS = 1 << 15
_COPY_CHUNK_BYTES = 1 << 20


class WorkerProcess:
    """A process that runs Python with some arguments, and has pipes to this process as standard input and output."""

    def __init__(self, arguments: Sequence[str], *, max_memory_bytes: int, max_cpu_seconds: int) -> None:
        self._job = Job(max_memory_bytes=max_memory_bytes, max_cpu_seconds=max_cpu_seconds)
        self._is_open = True
        try:
            self._process = _start(arguments, self._job, stdout=subprocess.PIPE)
        except BaseException:
            self._job.close()
            raise
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        assert self._process.stdout is not None  # noqa: S101
        self._input, self._output = self._process.stdin, self._process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def send(self, data: bytes, files: Sequence[int], timeout: float) -> None:
        """Send a message, and files with it if `PASSES_FILES`. Raises `TimeoutError`."""
        assert not files  # noqa: S101 - they have paths
        rest = memoryview(data)
        with self._end_at(time.monotonic() + timeout):
            while rest:
                rest = rest[os.write(self._input.fileno(), rest[:_MAX_PART_BYTES]) :]

    def receive(self, size: int, deadline: float) -> bytes:
        """Return the next bytes. Raises `TimeoutError`, and `EOFError` if the process has closed its end."""
        is_there = count_available(self._output.fileno()) >= size
        with contextlib.nullcontext() if is_there else self._end_at(deadline):
            data = bytearray()
            while len(data) < size:
                part = os.read(self._output.fileno(), min(size - len(data), _MAX_PART_BYTES))
                if not part:
                    raise EOFError
                data += part
            return bytes(data)

    @contextlib.contextmanager
    def _end_at(self, deadline: float) -> Iterator[None]:
        """End the process at a deadline, because a read or write of a pipe cannot be given one, and raise an error."""
        is_over = threading.Event()

        def end() -> None:
            is_over.set()
            self._job.end(_KILLED_CODE)

        timer = threading.Timer(max(deadline - time.monotonic(), 0), end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except (OSError, EOFError):
            if not is_over.is_set():
                raise
        finally:
            timer.cancel()
            # It must not end the job after that is closed.
            timer.join()
        if is_over.is_set():
            raise TimeoutError

    def end(self) -> None:
        """Kill the process."""
        if self._is_open:
            self._is_open = False
            self._job.end(_KILLED_CODE)
            self._job.close()
            self._process.wait()
            self._input.close()
            self._output.close()

    def forget(self) -> None:
        """Do nothing: Windows has no forks."""


def _start(arguments: Sequence[str], job: Job, *, stdout: int) -> "subprocess.Popen[bytes]":
    system_folder = os.environ.get("SYSTEMROOT", "C:\\Windows")
    process = subprocess.Popen(  # noqa: S603 - our own code
        # The interpreter of a virtual environment would start another one, which the job does not allow.
        [getattr(sys, "_base_executable", sys.executable), *arguments],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        env={"SYSTEMROOT": system_folder},
        cwd=system_folder,
        creationflags=CREATE_SUSPENDED | subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP,
        bufsize=0,
    )
    job.start(process)
    return process


def run_worker(
    arguments: Sequence[str],
    data: bytes,
    files: Sequence[int],
    timeout: float,
    *,
    max_memory_bytes: int,
    max_cpu_seconds: int,
) -> None:
    """Run Python with some arguments and this standard input, and wait for it. It inherits files if `PASSES_FILES`.

    Raises `subprocess.SubprocessError` if it fails or takes too long.
    """
    assert not files  # noqa: S101 - they have paths
    job = Job(max_memory_bytes=max_memory_bytes, max_cpu_seconds=max_cpu_seconds)
    try:
        with _start(arguments, job, stdout=subprocess.DEVNULL) as process:
            try:
                process.communicate(data, timeout)
            except BaseException:
                job.end(_KILLED_CODE)
                raise
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, process.args)
    finally:
        job.close()


def create_memory_file() -> int:
    """Create a private file that the system removes when it is closed, even if this process is killed."""
    return create_temporary(tempfile.gettempdir())[0]


def get_file_path(fd: int) -> str:
    """Return the path at which another process can read an open file, as a pattern of names that fits no other."""
    buffer = ctypes.create_unicode_buffer(_MAX_PATH_CHARS)
    check_result(kernel32.GetFinalPathNameByHandleW(get_handle(fd), buffer, len(buffer), 0))
    path = buffer.value.removeprefix("\\\\?\\")
    if path.startswith("UNC\\"):
        path = path.replace("UNC", "\\", 1)
    return path.replace("[", "[[]")


@contextlib.contextmanager
def open_target(fd: int) -> Iterator[str]:
    """Give the path at which another process writes the content of an empty file.

    That process shares the file with nobody, so it writes another one, in a private folder, which is copied.
    """
    folder = Path(tempfile.gettempdir(), f"forebay-{os.urandom(8).hex()}")
    create_private_folder(folder)
    try:
        path = folder / "content"
        yield str(path)
        with path.open("rb") as source, open(fd, "wb", closefd=False) as target:
            shutil.copyfileobj(source, target, _COPY_CHUNK_BYTES)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
