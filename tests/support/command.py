"""Runs the command as people and programs do: on a terminal and in a pipe."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from typing import Any, NamedTuple

COMMAND = [sys.executable, "-m", "forebay"]
ROWS = [{"id": number, "name": f"name [{number}]"} for number in range(300)]
UNKNOWN = "oh_" + "A" * 12


class Ran(NamedTuple):
    code: int
    out: bytes
    err: bytes

    @property
    def json(self) -> Any:
        """All that was printed, which is one line of JSON."""
        assert (self.code, self.err) == (0, b"")
        assert self.out.count(b"\n") == 1
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        assert self.out == b""
        assert self.err.count(b"\n") == 1
        return json.loads(self.err)["error"]


def run(*args: str, stdin: bytes = b"") -> Ran:
    """Runs the command with pipes."""
    done = subprocess.run([*COMMAND, *args], input=stdin, capture_output=True, check=False)
    return Ran(done.returncode, done.stdout, done.stderr)


def run_on_terminal(*args: str, only: str = "") -> Ran:
    """Runs the command on a terminal: out and err are what appears on it, or with `only` just that one is one."""
    screen, terminal = pty.openpty()
    out = terminal if only != "err" else subprocess.PIPE
    err = terminal if only != "out" else subprocess.PIPE
    child = subprocess.Popen([*COMMAND, *args], stdin=subprocess.DEVNULL, stdout=out, stderr=err)
    os.close(terminal)
    shown = bytearray()
    # Linux ends a terminal that nobody holds any more with an error.
    with contextlib.suppress(OSError):
        while more := os.read(screen, 65536):
            shown += more
    os.close(screen)
    piped_out, piped_err = child.communicate()
    return Ran(
        child.returncode,
        bytes(shown) if piped_out is None else piped_out,
        piped_err or b"" if only == "out" else bytes(shown),
    )


def plain(screen: bytes) -> str:
    """What is on a screen, without its colours."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.decode())
