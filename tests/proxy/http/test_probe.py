"""The small HTTP client that `forebay doctor` uses."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import pytest
from forebay.errors import UpstreamFailed, UpstreamTimeout
from forebay.proxy.http import probe as probe_module
from forebay.proxy.http.probe import HttpProbe, SignInRequired
from forebay.wire.protocol import MODERN_VERSION
from plain_http import PostHandler

RESULTS: dict[str, Any] = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}},
    "tools/list": {"tools": [{"name": "one"}]},
}


class Handler(PostHandler):
    """A server that works. Each test overrides what is wrong."""

    requests: list[tuple[str, dict[str, str], Any]]

    def on_message(self, message: dict[str, Any]) -> None:
        self.record("POST", message)
        self.answer(message)

    def record(self, verb: str, message: Any = None) -> None:
        self.requests.append((verb, {name.lower(): value for name, value in self.headers.items()}, message))

    def answer(self, message: dict[str, Any]) -> None:
        if "id" not in message or "method" not in message:
            self.reply(202, b"", "application/json")
        else:
            self.reply(200, self.make_response(message), "application/json")

    def make_response(self, message: dict[str, Any]) -> bytes:
        return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": RESULTS[message["method"]]}).encode()

    def do_DELETE(self) -> None:  # noqa: N802 - the name is given by http.server
        self.record("DELETE")
        self.reply(200, b"", "application/json")


@contextlib.contextmanager
def serve(handler: type[Handler]) -> Iterator[str]:
    handler.requests = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def list_tools(handler: type[Handler], timeout: float = 60.0) -> list[str]:
    with serve(handler) as url, HttpProbe(url, headers={"X-Key": "k"}, timeout=timeout) as server:
        assert server.start_seconds is not None
        return [tool["name"] for tool in server.list_tools()]


def test_a_server_that_answers() -> None:
    assert list_tools(Handler) == ["one"]
    assert [(verb, message["method"]) for verb, _, message in Handler.requests] == [
        ("POST", "initialize"),
        ("POST", "notifications/initialized"),
        ("POST", "tools/list"),
    ]
    assert {headers["x-key"] for _, headers, _ in Handler.requests} == {"k"}
    assert Handler.requests[-1][1]["mcp-protocol-version"] == "2025-11-25"


def test_a_session_is_ended() -> None:
    class Sessions(Handler):
        def answer(self, message: dict[str, Any]) -> None:
            if message["method"] != "initialize":
                super().answer(message)
                return
            body = self.make_response(message)
            self.send_response(200)
            for name, value in (("content-type", "application/json"), ("mcp-session-id", "s1")):
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    assert list_tools(Sessions) == ["one"]
    assert [(verb, headers.get("mcp-session-id")) for verb, headers, _ in Sessions.requests] == [
        ("POST", None),
        ("POST", "s1"),
        ("POST", "s1"),
        ("DELETE", "s1"),
    ]


def test_requests_of_the_server_are_answered() -> None:
    class Asking(Handler):
        def answer(self, message: dict[str, Any]) -> None:
            if "id" not in message or "method" not in message:
                super().answer(message)
                return
            asked: list[dict[str, Any]]
            asked = [{"id": 7, "method": "ping"}, {"id": "x", "method": "roots/list"}, {"method": "notifications/x"}]
            lines = [json.dumps({"jsonrpc": "2.0", **request}).encode() for request in asked]
            events = [b"data: " + line + b"\n\n" for line in (*lines, self.make_response(message))]
            self.reply(200, b": hello\n\n" + b"".join(events), "text/event-stream")

    assert list_tools(Asking) == ["one"]
    answers = [message for _, _, message in Asking.requests if "method" not in message]
    assert answers[:2] == [
        {"jsonrpc": "2.0", "id": 7, "result": {}},
        {"jsonrpc": "2.0", "id": "x", "error": {"code": -32601, "message": "this client only asks"}},
    ]


def test_a_server_without_a_handshake() -> None:
    class Modern(Handler):
        def answer(self, message: dict[str, Any]) -> None:
            if message["method"] == "initialize":
                self.reply(400, b"", "application/json")
            else:
                super().answer(message)

    assert list_tools(Modern) == ["one"]
    _, headers, message = Modern.requests[-1]
    assert (headers["mcp-protocol-version"], headers["mcp-method"]) == (MODERN_VERSION, "tools/list")
    assert message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == MODERN_VERSION


@pytest.mark.parametrize(
    ("status", "body", "content_type", "error"),
    [
        (200, b"<html>", "text/html", "answered initialize with what is no JSON; check the URL"),
        (200, b"", "application/json", "did not answer initialize; check the URL"),
        (200, b'{"id": 99, "result": {}}', "application/json", "did not answer initialize; check the URL"),
        (200, b"data: {}\n\n", "text/event-stream", "did not answer initialize; check the URL"),
        (500, b"", "text/plain", "answered 500 Internal Server Error; check the URL"),
        (404, b"", "text/plain", "answered 404 Not Found; check the URL"),
        (401, b"", "text/plain", "answered 401: it wants other credentials"),
    ],
)
def test_a_server_that_answers_wrongly(status: int, body: bytes, content_type: str, error: str) -> None:
    class Wrong(Handler):
        def answer(self, _message: dict[str, Any]) -> None:
            self.reply(status, body, content_type)

    with pytest.raises(SignInRequired if status == 401 else UpstreamFailed, match=error):
        list_tools(Wrong)


def test_a_redirect_does_not_get_the_headers() -> None:
    class Redirecting(Handler):
        def answer(self, _message: dict[str, Any]) -> None:
            self.send_response(307)
            self.send_header("location", other)
            self.send_header("content-length", "0")
            self.end_headers()

    class Other(Handler):
        pass

    with serve(Other) as other, pytest.raises(UpstreamFailed, match="answered 307 Temporary Redirect"):
        list_tools(Redirecting)
    assert Other.requests == []


def test_a_body_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(Handler):
        delay = 0.0

        def answer(self, _message: dict[str, Any]) -> None:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.close_connection = True
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(b" " * 1024)
                    time.sleep(self.delay)

    monkeypatch.setattr(probe_module, "_MAX_BODY_BYTES", 1 << 20)
    with pytest.raises(UpstreamFailed, match="with more than 1048576 bytes"):
        list_tools(Endless)
    Endless.delay = 0.05
    with pytest.raises(UpstreamTimeout, match="did not answer initialize within 1 s"):
        list_tools(Endless, timeout=1.0)


def test_a_server_that_is_silent() -> None:
    is_over = threading.Event()

    class Silent(Handler):
        def answer(self, _message: dict[str, Any]) -> None:
            is_over.wait(60)

    with serve(Silent) as url:
        try:
            with pytest.raises(UpstreamTimeout, match="within 1 s"), HttpProbe(url, timeout=1.0):
                pass
        finally:
            is_over.set()


@pytest.mark.parametrize("url", ["ftp://x", "x", "http://[", "http://127.0.0.1:99999/", "http://127.0.0.1:1/\x00"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(UpstreamFailed, match="check"), HttpProbe(url, timeout=10):
        pass
