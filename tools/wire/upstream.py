"""An MCP server without any SDK: `python upstream.py stdio|http [--era ERA] [--name NAME] [--stream] [--fail N]`.

It serves the handshake versions and 2026-07-28, and answers with fixed bytes. Every message it receives is appended to
the file named by `WIRE_TRANSCRIPT`. Over HTTP it prints its port on stdout, and ends with its standard input.
"""

import argparse
import base64
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

Message = dict[str, Any]
Send = Callable[[Message | bytes], None]

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
TASK_KEY = "io.modelcontextprotocol/related-task"
MODERN = "2026-07-28"
WAIT_SECONDS = 30
PACKAGE = os.environ.get("WIRE_PACKAGE", "forebay")
"""The name of the package that is compared, for the one tool that names its own capability."""
PAGE_TOOLS = 16

ANY = {"type": "object"}
COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}}
SIZE = {"type": "object", "properties": {"size": {"type": "integer"}}}
ROWS_SCHEMA = {"type": "object", "properties": {"rows": {"type": "array"}}, "required": ["rows"]}
RESULT_SCHEMA = {"type": "object", "properties": {"result": {"type": "array"}}, "required": ["result"]}
FORM = {"message": "Which name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}

TOOLS: list[Message] = [
    {"name": "text", "inputSchema": SIZE, "description": "Text of many lines ✓", "x-unknown": 1.50},
    {"name": "rows", "inputSchema": COUNT, "description": "A JSON array"},
    {"name": "wrapped", "inputSchema": COUNT, "annotations": {"readOnlyHint": True}},
    {"name": "map", "inputSchema": COUNT},
    {"name": "structured", "inputSchema": COUNT, "outputSchema": ROWS_SCHEMA},
    {"name": "result_list", "inputSchema": COUNT, "outputSchema": RESULT_SCHEMA},
    {"name": "blocks", "inputSchema": COUNT},
    {"name": "mixed", "inputSchema": SIZE},
    {"name": "image", "inputSchema": SIZE},
    {"name": "audio", "inputSchema": SIZE},
    {"name": "blob", "inputSchema": SIZE},
    {"name": "resource", "inputSchema": SIZE},
    {"name": "ndjson", "inputSchema": COUNT},
    {"name": "markdown", "inputSchema": SIZE},
    {"name": "unicode", "inputSchema": SIZE},
    {"name": "long_line", "inputSchema": SIZE},
    {"name": "fails", "inputSchema": SIZE},
    {"name": "refuses", "inputSchema": ANY},
    {"name": "annotated", "inputSchema": SIZE},
    {"name": "echo", "inputSchema": ANY},
    {"name": "count_rows", "inputSchema": {"type": "object", "properties": {"rows": {"type": "array"}}}},
    {"name": "progress", "inputSchema": COUNT},
    {"name": "log", "inputSchema": ANY},
    {"name": "ask", "inputSchema": ANY},
    {"name": "wait", "inputSchema": ANY},
    {"name": "grow", "inputSchema": ANY},
    {"name": "write", "inputSchema": ANY, "description": "Writes raw lines; ID stands for the id of the call"},
    {"name": "die", "inputSchema": ANY},
    {
        "name": "delete_all",
        "inputSchema": ANY,
        "_meta": {f"{PACKAGE}/capability": "admin"},
    },
    {"name": "workflow_run", "inputSchema": COUNT, "description": "Runs a workflow"},
    {"name": "workflow_stop", "inputSchema": ANY, "description": "Stops a workflow"},
]
STREAMED = {"progress", "log", "ask", "grow", "wait"}
"""Tools that send other messages before their answer: over HTTP they answer with an event stream."""


def make_rows(count: int) -> list[Message]:
    return [
        {"id": number, "name": f"naïve {number}", "tags": ["a", "b"], "user": {"city": f"city {number % 7}"}}
        for number in range(count)
    ]


def make_text(size: int) -> str:
    lines = (f"line {number}: some words, a timeout after {number % 60} s\n" for number in itertools.count())
    text = ""
    while len(text) < size:
        text += next(lines)
    return text[:size]


def text_result(text: str, **more: Any) -> Message:
    return {"content": [{"type": "text", "text": text}], "isError": False, **more}


def encode_pixels(size: int) -> str:
    return base64.b64encode((b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * (size // 256 + 1))[:size]).decode()


def make_result(name: str, arguments: Message) -> Message | None:
    """Return the result of a tool that only answers, or `None` for the others."""
    count, size = arguments.get("count", 3), arguments.get("size", 30)
    match name:
        case "text":
            return text_result(make_text(size))
        case "rows":
            return text_result(json.dumps(make_rows(count), ensure_ascii=False))
        case "wrapped" | "workflow_run":
            return text_result(json.dumps({"total": count, "items": make_rows(count), "next": None}))
        case "map":
            return text_result(json.dumps({f"key {row['id']}": row for row in make_rows(count)}))
        case "structured":
            structured = {"rows": make_rows(count)}
            return text_result(json.dumps(structured), structuredContent=structured)
        case "result_list":
            rows = make_rows(count)
            return {
                "content": [{"type": "text", "text": json.dumps(row)} for row in rows],
                "structuredContent": {"result": rows},
            }
        case "blocks":
            return {"content": [{"type": "text", "text": f"block {number} é"} for number in range(count)]}
        case "mixed":
            link = {"type": "resource_link", "uri": "wire://one", "name": "one"}
            image = {"type": "image", "data": encode_pixels(64), "mimeType": "image/png"}
            return {"content": [{"type": "text", "text": make_text(size)}, image, link]}
        case "image" | "audio":
            kind = "image/png" if name == "image" else "audio/wav"
            return {"content": [{"type": name, "data": encode_pixels(size), "mimeType": kind}]}
        case "blob":
            resource = {"uri": "wire://blob", "mimeType": "application/zip", "blob": encode_pixels(size)}
            return {"content": [{"type": "resource", "resource": resource}]}
        case "resource":
            resource = {"uri": "wire://text", "mimeType": "text/csv", "text": make_text(size)}
            return {"content": [{"type": "resource", "resource": resource, "annotations": {"priority": 0.5}}]}
        case "ndjson":
            return text_result("".join(json.dumps(row) + "\n" for row in make_rows(count)))
        case "markdown":
            return text_result("# Title\n\n- one\n- two\n\n" + make_text(size))
        case "unicode":
            return text_result('é漢🎉\u2028\\"' * (size // 8))
        case "long_line":
            return text_result("short\n" + "x" * size + "\nend\n")
        case "fails":
            return text_result(make_text(size), isError=True)
        case "annotated":
            block = {"type": "text", "text": make_text(size), "annotations": {"audience": ["user"]}}
            return {"content": [block], "_meta": {"wire/own": {"a": 1.0}}, "x-extra": [1, 2]}
        case "echo" | "delete_all" | "workflow_stop" | "grown":
            return text_result(json.dumps(arguments, ensure_ascii=False)[: arguments.get("show", 4000)])
        case "count_rows":
            value = arguments.get("rows")
            kind = type(value).__name__
            return text_result(f"{kind} of {len(value)}" if isinstance(value, list | str | dict) else kind)
    return None


class Server:
    """The answers of one process; `broadcast` reaches the client outside of any request."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.info = {"name": options.name, "version": "1.0"}
        self.tools = [tool for tool in TOOLS if not options.only or tool["name"] in options.only]
        self.broadcast: Send = lambda _message: None
        self.answers: dict[str, Any] = {}
        self.answered = threading.Condition()
        self.cancelled = threading.Event()
        self.subscriptions: dict[Any, Send] = {}
        self.numbers = itertools.count(1)
        self.tasks: dict[str, Message] = {}
        self.transcript = os.environ.get("WIRE_TRANSCRIPT")
        self.lock = threading.Lock()

    def note(self, line: bytes) -> None:
        """Append a received message to the transcript."""
        if self.transcript:
            with self.lock, Path(self.transcript).open("ab") as file:
                file.write(line.rstrip(b"\n") + b"\n")

    def handle(self, message: Any, send: Send) -> None:
        """Answer one message."""
        if not isinstance(message, dict):
            send({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "not an object"}})
            return
        if "method" not in message:
            with self.answered:
                self.answers[str(message.get("id"))] = message.get("result", message.get("error"))
                self.answered.notify_all()
            return
        if "id" not in message:
            if message["method"] == "notifications/cancelled":
                self.cancelled.set()
            return
        number, params = message["id"], message.get("params")
        params = params if isinstance(params, dict) else {}
        if message["method"] == "tools/call" and params.get("name") in STREAMED:
            self.stream(number, params, send)
            return
        if message["method"] == "subscriptions/listen":
            self.listen(number, params, send)
            return
        answer = self.answer(message["method"], params, number, send)
        if answer is not None:
            # The id comes last, as some servers write it.
            send({**answer, "jsonrpc": "2.0", "id": number})

    def answer(self, method: Any, params: Message, number: Any, send: Send) -> Message | None:
        is_modern = VERSION_KEY in (params.get("_meta") or {})
        complete = {"resultType": "complete", "_meta": {SERVER_KEY: self.info}} if is_modern else {}
        cached = {**complete, "ttlMs": 0, "cacheScope": "private"} if is_modern else {}
        capabilities: Message = {
            "tools": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "prompts": {},
            "completions": {},
            "logging": {},
        }
        if (method == "initialize" and self.options.era == "modern") or (
            method == "server/discover" and self.options.era == "handshake"
        ):
            return {"error": {"code": -32601, "message": "Method not found"}}
        match method:
            case "initialize":
                version = params.get("protocolVersion", "2025-11-25")
                version = version if version < MODERN else "2025-11-25"
                result = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": self.info}
                return {"result": {**result, "instructions": f"Instructions of {self.options.name}."}}
            case "server/discover":
                return {"result": {**cached, "supportedVersions": [MODERN], "capabilities": capabilities}}
            case "tools/list":
                start = int(params.get("cursor") or 0)
                page: Message = {**cached, "tools": self.tools[start : start + PAGE_TOOLS]}
                if start + PAGE_TOOLS < len(self.tools):
                    page["nextCursor"] = str(start + PAGE_TOOLS)
                return {"result": page}
            case "tools/call":
                return self.call(params, number, send, complete)
            case "tasks/result":
                return {"result": {**self.tasks[params["taskId"]], "_meta": {TASK_KEY: {"taskId": params["taskId"]}}}}
            case "tasks/get":
                state = {**complete, **task_state(params["taskId"], "completed")}
                return {"result": {**state, "result": self.tasks[params["taskId"]]} if is_modern else state}
            case "resources/list":
                return {"result": {**cached, "resources": [{"uri": "wire://one", "name": "one"}]}}
            case "resources/templates/list":
                template = {"uriTemplate": "wire://of/{id}", "name": "of", "x-more": 2e5}
                return {"result": {**cached, "resourceTemplates": [template]}}
            case "resources/read":
                uri = str(params.get("uri"))
                if not uri.startswith("wire://"):
                    return {"error": {"code": -32002, "message": f"no {uri}"}}
                size = int(uri.rpartition("/")[2]) if uri.rpartition("/")[2].isdigit() else 20
                return {"result": {**cached, "contents": [{"uri": uri, "text": make_text(size)}]}}
            case "prompts/list":
                return {"result": {**cached, "prompts": [{"name": "greet"}, {"name": f"only_{self.options.name}"}]}}
            case "prompts/get":
                content = {"type": "text", "text": f"{params.get('name')} of {self.options.name}"}
                return {"result": {**complete, "messages": [{"role": "user", "content": content}]}}
            case "completion/complete":
                return {"result": {**complete, "completion": {"values": ["one", "two"], "total": 2}}}
            case "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" | "ping":
                return {"result": {**complete}}
            case "future/method":
                return {"result": {**complete, "params": params, "number": 1.0}}
        return {"error": {"code": -32601, "message": f"no method {method}", "data": [1.0, "é"]}}

    def call(self, params: Message, number: Any, send: Send, complete: Message) -> Message | None:
        name, arguments = params.get("name"), params.get("arguments")
        arguments = arguments if isinstance(arguments, dict) else {}
        match name:
            case "die":
                os._exit(arguments.get("code", 3))
            case "write":
                for line in arguments["lines"]:
                    send(line.replace("ID", json.dumps(number)).encode("latin-1"))
                return None
            case "refuses":
                return {"error": {"code": -32099, "message": "refused", "data": {"why": 1.0}}}
        result = make_result(str(name), arguments)
        time.sleep(arguments.get("delay", 0))
        if result is None:
            return {"error": {"code": -32602, "message": f"no tool {name}"}}
        result = {**result, **{key: value for key, value in complete.items() if key not in result}}
        if arguments.get("later"):
            task = f"task-{next(self.numbers)}"
            self.tasks[task] = result
            state = task_state(task, "working")
            return {"result": {**state, "resultType": "task"} if complete else {"task": state}}
        return {"result": result}

    def stream(self, number: Any, params: Message, send: Send) -> None:
        """Run a tool that sends messages before its answer."""
        arguments, meta = params.get("arguments") or {}, params.get("_meta") or {}
        complete = {"resultType": "complete"} if VERSION_KEY in meta else {}
        text = "done"
        match params["name"]:
            case "progress":
                for step in range(arguments.get("count", 2)):
                    progress = {"progressToken": meta.get("progressToken"), "progress": step, "total": 2}
                    send({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
            case "log":
                log = {"level": "warning", "logger": "wire", "data": {"of": self.options.name}}
                send({"jsonrpc": "2.0", "method": "notifications/message", "params": log})
            case "grow":
                self.grow(arguments.get("name", "grown"), send)
            case "wait":
                self.cancelled.clear()
                self.cancelled.wait(arguments.get("seconds", WAIT_SECONDS))
                text = "cancelled" if self.cancelled.is_set() else "not cancelled"
                if arguments.get("silent"):
                    return
            case "ask" if complete:
                if "inputResponses" not in params:
                    question = {"method": "elicitation/create", "params": {"mode": "form", **FORM}}
                    required = {"inputRequests": {"who": question}, "requestState": "state-1"}
                    send({"jsonrpc": "2.0", "id": number, "result": {"resultType": "input_required", **required}})
                    return
                text = json.dumps([params["inputResponses"], params.get("requestState")])
            case "ask":
                question_id = f"question-{next(self.numbers)}"
                method, form = arguments.get("method", "elicitation/create"), arguments.get("params", FORM)
                send({"jsonrpc": "2.0", "id": question_id, "method": method, "params": form})
                with self.answered:
                    self.answered.wait_for(lambda: question_id in self.answers, WAIT_SECONDS)
                text = json.dumps(self.answers.get(question_id))
        size = arguments.get("size")
        result = {**text_result(text if size is None else make_text(size)), **complete}
        send({"jsonrpc": "2.0", "id": number, "result": result})

    def grow(self, name: str, send: Send) -> None:
        """Add a tool and announce it to the client."""
        self.tools = [*self.tools, {"name": name, "inputSchema": ANY}]
        changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        if self.options.era != "modern" and not self.subscriptions:
            (self.broadcast if self.options.transport == "http" else send)(changed)
        for subscription, listener in list(self.subscriptions.items()):
            listener({**changed, "params": {"_meta": {SUBSCRIPTION_KEY: subscription}}})

    def listen(self, number: Any, params: Message, send: Send) -> None:
        self.subscriptions[number] = send
        acknowledged = {"notifications": params.get("notifications"), "_meta": {SUBSCRIPTION_KEY: number}}
        send({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": acknowledged})


def task_state(name: str, status: str) -> Message:
    return {"taskId": name, "status": status, "createdAt": "2026-01-01T00:00:00Z", "ttl": None}


def dump(message: Message | bytes) -> bytes:
    return message if isinstance(message, bytes) else json.dumps(message, ensure_ascii=False).encode()


def serve_stdio(server: Server) -> None:
    writing = threading.Lock()

    def send(message: Message | bytes) -> None:
        view = memoryview(dump(message) + b"\n")
        with writing:
            while view:
                view = view[os.write(1, view) :]

    server.broadcast = send
    for line in sys.stdin.buffer:
        server.note(line)
        try:
            message = json.loads(line)
        except ValueError:
            send({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "parse error"}})
            continue
        params = message.get("params") if isinstance(message, dict) else None
        if isinstance(params, dict) and params.get("name") in STREAMED:
            threading.Thread(target=server.handle, args=(message, send)).start()
        else:
            server.handle(message, send)
    os._exit(0)


class Handler(BaseHTTPRequestHandler):
    """The streamable HTTP transport: JSON for one answer, an event stream for several messages."""

    protocol_version = "HTTP/1.1"
    server_side: Server
    streams: ClassVar[list[Send]] = []
    streams_changed = threading.Condition()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.note(body)
        side = self.server_side
        message = json.loads(body)
        failure = self.headers.get("x-wire-fail") or self.path.partition("?fail=")[2]
        if failure and isinstance(message, dict) and message.get("method") == "tools/call":
            self.reply(int(failure), b'{"error": "as asked"}', "application/json")
            return
        if not isinstance(message, dict) or "id" not in message or "method" not in message:
            side.handle(message, lambda _message: None)
            self.reply(202, b"", None)
            return
        name = (message.get("params") or {}).get("name")
        is_streamed = side.options.stream or message["method"] == "subscriptions/listen"
        if is_streamed or (message["method"] == "tools/call" and name in STREAMED):
            self.begin_stream()
            side.handle(message, self.send_event)
            if message["method"] == "subscriptions/listen":
                self.connection.recv(1)
            self.close_connection = True
            return
        answers: list[bytes] = []
        side.handle(message, lambda answer: answers.append(dump(answer)))
        session = {"mcp-session-id": "session-1"} if message["method"] == "initialize" else {}
        self.reply(200, b"\n".join(answers), "application/json", session)

    def do_GET(self) -> None:
        self.note(b"")
        if self.server_side.options.era == "modern":
            self.reply(405, b"", None)
            return
        self.begin_stream()
        with self.streams_changed:
            self.streams.append(self.send_event)
            self.streams_changed.notify_all()
        self.connection.recv(1)
        self.close_connection = True

    def do_DELETE(self) -> None:
        self.note(b"")
        self.reply(200, b"", None)

    def note(self, body: bytes) -> None:
        """Append the request to the transcript, without what names this address or the HTTP library."""
        left_out = {"host", "content-length", "user-agent", "accept-encoding", "connection"}
        headers = {name.lower(): value for name, value in self.headers.items() if name.lower() not in left_out}
        entry = {"request": f"{self.command} {self.path}", "headers": dict(sorted(headers.items()))}
        self.server_side.note(json.dumps(entry).encode() + b" " + body)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        if self.command == "POST":
            self.send_header("mcp-session-id", "session-1")
        self.end_headers()

    def send_event(self, message: Message | bytes) -> None:
        self.wfile.write(b"event: message\ndata: " + dump(message) + b"\n\n")
        self.wfile.flush()

    def reply(self, status: int, body: bytes, kind: str | None, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        if kind is not None:
            self.send_header("content-type", kind)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


def serve_http(server: Server) -> None:
    Handler.server_side = server

    def broadcast(message: Message | bytes) -> None:
        with Handler.streams_changed:
            Handler.streams_changed.wait_for(lambda: Handler.streams, WAIT_SECONDS)
            for send in Handler.streams:
                send(message)

    server.broadcast = broadcast
    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{listener.server_port}\n")
    sys.stdout.flush()
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("transport", choices=["stdio", "http"])
    parser.add_argument("--era", choices=["both", "handshake", "modern"], default="both")
    parser.add_argument("--name", default="wire")
    parser.add_argument("--only", nargs="*", default=[], help="list these tools only")
    parser.add_argument("--stream", action="store_true", help="answer every POST with an event stream")
    parser.add_argument("--fail", metavar="FILE", help="exit with 7 at the start while FILE exists")
    options = parser.parse_args()
    if options.fail and Path(options.fail).exists():
        sys.exit(7)
    server = Server(options)
    if options.transport == "http":
        serve_http(server)
    else:
        serve_stdio(server)


if __name__ == "__main__":
    main()
