"""Requests whose headers are ambiguous or malformed are answered 400 and closed."""

from collections.abc import Iterator

import pytest
from forebay.http.request_headers import find_fault
from listening_harness import ALICE, BOB, JSON, HttpServer, run_server, write_token_file
from wires import MODERN

HEADERS = [(b"host", b"localhost"), (b"authorization", b"Bearer x")]
MALFORMED_HOSTS = [
    "localhost:80.evil.com",
    "localhost:80@evil.com",
    "localhost:@evil.com",
    "localhost@evil.com",
    "evil.com@localhost",
    "user:pass@localhost:80",
    "localhost:",
    "localhost:x",
    "localhost:+80",
    "localhost:8_0",
    "localhost:65536",
    "localhost:80:80",
    "localhost:80/",
    "localhost:80#evil.com",
    "localhost.",
    "localhost.:80",
    "localhost..",
    ".localhost",
    "local..host",
    "localhost,evil.com",
    "localhost evil.com",
    "[::1",
    "[::1::2]",
    "::1",
    "[::1].evil.com",
    "[::1]:80.evil.com",
    "[::1%25evil]",
    "[localhost]",
    "http://localhost",
    "localhost\t",
    "localhost\xb2",
    "localhost:\xb2",
]
WELL_FORMED_HOSTS = ["localhost", "localhost:0", "LOCALHOST:80", "a-b.example_c.com:65535", "127.0.0.1", "[::1]:8000"]


@pytest.mark.parametrize("host", MALFORMED_HOSTS)
def test_a_malformed_host_is_a_fault(host: str) -> None:
    assert "Host" in (find_fault([(b"host", host.encode("latin-1"))]) or "")
    assert "Origin" in (find_fault([*HEADERS, (b"origin", f"http://{host}".encode("latin-1"))]) or "")


@pytest.mark.parametrize("host", WELL_FORMED_HOSTS)
def test_a_well_formed_host_is_no_fault(host: str) -> None:
    assert find_fault([(b"host", host.encode())]) is None
    assert find_fault([*HEADERS, (b"origin", f"http://{host}".encode())]) is None


@pytest.mark.parametrize("origin", ["null", "file://", "https://app.example.com", "vscode-webview://1a2b"])
def test_a_well_formed_origin_is_no_fault(origin: str) -> None:
    assert find_fault([*HEADERS, (b"origin", origin.encode())]) is None


@pytest.mark.parametrize("origin", ["http://localhost/", "http://localhost?x", "localhost", "http:localhost"])
def test_an_origin_has_only_scheme_host_and_port(origin: str) -> None:
    assert "Origin" in (find_fault([*HEADERS, (b"origin", origin.encode())]) or "")


@pytest.mark.parametrize(
    "name", ["Authorization", "Host", "Origin", "Content-Type", "Mcp-Session-Id", "Mcp-Protocol-Version"]
)
def test_a_repeated_header_is_a_fault_even_if_both_values_agree(name: str) -> None:
    value = {"Host": b"localhost", "Origin": b"http://localhost"}.get(name, b"x")
    headers = [(name.lower().encode(), value)]
    assert find_fault(headers) is None
    assert name in (find_fault(headers * 2) or "")


def test_a_length_beside_a_transfer_encoding_is_a_fault() -> None:
    length, encoding = (b"content-length", b"5"), (b"transfer-encoding", b"chunked")
    assert find_fault([*HEADERS, length]) is None
    assert find_fault([*HEADERS, encoding]) is None
    assert "Content-Length" in (find_fault([*HEADERS, length, encoding]) or "")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    root = tmp_path_factory.mktemp("guarded")
    with run_server(root, token_file=write_token_file(root)) as server:
        yield server


def send(server: HttpServer, *changes: str, body: str = "") -> bytes:
    """Send a POST with a valid token, after replacing or adding headers, and return what comes until the close."""
    headers = {"host": "localhost", "authorization": f"Bearer {ALICE}", **JSON, "mcp-protocol-version": MODERN}
    replaced = {change.partition(":")[0] for change in changes if change.startswith("host:")}
    lines = [f"{name}: {value}" for name, value in headers.items() if name not in replaced]
    request = "\r\n".join(["POST /mcp HTTP/1.1", *lines, *changes]) + "\r\n\r\n" + body
    return server.send_raw(request.encode("latin-1"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        (f"authorization: Bearer {BOB}",),
        (f"authorization: Bearer {ALICE}",),
        ("authorization: Basic eDp5",),
        ("content-length: 5", "transfer-encoding: chunked"),
        ("content-length: 5", "content-length: 6"),
        ("content-length: 5, 6",),
        ("host: localhost:80.evil.com",),
        ("host: user@localhost",),
        ("host: localhost:x",),
        ("host: localhost.",),
        ("host: localhost", "host: localhost"),
        ("host: localhost", "host: evil.example"),
        ("origin: http://user@localhost",),
        ("origin: http://localhost:80@evil.com",),
        ("origin: http://localhost:80.evil.com",),
        ("origin: http://localhost", "origin: http://evil.com"),
    ],
)
def test_the_server_answers_400_and_closes(changes: tuple[str, ...], guarded: HttpServer) -> None:
    hidden = "0\r\n\r\nGET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    answer = send(guarded, *changes, body=hidden)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert ALICE not in guarded.log
    assert "Traceback" not in guarded.log
