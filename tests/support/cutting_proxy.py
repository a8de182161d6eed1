"""A TCP proxy that counts requests and can lose one: before it reaches the server, or its answer."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Literal

_CHUNK_BYTES = 1 << 16


class CuttingProxy:
    """A proxy on loopback. A request is what a client sends between two answers."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self.requests = 0
        self._cut: tuple[int, str] | None = None
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, number: int, what: Literal["request", "answer"]) -> None:
        """Cut the connection once: at the request of this number from now on."""
        with self._lock:
            self._cut = self.requests + number, what
            self.cuts = 0

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(self._server) as server:
            connection = _Connection(self, client, server)
            thread = threading.Thread(target=connection.copy_answers, daemon=True)
            thread.start()
            connection.copy_requests()
            for end in (client, server):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            thread.join()

    def begin_request(self) -> str | None:
        """Count a request, and return what to cut."""
        with self._lock:
            number = self.requests
            self.requests += 1
            if self._cut is not None and self._cut[0] == number:
                self.cuts += 1
                return self._cut[1]
            return None

    def close(self) -> None:
        self._listener.close()


class _Connection:
    def __init__(self, proxy: CuttingProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._is_answered = True
        self._drops_answer = threading.Event()

    def copy_requests(self) -> None:
        while data := self._client.recv(_CHUNK_BYTES):
            if self._is_answered:
                self._is_answered = False
                cut = self._proxy.begin_request()
                if cut == "request":
                    return
                if cut == "answer":
                    self._drops_answer.set()
            self._server.sendall(data)

    def copy_answers(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._server.recv(_CHUNK_BYTES):
                self._is_answered = True
                if self._drops_answer.is_set():
                    break
                self._client.sendall(data)
            self._client.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def cutting_proxy(port: int) -> Iterator[CuttingProxy]:
    """Run a proxy of a port on loopback."""
    with contextlib.closing(CuttingProxy(("127.0.0.1", port))) as proxy:
        yield proxy
