"""HTTP server, in the test's own process, whose tools fail in all kinds of ways."""

import gzip
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Message = dict[str, Any]

JSON, EVENTS = "application/json", "text/event-stream"

ELICITATION = b'{"jsonrpc":"2.0","id":"e1","method":"elicitation/create","params":{}}'


class Server(ThreadingHTTPServer):
    """Record of received requests, and switches for misbehaviour."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/mcp"
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        """HTTP method, JSON-RPC method and headers of each request."""
        self.called: list[str] = []
        self.sessions = 0
        self.has_stream = False
        self.asks_and_forgets = False
        """Whether the stream outside of requests carries a request to the client, before the session is forgotten."""
        self.is_slow = False
        """Whether the handshake takes long."""
        self.is_mute = False
        """Whether the handshake gets no response."""
        self.ignores_tools_list = False
        """Whether tools/list gets no response."""
        self.stream_faults: list[int] = []
        """Statuses with which attempts to resume a stream fail, before one succeeds; 0 for no response."""
        self.stalls_on = ""
        """Method of notifications that get an error whose body never ends."""
        self.is_legacy = False
        """Whether it only has the transport of 2024-11-05."""
        self.legacy_endpoint: bytes | None = b"/messages?session=1"
        """Where this transport says that messages are posted to; `None` if its stream does not open."""
        self.legacy_events: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.caller_left = threading.Event()
        self.has_response = threading.Event()
        self.responses: list[Message] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: tests disconnect on purpose."""

    def headers_of(self, method: str) -> list[dict[str, str]]:
        return [headers for _, name, headers in self.requests if name == method]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method = message.get("method", "")
        if self.server.is_legacy and self.path == "/mcp":
            self.reply(405)
            return
        if self.server.is_slow and method in ("initialize", "notifications/initialized"):
            time.sleep(0.6 if method == "initialize" else 0.2)
        self._record("POST", method)
        if method == "initialize" and self.server.is_mute:
            waits(self, message, {})
        elif method == "initialize":
            self.server.sessions += 1
            result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "f", "version": "1"}}
            self.answer(message, result, {"mcp-session-id": f"s{self.server.sessions}"})
        elif self.headers.get("mcp-session-id", f"s{self.server.sessions}") != f"s{self.server.sessions}":
            self.reply(404, b"no such session", "text/plain")
        elif "id" not in message or not method:
            if not method:
                self.server.responses.append(message)
                self.server.has_response.set()
            if method == self.server.stalls_on:
                self.stall()
            else:
                self.reply(202)
        elif method == "tools/call":
            self.server.called.append(message["params"]["name"])
            TOOLS[message["params"]["name"]](self, message, message["params"].get("arguments") or {})
        elif method == "tools/list" and self.server.ignores_tools_list:
            waits(self, message, {})
        elif method == "tools/list":
            region = {"type": "string", "x-mcp-header": "Region"}
            self.answer(message, {"tools": [{"name": "plain", "inputSchema": {"properties": {"region": region}}}]})
        else:
            self.answer(message, {})

    def do_GET(self) -> None:
        self._record("GET", "")
        last = self.headers.get("last-event-id", "")
        if self.server.is_legacy:
            self.legacy_stream()
            return
        if self.headers.get("mcp-session-id", f"s{self.server.sessions}") != f"s{self.server.sessions}":
            self.reply(404, b"no such session", "text/plain")
        elif last and self.server.stream_faults:
            status = self.server.stream_faults.pop(0)
            self.close_connection = True
            if status:
                self.reply(status)
        elif self.server.asks_and_forgets:
            self.server.asks_and_forgets = False
            self.server.sessions += 1
            self.begin_events()
            self.event(ELICITATION, b"id: asked\nretry: 10\n")
        elif last.startswith("call "):
            self.begin_events()
            self.event(json.dumps(result(json.loads(last.removeprefix("call ")), "resumed")).encode())
        elif self.server.has_stream:
            self.server.has_stream = False
            self.begin_events()
            self.event(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}', b"id: said\nretry: 10\n")
        else:
            self.reply(405)

    def legacy_stream(self) -> None:
        """Send all responses as events until an empty one."""
        if self.server.legacy_endpoint is None:
            self.reply(404)
            return
        self.begin_events()
        self.wfile.write(b"event: endpoint\ndata: " + self.server.legacy_endpoint + b"\n\n")
        while body := self.server.legacy_events.get():
            self.event(body)

    def do_DELETE(self) -> None:
        self._record("DELETE", "")
        self.reply(200)

    def _record(self, verb: str, method: str) -> None:
        self.server.requests.append((verb, method, {name.lower(): value for name, value in self.headers.items()}))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def reply(self, status: int, body: bytes = b"", kind: str = JSON, headers: dict[str, str] | None = None) -> None:
        if self.server.is_legacy and body:
            self.server.legacy_events.put(body)
            status, body = 202, b""
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def stall(self) -> None:
        """Send the beginning of an error, and nothing else until the caller disconnects."""
        self.send_response(500)
        self.send_header("content-length", "100")
        self.end_headers()
        self.wfile.write(b"abc")
        self.close_connection = True
        self.connection.recv(1)

    def answer(self, message: Message, result: Any, headers: dict[str, str] | None = None) -> None:
        headers = None if self.server.is_legacy else headers
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        self.reply(200, body, headers=headers)

    def begin_events(self) -> None:
        """Send the headers of a stream that ends with its connection."""
        self.send_response(200)
        self.send_header("content-type", EVENTS + "; charset=utf-8")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

    def event(self, data: bytes, before: bytes = b"") -> None:
        self.wfile.write(before + b"data: " + data + b"\n\n")


