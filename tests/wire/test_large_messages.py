"""Servers that exit when a message is too large, as those of the TypeScript SDK do."""

import sys
from pathlib import Path

import pytest
from gateway_harness import connect, parse_text, wrap

pytestmark = pytest.mark.slow

SERVER = """
import json, sys
for line in sys.stdin:
    if len(line) > 10 << 20 or '"dies"' in line:
        sys.exit(3)
    message = json.loads(line)
    if message.get("method") == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
    elif message.get("method") == "tools/list":
        result = {"tools": [{"name": "takes", "inputSchema": {"type": "object"}}]}
    else:
        result = {"content": [{"type": "text", "text": "taken"}]}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@pytest.mark.parametrize("is_reference", [True, False])
def test_the_error_has_the_size_of_the_message_at_which_a_server_exited(is_reference: bool, tmp_path: Path) -> None:
    size = 11 << 20
    (tmp_path / "large.txt").write_text("x" * size)
    options = ["--file-refs", "--file-root", str(tmp_path)] if is_reference else []
    command = wrap(tmp_path / "store", *options, server=[sys.executable, "-c", SERVER])
    with connect(*command) as talk:
        argument = {"$file": str(tmp_path / "large.txt")} if is_reference else "x" * size
        error = parse_text(talk.call("takes", text=argument))["error"]
        assert error["code"] == "upstream_failed"
        assert "ended with exit code 3" in error["message"]
        (told,) = [int(word) for word in error["message"].split() if word.isdigit() and len(word) > 2]
        assert size < told < size + 1000
        # The size is per server process: the restarted one has not received the large message.
        assert talk.call("takes", text="little")["content"][0]["text"] == "taken"
        assert "bytes" not in parse_text(talk.call("takes", text="dies"))["error"]["message"]
