"""Servers that are started, found and ended again."""

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

EXAMPLES = Path(__file__).parent
PATIENCE = 60.0
STDERR = 2


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def command(script: str, *arguments: str) -> list[str]:
    return [sys.executable, str(EXAMPLES / script), *arguments]


@contextlib.contextmanager
def serving(script: str, *arguments: str) -> Iterator[str]:
    """The address of an example that serves HTTP, as long as it is needed."""
    port = free_port()
    with _started(command(script, "--http", str(port), *arguments), port) as url:
        yield url


@contextlib.contextmanager
def gateway(upstream: str, store: Path) -> Iterator[str]:
    """The address of `forebay serve` before a server at another one."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "forebay.toml"
        config.write_text(f'store = "{store.as_uri()}"\n[upstreams.server]\nurl = "{upstream}"\n', encoding="utf-8")
        told = ["serve", "--config", str(config), "--http", f"127.0.0.1:{port}"]
        with _started([sys.executable, "-m", "forebay", *told], port) as url:
            yield url


@contextlib.contextmanager
def _started(command: list[str], port: int) -> Iterator[str]:
    # What it says is not what whoever started it has to say.
    process = subprocess.Popen(command, stdout=STDERR)  # noqa: S603
    try:
        _await(process, port)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(process: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode} before it served; what it said is above")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"the server did not listen on port {port} within {PATIENCE:.0f} s")
