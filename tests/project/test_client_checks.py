"""The conversation of the scripted model, and the checks on what the model saw in it."""

import base64
import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from clients.apis import Call, Part, Picture, Request, Say, Tool
from clients.checks import CHECKS, CheckFailed, Expectation, Observation
from clients.launch import gateway_command
from clients.script import MAX_REPEATS, PROMPT, Conversation
from clients.tools import CodeTools, ListedTools, Toolbox
from gateway_harness import StdioClient, connect

TOOLS = ListedTools("s_{tool}")


def make_request(
    tools: Sequence[Tool] = (), answered: Sequence[str] = (), latest: Sequence[Part] = (), prompt: str = PROMPT
) -> Request:
    return Request(prompt, {tool.full_name: tool for tool in tools}, frozenset(answered), latest)


class PlainClient:
    """A client without limits: the model sees every block of a result, and nothing else."""

    def __init__(self, server: StdioClient) -> None:
        self._server = server
        listed = server.request("tools/list")["result"]["tools"]
        self._tools = [Tool(f"s_{tool['name']}", tool["description"], tool["inputSchema"]) for tool in listed]

    def hold(self, conversation: Conversation) -> None:
        """Hold a conversation to its end."""
        turn = conversation.respond(make_request(self._tools))
        while isinstance(turn, Call):
            blocks = self._server.call(turn.tool.name.removeprefix("s_"), **turn.arguments)["content"]
            latest = [part for block in blocks for part in self._show(block)]
            turn = conversation.respond(make_request(self._tools, [turn.id], latest))

    @staticmethod
    def _show(block: Mapping[str, Any]) -> list[Part]:
        if block["type"] == "image":
            return [Picture(block["mimeType"], base64.b64decode(block["data"]))]
        return [block["text"]] if block["type"] == "text" else []


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> Conversation:
    """A conversation with the tools of a real gateway."""
    conversation = Conversation(TOOLS)
    with connect(*gateway_command(tmp_path_factory.mktemp("store"))) as server:
        PlainClient(server).hold(conversation)
    assert conversation.is_finished
    return conversation


def observe(conversation: Conversation, step: str | None = None, parts: Sequence[Part] = ()) -> Observation:
    """Return an observation in which the model saw something else at one step."""
    changed = Conversation(TOOLS)
    changed.first, changed.known = conversation.first, conversation.known
    changed.seen = {**conversation.seen, **({step: parts} if step else {})}
    return Observation(changed, Expectation(), "Read on with output_fetch.")


def text_of(conversation: Conversation, step: str) -> str:
    (text,) = conversation.seen[step]
    assert isinstance(text, str)
    return text


@pytest.mark.slow
def test_a_client_without_limits_passes_every_check_of_results(conversation: Conversation) -> None:
    observation = observe(conversation)
    names = ["tools", "list", "list with schema", "text", "pages", "search", "picture"]
    verdicts = {name: CHECKS[name](observation) for name in names}
    assert verdicts["tools"] == "listed"
    assert verdicts["picture"] == "shown"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "step", "change", "reason"),
    [
        ("pages", "network page 1", lambda text: text[:4000], "0 whole pages in 4,000 characters"),
        ("pages", "trace page 2", lambda text: text[:4000] + "…" + text[4001:-4000], "trace page 2: 0 whole pages"),
        ("pages", "network page 2", lambda text: re.sub(r'"id": *\d+', '"id": 0', text, count=1), "in place of"),
        ("pages", "extract_data page 1", lambda text: text + text, "2 whole pages"),
        ("search", "search", lambda text: text[:-100], "0 whole results"),
        ("search", "search", lambda text: text.replace("assets/apple-", "assets/pear-"), "not all of them"),
        ("list", "network", lambda text: text + text, "2 whole descriptors instead of 1"),
        ("list", "network", lambda text: text + '{"output_handle": "oh_X"}', "and 1 with only a handle"),
        ("list", "network", lambda text: text.replace("20000", "19999"), "item_count is 19999"),
        ("list", "network", lambda text: text + " forebay://output/oh_X", "a resource link"),
        ("text", "trace", lambda _: "Error: timed out", "0 whole descriptors instead of 1"),
    ],
)
def test_what_a_client_cuts_repeats_or_replaces_fails(
    conversation: Conversation, check: str, step: str, change: Callable[[str], str], reason: str
) -> None:
    text = text_of(conversation, step)
    assert change(text) != text
    with pytest.raises(CheckFailed, match=reason):
        CHECKS[check](observe(conversation, step, [change(text)]))


@pytest.mark.slow
def test_results_inside_of_other_json_are_found(conversation: Conversation) -> None:
    page = text_of(conversation, "network page 1")
    wrapped = "Output:\n" + json.dumps({"content": [{"type": "text", "text": page}], "isError": False})
    assert CHECKS["pages"](observe(conversation, "network page 1", [wrapped]))


