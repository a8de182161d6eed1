"""The log of the HTTP server."""

import subprocess
import sys
from pathlib import Path

import pytest
from listening_harness import ALICE, BOB, HttpServer, run_server, write_token_file
from serve_harness import write_config
from waiting import wait_until

pytestmark = pytest.mark.slow


def test_session_ids_are_shortened_in_the_log(tmp_path: Path) -> None:
    """A session id in a log would let a reader with the token continue the session."""
    with run_server(tmp_path, token_file=write_token_file(tmp_path)) as server:
        session = server.initialize(ALICE).headers["mcp-session-id"]
        assert server.initialize(BOB, mcp_session_id=session).status == 404
        server.wait_for(f"session {session[:8]}…")
        unknown = "a-session-that-never-was"
        assert server.initialize(BOB, mcp_session_id=unknown).status == 404
        server.wait_for("session ID: a-sessio…")
    assert session not in server.log
    assert unknown not in server.log


def test_missing_and_wrong_tokens_are_told_apart(tmp_path: Path) -> None:
    with run_server(tmp_path, token_file=write_token_file(tmp_path)) as server:
        missing = server.initialize(None)
        assert (missing.status, missing.headers["www-authenticate"]) == (401, 'Bearer realm="forebay"')
        assert missing.message == {"error_description": "there is no token; send Authorization: Bearer TOKEN"}
        server.wait_for("a request from 127.0.0.1 is refused: it has no token")
        wrong = server.initialize(ALICE[:-1])
        assert 'error="invalid_token", error_description="this token is not valid' in wrong.headers["www-authenticate"]
        assert wrong.message["error"] == "invalid_token"

        def is_logged() -> bool:
            server.initialize(ALICE[:-1])
            return "is refused: its token is not valid" in server.log

        # At most one refusal a second is logged.
        wait_until(is_logged)
    assert ALICE[:-1] not in server.log


def test_the_address_is_printed_at_every_log_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FOREBAY_LOG_LEVEL", raising=False)
    file = str(write_config(tmp_path, {"text": {"python": "textwrap"}}))
    command = [sys.executable, "-m", "forebay", "serve", "--config", file, "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as gateway:
        try:
            server = HttpServer(gateway)
            assert server.request(path="/health").status == 200
            server.terminate()
            # Windows has no signal that asks a process to end, so the server is killed.
            assert server.wait() == (1 if sys.platform == "win32" else 0)
            address = f"http://127.0.0.1:{server.port}"
            lines = [f"forebay: listening on {address}/mcp", f"forebay: the dashboard is at {address}/dashboard"]
            assert server.log.splitlines() == lines
        finally:
            gateway.kill()
