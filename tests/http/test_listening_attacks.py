"""Malformed and hostile HTTP requests: the server stays up and lets nobody in."""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from listening_harness import ALICE, JSON, HttpServer, read_until_closed, run_server, write_token_file
from wires import ERAS, INITIALIZE_PARAMS, MODERN, MODERN_META

BODY_LIMIT_BYTES = 100_000
UNKNOWN_TOKEN = "no" * 20
HEADERS = "\r\n".join(f"{name}: {value}" for name, value in JSON.items())


@pytest.fixture(scope="module", params=["httptools", "h11"])
def parser(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def guarded(parser: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    root = tmp_path_factory.mktemp("guarded")
    options: dict[str, Any] = {"body_limit_bytes": BODY_LIMIT_BYTES, "parser": parser}
    with run_server(root, token_file=write_token_file(root), **options) as server:
        yield server


@pytest.fixture(autouse=True)
def _stays_up(guarded: HttpServer) -> Iterator[None]:
    yield
    assert guarded.list_tools(ALICE).status == 200
    assert ALICE not in guarded.log
    assert "Traceback" not in guarded.log


def make_request(headers: str, body: bytes = b"", *, token: str = ALICE, line: str = "POST /mcp HTTP/1.1") -> bytes:
    lines = [line, "host: localhost", f"authorization: Bearer {token}", HEADERS, headers]
    return "\r\n".join(filter(None, lines)).encode("latin-1") + b"\r\n\r\n" + body


def valid_request(era: str, **more: Any) -> tuple[str, bytes]:
    """Return the headers and the body of a valid request."""
    if era != MODERN:
        return "", json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE_PARAMS, **more}
        ).encode()
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": MODERN_META}, **more}
    return f"mcp-protocol-version: {MODERN}\r\nmcp-method: tools/list", json.dumps(message).encode()


