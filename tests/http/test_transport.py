"""The Streamable HTTP transport: plain and streamed responses, resumed streams, sessions and cancellation."""

import contextlib
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from listening_harness import ALICE, BOB, JSON, TIMEOUT_SECONDS, HttpServer, Response, run_server, write_token_file
from waiting import wait_until
from wires import ERAS, LEGACY, MODERN, make_request

pytestmark = pytest.mark.slow

VERSION = "2025-11-25"
PROGRESS = "notifications/progress"
UPDATED = "notifications/resources/updated"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    with run_scripted(tmp_path_factory.mktemp("transport")) as server:
        yield server
        assert "Traceback" not in server.log


def run_scripted(root: Path, **settings: Any) -> "contextlib.AbstractContextManager[HttpServer]":
    return run_server(root, script="scripted_hub.py", **settings)


class Client:
    """A client of one protocol era."""

    def __init__(self, server: HttpServer, era: str, version: str = VERSION) -> None:
        self.server, self.era = server, era
        self.headers: dict[str, str] = {}
        if era == LEGACY:
            params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
            session = self.request("initialize", params).headers["mcp-session-id"]
            self.headers = {"mcp_session_id": session, "mcp_protocol_version": version}

    def _make(self, method: str, params: dict[str, Any], accept: str) -> tuple[dict[str, Any], dict[str, str]]:
        headers = {**self.headers, "accept": accept}
        if self.era == MODERN:
            headers |= {"mcp_protocol_version": MODERN, "mcp_method": method}
            headers |= {"mcp_name": params["name"]} if "name" in params else {}
        return make_request(2, method, params, self.era), headers

    def request(self, method: str, params: dict[str, Any] | None = None, accept: str = JSON["accept"]) -> Response:
        message, headers = self._make(method, params or {}, accept)
        return self.server.post(message, **headers)

    def call(self, tool: str, accept: str = JSON["accept"], **arguments: Any) -> Response:
        return self.request("tools/call", {"name": tool, "arguments": arguments}, accept)

    def post(self, message: dict[str, Any]) -> Response:
        return self.server.post({"jsonrpc": "2.0", **message}, **self.headers)

    @contextlib.contextmanager
    def open(self, method: str, message: dict[str, Any] | None = None, **headers: str) -> "Iterator[Events]":
        """Send a request, and read events of the response while the connection is open."""
        lines = {name.replace("_", "-"): value for name, value in {**JSON, **self.headers, **headers}.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=TIMEOUT_SECONDS)
        with contextlib.closing(connection):
            connection.request(method, "/mcp", None if message is None else json.dumps(message), lines)
            yield Events(connection.getresponse())

    def open_call(self, tool: str, **arguments: Any) -> "contextlib.AbstractContextManager[Events]":
        message, headers = self._make("tools/call", {"name": tool, "arguments": arguments}, JSON["accept"])
        return self.open("POST", message, **headers)

    def listen(self, **headers: str) -> "contextlib.AbstractContextManager[Events]":
        return self.open("GET", None, **{"accept": "text/event-stream", **headers})


