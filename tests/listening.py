"""Servers of this folder over HTTP: whoever starts one reads on its stdout which port it is at."""

import socket
import sys
from typing import Any

import uvicorn


def serve_http(app: Any) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
