"""Over HTTP the SDK escapes non-ASCII characters in the newest version, and sizes are measured so."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from forebay.adapters.mcp import Forebay
from mcp_server import make_server
from wires import MODERN, connect_http, extract_message

CALL = {"size": 7_000, "of": "é"}


@contextmanager
def run_server(middleware: Forebay) -> Iterator[int]:
    """Run a server in this process and yield its port."""
    app = middleware.install(make_server()).streamable_http_app()
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(timeout=30)


@pytest.mark.slow
def test_a_descriptor_is_small_as_a_whole_message(era: str, tmp_path: Path) -> None:
    """An emoji of four bytes in UTF-8 takes twelve when it is escaped."""
    middleware = Forebay((tmp_path / "store").as_uri(), output_mode="handle", sweep_interval=0)
    with run_server(middleware) as port:
        wire = connect_http(port, era)
        for of in ('"', "\\", "\x01", "😀", "é", "語", "a"):
            params = {"name": "text", "arguments": {"size": 60_000, "of": of}}
            message = extract_message(wire.request("tools/call", params))
            assert len(message) <= 4096
            preview = json.loads(json.loads(message)["result"]["content"][0]["text"])["preview"]
            assert set(preview) == {of}
            assert len(message) > 3800 or len(preview.encode()) > 2000
    middleware.close()


@pytest.mark.slow
def test_what_goes_inline_is_measured_as_it_is_sent(era: str, tmp_path: Path) -> None:
    """The text and the structured content are 28 KB in UTF-8, and 84 KB in ASCII."""
    middleware = Forebay((tmp_path / "store").as_uri(), output_mode="auto", sweep_interval=0)
    with run_server(middleware) as port:
        message = extract_message(connect_http(port, era).request("tools/call", {"name": "text", "arguments": CALL}))
        assert ("output_handle" in message.decode()) == (era == MODERN)
        assert len(message) <= 32768
    middleware.close()
