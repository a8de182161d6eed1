"""Spans of `forebay serve`: each request of a client, below the client's own, and above those of servers."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from listening_harness import JSON, HttpServer
from wires import MODERN, MODERN_META, extract_message

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"

ECHO = """
import json, sys
def answer(message, result):
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        answer(message, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                         "serverInfo": {"name": "echo", "version": "1"}})
    elif message["method"] == "tools/list":
        answer(message, {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]})
    elif message["method"] == "tools/call":
        size = message["params"]["arguments"].get("size", 0)
        answer(message, {"content": [{"type": "text", "text": json.dumps(message["params"].get("_meta"))
                                      if not size else "x" * size}]})
    elif "id" in message:
        error = {"code": -32601, "message": "no"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
"""


@contextmanager
def serving(folder: Path) -> Iterator[tuple[HttpServer, Path]]:
    spans, config, server = folder / "spans", folder / "forebay.toml", folder / "echo.py"
    server.write_text(ECHO)
    config.write_text(
        f"store = {json.dumps((folder / 'store').as_uri())}\n"
        f"[upstreams.echo]\ncommand = {json.dumps(sys.executable)}\nargs = [{json.dumps(str(server))}]\n"
    )
    script = Path(__file__).parents[1] / "support" / "traced_forebay.py"
    command = [sys.executable, str(script), str(spans), "serve", "--config", str(config), "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            listening = HttpServer(process)
            yield listening, spans
            listening.terminate()
            assert listening.wait() == (1 if sys.platform == "win32" else 0)
        finally:
            process.kill()


def call(server: HttpServer, arguments: dict[str, Any], meta: dict[str, Any], session: dict[str, str]) -> Any:
    headers = {**JSON, **session}
    params: dict[str, Any] = {"name": "echo", "arguments": arguments}
    if not session:
        headers |= {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "echo"}
        meta = {**MODERN_META, **meta}
    if meta:
        params["_meta"] = meta
    message = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params}
    answer = server.request("POST", "/mcp", json.dumps(message).encode(), headers)
    return json.loads(extract_message(answer.body))["result"]["content"][0]["text"]


@pytest.mark.parametrize("has_session", [True, False])
def test_the_context_goes_from_the_client_to_the_server(has_session: bool, tmp_path: Path) -> None:
    with serving(tmp_path) as (server, path):
        session = {"mcp-session-id": server.initialize().headers["mcp-session-id"]} if has_session else {}
        seen = json.loads(call(server, {}, {"traceparent": PARENT, "mine": 1}, session))
        alone = json.loads(call(server, {}, {}, session))
        call(server, {"size": 50_000}, {"traceparent": PARENT}, session)
    spans = [json.loads(line) for line in path.read_text().splitlines()]
    calls = [span for span in spans if span["name"] == "tools/call echo"]
    assert len(calls) == 3
    assert [span["context"]["trace_id"] == f"0x{TRACE}" for span in calls] == [True, False, True]
    assert calls[0]["parent_id"] == f"0x{PARENT.split('-')[2]}"
    assert calls[0]["kind"] == "SpanKind.SERVER"
    assert calls[0]["attributes"]["gen_ai.tool.name"] == "echo"
    # The server gets the gateway's span as its parent, and the client's own metadata.
    assert seen["traceparent"] == f"00-{TRACE}-{calls[0]['context']['span_id'][2:]}-01"
    assert seen["mine"] == 1
    assert alone["traceparent"].split("-")[1:3] == [
        calls[1]["context"]["trace_id"][2:],
        calls[1]["context"]["span_id"][2:],
    ]
    (put,) = [span for span in spans if span["name"] == "forebay.put"]
    assert put["parent_id"] == calls[2]["context"]["span_id"]
