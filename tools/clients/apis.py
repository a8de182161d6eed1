"""The APIs of language models: Messages, Responses, Chat Completions and generateContent.

Each one reads a request into a `Request`, and writes a `Turn` as a response, whole or as server-sent events.
"""

import base64
import dataclasses
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

MODEL = "scripted"
"""The model's name in responses. Requests may ask for any model."""

_TOKENS = 10
"""The usage that every response reports, in and out: far from the limit of any model."""


@dataclasses.dataclass(frozen=True)
class Picture:
    """An image as the model gets it."""

    mime_type: str
    data: bytes


Part = str | Picture


@dataclasses.dataclass(frozen=True)
class Tool:
    """A tool that the model may call."""

    name: str
    description: str
    schema: Mapping[str, Any]
    kind: str = "function"
    """`function`, or one of the Responses API: `custom`, `tool_search`."""
    namespace: str | None = None
    """The group of tools that a call has to name, too, in the Responses API."""

    @property
    def full_name(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name


@dataclasses.dataclass(frozen=True)
class Request:
    """What reached the model with one request."""

    prompt: str
    """What was said to the model apart from tool results: system, developer and user messages."""
    tools: Mapping[str, Tool]
    """The tools that the model can call, by full name."""
    answered: frozenset[str]
    """The ids of the calls that have a result."""
    latest: Sequence[Part]
    """What was added after the model's last turn: the results of its calls, and anything beside them."""


@dataclasses.dataclass(frozen=True)
class Call:
    """A turn of the model that calls a tool."""

    id: str
    tool: Tool
    arguments: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Say:
    """A turn of the model that is text, and ends the conversation."""

    text: str


Turn = Call | Say
Event = tuple[str | None, Any]
"""The name of a server-sent event, and its data: a string, or a value that is sent as JSON."""


class API(Protocol):
    """One API of a model."""

    def read(self, body: Mapping[str, Any]) -> Request:
        """Return what a request's body says to the model."""

    def answer(self, turn: Turn) -> dict[str, Any]:
        """Return the body of a response that is not streamed."""

    def stream(self, turn: Turn) -> Iterable[Event]:
        """Return the events of a streamed response."""


class _History:
    """The messages of a conversation, added in order."""

    def __init__(self) -> None:
        self._prompt: list[str] = []
        self._answered: set[str] = set()
        self._latest: list[Part] = []

    def add_prompt(self, parts: Iterable[Part]) -> None:
        for part in parts:
            self._latest.append(part)
            if isinstance(part, str):
                self._prompt.append(part)

    def add_turn(self) -> None:
        """Add a turn of the model: what comes later is new to it."""
        self._latest = []

    def add_result(self, call_id: str, parts: Iterable[Part]) -> None:
        self._answered.add(call_id)
        self._latest.extend(parts)

    def to_request(self, tools: Iterable[Tool]) -> Request:
        by_name = {tool.full_name: tool for tool in tools}
        return Request("\n".join(self._prompt), by_name, frozenset(self._answered), tuple(self._latest))


def _new_id(kind: str) -> str:
    """Return an id for a response. Clients merge messages that have the same one."""
    return f"{kind}_{uuid.uuid4().hex}"


def _decode_url(url: str) -> Part:
    """Return the image of a data URL; any other URL stays text."""
    head, _, data = url.partition(";base64,")
    return Picture(head.removeprefix("data:"), base64.b64decode(data)) if head.startswith("data:") and data else url


def _as_text(value: Any) -> str:
    """Return a part of another kind as JSON, so that nothing that reached the model is dropped."""
    return json.dumps(value, ensure_ascii=False)


def _blocks(content: Any, kind: str = "text") -> list[dict[str, Any]]:
    """Return content as blocks: a string is short for a block of text."""
    return [{"type": kind, "text": content}] if isinstance(content, str) else content


class Messages:
    """Anthropic's Messages API."""

    def read(self, body: Mapping[str, Any]) -> Request:
        history = _History()
        loaded = set()
        history.add_prompt(self._parts(body.get("system") or []))
        for message in body["messages"]:
            if message["role"] == "assistant":
                history.add_turn()
                continue
            for block in _blocks(message["content"]):
                if block["type"] == "tool_result":
                    content = _blocks(block.get("content") or [])
                    loaded |= {part["tool_name"] for part in content if part["type"] == "tool_reference"}
                    history.add_result(block["tool_use_id"], self._parts(content))
                else:
                    history.add_prompt(self._parts([block]))
        return history.to_request(
            Tool(tool["name"], tool.get("description", ""), tool["input_schema"])
            for tool in body.get("tools", [])
            # A deferred tool is not in the model's context until a result refers to it.
            if "input_schema" in tool and (not tool.get("defer_loading") or tool["name"] in loaded)
        )

    def answer(self, turn: Turn) -> dict[str, Any]:
        block = (
            {"type": "text", "text": turn.text}
            if isinstance(turn, Say)
            else {"type": "tool_use", "id": turn.id, "name": turn.tool.name, "input": turn.arguments}
        )
        return {
            "id": _new_id("msg"),
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "content": [block],
            "stop_reason": "end_turn" if isinstance(turn, Say) else "tool_use",
            "stop_sequence": None,
            "usage": {"input_tokens": _TOKENS, "output_tokens": _TOKENS},
        }

    def stream(self, turn: Turn) -> Iterable[Event]:
        whole = self.answer(turn)
        (block,) = whole["content"]
        start, delta = (
            ({**block, "text": ""}, {"type": "text_delta", "text": turn.text})
            if isinstance(turn, Say)
            else ({**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(turn.arguments)})
        )
        ending = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": start},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": ending, "usage": {"output_tokens": _TOKENS}},
            {"type": "message_stop"},
        ]
        return [(event["type"], event) for event in events]

    @staticmethod
    def _parts(content: Any) -> Iterator[Part]:
        for block in _blocks(content):
            source = block.get("source", {})
            if block["type"] == "text":
                yield block["text"]
            elif block["type"] == "image" and source.get("type") == "base64":
                yield Picture(source["media_type"], base64.b64decode(source["data"]))
            else:
                yield _as_text(block)


