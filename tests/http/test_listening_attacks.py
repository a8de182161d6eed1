"""What clients do to a server over HTTP that is not in any protocol: it stays up, and lets nobody in."""

import contextlib
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from listening_harness import ALICE, JSON, Listening, everything, listening, tokens_in
from wires import ERAS, HELLO, MODERN, MODERN_META

LIMIT = 100_000
NOBODY = "no" * 20
HEADERS = "\r\n".join(f"{name}: {value}" for name, value in JSON.items())


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    root = tmp_path_factory.mktemp("guarded")
    with listening(root, token_file=tokens_in(root), body_limit_bytes=LIMIT) as server:
        yield server


@pytest.fixture(autouse=True)
def _stays_up(guarded: Listening) -> Iterator[None]:
    yield
    assert guarded.discover(ALICE).status == 200
    assert ALICE not in guarded.logged
    assert "Traceback" not in guarded.logged


def request(more: str, body: bytes = b"", *, token: str = ALICE, line: str = "POST /mcp HTTP/1.1") -> bytes:
    lines = [line, "host: localhost", f"authorization: Bearer {token}", HEADERS, more]
    return "\r\n".join(filter(None, lines)).encode("latin-1") + b"\r\n\r\n" + body


def of_era(era: str, **more: Any) -> tuple[str, bytes]:
    """The headers and the body of a request that is right."""
    if era != MODERN:
        return "", json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO, **more}).encode()
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": MODERN_META}, **more}
    return f"mcp-protocol-version: {MODERN}\r\nmcp-method: tools/list", json.dumps(message).encode()


