"""A host of MCP Apps in a browser: the page of `app_host.js`, whose calls of tools reach a server of this process."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

__all__ = ["HostServer", "serve_host"]

CallTool = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Calls a tool by its name, with arguments, and returns the result. Several threads call it."""

_FILES = {"/": ("app_host.html", "text/html"), "/app_host.js": ("app_host.js", "text/javascript")}


class HostServer(ThreadingHTTPServer):
    """Serves the page of the host, and calls tools for it."""

    daemon_threads = True

    def __init__(self, call_tool: CallTool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.call_tool = call_tool
        self.unknown_paths: list[str] = []
        """What was requested besides the page of the host: nothing, unless an app gets out of its frame."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server: HostServer

    def do_GET(self) -> None:
        if self.path not in _FILES:
            self.server.unknown_paths.append(self.path)
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        name, mime_type = _FILES[self.path]
        self._send(Path(__file__).with_name(name).read_bytes(), mime_type)

    def do_POST(self) -> None:
        params = json.loads(self.rfile.read(int(self.headers["content-length"])))
        result = self.server.call_tool(params["name"], params["arguments"])
        self._send(json.dumps(result).encode(), "application/json")

    def _send(self, body: bytes, mime_type: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("content-type", f"{mime_type}; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def serve_host(call_tool: CallTool) -> Iterator[HostServer]:
    """Serve the page of a host."""
    with HostServer(call_tool) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
