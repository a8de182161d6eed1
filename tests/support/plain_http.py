"""HTTP server of the standard library, for test servers without an SDK."""

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class PostHandler(BaseHTTPRequestHandler):
    """Handler that passes posted messages to `on_message`, refuses other methods, and logs nothing."""

    protocol_version = "HTTP/1.1"

    def on_message(self, message: dict[str, Any]) -> None:
        raise NotImplementedError

    def do_POST(self) -> None:
        self.on_message(json.loads(self.rfile.read(int(self.headers["content-length"]))))

    def reply(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_response(405)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_DELETE(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


class _Server(ThreadingHTTPServer):
    # With the default of 5, many concurrent callers would wait for seconds or be refused.
    request_queue_size = 128


def serve_until_stdin_closes(handler: type[BaseHTTPRequestHandler]) -> None:
    """Serve on a free port of loopback, which is printed; then exit, whatever requests are in flight."""
    server = _Server(("127.0.0.1", 0), handler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
    os._exit(0)
