"""What a server over HTTP logs of its clients."""

import subprocess
import sys
from pathlib import Path

import pytest
from listening_harness import ALICE, BOB, Listening, listening, tokens_in
from serve_harness import config

pytestmark = pytest.mark.slow


def test_a_session_id_is_not_logged_whole(tmp_path: Path) -> None:
    """Whoever has it and the token could go on with the session."""
    with listening(tmp_path, token_file=tokens_in(tmp_path)) as server:
        session = server.hello(ALICE).headers["mcp-session-id"]
        assert server.hello(BOB, mcp_session_id=session).status == 404
        server.wait_for(f"session {session[:8]}…")
        made_up = "a-session-that-never-was"
        assert server.hello(BOB, mcp_session_id=made_up).status == 404
        server.wait_for("session ID: a-sessio…")
    assert session not in server.logged
    assert made_up not in server.logged


def test_where_it_listens_is_said_whatever_is_not_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FOREBAY_LOG_LEVEL", raising=False)
    file = str(config(tmp_path, {"text": {"python": "textwrap"}}))
    command = [sys.executable, "-m", "forebay", "serve", "--config", file, "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as gateway:
        try:
            server = Listening(gateway)
            assert server.ask(path="/health").status == 200
            server.terminate()
            assert server.ended() == 0
            assert server.logged == f"forebay: listening on http://127.0.0.1:{server.port}/mcp\n"
        finally:
            gateway.kill()
