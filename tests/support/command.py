"""Run the `forebay` command on a terminal and in a pipe."""

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fork_server import get_fork_server

COMMAND = [sys.executable, "-m", "forebay"]
ROWS = [{"id": number, "name": f"name [{number}]"} for number in range(300)]
UNKNOWN = "oh_" + "A" * 12
_WITHOUT_FILTER = re.compile(rb"forebay: no usable system call filter [^\r\n]*\r?\n")
"""Warning of a query on a system that has no filter of system calls."""


class CommandResult(NamedTuple):
    code: int
    out: bytes
    err: bytes

    @property
    def json(self) -> Any:
        """The output, which is one line of JSON."""
        assert (self.code, self.err) == (0, b"")
        assert self.out.count(b"\n") == 1
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        assert self.out == b""
        assert self.err.count(b"\n") == 1
        return json.loads(self.err)["error"]


def run(*args: str, stdin: bytes = b"") -> CommandResult:
    """Run the command with pipes, in a process that has its imports already.

    On a system that has no filter of system calls, the warning is removed from standard error.
    """
    result = CommandResult(*get_fork_server(Path(__file__).with_name("forebay_command.py")).run(*args, stdin=stdin))
    return result if sys.platform == "linux" else result._replace(err=_WITHOUT_FILTER.sub(b"", result.err))


def run_on_terminal(*args: str, only: str = "", typed: str = "", pass_fds: Sequence[int] = ()) -> CommandResult:
    """Run the command on a terminal. With `only`, just that stream (out or err) is the terminal.

    With `typed`, standard input is the terminal too, and has this text.
    """
    import pty

    screen, terminal = pty.openpty()
    out = terminal if only != "err" else subprocess.PIPE
    err = terminal if only != "out" else subprocess.PIPE
    stdin = terminal if typed else subprocess.DEVNULL
    child = subprocess.Popen([*COMMAND, *args], stdin=stdin, stdout=out, stderr=err, pass_fds=pass_fds)
    os.close(terminal)
    os.write(screen, typed.encode())
    screen_bytes = bytearray()
    # Linux reports the end of a terminal as an error.
    with contextlib.suppress(OSError):
        while more := os.read(screen, 65536):
            screen_bytes += more
    os.close(screen)
    piped_out, piped_err = child.communicate()
    return CommandResult(
        child.returncode,
        bytes(screen_bytes) if piped_out is None else piped_out,
        piped_err or b"" if only == "out" else bytes(screen_bytes),
    )


def plain(screen: bytes) -> str:
    """Return the text on a screen without its colours."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.decode())
