"""A server on loopback that answers requests to a language model by a script."""

import json
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from clients.apis import API, ChatCompletions, Event, GenerateContent, Messages, Request, Responses, Turn

_APIS: dict[str, API] = {
    "/messages": Messages(),
    "/responses": Responses(),
    "/chat/completions": ChatCompletions(),
    ":generateContent": GenerateContent(),
    ":streamGenerateContent": GenerateContent(),
}
"""The API for each ending of a path."""

_NOT_FOUND = b'{"error": {"type": "not_found_error", "message": "the scripted model has no such endpoint"}}'
_FAILED = b'{"error": {"type": "invalid_request_error", "message": "the scripted model failed"}}'


class ScriptedModel(ThreadingHTTPServer):
    """Speaks the four APIs, takes each turn from `respond`, and keeps all requests word for word."""

    daemon_threads = True

    def __init__(self, respond: Callable[[Request], Turn]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[str, bytes]] = []
        """The target and body of each request, in the order of arrival."""
        self.failures: list[str] = []
        """Tracebacks of requests that the model could not answer."""
        self._respond = respond
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Serve in a thread until the block ends."""
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield
        finally:
            self.shutdown()
            thread.join()
            self.server_close()

    def take_turn(self, request: Request) -> Turn:
        # Clients ask for titles and summaries beside the conversation.
        with self._lock:
            return self._respond(request)


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests on one connection."""

    server: ScriptedModel
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.requests.append((self.path, b""))
        self._send(404, "application/json", _NOT_FOUND)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, raw))
        path = self.path.partition("?")[0]
        api = next((api for ending, api in _APIS.items() if path.endswith(ending)), None)
        if api is None:
            self._send(404, "application/json", _NOT_FOUND)
            return
        body = json.loads(raw)
        try:
            turn = self.server.take_turn(api.read(body))
        except Exception:
            # 400 is not retried by clients. The run shows the traceback.
            self.server.failures.append(traceback.format_exc())
            self._send(400, "application/json", _FAILED)
            return
        if body.get("stream") or path.endswith(":streamGenerateContent"):
            self._send(200, "text/event-stream", b"".join(map(_encode_event, api.stream(turn))))
        else:
            self._send(200, "application/json", json.dumps(api.answer(turn)).encode())

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        """Log nothing: the requests are kept."""


def _encode_event(event: Event) -> bytes:
    name, data = event
    text = data if isinstance(data, str) else json.dumps(data)
    return f"event: {name}\ndata: {text}\n\n".encode() if name else f"data: {text}\n\n".encode()
