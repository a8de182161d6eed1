"""forebay in a server over HTTP: principals and bytes on the wire, seen by a client without an SDK."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from wires import LEGACY, MODERN, Servers, connect_http

pytestmark = pytest.mark.slow


class Visitor:
    """A client with a name, in one era of the protocol."""

    def __init__(self, port: int, name: str, era: str) -> None:
        self.raw = connect_http(port, era, name).request

    def ask(self, method: str, params: dict[str, Any] | None = None) -> Any:
        return json.loads(self.raw(method, params))

    def call(self, tool: str, **arguments: Any) -> Any:
        return self.ask("tools/call", {"name": tool, "arguments": arguments})["result"]

    def call_parsed(self, tool: str, **arguments: Any) -> Any:
        return json.loads(self.call(tool, **arguments)["content"][0]["text"])


@contextmanager
def run_server(options: dict[str, Any] | None, *, has_auth: bool = True) -> Iterator[int]:
    """Run a server and yield its port."""
    with closing(Servers("mcp_server.py")) as servers:
        yield servers.port(options, *(["guarded"] if has_auth else []))


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    root = tmp_path_factory.mktemp("http") / "store"
    with run_server({"store": root.as_uri(), "output_mode": "auto", "journal": True}) as port:
        yield port


def test_a_handle_is_its_principal_s_alone(port: int, era: str) -> None:
    ann, bob, nobody = (Visitor(port, name, era) for name in (f"ann in {era}", "bob", "nobody"))
    handle = ann.call_parsed("rows", count=5000)["output_handle"]
    # Too long to be guessed.
    assert len(handle) == len("oh_") + 26
    assert ann.call_parsed("output_fetch", output_handle=handle, offset=4999)["content"][0]["id"] == 4999
    unknown = "oh_" + "A" * 26
    for stranger in (bob, nobody):
        for tool, more in (("output_fetch", {}), ("output_search", {"pattern": "1"})):
            refused, never = (stranger.call_parsed(tool, output_handle=name, **more) for name in (handle, unknown))
            assert refused["error"]["code"] == "output_handle_not_found"
            assert refused == json.loads(json.dumps(never).replace(unknown, handle))
        assert "error" in stranger.ask("resources/read", {"uri": f"forebay://output/{handle}"})
        assert stranger.call_parsed("journal", action="summary")["handles"] == 0
    assert "result" in ann.ask("resources/read", {"uri": f"forebay://output/{handle}"})
    assert {event["handle"] for event in ann.call_parsed("journal") if event["event"] != "tool_called"} == {handle}


def test_those_who_are_nobody_do_not_learn_each_other_s_handles(era: str, tmp_path: Path) -> None:
    options = {"store": (tmp_path / "store").as_uri(), "output_mode": "auto", "journal": True}
    with run_server(options, has_auth=False) as port:
        handle = Visitor(port, "", era).call_parsed("text", size=50_000)["output_handle"]
        events = Visitor(port, "", era).call_parsed("journal")
    assert "output_handle_created" in [event["event"] for event in events]
    assert handle not in json.dumps(events)


def test_a_handle_is_not_its_session_s(port: int) -> None:
    first, second = Visitor(port, "carl", LEGACY), Visitor(port, "carl", MODERN)
    handle = first.call_parsed("text", size=50_000)["output_handle"]
    assert second.call_parsed("output_fetch", output_handle=handle)["total"] == 50_000


def test_over_http_too_what_goes_inline_is_the_same_to_the_byte(era: str, tmp_path: Path) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("rows", {"count": 500}),
        ("text", {"size": 50_000, "of": '"'}),
        ("image", {}),
        ("several", {"size": 20_000}),
        ("failing", {"size": 50_000}),
        ("unknown", {}),
    ]
    with run_server(None) as plain, run_server({"store": (tmp_path / "store").as_uri()}) as gated:
        without, within = Visitor(plain, "ann", era), Visitor(gated, "ann", era)
        for name, arguments in calls:
            params = {"name": name, "arguments": arguments}
            assert without.raw("tools/call", params) == within.raw("tools/call", params), name
