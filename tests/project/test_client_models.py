"""The scripted model speaks the four APIs: what reaches it is read, and its turns arrive, whole and streamed."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from clients.apis import Call, Picture, Request, Say, Tool, Turn
from clients.models import ScriptedModel

PNG = b"\x89PNG\r\n\x1a\nimage"
DATA = base64.b64encode(PNG).decode()
SCHEMA = {"type": "object", "properties": {"offset": {"type": "integer"}}}
ARGUMENTS = {"offset": 7, "text": '"quoted" größe'}
RESULT = 'a result with "quotes"'
FETCH = Tool("fetch", "Fetch a page.", SCHEMA)
CALL = Call("call_1", FETCH, ARGUMENTS)

Post = Callable[[str, dict[str, Any]], bytes]


class Answers:
    """Turns for the model to take, and the requests that it got."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.requests: list[Request] = []

    def respond(self, request: Request) -> Turn:
        self.requests.append(request)
        return self.turns.pop(0)


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def model(answers: Answers) -> Iterator[ScriptedModel]:
    model = ScriptedModel(answers.respond)
    with model.running():
        yield model


@pytest.fixture
def post(model: ScriptedModel) -> Post:
    def post(path: str, body: dict[str, Any]) -> bytes:
        request = urllib.request.Request(  # noqa: S310 - on loopback
            model.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            return bytes(response.read())

    return post


def parse_events(stream: bytes) -> list[tuple[str | None, Any]]:
    """Return the names and the data of server-sent events."""
    events = []
    for block in stream.decode().removesuffix("\n\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        data = fields["data"]
        events.append((fields.get("event"), data if data == "[DONE]" else json.loads(data)))
    return events


MESSAGES: dict[str, Any] = {
    "system": [{"type": "text", "text": "Be brief."}],
    "tools": [
        {"name": "fetch", "description": "Fetch a page.", "input_schema": SCHEMA},
        {"name": "found", "description": "", "input_schema": {}, "defer_loading": True},
        {"name": "hidden", "description": "", "input_schema": {}, "defer_loading": True},
        {"type": "web_search_20250305", "name": "web_search"},
    ],
    "messages": [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "call_0", "name": "search", "input": {}}]},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "call_0",
                    "content": [{"type": "tool_reference", "tool_name": "found"}],
                }
            ],
        },
        {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "fetch", "input": {}}]},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "call_1",
                    "content": [
                        {"type": "text", "text": RESULT},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
                    ],
                },
                {"type": "text", "text": "A reminder."},
            ],
        },
    ],
}

RESPONSES: dict[str, Any] = {
    "instructions": "Be brief.",
    "tools": [
        {"type": "function", "name": "fetch", "description": "Fetch a page.", "parameters": SCHEMA},
        {"type": "tool_search", "description": "Find tools.", "parameters": {}},
    ],
    "input": [
        {
            "type": "additional_tools",
            "role": "developer",
            "tools": [{"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}],
        },
        {"role": "user", "content": [{"type": "input_text", "text": "Go."}]},
        {"type": "tool_search_call", "call_id": "call_0", "arguments": {}},
        {
            "type": "tool_search_output",
            "call_id": "call_0",
            "tools": [{"type": "namespace", "name": "mcp__s", "tools": [{"type": "function", "name": "found"}]}],
        },
        {"type": "function_call", "call_id": "call_1", "name": "fetch", "arguments": "{}"},
        {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": [
                {"type": "input_text", "text": RESULT},
                {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"},
            ],
        },
        {"role": "developer", "content": "A reminder."},
    ],
}

CHAT: dict[str, Any] = {
    "tools": [
        {"type": "function", "function": {"name": "fetch", "description": "Fetch a page.", "parameters": SCHEMA}}
    ],
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Go."}]},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "tool", "tool_call_id": "call_1", "content": RESULT},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
                {"type": "text", "text": "A reminder."},
            ],
        },
    ],
}

GENERATE: dict[str, Any] = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "tools": [
        {
            "functionDeclarations": [
                {"name": "fetch", "description": "Fetch a page.", "parametersJsonSchema": SCHEMA},
            ]
        }
    ],
    "contents": [
        {"role": "user", "parts": [{"text": "Go."}]},
        {"role": "model", "parts": [{"functionCall": {"id": "call_1", "name": "fetch", "args": {}}}]},
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "call_1", "name": "fetch", "response": {"output": RESULT}}},
                {"inlineData": {"mimeType": "image/png", "data": DATA}},
                {"text": "A reminder."},
            ],
        },
    ],
}