class Responses:
    """OpenAI's Responses API."""

    def read(self, body: Mapping[str, Any]) -> Request:
        history = _History()
        tools = list(self._tools(body.get("tools", [])))
        history.add_prompt(self._parts(body.get("instructions") or []))
        for item in body["input"]:
            kind = item.get("type", "message")
            if kind == "message" and item["role"] != "assistant":
                history.add_prompt(self._parts(item["content"]))
            elif kind == "additional_tools":
                tools += self._tools(item["tools"])
            elif kind == "tool_search_output":
                tools += self._tools(item["tools"])
                history.add_result(item["call_id"], [_as_text(item["tools"])])
            elif kind.endswith("_output"):
                history.add_result(item["call_id"], self._parts(item["output"]))
            else:
                history.add_turn()
        return history.to_request(tools)

    def answer(self, turn: Turn) -> dict[str, Any]:
        item = self._message(turn) if isinstance(turn, Say) else self._call(turn)
        usage = {"input_tokens": _TOKENS, "output_tokens": _TOKENS, "total_tokens": 2 * _TOKENS}
        return {
            "id": _new_id("resp"),
            "object": "response",
            "created_at": 0,
            "model": MODEL,
            "status": "completed",
            "output": [item],
            "usage": usage,
        }

    def stream(self, turn: Turn) -> Iterable[Event]:
        whole = self.answer(turn)
        (item,) = whole["output"]
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}},
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, "status": "in_progress"}},
        ]
        if isinstance(turn, Say):
            place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
            events.append({"type": "response.output_text.delta", **place, "delta": turn.text})
        events += [
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": whole},
        ]
        return [(event["type"], {**event, "sequence_number": number}) for number, event in enumerate(events)]

    @staticmethod
    def _message(turn: Say) -> dict[str, Any]:
        content = [{"type": "output_text", "text": turn.text, "annotations": []}]
        return {"type": "message", "id": _new_id("msg"), "role": "assistant", "status": "completed", "content": content}

    @staticmethod
    def _call(turn: Call) -> dict[str, Any]:
        tool = turn.tool
        item: dict[str, Any] = {"id": _new_id("call"), "call_id": turn.id, "status": "completed"}
        if tool.kind == "tool_search":
            # A search that the client carries out, not the API.
            return {**item, "type": "tool_search_call", "execution": "client", "arguments": turn.arguments}
        item |= {"name": tool.name} | ({"namespace": tool.namespace} if tool.namespace else {})
        if tool.kind == "custom":
            return {**item, "type": "custom_tool_call", "input": turn.arguments["input"]}
        return {**item, "type": "function_call", "arguments": json.dumps(turn.arguments)}

    @staticmethod
    def _tools(entries: Iterable[Mapping[str, Any]]) -> Iterator[Tool]:
        for entry in entries:
            namespace = entry["name"] if entry["type"] == "namespace" else None
            for tool in entry["tools"] if namespace else [entry]:
                kind = tool["type"]
                name = tool.get("name", kind)
                yield Tool(name, tool.get("description", ""), tool.get("parameters", {}), kind, namespace)

    @staticmethod
    def _parts(content: Any) -> Iterator[Part]:
        for part in _blocks(content, "input_text"):
            if part["type"] == "input_text":
                yield part["text"]
            elif part["type"] == "input_image":
                yield _decode_url(part["image_url"])
            else:
                yield _as_text(part)