class Events:
    """The server-sent events of a response."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.response = response
        self.last_id = ""

    def next(self) -> Any:
        """Return the message of the next event, `None` for an event without data, or the text of a comment."""
        message: Any = None
        while (line := self.response.readline().rstrip(b"\r\n")) or message is None:
            assert line or self.last_id, "the stream has ended"
            if line.startswith(b"id: "):
                self.last_id = line.removeprefix(b"id: ").decode()
            elif line.startswith(b"data: ") and len(line) > 6:
                message = json.loads(line.removeprefix(b"data: "))
            elif line.startswith(b": "):
                message = line.decode()
            elif not line:
                return None
        return message

    def read_rest(self) -> bytes:
        return self.response.read()


def parse_events(body: bytes) -> list[Any]:
    lines = [line.removeprefix(b"data: ") for line in body.splitlines() if line.startswith(b"data: {")]
    return [json.loads(line) for line in lines]


def get_text(message: Any) -> Any:
    return message["result"]["content"][0]["text"]


@pytest.mark.parametrize("era", ERAS)
def test_a_response_without_other_messages_is_plain_json(era: str, server: HttpServer) -> None:
    answer = Client(server, era).call("text")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert int(answer.headers["content-length"]) == len(answer.body)
    assert get_text(json.loads(answer.body)) == "xxx"
    assert ("mcp-session-id" in answer.headers) is (era == LEGACY)


@pytest.mark.parametrize("era", ERAS)
def test_messages_before_the_response_are_streamed_in_order(era: str, server: HttpServer) -> None:
    answer = Client(server, era).call("report", count=20)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    *messages, response = parse_events(answer.body)
    assert [message["params"]["progress"] for message in messages] == [*range(20)]
    assert get_text(response) == "reported"


@pytest.mark.parametrize("era", ERAS)
def test_a_stream_says_once_whether_its_connection_is_kept(era: str, server: HttpServer) -> None:
    client = Client(server, era)
    message, headers = client._make("tools/call", {"name": "report", "arguments": {"count": 1}}, JSON["accept"])
    lines = {name.replace("_", "-"): value for name, value in {**JSON, **headers, "connection": "close"}.items()}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_SECONDS)
    with contextlib.closing(connection):
        connection.request("POST", "/mcp", json.dumps(message), lines)
        response = connection.getresponse()
        assert response.getheader("content-type") == "text/event-stream"
        assert response.headers.get_all("connection") == ["close"]


@pytest.mark.parametrize("era", ERAS)
def test_a_client_gets_only_what_it_accepts(era: str, server: HttpServer) -> None:
    client = Client(server, era)
    plain = client.call("report", accept="application/json", count=3)
    assert (plain.headers["content-type"], get_text(json.loads(plain.body))) == ("application/json", "reported")
    streamed = client.call("text", accept="text/event-stream")
    assert streamed.headers["content-type"] == "text/event-stream"
    assert [get_text(message) for message in parse_events(streamed.body)] == ["xxx"]
    assert client.call("text", accept="image/png").status == 406


@pytest.mark.parametrize("era", ERAS)
def test_a_client_without_an_accept_header_gets_json(era: str, server: HttpServer) -> None:
    message, headers = Client(server, era)._make("tools/call", {"name": "text", "arguments": {}}, "")
    sent = {**JSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
    del sent["accept"]
    answer = server.request("POST", "/mcp", json.dumps(message).encode(), sent)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")


@pytest.mark.parametrize(
    "lines",
    [["application/json", "text/event-stream"], ["text/event-stream", "application/json"], ["x/y", "*/*", "x/z"]],
    ids=", ".join,
)
def test_a_client_accepts_what_any_of_its_headers_names(lines: list[str], server: HttpServer) -> None:
    message, headers = Client(server, MODERN)._make("tools/call", {"name": "text", "arguments": {}}, "")
    body = json.dumps(message)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_SECONDS)
    with contextlib.closing(connection):
        connection.putrequest("POST", "/mcp")
        sent = {**JSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
        del sent["accept"]
        for name, value in [*sent.items(), *(("accept", line) for line in lines), ("content-length", str(len(body)))]:
            connection.putheader(name, value)
        connection.endheaders(body.encode())
        response = connection.getresponse()
        assert (response.status, response.getheader("content-type")) == (200, "application/json")


@pytest.mark.parametrize("era", ERAS)
def test_a_spooled_response_is_sent_whole(era: str, server: HttpServer) -> None:
    client = Client(server, era)
    for report_first in (False, True):
        answer = client.call("spool", size=3_000_000, report_first=report_first)
        message = parse_events(answer.body)[-1] if report_first else json.loads(answer.body)
        assert message == {"jsonrpc": "2.0", "id": 2, "result": {"text": "x" * 3_000_000}}


@pytest.mark.parametrize("era", ERAS)
def test_a_silent_call_is_kept_alive_by_comments(era: str, tmp_path: Path) -> None:
    with run_scripted(tmp_path, ping_seconds=0.1) as server:
        client = Client(server, era)
        with client.open_call("wait") as events:
            if era == LEGACY:
                assert events.next() is None
            assert [events.next(), events.next()] == [": ping"] * 2
            client.call("release")
            messages = parse_events(events.read_rest())
        assert get_text(messages[-1]) == "at last"


def test_a_server_request_is_answered_by_another_post(server: HttpServer) -> None:
    client = Client(server, LEGACY)
    with client.open_call("ask") as events:
        assert events.next() is None
        assert events.next()["method"] == "elicitation/create"
        assert client.post({"id": "q", "result": {"action": "accept"}}).status == 202
        assert json.loads(get_text(events.next())) == {"action": "accept"}


def test_a_server_request_reaches_a_client_without_streamed_responses_on_its_other_stream(server: HttpServer) -> None:
    client = Client(server, LEGACY)
    with client.listen() as events:
        assert events.next() is None
        message, headers = client._make("tools/call", {"name": "ask", "arguments": {}}, "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_SECONDS)
        with contextlib.closing(connection):
            lines = {name.replace("_", "-"): value for name, value in {**JSON, **headers}.items()}
            connection.request("POST", "/mcp", json.dumps(message), lines)
            assert events.next()["method"] == "elicitation/create"
            client.post({"id": "q", "result": {}})
            assert get_text(json.loads(connection.getresponse().read())) == "{}"


@pytest.mark.parametrize("era", ERAS)
def test_an_exception_of_the_hub_is_an_internal_error(era: str, tmp_path: Path) -> None:
    with run_scripted(tmp_path) as server:
        answer = Client(server, era).call("fail")
        assert (answer.status, answer.message["error"]["code"], answer.message["id"]) == (200, -32603, 2)
        assert b"a bug" not in answer.body
        server.wait_for("LookupError: a bug")


def test_a_cancelled_request_is_answered_in_a_session(server: HttpServer) -> None:
    assert Client(server, LEGACY).call("vanish").message["error"]["code"] == -32800


@pytest.mark.parametrize(("code", "method"), [(404, "no/such"), (200, "ping")])
def test_the_status_of_an_error_depends_on_the_version(code: int, method: str, server: HttpServer) -> None:
    assert Client(server, MODERN).request(method).status == code
    assert Client(server, LEGACY).request(method).status == 200


def test_a_request_is_cancelled_when_its_client_disconnects(tmp_path: Path) -> None:
    with run_scripted(tmp_path, ping_seconds=0.1) as server:
        with Client(server, MODERN).open_call("wait"):
            pass
        server.wait_for("wait was cancelled")
        message = make_request(1, "subscriptions/listen", {"notifications": {}}, MODERN)
        headers = {"mcp_protocol_version": MODERN, "mcp_method": message["method"]}
        with Client(server, MODERN).open("POST", message, **headers) as events:
            assert events.next()["method"] == "notifications/subscriptions/acknowledged"
        server.wait_for("listen was cancelled")
        assert "Traceback" not in server.log


def test_a_broken_stream_of_a_call_is_resumed(server: HttpServer) -> None:
    client = Client(server, LEGACY)
    with client.open_call("wait", report_first=True) as events:
        assert events.next() is None
        assert events.next()["params"]["progress"] == 0
    # The call goes on.
    client.call("release")
    with client.listen(last_event_id=events.last_id) as resumed:
        *messages, response = parse_events(resumed.read_rest())
    assert [message["params"]["progress"] for message in messages] == [1, 2]
    assert get_text(response) == "at last"
    # Once more, because nobody knows whether the client has got the last events.
    with client.listen(last_event_id=events.last_id) as resumed:
        assert len(parse_events(resumed.read_rest())) == 3


def test_a_stream_is_resumed_while_the_call_runs(server: HttpServer) -> None:
    client = Client(server, LEGACY)
    with client.open_call("wait", report_first=True) as events:
        assert events.next() is None
    with client.listen(last_event_id=events.last_id) as resumed:
        assert resumed.next()["params"]["progress"] == 0
        client.call("release")
        assert [resumed.next()["params"]["progress"] for _ in range(2)] == [1, 2]
        assert get_text(resumed.next()) == "at last"
        assert resumed.read_rest() == b""


def test_a_stream_is_resumed_before_its_end_is_noticed(server: HttpServer) -> None:
    client = Client(server, LEGACY)
    with client.open_call("wait", report_first=True) as events:
        assert events.next() is None
        with client.listen(last_event_id=events.last_id) as resumed:
            assert resumed.next()["params"]["progress"] == 0
            # The earlier connection is ended: each event goes to one connection.
            events.read_rest()
            client.call("release")
            assert [resumed.next()["params"]["progress"] for _ in range(2)] == [1, 2]
            assert get_text(resumed.next()) == "at last"


def test_events_are_kept_for_a_limited_time(tmp_path: Path) -> None:
    with run_scripted(tmp_path, kept_seconds=0.5) as server:
        client = Client(server, LEGACY)
        with client.open_call("report", count=1) as events:
            assert events.next() is None
            events.read_rest()

        def is_forgotten() -> bool:
            with client.listen(last_event_id=events.last_id) as resumed:
                return resumed.response.status == 400

        wait_until(is_forgotten)


@pytest.mark.parametrize("last_event_id", ["x", "1-", "-1", "9-0", "0-1", "1-999", "1-0 "])
def test_an_unknown_event_id_is_refused(last_event_id: str, server: HttpServer) -> None:
    client = Client(server, LEGACY)
    with client.listen(last_event_id=last_event_id) as events:
        assert events.response.status == 400


def test_the_stream_of_a_session_is_resumed_without_loss(server: HttpServer) -> None:
    client = Client(server, LEGACY)
    # There is no stream yet.
    client.call("push", method=UPDATED)
    with client.listen() as events:
        assert events.next() is None
        client.call("push", method=UPDATED, count=3)
        assert [events.next()["params"]["uri"] for _ in range(2)] == ["x://0", "x://1"]
        with client.listen() as second:
            assert second.response.status == 409
    client.call("push", method="notifications/custom")
    with client.listen(last_event_id=events.last_id) as resumed:
        assert resumed.next()["params"]["uri"] == "x://2"
        assert resumed.next()["method"] == "notifications/custom"
        client.call("push", method="notifications/later")
        assert resumed.next()["method"] == "notifications/later"


def test_a_stream_without_an_event_id_starts_with_one(server: HttpServer) -> None:
    client = Client(server, LEGACY)
    with client.listen() as events:
        assert events.next() is None
        client.call("push", method=UPDATED, count=2)
        assert [events.next()["params"]["uri"] for _ in range(2)] == ["x://0", "x://1"]

    def has_opened() -> bool:
        with client.listen() as again:
            # Until the server has noticed that the first connection is closed.
            if again.response.status == 409:
                return False
            assert (again.next(), again.last_id) == (None, events.last_id)
            return True

    wait_until(has_opened)
    client.call("push", method="notifications/custom")
    with client.listen(last_event_id=events.last_id) as resumed:
        assert resumed.next()["method"] == "notifications/custom"


def test_a_session_that_has_missed_notifications_is_ended(server: HttpServer) -> None:
    client = Client(server, LEGACY)
    with client.listen() as events:
        assert events.next() is None
    client.call("push", method="notifications/custom", count=20, size=100_000)
    with client.listen(last_event_id=events.last_id) as resumed:
        assert resumed.response.status == 404
    assert client.request("ping").status == 404


def test_clients_of_older_versions_get_no_event_without_data(server: HttpServer) -> None:
    client = Client(server, LEGACY, "2025-06-18")
    with client.open_call("report", count=1) as events:
        assert events.next()["method"] == PROGRESS
        assert events.last_id


def test_a_failed_initialization_leaves_no_session(tmp_path: Path) -> None:
    with run_scripted(tmp_path, max_sessions=1) as server:
        for _ in range(3):
            answer = server.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}})
            assert (answer.status, answer.message["error"]["code"]) == (200, -32602)
            assert "mcp-session-id" not in answer.headers
        assert server.initialize().status == 200


def test_ending_a_session_ends_its_calls_and_streams(server: HttpServer) -> None:
    client = Client(server, LEGACY)
    with client.listen() as events, client.open_call("wait", report_first=True) as call:
        assert events.next() is None
        assert call.next() is None
        headers = {name.replace("_", "-"): value for name, value in client.headers.items()}
        assert server.request("DELETE", "/mcp", None, headers).status == 200
        assert events.read_rest() == b""
        progress, error = parse_events(call.read_rest())
        assert (progress["method"], error["id"]) == (PROGRESS, 2)
        assert "Session terminated" in error["error"]["message"]
    server.wait_for("wait was cancelled")
    server.wait_for("a session was closed")
    assert client.request("ping").status == 404


def get_progress(body: bytes) -> list[Any]:
    return [message["params"]["progress"] for message in parse_events(body)]


@pytest.mark.posix
@pytest.mark.parametrize("era", ERAS)
def test_a_call_whose_stream_has_begun_is_answered_at_shutdown(era: str, tmp_path: Path) -> None:
    with run_scripted(tmp_path, shutdown_grace_seconds=0.1) as server:
        with Client(server, era).open_call("wait", report_first=True) as events:
            server.wait_for("wait has begun")
            server.terminate()
            progress, error = parse_events(events.read_rest())
            assert (progress["method"], error["id"]) == (PROGRESS, 2)
            assert "the gateway is stopping" in error["error"]["message"]
        assert server.wait() == 0


@pytest.mark.posix
def test_streams_end_at_shutdown(tmp_path: Path) -> None:
    with run_scripted(tmp_path, shutdown_grace_seconds=600) as server:
        message = make_request(1, "subscriptions/listen", {"notifications": {}}, MODERN)
        headers = {"mcp_protocol_version": MODERN, "mcp_method": message["method"]}
        client = Client(server, LEGACY)
        with client.listen() as events, Client(server, MODERN).open("POST", message, **headers) as subscription:
            assert events.next() is None
            subscription.next()
            server.terminate()
            assert [message["id"] for message in parse_events(subscription.read_rest())] == [1]
            assert events.read_rest() == b""
        assert server.wait() == 0
        assert "the hub was closed" in server.log
        assert "Traceback" not in server.log


@pytest.mark.parametrize("era", ERAS)
def test_a_request_ends_when_its_token_is_removed(era: str, tmp_path: Path) -> None:
    path = Path(write_token_file(tmp_path))
    with run_scripted(tmp_path, token_file=str(path)) as server:
        client = Client.__new__(Client)
        client.server, client.era, client.headers = server, era, {"authorization": f"Bearer {ALICE}"}
        if era == LEGACY:
            session = server.initialize(ALICE).headers["mcp-session-id"]
            client.headers |= {"mcp_session_id": session, "mcp_protocol_version": VERSION}
        with client.open_call("wait", report_first=True) as events:
            path.write_text(f"bob: {BOB}\n")
            assert get_progress(events.read_rest()) == [0]
        server.wait_for("wait was cancelled")
        assert "Traceback" not in server.log


def test_the_parser_skips_no_body_after_an_upgrade_header(server: HttpServer) -> None:
    """Java's client asks for HTTP/2 with its first request."""
    message, headers = Client(server, MODERN)._make("tools/call", {"name": "text", "arguments": {}}, JSON["accept"])
    upgrade = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2_settings": "AAEAAEAAAAIAAAAB"}
    assert get_text(server.post(message, **headers, **upgrade).message) == "xxx"


