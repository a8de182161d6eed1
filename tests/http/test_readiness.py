"""`/ready`: whether a load balancer should send calls to a server."""

import asyncio
import shutil
import threading
from pathlib import Path

import pytest
from forebay.http.readiness import Readiness
from listening_harness import HttpServer, run_server
from serve_harness import upstream_command
from serve_http_harness import serving_http
from wires import ERAS, connect_http


def get_state(server: HttpServer) -> tuple[int, bytes]:
    answer = server.request("GET", "/ready")
    return answer.status, answer.body


def wait_for_state(server: HttpServer, status: int) -> bytes:
    """Probe until the status is the expected one, and return the body."""
    for _ in range(300):
        found, body = get_state(server)
        if found == status:
            return body
        threading.Event().wait(0.05)
    raise AssertionError(f"/ready never answered {status}")


@pytest.mark.posix
def test_a_server_is_ready_while_its_store_answers(tmp_path: Path) -> None:
    with serving_http(tmp_path, {"plain": upstream_command("plain_server.py")}) as server:
        assert get_state(server) == (200, b'{"status":"ready"}')
        assert server.request("POST", "/ready", b"{}").status == 405
        assert server.request("HEAD", "/ready").status == 200
        shutil.rmtree(tmp_path / "store")
        (tmp_path / "store").write_text("")
        assert wait_for_state(server, 503) == b'{"status":"store unavailable"}'
        assert server.request("GET", "/health").status == 200
        (tmp_path / "store").unlink()
        assert wait_for_state(server, 200) == b'{"status":"ready"}'


def test_a_store_that_hangs_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.http.readiness._CHECK_TIMEOUT_SECONDS", 0.01)

    async def check() -> None:
        await asyncio.Event().wait()

    assert asyncio.run(Readiness(check).get_state()) == "store unavailable"


@pytest.mark.posix
@pytest.mark.parametrize("era", ERAS)
def test_a_server_that_drains_still_answers(era: str, tmp_path: Path) -> None:
    with run_server(tmp_path, shutdown_delay_seconds=600, shutdown_grace_seconds=20) as server:
        visitor = connect_http(server.port, era)
        answers: list[bytes] = []
        params = {"name": "slow", "arguments": {"seconds": 2.0}}
        calling = threading.Thread(target=lambda: answers.append(visitor.request("tools/call", params)))
        calling.start()
        server.wait_for("slow has begun")
        server.terminate()
        assert wait_for_state(server, 503) == b'{"status":"draining"}'
        # A load balancer that has not noticed yet is served, and must not use the connection again.
        late = server.request("GET", "/health")
        assert (late.status, late.headers["connection"]) == (200, "close")
        assert server.list_tools().status == 200
        calling.join(30)
        assert b"at last" in answers[0]
        # A second signal ends the wait.
        server.interrupt()
        assert server.wait() == 0
        assert "Traceback" not in server.log
