"""Starts a server script many times at the cost of one: forks a process that has its imports already.

Importing an SDK takes a second. A started server is a process of its own, with its own pipes and environment.
"""

import ast
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_MAX_REQUEST_BYTES = 1 << 20


class ForkedProcess:
    """A process that was forked by a `ForkServer`, with the part of `Popen` that tests of servers use."""

    def __init__(self, pid: int, stdin: int, stdout: int) -> None:
        self.pid = pid
        self.stdin = os.fdopen(stdin, "wb", 0)
        self.stdout = os.fdopen(stdout, "rb")
        self._pidfd = -1
        # Without it the process has ended already.
        with suppress(ProcessLookupError):
            self._pidfd = os.pidfd_open(pid)

    def terminate(self) -> None:
        if self._pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)

    def communicate(self, timeout: float) -> None:
        """Close the pipes and wait for the end of the process."""
        with suppress(BrokenPipeError):
            self.stdin.close()
        if self._pidfd >= 0:
            assert select.select([self._pidfd], [], [], timeout)[0], "the server does not end"
            os.close(self._pidfd)
        self.stdout.close()


class ForkServer:
    """A process that has imported what a script imports, and forks to run it."""

    def __init__(self, script: Path) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, __file__, str(theirs.fileno()), str(script)]
        nowhere = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, stdin=nowhere, stdout=nowhere, stderr=nowhere, pass_fds=[theirs.fileno()]
        )
        theirs.close()

    def start(self, *arguments: str) -> ForkedProcess:
        """Run the script in a new process."""
        request = json.dumps({"arguments": arguments, "folder": str(Path.cwd()), "env": dict(os.environ)}).encode()
        their_stdin, stdin = os.pipe()
        stdout, their_stdout = os.pipe()
        socket.send_fds(self._control, [request], [their_stdin, their_stdout])
        os.close(their_stdin)
        os.close(their_stdout)
        answer = self._control.recv(64)
        assert answer, "the imports of the script failed"
        return ForkedProcess(int(answer), stdin, stdout)

    def close(self) -> None:
        self._control.close()
        self._process.wait(30)


def find_imports(script: Path) -> list[str]:
    """Return the names of the modules that a script imports, also those in functions."""
    names: list[str] = []
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.append(node.module)
    return names


def serve_forks(control: socket.socket) -> dict[str, object]:
    """Fork for each request. Returns the request in each child; the parent exits when the tests end."""
    # Children that end are not waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request, fds, _, _ = socket.recv_fds(control, _MAX_REQUEST_BYTES, 2)
        if not request:
            sys.exit()
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            for target, fd in enumerate(fds):
                os.dup2(fd, target)
                os.close(fd)
            parsed: dict[str, object] = json.loads(request)
            return parsed
        for fd in fds:
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