def test_a_large_request_is_checked_against_its_headers(server: HttpServer) -> None:
    client = Client(server, MODERN)
    message, headers = client._make("tools/call", {"name": "text", "arguments": {"size": 3}}, JSON["accept"])
    message["params"]["arguments"]["pad"] = "x" * 2_000_000
    answer = server.post(message, **{**headers, "mcp_name": "other"})
    assert (answer.status, answer.message["error"]["code"]) == (400, -32020)


def test_requests_that_are_no_mcp_are_told_what_is(server: HttpServer) -> None:
    ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    for answer in (
        server.request("POST", body=ping, headers=JSON),
        server.request("GET", headers={"accept": "text/event-stream"}),
        server.request("DELETE"),
    ):
        assert answer.status == 400
        message = answer.message["error"]["message"]
        for words in (
            "send initialize with POST first",
            f"Mcp-Protocol-Version: {MODERN}",
            "Mcp-Method",
            "io.modelcontextprotocol/clientCapabilities in params._meta",
        ):
            assert words in message
    for path in ("/", "/mcp/"):
        answer = server.request("GET", path)
        assert (answer.status, answer.body) == (404, b"Not Found; the address for MCP is /mcp")


def test_other_methods_and_types_are_refused(server: HttpServer) -> None:
    modern, legacy = Client(server, MODERN), Client(server, LEGACY)
    version = {"mcp-protocol-version": MODERN}
    answer = server.request("GET", headers=version)
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    session = {name.replace("_", "-"): value for name, value in legacy.headers.items()}
    answer = server.request("PUT", headers=session)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, POST, DELETE")
    answer = server.request("GET", headers={**session, "accept": "application/json"})
    assert answer.status == 406
    assert "must accept text/event-stream" in answer.message["error"]["message"]
    assert modern.request("tools/list", accept="image/png").status == 406
    assert modern.request("subscriptions/listen", accept="application/json").status == 406


def test_notifications_of_the_newest_version_are_accepted_and_dropped(server: HttpServer) -> None:
    notification = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    answer = server.post(notification, mcp_protocol_version=MODERN)
    assert (answer.status, answer.body) == (202, b"")
    for body in (b"[]", b"3", b'{"jsonrpc": "2.0", "id": 1}'):
        answer = server.request("POST", body=body, headers={**JSON, "mcp-protocol-version": MODERN})
        assert (answer.status, answer.message["error"]["code"]) == (400, -32600)
    answer = server.request("POST", body=b"{", headers={**JSON, "mcp-protocol-version": MODERN})
    assert (answer.status, answer.message["error"]["code"]) == (400, -32700)
