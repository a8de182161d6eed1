"""Conversations with real servers, directly and through the gateway: unchanged messages are equal to the byte."""

import json
from pathlib import Path
from typing import Any

import forebay
import pytest
from conversation import CLIENT, LEGACY, MODERN, ReceivedMessage, Step, run_conversation, to_modern
from differences import compare, is_equal
from everything import REPLIES, call, complete
from gateway_harness import ADVERSE, script, wrap
from running import command

CAPABILITIES: dict[str, Any] = {"sampling": {}, "elicitation": {"form": {}}, "roots": {}}
HELLO = [
    Step("initialize", {"protocolVersion": LEGACY, "capabilities": CAPABILITIES, "clientInfo": CLIENT}),
    Step("notifications/initialized"),
]
LISTS = [Step(f"{kind}/list") for kind in ("tools", "resources", "resources/templates", "prompts")]
WRONG = [
    Step("no/such/method", {"n": 1.50}),
    Step("tools/call", {"arguments": {}}),
    Step("tools/list", {"cursor": "no such page"}),
    Step("resources/read", {"uri": "test://no/such"}),
    Step("prompts/get", {"name": "no such prompt"}),
    call("no such tool"),
    Step("notifications/no/such", {"n": [1.0]}),
]
CANCELLED = [
    Step("notifications/cancelled", {"requestId": "none such", "reason": "late"}),
    Step("notifications/cancelled", lambda so_far: {"requestId": so_far.last_id}),
]

ODD = [
    *(call("asks", method=method) for method in ("sampling/createMessage", "elicitation/create", "future/ask")),
    call("reports", steps=5, token=7),
    call("text", of='é"\\\n😀', size=300, more={"_meta": {"k": 1e2}, "structuredContent": {"a": 1.0}, "later": [1.0]}),
    call("text", of='é"\\\n😀', size=100_000),
    call("blocks", count=3),
    call("blocks", count=3000),
    Step("future/method", {"size": 100_000, "deep": [[[{}]]]}),
    Step("resources/read", {"uri": "x", "size": 100_000}),
    Step("resources/subscribe", {"uri": "x"}),
    Step("logging/setLevel", {"level": "debug"}),
    Step("tools/call", {"name": "hangs"}, waits_for_response=False),
    *CANCELLED,
    Step("ping"),
]

BROWSING = [
    call("navigate", url="https://example.com/naïve"),
    *(call(tool) for tool in ("read_page", "crawl", "network", "extract_data", "trace", "bug_scan")),
    call("extract_data", count=2),
    call("evidence_bundle"),
    call("screenshot", width=10, height=10),
    call("screenshot", width=400, height=400),
    call("crawl", url="https://example.com/", max_pages=0),
]

OF_EVERY_KIND = [
    *(call(tool) for tool in ("rows", "report", "text", "json_text", "image", "audio", "blob", "several", "breaking")),
    *(call(tool, count=2000) for tool in ("rows", "report", "json_text")),
    *(call(tool, size=50_000) for tool in ("text", "several", "raising", "failing", "with_meta", "raw")),
    call("rows", count="no number"),
    Step("resources/read", {"uri": "test://one"}),
    Step("resources/read", {"uri": "test://each/naïve"}),
]