STREAM = "/v1beta/models/any:streamGenerateContent?alt=sse"
BODIES = {
    "/v1/messages?beta=true": MESSAGES,
    "/v1/responses": RESPONSES,
    "/v1/chat/completions": CHAT,
    "/v1beta/models/any:generateContent": GENERATE,
}


@pytest.mark.parametrize("path", BODIES)
def test_a_request_is_read(path: str, post: Post, answers: Answers, model: ScriptedModel) -> None:
    answers.turns = [Say("ok")]
    post(path, BODIES[path])
    (request,) = answers.requests
    assert request.tools["fetch"] == FETCH
    assert "call_1" in request.answered
    assert set(request.latest) == {RESULT, Picture("image/png", PNG), "A reminder."}
    assert request.prompt.split("\n") == ["Be brief.", "Go.", "A reminder."]
    ((target, body),) = model.requests
    assert (target, json.loads(body)) == (path, BODIES[path])


def test_a_deferred_tool_is_known_once_a_result_refers_to_it(post: Post, answers: Answers) -> None:
    answers.turns = [Say("ok"), Say("ok")]
    post("/v1/messages", MESSAGES)
    post("/v1/messages", {**MESSAGES, "messages": MESSAGES["messages"][:1]})
    assert [set(request.tools) for request in answers.requests] == [{"fetch", "found"}, {"fetch"}]


def test_tools_of_the_responses_api_come_in_groups_and_in_the_input(post: Post, answers: Answers) -> None:
    answers.turns = [Say("ok")]
    post("/v1/responses", RESPONSES)
    tools = answers.requests[0].tools
    assert set(tools) == {"fetch", "tool_search", "functions.exec", "mcp__s.found"}
    assert tools["functions.exec"].kind == "custom"
    assert tools["mcp__s.found"].namespace == "mcp__s"


def test_parts_of_other_kinds_are_kept_as_json(post: Post, answers: Answers) -> None:
    answers.turns = [Say("ok"), Say("ok"), Say("ok"), Say("ok")]
    link = {"type": "resource_link", "uri": "forebay://output/oh_X"}
    post("/v1/messages", {"messages": [{"role": "user", "content": [link]}]})
    post("/v1/responses", {"input": [{"role": "user", "content": [link]}]})
    post("/v1/chat/completions", {"messages": [{"role": "user", "content": [link]}]})
    post(STREAM, {"contents": [{"role": "user", "parts": [link]}]})
    assert [[json.loads(str(part)) for part in request.latest] for request in answers.requests] == [[link]] * 4


def test_messages_answers_with_a_call_and_with_text(post: Post, answers: Answers) -> None:
    answers.turns = [CALL, CALL, Say("Done."), Say("Done.")]
    whole = json.loads(post("/v1/messages", MESSAGES))
    assert whole["content"] == [{"type": "tool_use", "id": "call_1", "name": "fetch", "input": ARGUMENTS}]
    assert whole["stop_reason"] == "tool_use"

    events = parse_events(post("/v1/messages", {**MESSAGES, "stream": True}))
    names = [name for name, _ in events]
    assert names == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert [data["type"] for _, data in events] == names
    assert events[1][1]["content_block"] == {"type": "tool_use", "id": "call_1", "name": "fetch", "input": {}}
    assert json.loads(events[2][1]["delta"]["partial_json"]) == ARGUMENTS
    assert events[4][1]["delta"]["stop_reason"] == "tool_use"
    # A client merges messages with the same id.
    assert events[0][1]["message"]["id"] != whole["id"]

    assert json.loads(post("/v1/messages", MESSAGES))["content"] == [{"type": "text", "text": "Done."}]
    events = parse_events(post("/v1/messages", {**MESSAGES, "stream": True}))
    assert events[2][1]["delta"] == {"type": "text_delta", "text": "Done."}
    assert events[4][1]["delta"]["stop_reason"] == "end_turn"


