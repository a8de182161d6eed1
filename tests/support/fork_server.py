"""Starts a server script many times at the cost of one: forks a process that has its imports already.

Importing an SDK takes a second. A started server is a process of its own, with its own pipes and environment. Windows
has no forks: there each process is started anew.
"""

import ast
import atexit
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path

_MAX_REQUEST_BYTES = 1 << 20
_RUN_SECONDS = 60


class ForkedProcess:
    """A process that was forked by a `ForkServer`, with the part of `Popen` that tests of servers use."""

    def __init__(self, pid: int, stdin: int, stdout: int, stderr: int | None, status: int) -> None:
        self.pid = pid
        self.stdin = os.fdopen(stdin, "wb", 0)
        self.stdout = os.fdopen(stdout, "rb")
        self.stderr = None if stderr is None else os.fdopen(stderr, encoding="utf-8", errors="replace")
        self._status = os.fdopen(status, "rb", 0)
        self._code: int | None = None
        self._pidfd = -1
        # Without it the process has ended already.
        with suppress(ProcessLookupError):
            self._pidfd = os.pidfd_open(pid)

    def send_signal(self, number: int) -> None:
        if self._pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        """Wait for the end of the process and return its exit code, which is negative after a signal."""
        if self._code is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a forked server", timeout)
            self._code = int(self._status.read())
            self._status.close()
            if self._pidfd >= 0:
                os.close(self._pidfd)
                self._pidfd = -1
        return self._code

    def communicate(self, timeout: float) -> None:
        """Close the pipes and wait for the end of the process."""
        with suppress(BrokenPipeError):
            self.stdin.close()
        self.wait(timeout)
        self.stdout.close()
        if self.stderr is not None:
            self.stderr.close()


class SpawnedProcess(ForkedProcess):
    """The same part of a process that was started without a fork."""

    def __init__(self, command: list[str], *, has_stderr: bool) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if has_stderr else subprocess.DEVNULL,
            bufsize=0,
        )
        assert isinstance(self._process.stdin, io.FileIO)
        assert isinstance(self._process.stdout, io.FileIO)
        self.pid = self._process.pid
        self.stdin = self._process.stdin
        self.stdout = io.BufferedReader(self._process.stdout)
        self.stderr = None
        if isinstance(self._process.stderr, io.FileIO):
            self.stderr = io.TextIOWrapper(io.BufferedReader(self._process.stderr), "utf-8", errors="replace")

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float) -> int:
        """Wait for the end of the process and return its exit code."""
        return self._process.wait(timeout)


class ScriptRunner:
    """Starts processes of a script."""

    def __init__(self, script: Path) -> None:
        self._script = script

    def start(self, *arguments: str, has_stderr: bool = False) -> ForkedProcess:
        """Run the script in a new process. Its standard error is lost, unless it is to be read."""
        return SpawnedProcess([sys.executable, str(self._script), *arguments], has_stderr=has_stderr)

    def run(self, *arguments: str, stdin: bytes) -> tuple[int, bytes, bytes]:
        """Run the script to its end, and return its exit code, output and errors."""
        process = self.start(*arguments, has_stderr=True)
        assert process.stderr is not None

        def write() -> None:
            with suppress(OSError), process.stdin:
                process.stdin.write(stdin)

        with ThreadPoolExecutor(2) as threads:
            threads.submit(write)
            reading = threads.submit(process.stderr.buffer.read)
            output = process.stdout.read()
        code = process.wait(_RUN_SECONDS)
        process.communicate(_RUN_SECONDS)
        return code, output, bytes(reading.result())