def result(request_id: object, text: str) -> Message:
    return {"jsonrpc": "2.0", "id": request_id, "result": {"content": [{"type": "text", "text": text}]}}


def body_of(message: Message, text: str = "plain") -> bytes:
    return json.dumps(result(message["id"], text)).encode()


Tool = Callable[[Handler, Message, dict[str, Any]], None]
TOOLS: dict[str, Tool] = {}


def tool(function: Tool) -> Tool:
    TOOLS[function.__name__] = function
    return function


@tool
def plain(handler: Handler, message: Message, arguments: dict[str, Any]) -> None:
    handler.reply(200, body_of(message, arguments.get("text", "plain")))


@tool
def indented(handler: Handler, message: Message, _: dict[str, Any]) -> None:
    handler.reply(200, json.dumps(result(message["id"], "in\ndented"), indent=2).replace("\n", "\r\n").encode())


@tool
def batch(handler: Handler, message: Message, _: dict[str, Any]) -> None:
    notification = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}
    handler.reply(200, json.dumps([notification, result(message["id"], "batch")]).encode())


@tool
def sized(handler: Handler, message: Message, arguments: dict[str, Any]) -> None:
    body = body_of(message, "y" * arguments["size"])
    if arguments["as"] == JSON:
        handler.reply(200, body)
    else:
        handler.begin_events()
        handler.event(body)


@tool
def drips(handler: Handler, message: Message, _: dict[str, Any]) -> None:
    """Send a stream with CRLF, comments and multi-line data byte by byte."""
    handler.begin_events()
    notification = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}'
    start, end = body_of(message, "dripped").split(b'"result"')
    stream = (
        b"\xef\xbb\xbf: hello\r\n\r\nevent: message\r\ndata:"
        + notification
        + b"\r\n\r\nevent: unknown\r\ndata: {}\r\n\r\n"
    )
    stream += b"data: " + start + b'\r\ndata: "result"' + end + b"\r\n\r\n"
    for at in range(len(stream)):
        handler.wfile.write(stream[at : at + 1])
        if at % 40 == 0:
            time.sleep(0.001)


@tool
def resumes(handler: Handler, message: Message, _: dict[str, Any]) -> None:
    handler.begin_events()
    handler.event(b"", f"retry: 10\nid: call {json.dumps(message['id'])}\n".encode())
    handler.wfile.write(b"id: too early\ndata: " + body_of(message)[:20])


@tool
def elicits(handler: Handler, message: Message, _: dict[str, Any]) -> None:
    handler.begin_events()
    handler.event(ELICITATION)
    assert handler.server.has_response.wait(30)
    handler.event(body_of(message, json.dumps(handler.server.responses[-1]["result"])))


@tool
def waits(handler: Handler, _message: Message, arguments: dict[str, Any]) -> None:
    """Wait until the caller disconnects, with or without having started a response."""
    if arguments.get("as") == EVENTS:
        handler.begin_events()
        handler.wfile.write(b": wait\n\n")
    handler.close_connection = True
    if handler.connection.recv(1) == b"":
        handler.server.caller_left.set()


@tool
def forgets(handler: Handler, message: Message, _: dict[str, Any]) -> None:
    handler.server.sessions += 1
    plain(handler, message, {})


@tool
def asks_and_forgets(handler: Handler, message: Message, _: dict[str, Any]) -> None:
    handler.begin_events()
    handler.event(ELICITATION)
    handler.server.sessions += 1
    handler.event(body_of(message))


@tool
def asks_and_breaks_off(handler: Handler, message: Message, _: dict[str, Any]) -> None:
    """Break off a stream that could be resumed, if the session were not forgotten."""
    handler.begin_events()
    handler.event(ELICITATION, f"retry: 10\nid: call {json.dumps(message['id'])}\n".encode())
    handler.server.sessions += 1


@tool
def ends_stream(handler: Handler, _message: Message, _: dict[str, Any]) -> None:
    handler.reply(202)
    handler.server.legacy_events.put(b"")


@tool
def compressed(handler: Handler, message: Message, arguments: dict[str, Any]) -> None:
    body = gzip.compress(body_of(message, "z" * 1000))
    handler.reply(200, body[: arguments.get("end")], headers={"content-encoding": "gzip"})


@tool
def moved(handler: Handler, message: Message, arguments: dict[str, Any]) -> None:
    if handler.path == "/there":
        plain(handler, message, {"text": "moved"})
    else:
        handler.reply(arguments["status"], headers={"location": arguments["to"]})


@tool
def refuses(handler: Handler, message: Message, arguments: dict[str, Any]) -> None:
    body = arguments.get("body", "").replace("ID", json.dumps(message["id"]))
    body = body.replace("SECRET", handler.headers.get("authorization", ""))
    handler.reply(arguments["status"], body.encode(), arguments.get("as", JSON), arguments.get("headers"))


@tool
def breaks_off(handler: Handler, message: Message, arguments: dict[str, Any]) -> None:
    if arguments["as"] == EVENTS:
        handler.begin_events()
        handler.wfile.write(b"data: " + body_of(message)[:30])
    elif arguments["as"] == JSON:
        handler.send_response(200)
        handler.send_header("content-type", JSON)
        handler.send_header("content-length", "1000")
        handler.end_headers()
        handler.wfile.write(body_of(message)[:30])
    handler.close_connection = True


@contextmanager
def faulty_server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
