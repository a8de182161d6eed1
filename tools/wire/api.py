"""An HTTP API: `python api.py http`, which prints its port; `DOCUMENT` describes it in OpenAPI."""

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

_INTEGER = {"type": "integer"}
_USER = {
    "type": "object",
    "properties": {"id": _INTEGER, "name": {"type": "string"}, "tags": {"type": "array", "default": []}},
    "required": ["id"],
}


def _operation(operation_id: str, schema: Any = None, *parameters: Any, **more: Any) -> dict[str, Any]:
    content = {} if schema is None else {"content": {"application/json": {"schema": schema}}}
    return {
        "operationId": operation_id,
        "summary": f"Operation {operation_id}",
        "parameters": list(parameters),
        "responses": {"200": {"description": "ok", **content}},
        **more,
    }


def _parameter(name: str, place: str, schema: Any = _INTEGER) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


_BODY = {"required": True, "content": {"application/json": {"schema": _USER}}}

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Users", "version": "1"},
    "components": {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"}}},
    "security": [{"key": []}],
    "paths": {
        "/users/{id}": {"get": _operation("getUser", _USER, _parameter("id", "path"))},
        "/users": {
            "get": _operation("listUsers", None, _parameter("count", "query"), _parameter("X-Trace", "header")),
            "post": _operation("createUser", _USER, requestBody=_BODY),
        },
        "/text": {"get": _operation("text", None, _parameter("size", "query"))},
        "/binary": {"get": _operation("getBinary", None, _parameter("size", "query"))},
        "/status/{code}": {"get": _operation("getStatus", None, _parameter("code", "path"))},
        "/odd": {"get": _operation("getOdd", _USER)},
    },
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._note(b"")
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        place, _, last = url.path.strip("/").partition("/")
        match place, last:
            case "users", "":
                rows = [{"id": number, "name": f"user {number}"} for number in range(int(query.get("count", 2)))]
                self._reply(200, json.dumps(rows).encode())
            case "users", number:
                self._reply(200, json.dumps({"id": number, "name": "Ada", "password": "p"}).encode())
            case "text", _:
                self._reply(200, b"api text " * (int(query.get("size", 9)) // 9), "text/plain")
            case "binary", _:
                self._reply(200, bytes(range(256)) * (int(query.get("size", 256)) // 256), "image/gif")
            case "status", code:
                self._reply(int(code), b'{"why": "as asked"}')
            case "odd", _:
                self._reply(200, b'{"id": "not a number"')
            case _:
                self._reply(404, b"{}")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self._note(body)
        self._reply(200, json.dumps({"id": 7, "name": json.loads(body).get("name")}).encode())

    def _note(self, body: bytes) -> None:
        if transcript := os.environ.get("WIRE_TRANSCRIPT"):
            named = {name.lower(): value for name, value in self.headers.items() if name.lower().startswith("x-")}
            with Path(transcript).open("ab") as file:
                file.write(f"{self.command} {self.path} {json.dumps(named)} ".encode() + body + b"\n")

    def _reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


def main() -> None:
    listener = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    sys.stdout.write(f"{listener.server_port}\n")
    sys.stdout.flush()
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
