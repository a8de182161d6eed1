"""S3 servers on loopback, and proxies in front of them that count, cut or delay."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from waiting import wait_until

BUCKET = "forebay-test"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test-key", "AWS_SECRET_ACCESS_KEY": "test-secret", "AWS_REGION": "us-east-1"}
CLEARED = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AWS_SESSION_TOKEN", "AWS_ALLOW_HTTP")


def find_binary(name: str) -> str:
    """Return the path of a server: from `TEST_SERVERS`, a folder, or from `PATH`."""
    folder = os.environ.get("TEST_SERVERS", "")
    found = shutil.which(name, path=folder) if folder else shutil.which(name)
    if found is None:
        pytest.fail(f"these tests start {name}: install it, or run make test-backends")
    return found


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class S3Server(NamedTuple):
    """A running server."""

    port: int
    folder: Path
    """The folder of the buckets."""
    process: "subprocess.Popen[bytes]"

    def url(self, prefix: str, port: int | None = None) -> str:
        """Return the address of a store."""
        return f"s3://{BUCKET}/{prefix}?endpoint=http://127.0.0.1:{port or self.port}"

    def keys(self, prefix: str) -> set[str]:
        """Return the keys below a prefix."""
        root = self.folder / BUCKET / prefix
        return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def s3_server(folder: Path, port: int | None = None) -> contextlib.AbstractContextManager[S3Server]:
    """Start versitygw with a bucket, and set the credentials in the environment."""
    port = port or free_port()
    access, secret = CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
    options = ["--port", f"127.0.0.1:{port}", "--access", access, "--secret", secret, "--quiet", "--keep-alive"]
    return _run_server([find_binary("versitygw"), *options, "posix", str(folder)], folder, port)


def minio_server(folder: Path) -> contextlib.AbstractContextManager[S3Server]:
    """Start MinIO with a bucket, and set the credentials in the environment."""
    port = free_port()
    user, password = CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
    command = [find_binary("minio"), "server", "--quiet", "--address", f"127.0.0.1:{port}", str(folder)]
    return _run_server(command, folder, port, {"MINIO_ROOT_USER": user, "MINIO_ROOT_PASSWORD": password})


@contextlib.contextmanager
def _run_server(
    command: list[str], folder: Path, port: int, variables: Mapping[str, str] | None = None
) -> Iterator[S3Server]:
    """Run a server whose buckets are the folders in a folder."""
    (folder / BUCKET).mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **(variables or {})}
    )
    try:
        wait_until(lambda: is_listening(port), seconds=30)
        with s3_environment():
            yield S3Server(port, folder, process)
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


@contextlib.contextmanager
def s3_environment() -> Iterator[None]:
    """Set the variables that a store needs, without those that lead elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        for name in CLEARED:
            patch.delenv(name, raising=False)
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield


def is_listening(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


class Proxy:
    """A proxy that counts requests, and can cut connections before an answer passes, or let nothing pass.

    It reads HTTP only as far as the tests need: a request begins with its method, and bodies do not look like one.
    """

    METHODS = (b"GET ", b"PUT ", b"POST ", b"HEAD ", b"DELETE ")

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.requests: list[str] = []
        """First lines of the requests."""
        self.sent_bytes = 0
        self.received_bytes = 0
        self.cut_answers: list[str] = []
        """Beginnings of requests. The answers of the next ones that have them are lost, one for each."""
        self.lost_answers = 0
        self.is_stalled = False
        threading.Thread(target=self._accept, daemon=True).start()

    def reset(self) -> None:
        self.requests.clear()
        self.sent_bytes = 0
        self.received_bytes = 0

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError):
                server = socket.create_connection(("127.0.0.1", self._server_port))
                _Connection(self, client, server)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class _Connection:
    """A client's connection through a proxy."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loses_answer = False
        threading.Thread(target=self._forward_requests, daemon=True).start()
        threading.Thread(target=self._forward_answers, daemon=True).start()

    def _forward_requests(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._client.recv(1 << 20):
                while self._proxy.is_stalled:
                    time.sleep(0.01)
                if data.startswith(Proxy.METHODS):
                    line = data.partition(b"\r\n")[0].decode("latin-1")
                    self._proxy.requests.append(line)
                    for cut in self._proxy.cut_answers:
                        if line.startswith(cut):
                            self._proxy.cut_answers.remove(cut)
                            self._loses_answer = True
                            break
                self._proxy.sent_bytes += len(data)
                self._server.sendall(data)
        self._close()

    def _forward_answers(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._server.recv(1 << 20):
                if self._loses_answer:
                    self._proxy.lost_answers += 1
                    break
                while self._proxy.is_stalled:
                    time.sleep(0.01)
                self._proxy.received_bytes += len(data)
                self._client.sendall(data)
        self._close()

    def _close(self) -> None:
        for end in (self._client, self._server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@contextlib.contextmanager
def proxy(server: S3Server) -> Iterator[Proxy]:
    """Start a proxy in front of a server."""
    running = Proxy(server.port)
    try:
        yield running
    finally:
        running.is_stalled = False
        running.close()