def encode_chunked(body: bytes, size: int) -> bytes:
    pieces = (body[start : start + size] for start in range(0, len(body), size))
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def parse_statuses(response: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", response)]


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
def test_a_chunked_body_is_limited(era: str, guarded: HttpServer) -> None:
    headers, body = valid_request(era)
    more = f"transfer-encoding: chunked\r\nconnection: close\r\n{headers}".rstrip()
    assert parse_statuses(guarded.send_raw(make_request(more, encode_chunked(body, 7)))) == [200]
    padded = body + b" " * (BODY_LIMIT_BYTES - len(body))
    assert parse_statuses(guarded.send_raw(make_request(more, encode_chunked(padded, 4096)))) == [200]
    assert parse_statuses(guarded.send_raw(make_request(more, encode_chunked(padded + b" ", 4096)))) == [413]


@pytest.mark.parametrize(
    "endless",
    [b"0\r\n" + b"ab:cd\r\n" * 50_000, b"0\r\nx: " + b"y" * 300_000, b"5;" + b"y" * 300_000],
    ids=["many trailers", "a long trailer", "a long extension of a chunk"],
)
def test_what_is_beside_a_chunked_body_is_limited(endless: bytes, guarded: HttpServer) -> None:
    headers, body = valid_request(MODERN)
    sent = make_request(f"transfer-encoding: chunked\r\n{headers}", b"%x\r\n%b\r\n" % (len(body), body) + endless)
    assert parse_statuses(guarded.send_raw(sent)) == [400]


@pytest.mark.parametrize(
    ("token", "path", "early_status"), [(ALICE, "/mcp", None), (UNKNOWN_TOKEN, "/mcp", 401), (ALICE, "/elsewhere", 404)]
)
def test_a_malformed_body_is_answered_once(
    token: str, path: str, early_status: int | None, guarded: HttpServer
) -> None:
    """And without an error in the log, which `_stays_up` checks."""
    line = f"POST {path} HTTP/1.1"
    request = make_request("transfer-encoding: chunked", b"5\r\nabcde\r\n", token=token, line=line)
    assert parse_statuses(guarded.send_raw(request + b"zz\r\n")) == [400]
    with guarded.connect() as connection:
        connection.sendall(request)
        received = b"" if early_status is None else connection.recv(65536)
        connection.sendall(b"zz\r\n")
        assert parse_statuses(received + read_until_closed(connection)) == [early_status or 400]


def test_trailers_are_no_headers(guarded: HttpServer) -> None:
    headers, body = valid_request(MODERN)
    chunk = b"%x\r\n%b\r\n0\r\n" % (len(body), body)
    lines = ["POST /mcp HTTP/1.1", "host: localhost", HEADERS, headers, "transfer-encoding: chunked"]
    for trailers, status in (
        (f"authorization: Bearer {ALICE}\r\n", 401),
        (f"authorization: Bearer {UNKNOWN_TOKEN}\r\nhost: evil.example\r\n", 200),
    ):
        more = ["connection: close", *([] if status == 401 else [f"authorization: Bearer {ALICE}"]), "", ""]
        sent = "\r\n".join([*lines, *more]).encode() + chunk + trailers.encode() + b"\r\n"
        assert parse_statuses(guarded.send_raw(sent)) == [status]


@pytest.mark.parametrize("era", ERAS)
def test_a_content_length_above_the_limit_is_refused_at_once(era: str, guarded: HttpServer) -> None:
    headers, body = valid_request(era)
    for length, status in ((BODY_LIMIT_BYTES, 200), (BODY_LIMIT_BYTES + 1, 413), (10**15, 413)):
        with guarded.connect() as connection:
            connection.sendall(make_request(f"content-length: {length}\r\n{headers}".rstrip()))
            if status == 200:
                connection.sendall(body + b" " * (length - len(body)))
            assert parse_statuses(connection.recv(200)) == [status]


def test_a_body_without_a_length_is_ignored(guarded: HttpServer) -> None:
    assert parse_statuses(guarded.send_raw(make_request("connection: close", valid_request("legacy")[1]))) == [400]


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
def test_malformed_headers_are_refused(more: str, guarded: HttpServer) -> None:
    assert parse_statuses(guarded.send_raw(make_request(f"connection: close\r\n{more}"))) in ([400], [501])


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
def test_malformed_request_lines_are_refused(line: str, guarded: HttpServer) -> None:
    statuses = parse_statuses(guarded.send_raw(make_request("connection: close\r\ncontent-length: 0", line=line)))
    assert statuses
    assert set(statuses) <= {400, 404}


def test_a_line_break_in_a_header_does_not_start_another_header(guarded: HttpServer) -> None:
    """A token counts only in its own header, whatever precedes it."""
    for trick in (
        "x: y\nauthorization: Bearer {}",
        "x: y\rauthorization: Bearer {}",
        "x: y\r\n authorization: Bearer {}",
    ):
        sent = make_request("connection: close\r\ncontent-length: 0", token=UNKNOWN_TOKEN).replace(
            f"authorization: Bearer {UNKNOWN_TOKEN}".encode(), trick.format(ALICE).encode()
        )
        (status,) = parse_statuses(guarded.send_raw(sent))
        # Some parsers end a line at a lone line feed: then it is one more header, but not another request.
        assert status in (400, 401)


@pytest.mark.parametrize("era", ERAS)
def test_pipelined_requests_each_use_their_own_token(era: str, guarded: HttpServer) -> None:
    headers, body = valid_request(era)
    more = f"content-length: {len(body)}\r\n{headers}".rstrip()
    last = f"connection: close\r\n{more}"
    responses = guarded.send_raw(
        make_request(more, body) + make_request(more, body, token=UNKNOWN_TOKEN) + make_request(last, body)
    )
    assert parse_statuses(responses) == [200, 401, 200]


def test_a_request_inside_a_body_is_not_answered(guarded: HttpServer) -> None:
    hidden = make_request("content-length: 0", line="GET /health HTTP/1.1")
    for token, status in ((ALICE, 400), (UNKNOWN_TOKEN, 401)):
        more = f"connection: close\r\ncontent-length: {len(hidden)}"
        assert parse_statuses(guarded.send_raw(make_request(more, hidden, token=token))) == [status]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_content_types_without_cors_preflight_are_refused(kind: str, era: str, guarded: HttpServer) -> None:
    assert guarded.send_first_request(era, ALICE, content_type=kind).status == 400


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 90_000, b'{"a":' * 15_000, b"1" * 90_000, b'{"jsonrpc": "2.0"}',
     b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}'],
    ids=lambda body: repr(body[:20]),
)  # fmt: skip
@pytest.mark.parametrize("era", ERAS)
def test_invalid_bodies_are_refused(body: bytes, era: str, guarded: HttpServer) -> None:
    headers = JSON | {"authorization": f"Bearer {ALICE}"}
    if era == MODERN:
        headers |= {"mcp-protocol-version": MODERN, "mcp-method": "tools/list"}
    assert guarded.request("POST", "/mcp", body, headers).status == 400


