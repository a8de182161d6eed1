"""headgate in a server over HTTP: whose a handle is, and what goes over the wire. The client knows no SDK."""

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

LEGACY, MODERN = "2025-11-25", "2026-07-28"


class Visitor:
    """Someone who sends JSON-RPC to a server, in one era of the protocol, and says who they are."""

    def __init__(self, port: int, name: str, era: str) -> None:
        self._port = port
        self._name = name
        self._era = era
        self._session: dict[str, str] = {}
        if era == LEGACY:
            about = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "visitor", "version": "1"}}
            self.ask("initialize", about)
            self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ask(self, method: str, params: dict[str, Any] | None = None) -> Any:
        return json.loads(self.raw(method, params))

    def raw(self, method: str, params: dict[str, Any] | None = None) -> bytes:
        params = dict(params or {})
        if self._era == MODERN:
            params["_meta"] = {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientInfo": {"name": "visitor", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            }
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        # Intermediaries may go by these, so that the newest version wants them.
        named = {"Mcp-Method": method}
        if "name" in params or "uri" in params:
            named["Mcp-Name"] = params.get("name") or params["uri"]
        return self._post(message, named if self._era == MODERN else {})

    def _post(self, message: dict[str, Any], headers: dict[str, str] | None = None) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        sent = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Authorization": f"Bearer {self._name}",
            "MCP-Protocol-Version": self._era,
            **self._session,
            **(headers or {}),
        }
        connection.request("POST", "/mcp", json.dumps(message), sent)
        response = connection.getresponse()
        body = response.read()
        session = response.getheader("Mcp-Session-Id")
        if session:
            self._session = {"Mcp-Session-Id": session}
        connection.close()
        return body

    def call(self, tool: str, **arguments: Any) -> Any:
        return self.ask("tools/call", {"name": tool, "arguments": arguments})["result"]

    def told(self, tool: str, **arguments: Any) -> Any:
        return json.loads(self.call(tool, **arguments)["content"][0]["text"])


@contextmanager
def served(options: dict[str, Any] | None, *, has_auth: bool = True) -> Iterator[int]:
    """A server on a port of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = Path(__file__).with_name("mcp_server.py")
    flags = ["--http", str(port), *(["--auth"] if has_auth else [])]
    command = [sys.executable, str(script), *flags, json.dumps(options)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket() as knocking:
                if knocking.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait(timeout=30)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    root = tmp_path_factory.mktemp("http") / "store"
    with served({"store": root.as_uri(), "output_mode": "auto", "journal": True}) as port:
        yield port


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_a_handle_is_its_principal_s_alone(port: int, era: str) -> None:
    ann, bob, nobody = (Visitor(port, name, era) for name in (f"ann in {era}", "bob", "nobody"))
    handle = ann.told("rows", count=5000)["output_handle"]
    # Nobody can guess it.
    assert len(handle) == len("oh_") + 26
    assert ann.told("output_fetch", output_handle=handle, offset=4999)["content"][0]["id"] == 4999
    unknown = "oh_" + "A" * 26
    for stranger in (bob, nobody):
        for tool, more in (("output_fetch", {}), ("output_search", {"pattern": "1"})):
            refused, never = (stranger.told(tool, output_handle=name, **more) for name in (handle, unknown))
            assert refused["error"]["code"] == "output_handle_not_found"
            assert refused == json.loads(json.dumps(never).replace(unknown, handle))
        assert "error" in stranger.ask("resources/read", {"uri": f"headgate://output/{handle}"})
        assert stranger.told("journal", action="summary")["handles"] == 0
    assert "result" in ann.ask("resources/read", {"uri": f"headgate://output/{handle}"})
    assert {event["handle"] for event in ann.told("journal") if event["event"] != "tool_called"} == {handle}


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_those_who_are_nobody_do_not_learn_each_other_s_handles(era: str, tmp_path: Path) -> None:
    options = {"store": (tmp_path / "store").as_uri(), "output_mode": "auto", "journal": True}
    with served(options, has_auth=False) as port:
        handle = Visitor(port, "", era).told("text", size=50_000)["output_handle"]
        told = Visitor(port, "", era).told("journal")
    assert "output_handle_created" in [event["event"] for event in told]
    assert handle not in json.dumps(told)


def test_a_handle_is_not_its_session_s(port: int) -> None:
    first, second = Visitor(port, "carl", LEGACY), Visitor(port, "carl", MODERN)
    handle = first.told("text", size=50_000)["output_handle"]
    assert second.told("output_fetch", output_handle=handle)["total"] == 50_000


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_over_http_too_what_goes_inline_is_the_same_to_the_byte(era: str, tmp_path: Path) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("rows", {"count": 500}),
        ("text", {"size": 50_000, "of": '"'}),
        ("image", {}),
        ("several", {"size": 20_000}),
        ("failing", {"size": 50_000}),
        ("unknown", {}),
    ]
    with served(None) as plain, served({"store": (tmp_path / "store").as_uri()}) as gated:
        without, within = Visitor(plain, "ann", era), Visitor(gated, "ann", era)
        for name, arguments in calls:
            asked = {"name": name, "arguments": arguments}
            assert without.raw("tools/call", asked) == within.raw("tools/call", asked), name
