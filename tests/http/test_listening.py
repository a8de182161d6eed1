"""The HTTP server of `forebay serve --http`: authentication, isolation, limits and shutdown."""

import json
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from forebay.config.options import Settings
from forebay.errors import InvalidArgument
from forebay.http.server import run_http
from listening_harness import ALICE, BOB, HttpServer, Response, run_server, write_token_file
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server
from mcp_harness import parse_text, read_all_items
from sdk_hub import SdkHub
from wires import ERAS, MODERN, connect_http, extract_message

pytestmark = pytest.mark.slow


class ToolClient:
    """A client with a token, for one protocol era."""

    def __init__(self, server: HttpServer, token: str | None, era: str) -> None:
        self._wire = connect_http(server.port, era, token)

    def call(self, tool: str, **arguments: Any) -> Any:
        answer = self._wire.request("tools/call", {"name": tool, "arguments": arguments})
        return json.loads(extract_message(answer))["result"]

    def call_json(self, tool: str, **arguments: Any) -> Any:
        return json.loads(self.call(tool, **arguments)["content"][0]["text"])


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    root = tmp_path_factory.mktemp("guarded")
    with run_server(root, token_file=write_token_file(root), allowed_hosts=["mcp.example.com"]) as server:
        yield server


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    with run_server(tmp_path_factory.mktemp("open")) as server:
        yield server


@pytest.mark.parametrize("era", ERAS)
def test_a_valid_token_is_accepted(era: str, guarded: HttpServer) -> None:
    answer = guarded.send_first_request(era, ALICE)
    assert answer.status == 200
    assert "result" in answer.message


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": f"Bearer {ALICE[:-1]}"},
        {"authorization": f"Bearer {ALICE}x"},
        {"authorization": f"Bearer {ALICE}, Bearer {BOB}"},
        {"authorization": f"Basic {ALICE}"},
        {"authorization": ALICE},
        {"authorization": "Bearer alice"},
        {"cookie": f"authorization=Bearer {ALICE}"},
        {"x_authorization": f"Bearer {ALICE}"},
        {"x_forwarded_for": "127.0.0.1"},
    ],
    ids=str,
)
def test_other_credentials_are_refused(headers: dict[str, str], era: str, guarded: HttpServer) -> None:
    answer = guarded.send_first_request(era, **headers)
    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith("Bearer ")
    assert "mcp-session-id" not in answer.headers
    assert ALICE[:-1] not in str(answer) + guarded.log


def test_a_token_in_the_url_is_not_accepted(guarded: HttpServer) -> None:
    for query in (f"access_token={ALICE}", f"token={ALICE}", f"authorization=Bearer%20{ALICE}"):
        for method in ("GET", "POST", "DELETE"):
            assert guarded.request(method, f"/mcp?{query}").status == 401
    assert ALICE not in guarded.log


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "PATCH", "TRACE"])
def test_every_method_needs_a_token(method: str, guarded: HttpServer) -> None:
    assert guarded.request(method, "/mcp").status == 401


def test_an_unknown_method_is_refused(guarded: HttpServer) -> None:
    # Some parsers know all methods and refuse others.
    assert guarded.request("FROB", "/mcp").status in (400, 401)


@pytest.mark.parametrize("era", ERAS)
def test_a_handle_belongs_to_one_principal(era: str, guarded: HttpServer) -> None:
    alice, bob = (ToolClient(guarded, token, era) for token in (ALICE, BOB))
    handle = alice.call_json("text", size=50_000)["output_handle"]
    assert len(handle) == len("oh_") + 26
    assert alice.call_json("output_fetch", output_handle=handle)["total"] == 50_000
    refused, unknown = (bob.call_json("output_fetch", output_handle=name) for name in (handle, "oh_" + "A" * 26))
    assert refused["error"]["code"] == "output_handle_not_found"
    assert json.dumps(refused).replace(handle, "") == json.dumps(unknown).replace("oh_" + "A" * 26, "")
    assert alice.call_json("output_fetch", output_handle=handle)["total"] == 50_000


