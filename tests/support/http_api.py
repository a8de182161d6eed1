"""An HTTP API on loopback with configurable answers that records the requests it receives."""

import dataclasses
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclasses.dataclass
class ReceivedRequest:
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
    """The address, answers and received requests of a running server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.host = url.removeprefix("http://")
        self.requests: list[ReceivedRequest] = []
        self.answers: dict[str, Answer | Callable[[BaseHTTPRequestHandler], None]] = {}
        """Answers by path."""
        self.default_answer = Answer()
        self.released = threading.Event()
        """Set when the server stops, so that answers that block can end."""

    @property
    def last(self) -> ReceivedRequest:
        return self.requests[-1]


@contextmanager
def http_api() -> Iterator[API]:
    """Run the API in a thread."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 20

        def _respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            api.requests.append(ReceivedRequest(self.command, self.path, list(self.headers.items()), body))
            answer = api.answers.get(self.path.partition("?")[0], api.default_answer)
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

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _respond  # noqa: N815

        def log_message(self, *_: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """Ignore errors: some tests disconnect early."""

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
    """Return an OpenAPI document with these paths and, if `url` is set, one server."""
    servers = {"servers": [{"url": url}]} if url else {}
    return {"openapi": version, "info": {"title": "API", "version": "1"}, **servers, "paths": paths, **more}


def single_operation(
    path: str = "/", method: str = "get", *, item: dict[str, Any] | None = None, **operation: Any
) -> dict[str, Any]:
    """Return the paths of a document with one operation, `op`."""
    return {path: {**(item or {}), method: {"operationId": "op", **operation}}}