class ForkServer(ScriptRunner):
    """A process that has imported what a script imports, and forks to run it."""

    def __init__(self, script: Path) -> None:
        super().__init__(script)
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, __file__, str(theirs.fileno()), str(script)]
        # Python makes its standard streams for pipes, which is what the forked processes have there.
        reading, writing = os.pipe()
        self._process = subprocess.Popen(
            command, stdin=reading, stdout=writing, stderr=writing, pass_fds=[theirs.fileno()]
        )
        os.close(reading)
        os.close(writing)
        theirs.close()

    def start(self, *arguments: str, has_stderr: bool = False) -> ForkedProcess:
        """Run the script in a new process. Its standard error is lost, unless it is to be read."""
        ignores_interrupts = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        request = {
            "arguments": arguments,
            "folder": str(Path.cwd()),
            "env": dict(os.environ),
            "ignores_interrupts": ignores_interrupts,
        }
        their_stdin, stdin = os.pipe()
        stdout, their_stdout = os.pipe()
        stderr, their_stderr = os.pipe() if has_stderr else (None, os.open(os.devnull, os.O_WRONLY))
        status, their_status = os.pipe()
        theirs = [their_stdin, their_stdout, their_stderr, their_status]
        with self._lock:
            socket.send_fds(self._control, [json.dumps(request).encode()], theirs)
            answer = self._control.recv(64)
        for fd in theirs:
            os.close(fd)
        assert answer, "the imports of the script failed"
        return ForkedProcess(int(answer), stdin, stdout, stderr, status)

    def close(self) -> None:
        self._control.close()
        self._process.wait(30)


@cache
def get_fork_server(script: Path) -> ScriptRunner:
    """Return the server that forks a script, which is started once and ends with the tests."""
    if sys.platform == "win32":
        return ScriptRunner(script)
    server = ForkServer(script)
    atexit.register(server.close)
    return server


def find_imports(script: Path) -> list[str]:
    """Return the names of the modules that a script imports, also those in functions."""
    names: list[str] = []
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.append(node.module)
    return names


class Children:
    """The forked processes that have not ended, with the pipes that their exit codes are written to."""

    def __init__(self) -> None:
        self._pipes: dict[int, int] = {}

    def add(self, pid: int, pipe: int) -> None:
        self._pipes[pid] = pipe

    def report_ends(self, *_: object) -> None:
        """Write the exit codes of processes that have ended. Handles SIGCHLD."""
        while self._pipes:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            pipe = self._pipes.pop(pid)
            # Nobody may be waiting.
            with suppress(BrokenPipeError):
                os.write(pipe, b"%d" % os.waitstatus_to_exitcode(status))
            os.close(pipe)

    def forget(self) -> None:
        """Close the pipes. A forked process has none of these children."""
        for pipe in self._pipes.values():
            os.close(pipe)


def serve_forks(control: socket.socket) -> dict[str, object]:
    """Fork for each request. Returns the request in each child; the parent exits when the tests end."""
    children = Children()
    signal.signal(signal.SIGCHLD, children.report_ends)
    while True:
        request, fds, _, _ = socket.recv_fds(control, _MAX_REQUEST_BYTES, 4)
        if not request:
            sys.exit()
        *standard_fds, pipe = fds
        # A child that ends at once must be known when the signal is handled.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        pid = os.fork()
        if pid == 0:
            parsed: dict[str, object] = json.loads(request)
            is_ignored = parsed["ignores_interrupts"]
            signal.signal(signal.SIGINT, signal.SIG_IGN if is_ignored else signal.default_int_handler)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            children.forget()
            control.close()
            os.close(pipe)
            for target, fd in enumerate(standard_fds):
                os.dup2(fd, target)
                os.close(fd)
            return parsed
        children.add(pid, pipe)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        for fd in standard_fds:
            os.close(fd)
        control.send(str(pid).encode())


def main() -> None:
    control, script = socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2])
    for name in find_imports(script):
        importlib.import_module(name)
    gc.freeze()
    request = serve_forks(control)
    os.environ.clear()
    os.environ.update(request["env"])  # type: ignore[call-overload]
    os.chdir(str(request["folder"]))
    sys.argv = [str(script), *request["arguments"]]  # type: ignore[misc]
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