@pytest.mark.slow
@pytest.mark.parametrize("parts", [["[image: image/png]"], [Picture("image/png", b"no image")]])
def test_a_picture_that_does_not_arrive_fails(conversation: Conversation, parts: list[Part]) -> None:
    observation = observe(conversation, "picture", parts)
    with pytest.raises(CheckFailed, match="images reach the model"):
        CHECKS["picture"](observation)
    expected = dataclasses.replace(observation, expected=Expectation(shows_pictures=False))
    assert CHECKS["picture"](expected) == "not shown"
    with pytest.raises(CheckFailed, match="unexpectedly"):
        CHECKS["picture"](dataclasses.replace(observe(conversation), expected=expected.expected))


def test_instructions_must_be_sent_and_shown() -> None:
    conversation = Conversation(TOOLS)
    conversation.respond(make_request([Tool("s_x", "", {})], prompt=f"{PROMPT}\nRead on\n  with output_fetch."))
    check = CHECKS["instructions"]
    assert check(Observation(conversation, Expectation(), "Read on with output_fetch.")) == "shown"
    with pytest.raises(CheckFailed, match="sends no instructions"):
        check(Observation(conversation, Expectation(), ""))
    with pytest.raises(CheckFailed, match="not in what the model reads"):
        check(Observation(conversation, Expectation(), "Call output_fetch."))
    with pytest.raises(CheckFailed, match="unexpectedly"):
        check(Observation(conversation, Expectation(shows_instructions=False), "Read on with output_fetch."))


SEARCH = Tool("tool_search", "", {})
BRIDGE = Tool("tool_call", "", {})
CODE = Tool("exec", "declare const tools: { s__shown(args: {}): …", {}, "custom", "functions")
NETWORK = Tool("s_network", "", {"properties": {"count": {}}})


def test_a_tool_that_is_not_listed_is_searched_for_and_called() -> None:
    conversation = Conversation(ListedTools("s_{tool}", search_tool="tool_search"))
    search = conversation.respond(make_request([SEARCH]))
    assert search == Call("call_1", SEARCH, {"query": "select:s_network"})
    call = conversation.respond(make_request([SEARCH, NETWORK], ["call_1"]))
    assert call == Call("call_2", NETWORK, {"count": 20_000})
    assert "count" in conversation.known["network"]
    assert not conversation.is_listed("network")


def test_a_tool_that_is_found_but_not_listed_is_called_by_the_bridge() -> None:
    conversation = Conversation(ListedTools("s_{tool}", search_tool="tool_search", bridge="tool_call"))
    tools = [SEARCH, BRIDGE]
    conversation.respond(make_request(tools))
    call = conversation.respond(make_request(tools, ["call_1"], ['{"name": "s_network", "count": …}']))
    assert call == Call("call_2", BRIDGE, {"name": "s_network", "arguments": {"count": 20_000}})


def test_a_tool_is_called_from_code() -> None:
    toolbox = CodeTools("s__{tool}", code_tool="functions.exec")
    conversation = Conversation(toolbox)
    search = conversation.respond(make_request([CODE]))
    assert isinstance(search, Call)
    assert "'network'" in search.arguments["input"]
    call = conversation.respond(make_request([CODE], ["call_1"], ["s__network(args: { count?: number; })"]))
    assert isinstance(call, Call)
    assert 'await tools.s__network({"count": 20000})' in call.arguments["input"]
    assert toolbox.is_listed("shown", make_request([CODE]))
    assert not toolbox.is_listed("network", make_request([CODE]))


@pytest.mark.parametrize(
    "toolbox", [TOOLS, ListedTools("s_{tool}", search_tool="tool_search"), CodeTools("{tool}", "x")]
)
def test_a_tool_that_the_model_cannot_know_is_not_called(toolbox: Toolbox) -> None:
    conversation = Conversation(toolbox)
    request = make_request([Tool("other", "", {})])
    assert isinstance(conversation.respond(request), Say)
    assert conversation.is_finished
    with pytest.raises(CheckFailed, match="neither listed nor found"):
        CHECKS["tools"](Observation(conversation, Expectation(), ""))
    with pytest.raises(CheckFailed, match="did not get there"):
        CHECKS["list"](Observation(conversation, Expectation(), ""))


def test_requests_beside_the_conversation_do_not_move_it() -> None:
    conversation = Conversation(TOOLS)
    assert conversation.respond(make_request([NETWORK], prompt="Write a title.")) == Say("ok")
    assert conversation.respond(make_request()) == Say("ok")
    assert conversation.first is None
    assert isinstance(conversation.respond(make_request([NETWORK])), Call)


def test_a_repeated_request_gets_the_same_turn_a_few_times() -> None:
    conversation = Conversation(TOOLS)
    first = conversation.respond(make_request([NETWORK]))
    repeated = [conversation.respond(make_request([NETWORK])) for _ in range(MAX_REPEATS)]
    assert repeated == [first] * MAX_REPEATS
    assert isinstance(conversation.respond(make_request([NETWORK])), Say)
    assert not conversation.is_finished
