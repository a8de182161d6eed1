"""What the model behind a client gets: results and pages that the client shows whole, under names that it knows."""

import json
from pathlib import Path
from typing import Any

import pytest
from forebay.errors import InvalidArgument
from forebay.outputs.clients import CLIENTS, UNKNOWN_CLIENT_BYTES, find_client
from forebay.outputs.modes import MAX_REQUESTED_INLINE_BYTES, MODE_META_KEY
from forebay.outputs.policy import OutputPolicy
from forebay.outputs.tool_call import ToolCall
from forebay.outputs.tools import Caller

NAMES = {
    "claude-code": "Claude Code",
    "codex-mcp-client": "Codex",
    "gemini-cli-mcp-client": "Gemini CLI",
    "opencode": "opencode",
    "qwen-cli-mcp-client-orders": "Qwen Code",
    "copilot-cli": "Copilot CLI",
    "@cline/core": "Cline",
    "Cline": "Cline",
    "Visual Studio Code": "VS Code",
    "Visual Studio Code - Insiders": "VS Code",
}


@pytest.fixture
def policy(tmp_path: Path) -> OutputPolicy:
    return OutputPolicy((tmp_path / "store").as_uri(), output_mode="auto", sweep_interval=0)


def test_clients_are_known_by_the_names_that_they_send() -> None:
    assert {name: client.title for name in NAMES if (client := find_client(name))} == NAMES
    for name in ("", "mcp", "claude-code-2", "x" * 1000, None, 3, {"name": "opencode"}):
        assert find_client(name) is None


@pytest.mark.parametrize("unit", ["row", "漢字", '"\\\n'], ids=["ascii", "wide", "escaped"])
@pytest.mark.parametrize("name", [*NAMES, "unknown"])
def test_every_page_and_search_result_is_within_what_the_client_shows(
    policy: OutputPolicy, name: str, unit: str
) -> None:
    rows = [{"id": number, "text": unit * (number % 60)} for number in range(3000)]
    handle = policy.store.put(rows).output_handle
    client = find_client(name)
    caller = Caller(max_page_bytes=policy.get_max_page_bytes(client))
    limit = client.limit if client else UNKNOWN_CLIENT_BYTES

    def read(tool: str, **arguments: Any) -> Any:
        result = policy.tools.call(tool, {"output_handle": handle, **arguments}, caller)
        text = result["content"][0]["text"]
        # Some clients count the text, and some the JSON that it is in. The text must not be larger in either unit.
        assert len(text) <= len(text.encode()) <= len(json.dumps(text, ensure_ascii=False).encode()) - 2 <= limit
        return json.loads(text)

    offset, pages = 0, []
    while offset is not None:
        page = read("output_fetch", offset=offset, limit=10_000)
        pages += page["content"]
        offset = page["next_offset"]
    assert pages == rows
    matches, start = 0, 0
    while start is not None:
        found = read("output_search", pattern='"id"', limit=10_000, offset=start)
        matches += len(found["matches"])
        start = found["next_offset"]
    assert matches == len(rows)


def test_a_page_limit_replaces_the_limits_of_clients(tmp_path: Path) -> None:
    limited = OutputPolicy(tmp_path.as_uri(), output_mode="auto", page_limit_bytes=40_000, sweep_interval=0)
    for client in (None, *CLIENTS):
        assert limited.get_max_page_bytes(client) == 40_000
        assert limited.resolve_mode("any", {}, {}, client)[0].output_inline_limit_bytes == 32768
    with pytest.raises(InvalidArgument, match="page_limit_bytes must be at least"):
        OutputPolicy(tmp_path.as_uri(), page_limit_bytes=100)


def test_a_page_is_not_larger_than_what_goes_inline(tmp_path: Path) -> None:
    policy = OutputPolicy(tmp_path.as_uri(), output_mode="auto", output_inline_limit_bytes=5000, sweep_interval=0)
    for client in (None, *CLIENTS):
        assert policy.get_max_page_bytes(client) < 5000


