"""Bytes on the wire with and without forebay, seen by a client without an SDK."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from wires import CALLS, LEGACY, NASTY, Servers, parse_without_note

pytestmark = pytest.mark.slow

SCRIPT = "mcp_server.py"


@pytest.mark.parametrize("options", [{}, {"output_mode": "auto", "output_inline_limit_bytes": 10**9}])
def test_what_goes_inline_is_the_same_to_the_byte(
    options: dict[str, Any], era: str, servers: Servers, tmp_path: Path
) -> None:
    with (
        servers.connect(None, era) as plain,
        servers.connect({"store": tmp_path.as_uri() + "/store", **options}, era) as gated,
    ):
        if era == LEGACY:
            assert parse_without_note(gated.initialize_response) == json.loads(plain.initialize_response)
        else:
            assert parse_without_note(gated.request("server/discover")) == json.loads(plain.request("server/discover"))
        for name, arguments in CALLS:
            params = {"name": name, "arguments": arguments}
            assert plain.request("tools/call", params) == gated.request("tools/call", params), (name, arguments)
        for method in ("resources/list", "prompts/list", *(["ping"] if era == LEGACY else [])):
            assert plain.request(method) == gated.request(method)


def test_the_list_differs_only_by_what_was_added(era: str, servers: Servers, tmp_path: Path) -> None:
    with (
        servers.connect(None, era) as plain,
        servers.connect({"store": tmp_path.as_uri() + "/store", "journal": True}, era) as gated,
    ):
        before, after = (json.loads(wire.request("tools/list"))["result"] for wire in (plain, gated))
    added_tools = after["tools"][len(before["tools"]) :]
    assert {**after, "tools": after["tools"][: len(before["tools"])]} == before
    assert [tool["name"] for tool in added_tools] == ["output_fetch", "output_search", "output_query", "journal"]
    assert len(json.dumps(added_tools, separators=(",", ":"), ensure_ascii=False).encode()) <= 3072
    for tool in added_tools:
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        assert tool["annotations"]["readOnlyHint"] is True
        assert "outputSchema" not in tool


def test_a_descriptor_is_small_as_a_whole_message(era: str, servers: Servers, tmp_path: Path) -> None:
    options = {"store": tmp_path.as_uri() + "/store", "output_mode": "handle", "handle_length": 26}
    calls = [("text", {"size": 60_000 // len(of), "of": of}) for of in NASTY]
    with servers.connect(options, era) as wire:
        for name, arguments in [*calls, ("rows", {"count": 2000})]:
            line = wire.request("tools/call", {"name": name, "arguments": arguments})
            assert len(line.rstrip(b"\n")) <= 4096, arguments
            descriptor = json.loads(json.loads(line)["result"]["content"][0]["text"])
            size = len(descriptor["preview"].encode())
            assert size <= 2048, arguments
            # Nearly all of the room is used, whatever the escaped size of a character.
            assert len(line) > 3900 or size > 2000, arguments


LIMIT = 4096


def test_no_page_is_larger_than_what_goes_inline(era: str, servers: Servers, tmp_path: Path) -> None:
    options = {"store": tmp_path.as_uri() + "/store", "output_mode": "auto", "output_inline_limit_bytes": LIMIT}
    with servers.connect(options, era) as wire:
        for of in NASTY:
            params = {"name": "text", "arguments": {"size": 9000, "of": of}}
            answer = json.loads(wire.request("tools/call", params))["result"]
            handle = json.loads(answer["content"][0]["text"])["output_handle"]
            for format in ("text", "lines", "bytes"):  # noqa: A001
                fetch = {"output_handle": handle, "format": format}
                line = wire.request("tools/call", {"name": "output_fetch", "arguments": fetch})
                assert b'"isError":false' in line, line
                assert len(line) <= LIMIT + 64, (of, format)
                # Empty lines take so few bytes that the line limit ends the page.
                assert len(line) > LIMIT * 0.7 or (of, format) == ("\n", "lines")
            search = {"output_handle": handle, "pattern": of, "limit": 1000}
            line = wire.request("tools/call", {"name": "output_search", "arguments": search})
            assert len(line) <= LIMIT + 64, of
            long = f"forebay://output/{handle}?offset=0&limit=0000000000004000#{'f' * 9000}"
            for uri in (f"forebay://output/{handle}", f"forebay://output/{handle}?limit=0000000000004000", long):
                assert len(wire.request("resources/read", {"uri": uri})) <= LIMIT + 64, of


def test_what_was_not_stored_is_told_in_little(era: str, servers: Servers, tmp_path: Path) -> None:
    options = {"store": tmp_path.as_uri() + "/store", "output_mode": "auto", "quota_bytes": 10}
    with servers.connect(options, era) as wire:
        for of in NASTY:
            params = {"name": "text", "arguments": {"size": 60_000, "of": of}}
            line = wire.request("tools/call", params)
            assert len(line) <= 4096, of
            assert json.loads(json.loads(line)["result"]["content"][0]["text"])["preview"].startswith(of)
