"""What a server over HTTP logs of its clients."""

from pathlib import Path

from listening_harness import ALICE, BOB, listening, tokens_in


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
