"""Start servers as subprocesses and stop them again."""

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

EXAMPLES = Path(__file__).parent
TIMEOUT_SECONDS = 60.0
STDERR = 2


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def command(script: str, *arguments: str) -> list[str]:
    return [sys.executable, str(EXAMPLES / script), *arguments]


@contextlib.contextmanager
def serving(script: str, *arguments: str) -> Iterator[str]:
    """Run an example over HTTP and yield its URL."""
    port = free_port()
    with _run_server(command(script, "--http", str(port), *arguments), port) as url:
        yield url


@contextlib.contextmanager
def gateway(upstream: str, store: Path) -> Iterator[str]:
    """Run `forebay serve` in front of the server at `upstream` and yield its URL."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "forebay.toml"
        config.write_text(f'store = "{store.as_uri()}"\n[upstreams.server]\nurl = "{upstream}"\n', encoding="utf-8")
        arguments = ["serve", "--config", str(config), "--http", f"127.0.0.1:{port}"]
        with _run_server([sys.executable, "-m", "forebay", *arguments], port) as url:
            yield url


@contextlib.contextmanager
def _run_server(command: list[str], port: int) -> Iterator[str]:
    # The caller's stdout may carry results, so the server's output goes to stderr.
    process = subprocess.Popen(command, stdout=STDERR)  # noqa: S603
    try:
        _wait_for_port(process, port)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        try:
            process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_port(process: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode} before it listened; its output is above")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"the server did not listen on port {port} within {TIMEOUT_SECONDS:.0f} s")
