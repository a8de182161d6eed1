"""Servers of this folder over HTTP: whoever starts one reads on its stdout which port it is at."""

import socket
import sys
from typing import Any

import uvicorn


def serve_http(app: Any, port: int = 0) -> None:
    # Said to be TCP, or asyncio would let the rest of an answer wait for who has read its start.
    with socket.socket(proto=socket.IPPROTO_TCP) as listener:
        # A server that starts again finds its port as the one before it left it.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