CONFORMING = [
    *(
        call(f"test_{tool}")
        for tool in (
            "simple_text",
            "image_content",
            "audio_content",
            "embedded_resource",
            "multiple_content_types",
            "error_handling",
            "tool_with_logging",
            "trigger_tool_change",
            "trigger_prompt_change",
            "missing_capability",
            "input_required_result_capabilities",
        )
    ),
    call("test_tool_with_progress", meta={"progressToken": "p"}),
    call("json_schema_2020_12_tool", name="x", phone="1"),
    Step("resources/read", {"uri": "test://static-text"}),
    Step("resources/read", {"uri": "test://static-binary"}),
    Step("resources/read", {"uri": "test://template/7/data"}),
    Step("prompts/get", {"name": "test_prompt_with_arguments", "arguments": {"arg1": "é", "arg2": "\\"}}),
    Step("prompts/get", {"name": "test_prompt_with_image"}),
    complete("prompt", "test_prompt_with_arguments", "arg1", "par"),
]
SHAKING_HANDS = [
    Step("ping"),
    Step("logging/setLevel", {"level": "debug"}),
    Step("resources/subscribe", {"uri": "test://watched-resource"}),
    Step("resources/unsubscribe", {"uri": "test://watched-resource"}),
    call("test_sampling", prompt="say something"),
    call("test_elicitation", message="who?"),
    call("test_elicitation_sep1034_defaults"),
    *CONFORMING,
]
STATELESS = [
    *CONFORMING,
    *(call(f"test_input_required_result_{what}") for what in ("elicitation", "sampling", "list_roots", "multi_round")),
    Step(
        "tools/call",
        {
            "name": "test_input_required_result_elicitation",
            "inputResponses": {"user_name": {"action": "accept", "content": {"name": "Jo"}}},
        },
    ),
    Step("prompts/get", {"name": "test_input_required_result_prompt"}),
]

EXAMPLE = command("server.py", "--plain")
OF_FASTMCP = [*script("fastmcp_server.py"), "stdio", "null"]
CONFORMANT = command("conformance_server.py")

MODES = ("inline", "auto")

TALKS = {
    "adverse": (ADVERSE, [*HELLO, *LISTS, *ODD, *WRONG[:1], *WRONG[3:]]),
    f"example {LEGACY}": (EXAMPLE, [*HELLO, *LISTS, *BROWSING, *WRONG]),
    f"example {MODERN}": (EXAMPLE, to_modern([Step("server/discover"), *LISTS, *BROWSING, *WRONG])),
    f"fastmcp {LEGACY}": (OF_FASTMCP, [*HELLO, *LISTS, *OF_EVERY_KIND, *WRONG]),
    f"fastmcp {MODERN}": (OF_FASTMCP, to_modern([Step("server/discover"), *LISTS, *OF_EVERY_KIND, *WRONG])),
    f"conformance {LEGACY}": (CONFORMANT, [*HELLO, *LISTS, *SHAKING_HANDS, *WRONG]),
    f"conformance {MODERN}": (
        CONFORMANT,
        to_modern([Step("server/discover"), *LISTS, *STATELESS, *WRONG], CAPABILITIES),
    ),
}


VARYING = {f"conformance {MODERN}"}
"""Conversations that differ from run to run, for example by a signed state."""


@pytest.mark.slow
@pytest.mark.parametrize("talk", TALKS)
def test_unchanged_messages_are_equal_to_the_byte(talk: str, tmp_path: Path) -> None:
    server, steps = TALKS[talk]
    first = run_conversation(server, steps, REPLIES)
    through = {
        mode: run_conversation(wrap(tmp_path, "--output-mode", mode, server=server), steps, REPLIES) for mode in MODES
    }
    again = run_conversation(server, steps, REPLIES) if talk in VARYING else first
    with forebay.open_store(tmp_path.as_uri(), sweep_interval=0) as store:
        for mode, heard in through.items():
            verdict = compare(first, again, heard, store)
            assert not verdict.wrong, f"{mode}: {verdict}"
            handles = verdict.allowed["a handle in place of what is large"]
            assert (handles > 0) == (mode == "auto" and not talk.startswith("conformance")), str(verdict)


@pytest.mark.slow
def test_the_server_receives_the_bytes_of_the_client(tmp_path: Path) -> None:
    """A server that records its input gets the same bytes with and without the gateway."""
    # Ends with a request: once it is answered, all earlier messages have been read.
    steps = [*TALKS["adverse"][1], Step("ping")]
    heard = []
    for name in ("directly", "through"):
        server = [*script("record_input.py"), str(tmp_path / name), *ADVERSE]
        run_conversation(server if name == "directly" else wrap(tmp_path / "store", server=server), steps, REPLIES)
        heard.append((tmp_path / name).read_bytes())
    assert heard[0].count(b"\n") > len(steps)
    assert heard[0] == heard[1]