class ChatCompletions:
    """OpenAI's Chat Completions API."""

    def read(self, body: Mapping[str, Any]) -> Request:
        history = _History()
        for message in body["messages"]:
            if message["role"] == "assistant":
                history.add_turn()
            elif message["role"] == "tool":
                history.add_result(message["tool_call_id"], self._parts(message["content"]))
            else:
                history.add_prompt(self._parts(message["content"]))
        functions = [tool["function"] for tool in body.get("tools", [])]
        return history.to_request(
            Tool(function["name"], function.get("description", ""), function.get("parameters", {}))
            for function in functions
        )

    def answer(self, turn: Turn) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": turn.text if isinstance(turn, Say) else None}
        if isinstance(turn, Call):
            function = {"name": turn.tool.name, "arguments": json.dumps(turn.arguments)}
            message["tool_calls"] = [{"id": turn.id, "type": "function", "function": function}]
        ending = "stop" if isinstance(turn, Say) else "tool_calls"
        return {
            "id": _new_id("chatcmpl"),
            "object": "chat.completion",
            "created": 0,
            "model": MODEL,
            "choices": [{"index": 0, "message": message, "finish_reason": ending}],
            "usage": {"prompt_tokens": _TOKENS, "completion_tokens": _TOKENS, "total_tokens": 2 * _TOKENS},
        }

    def stream(self, turn: Turn) -> Iterable[Event]:
        whole = self.answer(turn)
        (choice,) = whole["choices"]
        delta = choice["message"]
        if isinstance(turn, Call):
            delta = {**delta, "tool_calls": [{"index": 0, **call} for call in delta["tool_calls"]]}
        chunk = {**whole, "object": "chat.completion.chunk", "usage": None}
        yield None, {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield None, {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
        yield None, {**chunk, "choices": [], "usage": whole["usage"]}
        yield None, "[DONE]"

    @staticmethod
    def _parts(content: Any) -> Iterator[Part]:
        for part in _blocks(content):
            if part["type"] == "text":
                yield part["text"]
            elif part["type"] == "image_url":
                yield _decode_url(part["image_url"]["url"])
            else:
                yield _as_text(part)


class GenerateContent:
    """Google's generateContent API."""

    def read(self, body: Mapping[str, Any]) -> Request:
        history = _History()
        history.add_prompt(map(self._part, body.get("systemInstruction", {}).get("parts", [])))
        for content in body["contents"]:
            if content.get("role") == "model":
                history.add_turn()
                continue
            for part in content["parts"]:
                if "functionResponse" in part:
                    response = part["functionResponse"]
                    beside = map(self._part, response.get("parts", []))
                    history.add_result(response["id"], [*self._texts(response["response"]), *beside])
                else:
                    history.add_prompt([self._part(part)])
        functions = [function for group in body.get("tools", []) for function in group.get("functionDeclarations", [])]
        return history.to_request(
            Tool(function["name"], function.get("description", ""), self._schema(function)) for function in functions
        )

    def answer(self, turn: Turn) -> dict[str, Any]:
        part: dict[str, Any] = (
            {"text": turn.text}
            if isinstance(turn, Say)
            else {"functionCall": {"id": turn.id, "name": turn.tool.name, "args": turn.arguments}}
        )
        usage = {"promptTokenCount": _TOKENS, "candidatesTokenCount": _TOKENS, "totalTokenCount": 2 * _TOKENS}
        return {
            "candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}],
            "usageMetadata": usage,
            "modelVersion": MODEL,
        }

    def stream(self, turn: Turn) -> Iterable[Event]:
        return [(None, self.answer(turn))]

    @staticmethod
    def _schema(function: Mapping[str, Any]) -> Mapping[str, Any]:
        schema: Mapping[str, Any] = function.get("parametersJsonSchema") or function.get("parameters") or {}
        return schema

    @staticmethod
    def _texts(response: Mapping[str, Any]) -> Sequence[str]:
        """Return the texts of a function's response; if it has other values, the whole as JSON."""
        values = list(response.values())
        return values if all(isinstance(value, str) for value in values) else [_as_text(response)]

    @staticmethod
    def _part(part: Mapping[str, Any]) -> Part:
        if "inlineData" in part:
            return Picture(part["inlineData"]["mimeType"], base64.b64decode(part["inlineData"]["data"]))
        return part["text"] if isinstance(part.get("text"), str) else _as_text(part)
