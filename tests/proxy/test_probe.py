"""`ServerProbe`: the tools of a command, whatever it answers."""

import json
import sys
from typing import Any

import pytest
from forebay.errors import UpstreamFailed
from forebay.proxy.probe import list_tools

pytestmark = pytest.mark.slow

SERVER = """
import json, sys
answers = json.loads(sys.argv[1])
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answers[message["method"]]}), flush=True)
"""
HANDSHAKE = {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}}
TOOLS: dict[str, Any] = {"result": {"tools": [{"name": "one", "inputSchema": {}}]}}


def _list(**answers: Any) -> list[str]:
    named = {name.replace("_", "/"): answer for name, answer in answers.items()}
    return [tool["name"] for tool in list_tools([sys.executable, "-c", SERVER, json.dumps(named)])]


def test_a_server_without_a_handshake_lists_its_tools() -> None:
    refusal = {"error": {"code": -32601, "message": "no such method"}}
    discovery = {"result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}}
    assert _list(initialize=refusal, server_discover=discovery, tools_list=TOOLS) == ["one"]
    assert _list(initialize=HANDSHAKE, tools_list=TOOLS) == ["one"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"error": {"code": 1, "message": "not now"}}, "the server answered tools/list with an error: not now"),
        ({"error": {"code": 1}}, r"with an error: \{"),
        ({"error": "text"}, "with an error: 'text'"),
        ({"result": 5}, "the server answered tools/list with no result"),
        ({}, "the server answered tools/list with no result"),
    ],
)
def test_a_server_that_does_not_list_its_tools_is_an_error(answer: dict[str, Any], reason: str) -> None:
    with pytest.raises(UpstreamFailed, match=reason):
        _list(initialize=HANDSHAKE, tools_list=answer)