def test_a_session_belongs_to_one_principal(guarded: HttpServer) -> None:
    session = guarded.initialize(ALICE).headers["mcp-session-id"]
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}

    def ping_as(token: str | None) -> Response:
        return guarded.post(ping, token, mcp_session_id=session, mcp_protocol_version="2025-11-25")

    # To others it looks like an unknown session.
    unknown = guarded.post(ping, BOB, mcp_session_id="0" * 32, mcp_protocol_version="2025-11-25")
    assert (ping_as(BOB).status, ping_as(BOB).body) == (unknown.status, unknown.body) == (404, unknown.body)
    assert ping_as(None).status == 401
    taken = {"authorization": f"Bearer {BOB}", "mcp-session-id": session}
    assert guarded.request("DELETE", "/mcp", None, taken).status == 404
    assert guarded.request("GET", "/mcp", None, taken | {"accept": "text/event-stream"}).status == 404
    assert ping_as(ALICE).message["result"] == {}


def test_health_needs_no_token_and_reveals_nothing(guarded: HttpServer) -> None:
    answer = guarded.request("GET", "/health")
    assert (answer.status, answer.body) == (200, b'{"status":"ok"}')
    assert "server" not in answer.headers
    assert guarded.request("POST", "/health", b"{}").status == 405


@pytest.mark.parametrize(
    "path",
    ["/", "/mcp/", "//mcp", "/mcp//", "/MCP", "/mcp/x", "/health/", "/health/../mcp", "/mcp%2f", "/mcp;x", "/mcp%00",
     "/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp", "/docs", "/%2e%2e/mcp"],
)  # fmt: skip
def test_other_paths_are_not_found(path: str, guarded: HttpServer) -> None:
    for method in ("GET", "POST"):
        answer = guarded.request(method, path, None, {"authorization": f"Bearer {ALICE}", "host": "evil.example"})
        assert answer.status == 404
        assert "location" not in answer.headers


@pytest.mark.parametrize("path", ["/%6dcp", "/mcp?", "/mcp?x=/health"])
def test_other_spellings_need_the_same_token(path: str, guarded: HttpServer) -> None:
    assert guarded.request("POST", path).status == 401


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "localhost.evil.example:{port}", "127.0.0.1.evil.example", "",
     "2130706433:{port}", "mcp.example.com.evil.example", "127.0.0.2"],
)  # fmt: skip
def test_other_host_names_are_refused(host: str, era: str, open_server: HttpServer, guarded: HttpServer) -> None:
    for server, token in ((open_server, None), (guarded, ALICE)):
        answer = server.send_first_request(era, token, host=host.format(port=server.port))
        assert answer.status == 421
        assert "mcp-session-id" not in answer.headers


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "localhost", "[::1]:{port}", "127.0.0.1"])
def test_loopback_host_names_are_accepted(host: str, era: str, open_server: HttpServer) -> None:
    assert open_server.send_first_request(era, host=host.format(port=open_server.port)).status == 200


@pytest.mark.parametrize("era", ERAS)
def test_an_allowed_host_name_is_accepted(era: str, guarded: HttpServer, open_server: HttpServer) -> None:
    for host in ("mcp.example.com", "mcp.example.com:443"):
        assert guarded.send_first_request(era, ALICE, host=host).status == 200
        assert open_server.send_first_request(era, host=host).status == 421


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("origin", "is_ours"),
    [
        ("http://localhost:{port}", True),
        ("http://127.0.0.1:3000", True),
        ("http://localhost", True),
        ("https://evil.example", False),
        ("http://localhost.evil.example", False),
        ("http://evil.example:{port}", False),
        ("null", False),
        ("file://", False),
        ("https://localhost:{port}", False),
    ],
)
def test_which_origins_are_accepted(
    origin: str, is_ours: bool, era: str, open_server: HttpServer, guarded: HttpServer
) -> None:
    assert open_server.send_first_request(era, origin=origin.format(port=open_server.port)).status == (
        200 if is_ours else 403
    )
    # A server that is reachable from elsewhere accepts only the configured origins.
    assert guarded.send_first_request(era, ALICE, origin=origin.format(port=guarded.port)).status == 403


