"""A small server on stdio: `python plain_server.py [FOLDER]`.

With a folder, it writes a line to `log` there when it starts and when it ends, and answers only after as many servers
have started as the variable `AWAITED` says. With the variable `HANGS` it never answers and ignores SIGTERM. With the
variable `COMPLAINT` it writes that to standard error and ends.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

TOOLS = [{"name": "one", "inputSchema": {"type": "object"}}, {"name": "two", "inputSchema": {"type": "object"}}]
RESULTS = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "plain", "version": "1"},
    },
    "tools/list": {"tools": TOOLS},
}


def main() -> None:
    folder = Path(sys.argv[1]) if sys.argv[1:] else None
    log = None if folder is None else folder / "log"
    if complaint := os.environ.get("COMPLAINT"):
        sys.exit(complaint)
    if os.environ.get("HANGS"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if log is not None:
        append(log, f"start {os.getpid()}")
        while log.read_text().count("start") < int(os.environ.get("AWAITED", "0")):
            time.sleep(0.01)
    if os.environ.get("HANGS"):
        time.sleep(600)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            response = {"jsonrpc": "2.0", "id": message["id"], "result": RESULTS.get(message["method"], {})}
            sys.stdout.write(json.dumps(response) + "\n")
            sys.stdout.flush()
    if log is not None:
        append(log, "end")


def append(log: Path, line: str) -> None:
    # One write to a file opened for appending, so that lines of several servers do not mix.
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


if __name__ == "__main__":
    main()
