"""A server over HTTP that does wrong in every way that one can, as its tools are called, in the test's own process."""

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


class Server(ThreadingHTTPServer):
    """What it was asked, and what it is to do."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/mcp"
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        """Of each request its method in HTTP, that of its message, and its headers."""
        self.called: list[str] = []
        self.sessions = 0
        self.has_stream = False
        self.is_slow = False
        """Whether it takes its time to shake hands."""
        self.is_mute = False
        """Whether it answers no handshake."""
        self.lists_nothing = False
        """Whether it does not say what tools it has."""
        self.is_old = False
        """Whether it has the transport of 2024-11-05."""
        self.old: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.gone = threading.Event()
        self.told = threading.Event()
        self.responses: list[Message] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Callers that go are what is tested."""

    def headers_of(self, method: str) -> list[dict[str, str]]:
        return [headers for _, name, headers in self.asked if name == method]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method = message.get("method", "")
        if self.server.is_old and self.path == "/mcp":
            self.reply(405)
            return
        if self.server.is_slow and method in ("initialize", "notifications/initialized"):
            time.sleep(0.6 if method == "initialize" else 0.2)
        self._note("POST", method)
        if method == "initialize" and self.server.is_mute:
            waits(self, message, {})
        elif method == "initialize":
            self.server.sessions += 1
            made = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "f", "version": "1"}}
            self.answer(message, made, {"mcp-session-id": f"s{self.server.sessions}"})
        elif self.headers.get("mcp-session-id", f"s{self.server.sessions}") != f"s{self.server.sessions}":
            self.reply(404, b"no such session", "text/plain")
        elif "id" not in message or not method:
            if not method:
                self.server.responses.append(message)
                self.server.told.set()
            self.reply(202)
        elif method == "tools/call":
            self.server.called.append(message["params"]["name"])
            TOOLS[message["params"]["name"]](self, message, message["params"].get("arguments") or {})
        elif method == "tools/list" and self.server.lists_nothing:
            waits(self, message, {})
        elif method == "tools/list":
            region = {"type": "string", "x-mcp-header": "Region"}
            self.answer(message, {"tools": [{"name": "plain", "inputSchema": {"properties": {"region": region}}}]})
        else:
            self.answer(message, {})

    def do_GET(self) -> None:
        self._note("GET", "")
        last = self.headers.get("last-event-id", "")
        if self.server.is_old:
            self.old_stream()
            return
        if last.startswith("call "):
            self.begin_events()
            self.event(json.dumps(result(json.loads(last.removeprefix("call ")), "resumed")).encode())
        elif self.server.has_stream:
            self.server.has_stream = False
            self.begin_events()
            self.event(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}', b"id: said\nretry: 10\n")
        else:
            self.reply(405)

    def old_stream(self) -> None:
        """All answers, until one is empty."""
        self.begin_events()
        self.wfile.write(b"event: endpoint\ndata: /messages?session=1\n\n")
        while body := self.server.old.get():
            self.event(body)

    def do_DELETE(self) -> None:
        self._note("DELETE", "")
        self.reply(200)

    def _note(self, verb: str, method: str) -> None:
        self.server.asked.append((verb, method, {name.lower(): value for name, value in self.headers.items()}))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def reply(self, status: int, body: bytes = b"", kind: str = JSON, headers: dict[str, str] | None = None) -> None:
        if self.server.is_old and body:
            self.server.old.put(body)
            status, body = 202, b""
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def answer(self, message: Message, made: Any, headers: dict[str, str] | None = None) -> None:
        headers = None if self.server.is_old else headers
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": made}).encode()
        self.reply(200, body, headers=headers)

    def begin_events(self) -> None:
        """Of a stream that ends with its connection."""
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
    told = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}
    handler.reply(200, json.dumps([told, result(message["id"], "batch")]).encode())


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
    """CRLF, comments, several lines of data, byte by byte."""
    handler.begin_events()
    told = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}'
    start, end = body_of(message, "dripped").split(b'"result"')
    stream = (
        b"\xef\xbb\xbf: hello\r\n\r\nevent: message\r\ndata:" + told + b"\r\n\r\nevent: unknown\r\ndata: {}\r\n\r\n"
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
    handler.event(b'{"jsonrpc":"2.0","id":"e1","method":"elicitation/create","params":{}}')
    assert handler.server.told.wait(30)
    handler.event(body_of(message, json.dumps(handler.server.responses[-1]["result"])))


@tool
def waits(handler: Handler, _message: Message, arguments: dict[str, Any]) -> None:
    """For as long as whoever asked does, with or without a start of an answer."""
    if arguments.get("as") == EVENTS:
        handler.begin_events()
        handler.wfile.write(b": wait\n\n")
    handler.close_connection = True
    if handler.connection.recv(1) == b"":
        handler.server.gone.set()


@tool
def forgets(handler: Handler, message: Message, _: dict[str, Any]) -> None:
    handler.server.sessions += 1
    plain(handler, message, {})


@tool
def ends_stream(handler: Handler, _message: Message, _: dict[str, Any]) -> None:
    handler.reply(202)
    handler.server.old.put(b"")


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
    handler.reply(arguments["status"], body.encode(), arguments.get("as", JSON))


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
