"""A server on stdio that ends only by SIGKILL: it ignores signals and the end of its input, and so does its child.

`python stubborn_server.py PIDS [OPTION]` appends its process id and that of its child to the file `PIDS`. With
`closes`, it closes its output when its input ends, and its child has none; with `leaves`, it exits then, without its
child.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any


def sleep_forever() -> None:
    while True:
        time.sleep(3600)


def send(number: Any, **message: Any) -> None:
    os.write(1, json.dumps({"jsonrpc": "2.0", "id": number, **message}).encode() + b"\n")


def handle(message: dict[str, Any]) -> None:
    number, method = message.get("id"), message["method"]
    match method:
        case "initialize":
            info = {"name": "stubborn server (tests)", "version": "1"}
            send(number, result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
        case "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("hangs", "deaf", "mute", "text")]
            send(number, result={"tools": tools})
        case "tools/call" if message["params"]["name"] == "hangs":
            sys.stderr.write("it hangs\n")
        case "tools/call" if message["params"]["name"] == "deaf":
            sys.stderr.write("it hangs\n")
            sleep_forever()
        case "tools/call" if message["params"]["name"] == "mute":
            os.close(1)
        case "tools/call":
            send(number, result={"content": [{"type": "text", "text": "x"}]})
        case _ if number is not None:
            send(number, error={"code": -32601, "message": f"no {method}"})


def main() -> None:
    path, *options = sys.argv[1:]
    closes_output = "closes" in options
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGPIPE"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        if closes_output:
            os.close(1)
        sleep_forever()
    with Path(path).open("a") as file:
        file.write(f"{os.getpid()} {child}\n")
    for line in sys.stdin.buffer:
        handle(json.loads(line))
    if "leaves" in options:
        os._exit(0)
    if closes_output:
        os.close(1)
    sleep_forever()


if __name__ == "__main__":
    main()