def chunked(body: bytes, size: int) -> bytes:
    pieces = (body[at : at + size] for at in range(0, len(body), size))
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def statuses(came: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", came)]


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
def test_a_body_in_chunks_is_taken_up_to_the_limit(era: str, guarded: Listening) -> None:
    headers, body = of_era(era)
    more = f"transfer-encoding: chunked\r\nconnection: close\r\n{headers}".rstrip()
    assert statuses(guarded.raw(request(more, chunked(body, 7)))) == [200]
    padded = body + b" " * (LIMIT - len(body))
    assert statuses(guarded.raw(request(more, chunked(padded, 4096)))) == [200]
    assert statuses(guarded.raw(request(more, chunked(padded + b" ", 4096)))) == [413]


@pytest.mark.parametrize("era", ERAS)
def test_a_body_that_says_that_it_is_too_long_is_not_waited_for(era: str, guarded: Listening) -> None:
    headers, body = of_era(era)
    for length, status in ((LIMIT, 200), (LIMIT + 1, 413), (10**15, 413)):
        with guarded.connected() as connection:
            connection.sendall(request(f"content-length: {length}\r\n{headers}".rstrip()))
            if status == 200:
                connection.sendall(body + b" " * (length - len(body)))
            assert statuses(connection.recv(200)) == [status]


def test_a_body_without_a_length_is_none(guarded: Listening) -> None:
    assert statuses(guarded.raw(request("connection: close", of_era("legacy")[1]))) == [400]


@pytest.mark.parametrize(
    "more",
    [
        "content-length: 5\r\ncontent-length: 6",
        "content-length: -1",
        "content-length: 5x",
        "content-length: 5\r\ntransfer-encoding: chunked, identity",
        "transfer-encoding: gzip",
        "host: evil.example",
        "x: a\x00b",
        "x : y",
        "x\x0b: y",
        "x: y\r\n folded: y",
        "x: y\r\n" * 3000,
        "x: " + "y" * 70_000,
    ],
    ids=lambda more: repr(more[:30]),
)
def test_requests_that_are_none(more: str, guarded: Listening) -> None:
    assert statuses(guarded.raw(request(f"connection: close\r\n{more}"))) in ([400], [501])


@pytest.mark.parametrize(
    "line",
    [
        "POST /mcp",
        "POST /mcp HTTP/9.9",
        "POST  /mcp HTTP/1.1",
        "POST /mcp HTTP/1.1\r\n\r\nGET /mcp HTTP/1.1",
        "\x16\x03\x01\x02\x00",
        "PRI * HTTP/2.0",
        "GET /" + "a" * 100_000 + " HTTP/1.1",
        "GET http://evil.example/mcp HTTP/1.1",
        "CONNECT evil.example:80 HTTP/1.1",
        "OPTIONS * HTTP/1.1",
    ],
    ids=lambda line: repr(line[:30]),
)
def test_requests_that_are_for_nobody(line: str, guarded: Listening) -> None:
    told = statuses(guarded.raw(request("connection: close\r\ncontent-length: 0", line=line)))
    assert told
    assert set(told) <= {400, 404}


def test_a_line_break_in_a_header_makes_no_other_header(guarded: Listening) -> None:
    """A token must stand where tokens stand, whatever comes before it."""
    for trick in (
        "x: y\nauthorization: Bearer {}",
        "x: y\rauthorization: Bearer {}",
        "x: y\r\n authorization: Bearer {}",
    ):
        sent = request("connection: close\r\ncontent-length: 0", token=NOBODY).replace(
            f"authorization: Bearer {NOBODY}".encode(), trick.format(ALICE).encode()
        )
        (status,) = statuses(guarded.raw(sent))
        # A lone line feed ends a line to some; then it is one header more, and not another request.
        assert status in (400, 401)


@pytest.mark.parametrize("era", ERAS)
def test_requests_in_a_row_are_each_answered_by_their_own_token(era: str, guarded: Listening) -> None:
    headers, body = of_era(era)
    more = f"content-length: {len(body)}\r\n{headers}".rstrip()
    last = f"connection: close\r\n{more}"
    came = guarded.raw(request(more, body) + request(more, body, token=NOBODY) + request(last, body))
    assert statuses(came) == [200, 401, 200]


def test_a_request_hidden_in_the_body_of_another_is_not_answered(guarded: Listening) -> None:
    hidden = request("content-length: 0", line="GET /health HTTP/1.1")
    for token, status in ((ALICE, 400), (NOBODY, 401)):
        more = f"connection: close\r\ncontent-length: {len(hidden)}"
        assert statuses(guarded.raw(request(more, hidden, token=token))) == [status]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_what_a_page_may_send_unasked_is_refused(kind: str, era: str, guarded: Listening) -> None:
    assert guarded.first(era, ALICE, content_type=kind).status == 400


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 90_000, b'{"a":' * 15_000, b"1" * 90_000, b'{"jsonrpc": "2.0"}',
     b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}'],
    ids=lambda body: repr(body[:20]),
)  # fmt: skip
@pytest.mark.parametrize("era", ERAS)
def test_bodies_that_are_no_requests(body: bytes, era: str, guarded: Listening) -> None:
    headers = JSON | {"authorization": f"Bearer {ALICE}"}
    if era == MODERN:
        headers |= {"mcp-protocol-version": MODERN, "mcp-method": "tools/list"}
    assert guarded.ask("POST", "/mcp", body, headers).status == 400


@pytest.mark.parametrize("session", ["", "../../x", "x" * 5000, "%00", "é"])
def test_sessions_that_never_were(session: str, guarded: Listening) -> None:
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    answer = guarded.post(ping, ALICE, mcp_session_id=session, mcp_protocol_version="2025-11-25")
    assert answer.status in (400, 404)


def test_an_upgrade_is_not_made(guarded: Listening) -> None:
    more = "connection: upgrade, close\r\nupgrade: websocket\r\nsec-websocket-key: x\r\nsec-websocket-version: 13"
    assert statuses(guarded.raw(request(more, line="GET /mcp HTTP/1.1", token=NOBODY))) == [401]