def test_a_result_goes_inline_only_if_the_client_shows_it_whole(policy: OutputPolicy) -> None:
    result = {"content": [{"type": "text", "text": "x" * 10_000}]}
    inline = {
        client.title: policy.pipeline.is_inline(result, policy.resolve_mode("any", {}, {}, client)[0], ToolCall("any"))
        for client in CLIENTS
    }
    assert [title for title, is_inline in inline.items() if not is_inline] == ["Cline", "VS Code"]
    assert policy.pipeline.is_inline(result, policy.resolve_mode("any", {})[0], ToolCall("any"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("claude-code", "mcp__my_server__output_fetch"),
        ("gemini-cli-mcp-client", "mcp_my_server_output_fetch"),
        ("opencode", "my_server_output_fetch"),
        ("copilot-cli", "my_server-output_fetch"),
        ("@cline/core", "my_server__output_fetch"),
        ("anyone", None),
    ],
)
def test_the_model_gets_the_name_that_its_client_has_for_a_tool(
    tmp_path: Path, name: str, expected: str | None
) -> None:
    client = find_client(name)
    named = OutputPolicy(tmp_path.as_uri(), server_name="my server", sweep_interval=0)
    assert named.name_fetch_tool(client) == expected
    unnamed = OutputPolicy(tmp_path.as_uri(), sweep_interval=0)
    assert unnamed.name_fetch_tool(client) == (expected and "output_fetch of this server")
    call = ToolCall("any", fetch_with=named.name_fetch_tool(client))
    result = named.pipeline.store_result({"content": [{"type": "text", "text": "x" * 50_000}]}, call)
    assert json.loads(result["content"][0]["text"])["fetch_with"] == expected or "output_fetch"


def test_a_program_may_ask_for_the_result_itself(policy: OutputPolicy) -> None:
    def is_inline(size: int, meta: dict[str, Any]) -> bool:
        result = {"content": [{"type": "text", "text": "x" * size}]}
        return policy.pipeline.is_inline(result, policy.resolve_mode("any", {}, meta)[0], ToolCall("any"))

    asked = {MODE_META_KEY: "inline"}
    assert not is_inline(40_000, {})
    assert is_inline(40_000, asked)
    assert is_inline(MAX_REQUESTED_INLINE_BYTES - 100, asked)
    assert not is_inline(MAX_REQUESTED_INLINE_BYTES, asked)
    assert not is_inline(40_000, {MODE_META_KEY: "handle"})


def test_a_call_that_asks_for_its_result_is_bounded_unless_the_server_stores_nothing(tmp_path: Path) -> None:
    definition = {"name": "any", "inputSchema": {"type": "object"}}
    for output_mode, is_bounded in (("auto", True), ("handle", True), ("inline", False)):
        policy = OutputPolicy(tmp_path.as_uri(), output_mode=output_mode, per_call=True, sweep_interval=0)  # type: ignore[arg-type]
        policy.learn_tools([definition])
        mode, arguments = policy.resolve_mode("any", {"output_mode": "inline", "own": 1})
        assert arguments == {"own": 1}
        result = {"content": [{"type": "text", "text": "x" * 2_000_000}]}
        assert policy.pipeline.is_inline(result, mode, ToolCall("any")) is not is_bounded
        listed = policy.rewrite_tools([definition])[0]["inputSchema"]["properties"]["output_mode"]
        assert ("1,000,000 bytes" in listed.get("description", "")) is is_bounded


def test_a_server_name_that_no_descriptor_could_repeat_is_refused(tmp_path: Path) -> None:
    OutputPolicy(tmp_path.as_uri(), server_name="s" * 256, sweep_interval=0).close()
    with pytest.raises(InvalidArgument, match="server_name is at most 256 characters"):
        OutputPolicy(tmp_path.as_uri(), server_name="s" * 257)