@pytest.mark.parametrize("session", ["", "../../x", "x" * 5000, "%00", "é"])
def test_unknown_sessions_are_refused(session: str, guarded: HttpServer) -> None:
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    answer = guarded.post(ping, ALICE, mcp_session_id=session, mcp_protocol_version="2025-11-25")
    assert answer.status in (400, 404)


def test_a_protocol_upgrade_is_ignored(guarded: HttpServer) -> None:
    more = "connection: upgrade, close\r\nupgrade: websocket\r\nsec-websocket-key: x\r\nsec-websocket-version: 13"
    assert parse_statuses(guarded.send_raw(make_request(more, line="GET /mcp HTTP/1.1", token=UNKNOWN_TOKEN))) == [401]


@pytest.mark.slow
def test_a_slow_request_is_ended_by_the_read_timeout(parser: str, tmp_path: Path) -> None:
    headers, body = valid_request(MODERN)
    whole = make_request(f"content-length: {len(body)}\r\n{headers}", body)
    options: dict[str, Any] = {"read_timeout_seconds": 1.0, "parser": parser}
    with run_server(tmp_path, token_file=write_token_file(tmp_path), **options) as server:
        refused = make_request(f"content-length: {len(body)}", body, token=UNKNOWN_TOKEN)
        sent_once: tuple[tuple[bytes, list[int]], ...] = (
            (b"", []),
            (b"P", [408]),
            (whole[:40], [408]),
            (whole[: -len(body)], [408]),
            (whole[:-1], [408]),
            (make_request("transfer-encoding: chunked", b"5\r\nabc"), [408]),
            # A refused request is not answered twice.
            (refused[:-1], [401]),
            (whole + whole[:-1], [200, 408]),
            (whole + whole[:40], [200, 408]),
        )
        # Sending a byte now and then does not extend the time.
        sent_slowly = (
            (whole, 0, [408]),
            (whole, len(whole) - len(body), [408]),
            (refused, len(refused) - len(body), [401]),
        )
        # At the same time, because each of them takes as long as the timeout.
        with ThreadPoolExecutor(len(sent_once) + len(sent_slowly)) as pool:
            answers = [(pool.submit(server.send_raw, data), status) for data, status in sent_once]
            answers += [
                (pool.submit(send_slowly, server, data, at_once), status) for data, at_once, status in sent_slowly
            ]
            for number, (answer, status) in enumerate(answers):
                assert parse_statuses(answer.result()) == status, number
        assert server.list_tools(ALICE).status == 200


def send_slowly(server: HttpServer, data: bytes, sent_at_once: int) -> bytes:
    """Send all bytes but the last, one at a time after the first few, until the server closes the connection."""
    with server.connect() as connection:
        connection.settimeout(0.05)
        connection.sendall(data[:sent_at_once])
        received = b""
        for position in range(sent_at_once, len(data) - 1):
            try:
                connection.sendall(data[position : position + 1])
                chunk = connection.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                return received
            received += chunk
            if not chunk:
                return received
        raise AssertionError("the server did not close the connection")


@pytest.mark.slow
def test_each_request_has_its_own_read_timeout(parser: str, tmp_path: Path) -> None:
    headers, body = valid_request(MODERN)
    whole = make_request(f"content-length: {len(body)}\r\n{headers}", body)
    last = make_request(f"connection: close\r\ncontent-length: {len(body)}\r\n{headers}", body)
    with run_server(tmp_path, read_timeout_seconds=4.0, parser=parser) as server, server.connect() as connection:
        connection.sendall(whole)
        # Together the pauses exceed the timeout, but each request stays below it.
        time.sleep(2.2)
        connection.sendall(last[:-1])
        time.sleep(2.2)
        connection.sendall(last[-1:])
        assert parse_statuses(read_until_closed(connection)) == [200, 200]


