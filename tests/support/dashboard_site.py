"""Run `forebay dashboard`, for tests that read its pages."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["run_dashboard"]

_TIMEOUT_SECONDS = 30


@contextmanager
def run_dashboard(root: Path, *options: str) -> Iterator[str]:
    """Run the command on a store, and yield the address that it prints. Check that it exits with 0."""
    command = [sys.executable, "-m", "forebay", "dashboard", "--store", root.as_uri(), *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            match = None
            while match is None:
                line = process.stderr.readline()
                assert line, "the command has ended"
                match = re.search(r"(?:open|the dashboard is at) (http://\S+)", line)
            yield match[1]
            process.terminate()
            # Windows has no signal for that: it ends the server.
            assert process.wait(_TIMEOUT_SECONDS) == (1 if sys.platform == "win32" else 0)
        finally:
            process.kill()