@pytest.mark.slow
def test_who_is_slow_is_hung_up_on(tmp_path: Path) -> None:
    headers, body = of_era(MODERN)
    whole = request(f"content-length: {len(body)}\r\n{headers}", body)
    with listening(tmp_path, token_file=tokens_in(tmp_path), read_timeout_seconds=1.0) as server:
        refused = request(f"content-length: {len(body)}", body, token=NOBODY)
        for sent, status in (
            (b"", []),
            (b"P", [408]),
            (whole[:40], [408]),
            (whole[: -len(body)], [408]),
            (whole[:-1], [408]),
            (request("transfer-encoding: chunked", b"5\r\nabc"), [408]),
            # What was answered is not answered again.
            (refused[:-1], [401]),
            (whole + whole[:-1], [200, 408]),
        ):
            assert statuses(server.raw(sent)) == status
        # However often it says a little.
        assert statuses(dripped(server, whole, 0)) == [408]
        assert statuses(dripped(server, whole, len(whole) - len(body))) == [408]
        assert statuses(dripped(server, refused, len(refused) - len(body))) == [401]
        assert server.discover(ALICE).status == 200


def dripped(server: Listening, sent: bytes, begun: int) -> bytes:
    """Sends a byte at a time from somewhere on, and the last never, until it is hung up on."""
    with server.connected() as connection:
        connection.settimeout(0.05)
        connection.sendall(sent[:begun])
        came = b""
        for at in range(begun, len(sent) - 1):
            try:
                connection.sendall(sent[at : at + 1])
                more = connection.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                return came
            came += more
            if not more:
                return came
        raise AssertionError("nobody hung up")


@pytest.mark.slow
def test_each_request_has_its_own_time(tmp_path: Path) -> None:
    headers, body = of_era(MODERN)
    whole = request(f"content-length: {len(body)}\r\n{headers}", body)
    last = request(f"connection: close\r\ncontent-length: {len(body)}\r\n{headers}", body)
    with listening(tmp_path, read_timeout_seconds=4.0) as server, server.connected() as connection:
        connection.sendall(whole)
        # Together more than it has, but each of them less.
        time.sleep(2.2)
        connection.sendall(last[:-1])
        time.sleep(2.2)
        connection.sendall(last[-1:])
        assert statuses(everything(connection)) == [200, 200]


@pytest.mark.slow
def test_a_call_may_take_longer_than_its_request(tmp_path: Path) -> None:
    with listening(tmp_path, read_timeout_seconds=0.5) as server:
        params = {"name": "slow", "arguments": {"seconds": 1.5}, "_meta": MODERN_META}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = server.post(call, mcp_protocol_version=MODERN, mcp_method="tools/call", mcp_name="slow")
        assert answer.message["result"]["content"][0]["text"] == "at last"


@pytest.mark.slow
def test_connections_are_bounded(tmp_path: Path) -> None:
    with listening(tmp_path, max_connections=3) as server, contextlib.ExitStack() as opened:
        for _ in range(3):
            opened.enter_context(answered(server))
        for _ in range(3):
            assert statuses(server.raw(b"")) == [503]
        opened.close()
        assert until_answered(server) == 200


@contextlib.contextmanager
def answered(server: Listening) -> Iterator[socket.socket]:
    """A connection that the server knows of, and that stays open."""
    with server.connected() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert statuses(connection.recv(65536)) == [200]
        connection.sendall(b"GET /")
        yield connection


def until_answered(server: Listening) -> int:
    """Those that were closed are not forgotten at once."""
    for _ in range(100):
        if (status := server.ask("GET", "/health").status) != 503:
            return status
    return 503


@pytest.mark.slow
def test_nothing_is_left_of_who_goes_away(guarded: Listening) -> None:
    headers, body = of_era(MODERN)
    whole = request(f"content-length: {len(body)}\r\n{headers}", body)
    for at in range(0, len(whole), 16):
        with guarded.connected() as connection:
            connection.sendall(whole[:at])
    with guarded.connected() as connection:
        connection.sendall(request("connection: close\r\ncontent-length: 0", line="GET /health HTTP/1.1"))
        assert statuses(everything(connection)) == [200]
