"""An HTTP API on loopback that answers what a test tells it to, and remembers what arrived."""

import dataclasses
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclasses.dataclass
class Arrived:
    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


@dataclasses.dataclass
class Answer:
    body: bytes = b"null"
    content_type: str | None = "application/json"
    status: int = 200
    headers: list[tuple[str, str]] = dataclasses.field(default_factory=list)


class API:
    def __init__(self, url: str) -> None:
        self.url = url
        self.host = url.removeprefix("http://")
        self.arrived: list[Arrived] = []
        self.answers: dict[str, Answer | Callable[[BaseHTTPRequestHandler], None]] = {}
        self.usual = Answer()
        self.released = threading.Event()

    @property
    def last(self) -> Arrived:
        return self.arrived[-1]


@contextmanager
def http_api() -> Iterator[API]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 20

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            api.arrived.append(Arrived(self.command, self.path, list(self.headers.items()), body))
            answer = api.answers.get(self.path.partition("?")[0], api.usual)
            if not isinstance(answer, Answer):
                answer(self)
                return
            self.send_response(answer.status)
            for name, value in answer.headers:
                self.send_header(name, value)
            if answer.content_type is not None:
                self.send_header("Content-Type", answer.content_type)
            if answer.status != 204:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD" and answer.status != 204:
                self.wfile.write(answer.body)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _answer  # noqa: N815

        def log_message(self, *_: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """A client that went away is what some tests are about."""

    with Server(("127.0.0.1", 0), Handler) as server:
        api = API(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield api
        finally:
            api.released.set()
            server.shutdown()
            thread.join()


def document(paths: dict[str, Any], url: str | None = None, *, version: str = "3.1.0", **more: Any) -> dict[str, Any]:
    servers = {"servers": [{"url": url}]} if url else {}
    return {"openapi": version, "info": {"title": "API", "version": "1"}, **servers, "paths": paths, **more}


def one(
    path: str = "/", method: str = "get", *, item: dict[str, Any] | None = None, **operation: Any
) -> dict[str, Any]:
    """The paths of a document with one operation, `op`."""
    return {path: {**(item or {}), method: {"operationId": "op", **operation}}}