def test_an_allowed_origin_passes_cors(tmp_path: Path) -> None:
    origin = "https://app.example.com"
    with run_server(tmp_path, token_file=write_token_file(tmp_path), allowed_origins=[origin]) as server:
        preflight = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        granted = server.request("OPTIONS", "/mcp", None, {"origin": origin, **preflight})
        assert (granted.status, granted.headers["access-control-allow-origin"]) == (200, origin)
        assert "authorization" in granted.headers["access-control-allow-headers"]
        refused = server.request("OPTIONS", "/mcp", None, {"origin": "https://evil.example", **preflight})
        assert "access-control-allow-origin" not in refused.headers
        for era in ERAS:
            answer = server.send_first_request(era, ALICE, origin=origin)
            assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, origin)
            assert server.send_first_request(era, ALICE, origin="https://evil.example").status == 403
            assert server.send_first_request(era, None, origin=origin).status == 401


@pytest.mark.parametrize("era", ERAS)
def test_each_principal_has_its_own_rate_limit(era: str, tmp_path: Path) -> None:
    with run_server(tmp_path, token_file=write_token_file(tmp_path), rate_limit_per_minute=3) as server:
        assert [server.send_first_request(era, ALICE).status for _ in range(5)] == [200, 200, 200, 429, 429]
        refused = server.send_first_request(era, ALICE)
        assert 1 <= int(refused.headers["retry-after"]) <= 20
        assert "retry in" in refused.message["error"]["message"]
        # Failed attempts count against the address, not against principals with a token.
        assert [server.send_first_request(era, "x" * 40).status for _ in range(5)] == [401, 401, 401, 429, 429]
        assert [server.send_first_request(era, BOB).status for _ in range(4)] == [200, 200, 200, 429]
        assert server.request("GET", "/health").status == 200


def test_without_tokens_the_rate_limit_uses_the_real_address(tmp_path: Path) -> None:
    with run_server(tmp_path, rate_limit_per_minute=3) as server:
        statuses = [
            server.list_tools(x_forwarded_for=f"10.0.0.{number}", forwarded=f"for=10.0.0.{number}").status
            for number in range(5)
        ]
        assert statuses == [200, 200, 200, 429, 429]


def test_one_principal_cannot_open_all_sessions(tmp_path: Path) -> None:
    with run_server(tmp_path, token_file=write_token_file(tmp_path), max_sessions=8) as server:
        assert [server.initialize(ALICE).status for _ in range(4)] == [200, 200, 503, 503]
        assert [server.initialize(BOB).status for _ in range(3)] == [200, 200, 503]


def test_sessions_are_limited_and_expire(tmp_path: Path) -> None:
    with run_server(tmp_path, max_sessions=2, session_idle_seconds=1.0) as server:
        session = server.initialize().headers["mcp-session-id"]
        assert [server.initialize().status for _ in range(2)] == [200, 503]
        server.wait_for(f"Session {session[:8]}… idle timeout")
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        assert server.post(ping, mcp_session_id=session, mcp_protocol_version="2025-11-25").status == 404
        assert server.initialize().status == 200


def test_the_token_file_may_change_while_the_server_runs(tmp_path: Path) -> None:
    path = Path(write_token_file(tmp_path))
    with run_server(tmp_path, token_file=str(path)) as server:
        assert server.list_tools(ALICE).status == 200
        path.write_text(f"bob: {BOB}\n")
        assert (server.list_tools(ALICE).status, server.list_tools(BOB).status) == (401, 200)


@pytest.mark.posix
@pytest.mark.parametrize("era", ERAS)
def test_a_call_in_flight_is_answered_before_shutdown(era: str, tmp_path: Path) -> None:
    with run_server(tmp_path, shutdown_grace_seconds=20) as server:
        answers: list[Any] = []
        visitor = ToolClient(server, None, era)
        calling = threading.Thread(target=lambda: answers.append(visitor.call("slow", seconds=2.0)))
        calling.start()
        server.wait_for("slow has begun")
        server.terminate()
        calling.join(30)
        assert answers[0]["content"][0]["text"] == "at last"
        assert server.wait() == 0
        assert "ended with 0" in server.log


