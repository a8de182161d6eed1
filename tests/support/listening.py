"""Serve an app over HTTP and print its port to stdout for the parent process."""

import socket
import sys
from typing import Any

import uvicorn


def serve_http(app: Any, port: int = 0) -> None:
    # Without the protocol number asyncio does not set TCP_NODELAY, which delays the rest of a response.
    with socket.socket(proto=socket.IPPROTO_TCP) as listener:
        # A restarted server must be able to bind the port of its predecessor.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