@pytest.mark.slow
def test_the_read_timeout_does_not_limit_the_call(tmp_path: Path) -> None:
    with run_server(tmp_path, read_timeout_seconds=0.5) as server:
        params = {"name": "slow", "arguments": {"seconds": 1.5}, "_meta": MODERN_META}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = server.post(call, mcp_protocol_version=MODERN, mcp_method="tools/call", mcp_name="slow")
        assert answer.message["result"]["content"][0]["text"] == "at last"


@pytest.mark.slow
def test_a_pipelined_request_does_not_end_the_call_before_it(parser: str, tmp_path: Path) -> None:
    params = {"name": "slow", "arguments": {"seconds": 1.5}, "_meta": MODERN_META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    more = f"mcp-protocol-version: {MODERN}\r\nmcp-method: tools/call\r\nmcp-name: slow"
    call = make_request(f"{more}\r\ncontent-length: {len(body)}", body)
    headers, body = valid_request(MODERN)
    body += b" " * (BODY_LIMIT_BYTES - len(body))
    whole = make_request(f"connection: close\r\n{headers}\r\ncontent-length: {len(body)}", body)
    sent = ((whole, [200, 200]), (whole[:40], [200, 408]), (whole[:-1], [200, 408]))
    with (
        run_server(tmp_path, read_timeout_seconds=0.5, parser=parser) as server,
        ThreadPoolExecutor(len(sent)) as pool,
    ):
        answers = [(pool.submit(server.send_raw, call + rest), statuses) for rest, statuses in sent]
        for answer, statuses in answers:
            assert parse_statuses(answer.result()) == statuses


MALFORMED = make_request("transfer-encoding: chunked", b"-1\r\n\r\n")


@pytest.mark.slow
def test_a_malformed_request_does_not_end_the_call_before_it(parser: str, tmp_path: Path) -> None:
    message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call"}
    params = {"name": "wait", "arguments": {"report_first": True}, "_meta": MODERN_META}
    body = json.dumps({**message, "params": params}).encode()
    more = f"mcp-protocol-version: {MODERN}\r\nmcp-method: tools/call\r\nmcp-name: wait"
    call = make_request(f"{more}\r\ncontent-length: {len(body)}", body)
    params = {"name": "release", "arguments": {}, "_meta": MODERN_META}
    health = make_request("", line="GET /health HTTP/1.1")
    with run_server(tmp_path, script="scripted_hub.py", parser=parser) as server:
        for rest, statuses in (
            (MALFORMED, [200]),
            (health + MALFORMED, [200, 200]),
            (health + b"no request\r\n\r\n", [200, 200]),
        ):
            with server.connect() as connection:
                connection.sendall(call + rest)
                # The head of the stream, which is sent before the call is released.
                received = connection.recv(65536)
                released = server.post(
                    {**message, "params": params},
                    mcp_protocol_version=MODERN,
                    mcp_method="tools/call",
                    mcp_name="release",
                )
                assert released.status == 200
                received += read_until_closed(connection)
            assert b"at last" in received
            # Only h11 answers the malformed request, too.
            assert [status for status in parse_statuses(received) if status != 400] == statuses
        assert "Traceback" not in server.log


@pytest.mark.slow
def test_aborted_requests_do_not_disturb_later_ones(guarded: HttpServer) -> None:
    headers, body = valid_request(MODERN)
    whole = make_request(f"content-length: {len(body)}\r\n{headers}", body)
    for length in range(0, len(whole), 16):
        with guarded.connect() as connection:
            connection.sendall(whole[:length])
    with guarded.connect() as connection:
        connection.sendall(make_request("connection: close\r\ncontent-length: 0", line="GET /health HTTP/1.1"))
        assert parse_statuses(read_until_closed(connection)) == [200]