@pytest.mark.posix
@pytest.mark.parametrize("era", ERAS)
def test_a_slow_call_does_not_block_shutdown(era: str, tmp_path: Path) -> None:
    with run_server(tmp_path, shutdown_grace_seconds=0.5) as server:
        wire = connect_http(server.port, era)
        with ThreadPoolExecutor(1) as pool:
            calling = pool.submit(wire.request, "tools/call", {"name": "slow", "arguments": {"seconds": 600}})
            server.wait_for("slow has begun")
            server.terminate()
            assert server.wait() == 0
            assert "the gateway is stopping" in json.loads(extract_message(calling.result(30)))["error"]["message"]
        assert "--shutdown-grace-seconds" in server.log
        assert "Traceback" not in server.log


@pytest.mark.posix
def test_an_open_stream_does_not_block_shutdown(tmp_path: Path) -> None:
    with run_server(tmp_path, shutdown_grace_seconds=600) as server:
        session = server.initialize().headers["mcp-session-id"]
        with server.connect() as stream:
            request = f"GET /mcp HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\nmcp-session-id: {session}"
            stream.sendall(f"{request}\r\n\r\n".encode())
            assert b" 200 " in stream.recv(65536)
            server.terminate()
            assert server.wait() == 0


def test_an_address_in_use_is_an_error(open_server: HttpServer, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="give another --http"):
        run_http(SdkHub(Server("x")), Settings(http=("127.0.0.1", open_server.port)))
    with pytest.raises(InvalidArgument, match="No such file"):
        run_http(SdkHub(Server("x")), Settings(http=("127.0.0.1", 0), token_file=str(tmp_path / "none")))


def test_a_server_that_cannot_start_returns_an_exit_code() -> None:
    class BrokenHub(SdkHub):
        async def start(self) -> None:
            raise LookupError("no upstream")

    before = signal.getsignal(signal.SIGTERM)
    assert run_http(BrokenHub(Server("x")), Settings(http=("127.0.0.1", 0))) == 1
    assert signal.getsignal(signal.SIGTERM) is before


def test_remote_callers_may_reference_handles_but_not_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("7")
    roots: dict[str, Any] = {"file_refs": True, "file_roots": [str(tmp_path)]}
    with run_server(tmp_path, **roots) as server:
        visitor = ToolClient(server, None, MODERN)
        assert visitor.call("text", size={"$file": str(secret)})["content"][0]["text"] == "x" * 7
    with run_server(
        tmp_path, **roots, token_file=write_token_file(tmp_path), allowed_hosts=["mcp.example.com"]
    ) as server:
        visitor = ToolClient(server, ALICE, MODERN)
        for path in (str(secret), "secret", "/etc/hostname"):
            assert visitor.call_json("text", size={"$file": path})["error"]["code"] == "file_ref_denied"
        handle = visitor.call_json("text", size=50_000)["output_handle"]
        assert visitor.call_json("echo", text={"$handle": handle})["size_bytes"] == 50_000


def test_no_token_is_written_to_disk_or_log(tmp_path: Path) -> None:
    path = Path(write_token_file(tmp_path))
    with run_server(tmp_path, token_file=str(path), journal=True, compression="none") as server:
        for era in ERAS:
            visitor = ToolClient(server, ALICE, era)
            visitor.call_json("text", size=50_000)
            visitor.call("breaking")
            assert "alice" in json.dumps(visitor.call_json("journal"))
        path.write_text(f"alice: {ALICE} {BOB}\n")
        assert server.list_tools(BOB).status == 200
    stored = b"".join(file.read_bytes() for file in (tmp_path / "store").rglob("*") if file.is_file())
    assert b"alice" in stored
    for token in (ALICE, BOB):
        assert token.encode() not in stored
        assert token not in server.log


@pytest.mark.parametrize("era", ERAS)
def test_the_client_of_the_sdk_is_served(era: str, guarded: HttpServer) -> None:
    async def talk() -> None:
        headers = {"authorization": f"Bearer {BOB}"}
        async with httpx2.AsyncClient(headers=headers) as http_client:
            transport = streamable_http_client(f"http://127.0.0.1:{guarded.port}/mcp", http_client=http_client)
            async with Client(transport, mode=era) as client:
                assert "output_fetch" in [tool.name for tool in (await client.list_tools()).tools]
                handle = parse_text(await client.call_tool("text", {"size": 100_000}))["output_handle"]
                pages = await read_all_items(client, handle)
                assert "".join(page["content"] for page in pages) == "x" * 100_000

    anyio.run(talk)