def test_only_values_that_vary_between_direct_runs_may_differ() -> None:
    one, other = b'{"at": "12:00:01", "n": [1, 2], "s": "a b"}', b'{"at": "12:00:02", "n": [1, 2], "s": "a b"}'
    assert is_equal(one, other, one)
    assert is_equal(one, other, b'{"at": "13:00:07", "n": [1, 2], "s": "a b"}')
    for here in (
        b'{"at": "13:00:07", "n": [1, 3], "s": "a b"}',
        b'{"at": "13:00:07", "n": [1,2], "s": "a b"}',
        b'{"at": "13:00:07", "n": [1, 2], "s": "a  b"}',
        b'{"at": "13:00:07 x", "n": [1, 2], "s": "a b"}',
        b'{"at": "13:00:07", "n": [1, 2], "s": "a b"} ',
    ):
        assert not is_equal(one, other, here)


def answered(method: str, result: Any, tool: str | None = None) -> ReceivedMessage:
    message = {"jsonrpc": "2.0", "id": 1, "result": result}
    return ReceivedMessage(json.dumps(message, separators=(",", ":")).encode(), message, method, tool)


def tools(*names: str, **more: Any) -> ReceivedMessage:
    return answered("tools/list", {"tools": [{"name": name, **more} for name in names]})


def text(words: str) -> ReceivedMessage:
    return answered("tools/call", {"content": [{"type": "text", "text": words}]}, "tool")


def listed(kind: str, *values: Any) -> ReceivedMessage:
    return answered(f"{kind}/list", {"resourceTemplates": list(values)})


SCHEMA = {"type": "object"}
MISTAKES: dict[str, tuple[list[ReceivedMessage], list[ReceivedMessage]]] = {
    "a message is missing": ([text("a"), text("b")], [text("a")]),
    "one more message": ([text("a")], [text("a"), text("b")]),
    "another order": ([text("a"), tools("b")], [tools("b"), text("a")]),
    "another text": ([text("a")], [text("b")]),
    "a tool of theirs is gone": ([tools("a", "b")], [tools("a", "output_fetch")]),
    "a tool of theirs is behind ours": ([tools("a", "b")], [tools("a", "output_fetch", "b")]),
    "a tool of nobody": ([tools("a")], [tools("a", "b")]),
    "a tool is described otherwise": ([tools("a", title="x")], [tools("a", "output_fetch", title="y")]),
    "an output schema is gone": ([tools("a", outputSchema=SCHEMA)], [tools("a", "output_fetch")]),
    "a template of nobody": (
        [listed("resources/templates")],
        [listed("resources/templates", {"uriTemplate": "their://{x}"})],
    ),
    "a capability is gone": (
        [answered("initialize", {"capabilities": {"tools": {}, "logging": {}}})],
        [answered("initialize", {"capabilities": {"tools": {}, "resources": {}}})],
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_comparison_detects_mistakes_of_the_gateway(mistake: str, tmp_path: Path) -> None:
    direct, through = MISTAKES[mistake]
    with forebay.open_store(tmp_path.as_uri(), sweep_interval=0) as store:
        assert compare(direct, direct, through, store).wrong
        assert not compare(direct, direct, direct, store).wrong


@pytest.mark.parametrize("stored", ["x" * 10_000, "x" * 9_999, "y" * 10_000])
def test_the_comparison_detects_an_incomplete_payload(stored: str, tmp_path: Path) -> None:
    direct = [text("x" * 10_000)]
    with forebay.open_store(tmp_path.as_uri(), sweep_interval=0) as store:
        handle = store.put(stored).output_handle
        verdict = compare(direct, direct, [text(json.dumps({"output_handle": handle}))], store)
    assert bool(verdict.wrong) == (stored != "x" * 10_000)