def test_responses_answers_with_a_call_and_with_text(post: Post, answers: Answers) -> None:
    answers.turns = [CALL, Say("Done.")]
    events = parse_events(post("/v1/responses", {**RESPONSES, "stream": True}))
    assert [data["type"] for _, data in events] == [name for name, _ in events]
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    done = next(data["item"] for name, data in events if name == "response.output_item.done")
    assert (done["type"], done["call_id"], done["name"]) == ("function_call", "call_1", "fetch")
    assert json.loads(done["arguments"]) == ARGUMENTS
    assert events[-1][0] == "response.completed"
    assert events[-1][1]["response"]["output"] == [done]

    events = parse_events(post("/v1/responses", {**RESPONSES, "stream": True}))
    assert [data["delta"] for name, data in events if name == "response.output_text.delta"] == ["Done."]
    (message,) = events[-1][1]["response"]["output"]
    assert message["content"][0]["text"] == "Done."


def test_responses_calls_tools_of_every_kind(post: Post, answers: Answers) -> None:
    grouped = Tool("found", "", {}, "function", "mcp__s")
    code = Tool("exec", "", {}, "custom", "functions")
    search = Tool("tool_search", "", {}, "tool_search")
    answers.turns = [
        Call("call_1", grouped, ARGUMENTS),
        Call("call_2", code, {"input": "text(1);"}),
        Call("call_3", search, {"query": "x"}),
    ]
    items = [json.loads(post("/v1/responses", RESPONSES))["output"][0] for _ in range(3)]
    assert [item["type"] for item in items] == ["function_call", "custom_tool_call", "tool_search_call"]
    assert [item.get("namespace") for item in items] == ["mcp__s", "functions", None]
    assert items[1]["input"] == "text(1);"
    assert (items[2]["execution"], items[2]["arguments"]) == ("client", {"query": "x"})


def test_chat_completions_answers_with_a_call_and_with_text(post: Post, answers: Answers) -> None:
    answers.turns = [CALL, CALL, Say("Done.")]
    function = {"name": "fetch", "arguments": json.dumps(ARGUMENTS)}
    call = {"id": "call_1", "type": "function", "function": function}
    (choice,) = json.loads(post("/v1/chat/completions", CHAT))["choices"]
    assert (choice["message"]["tool_calls"], choice["finish_reason"]) == ([call], "tool_calls")

    *chunks, (_, last) = parse_events(post("/v1/chat/completions", {**CHAT, "stream": True}))
    assert last == "[DONE]"
    choices = [choice for _, chunk in chunks for choice in chunk["choices"]]
    assert choices[0]["delta"]["tool_calls"] == [{"index": 0, **call}]
    assert [choice["finish_reason"] for choice in choices] == [None, "tool_calls"]
    assert chunks[-1][1]["usage"]["total_tokens"] > 0

    *chunks, _ = parse_events(post("/v1/chat/completions", {**CHAT, "stream": True}))
    choices = [choice for _, chunk in chunks for choice in chunk["choices"]]
    assert choices[0]["delta"] == {"role": "assistant", "content": "Done."}
    assert choices[-1]["finish_reason"] == "stop"


def test_generate_content_answers_with_a_call_and_with_text(post: Post, answers: Answers) -> None:
    answers.turns = [CALL, Say("Done."), Say("Done.")]
    ((_, call),) = parse_events(post(STREAM, GENERATE))
    ((_, text),) = parse_events(post(STREAM, GENERATE))
    assert [data["candidates"][0]["content"]["parts"] for data in (call, text)] == [
        [{"functionCall": {"id": "call_1", "name": "fetch", "args": ARGUMENTS}}],
        [{"text": "Done."}],
    ]
    whole = json.loads(post("/v1beta/models/any:generateContent", GENERATE))
    assert whole["candidates"] == text["candidates"]


def test_unknown_endpoints_are_recorded_and_refused(post: Post, model: ScriptedModel) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        post("/v1/messages/count_tokens", {})
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(model.url + "/v1/models", timeout=30)  # noqa: S310
    assert [target for target, _ in model.requests] == ["/v1/messages/count_tokens", "/v1/models"]


def test_a_request_that_cannot_be_read_is_a_failure_of_the_run(post: Post, model: ScriptedModel) -> None:
    with pytest.raises(urllib.error.HTTPError, match="400"):
        post("/v1/messages", {"messages": [{"role": "user"}]})
    (failure,) = model.failures
    assert "KeyError: 'content'" in failure
