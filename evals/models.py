"""Conversations with a model behind an Anthropic- or OpenAI-compatible endpoint."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import httpx2

MAX_TOKENS = 4096
"""Maximum tokens of one turn of the model."""

_TIMEOUT_SECONDS = 300.0


@dataclasses.dataclass(frozen=True)
class ToolCall:
    """A call that the model asks for."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Turn:
    """What the model said in one turn: text, calls, or both."""

    text: str
    calls: Sequence[ToolCall]


class Conversation(Protocol):
    """A conversation in which the model may call tools."""

    def ask(self, text: str) -> Turn:
        """Send a message of the user and return the model's turn."""

    def answer_calls(self, results: Sequence[tuple[ToolCall, str, bool]]) -> Turn:
        """Send the results of all calls of the last turn, each with whether it is an error."""


class _Endpoint:
    """An HTTP endpoint that takes JSON."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = dict(headers)

    def post(self, body: Mapping[str, Any]) -> Any:
        response = httpx2.post(self._url, json=body, headers=self._headers, timeout=_TIMEOUT_SECONDS)
        if response.is_error:
            raise SystemExit(f"{self._url} answered {response.status_code}: {response.text[:500]}")
        return response.json()


class AnthropicConversation:
    """A conversation by the Messages API."""

    def __init__(self, url: str, model: str, system: str, tools: Sequence[Mapping[str, Any]]) -> None:
        key = os.environ.get("ANTHROPIC_API_KEY", "")
        self._endpoint = _Endpoint(f"{url}/v1/messages", {"x-api-key": key, "anthropic-version": "2023-06-01"})
        self._fixed = {
            "model": model,
            "max_tokens": MAX_TOKENS,
            "system": system,
            "tools": [
                {"name": tool["name"], "description": tool["description"], "input_schema": tool["inputSchema"]}
                for tool in tools
            ],
        }
        self._messages: list[dict[str, Any]] = []

    def ask(self, text: str) -> Turn:
        return self._send(text)

    def answer_calls(self, results: Sequence[tuple[ToolCall, str, bool]]) -> Turn:
        return self._send(
            [
                {"type": "tool_result", "tool_use_id": call.id, "content": text, "is_error": is_error}
                for call, text, is_error in results
            ]
        )

    def _send(self, content: Any) -> Turn:
        self._messages.append({"role": "user", "content": content})
        blocks = self._endpoint.post({**self._fixed, "messages": self._messages})["content"]
        self._messages.append({"role": "assistant", "content": blocks})
        return Turn(
            "\n".join(block["text"] for block in blocks if block["type"] == "text"),
            [ToolCall(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"],
        )


class OpenAIConversation:
    """A conversation by the Chat Completions API."""

    def __init__(self, url: str, model: str, system: str, tools: Sequence[Mapping[str, Any]]) -> None:
        # Local servers take any key, but a header must not end with a space.
        key = os.environ.get("OPENAI_API_KEY") or "none"
        self._endpoint = _Endpoint(f"{url}/v1/chat/completions", {"authorization": f"Bearer {key}"})
        self._fixed = {
            "model": model,
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": tool["name"],
                        "description": tool["description"],
                        "parameters": tool["inputSchema"],
                    },
                }
                for tool in tools
            ],
        }
        self._messages: list[dict[str, Any]] = [{"role": "system", "content": system}]

    def ask(self, text: str) -> Turn:
        return self._send([{"role": "user", "content": text}])

    def answer_calls(self, results: Sequence[tuple[ToolCall, str, bool]]) -> Turn:
        return self._send([{"role": "tool", "tool_call_id": call.id, "content": text} for call, text, _ in results])

    def _send(self, messages: Sequence[dict[str, Any]]) -> Turn:
        self._messages.extend(messages)
        message = self._endpoint.post({**self._fixed, "messages": self._messages})["choices"][0]["message"]
        self._messages.append(message)
        calls = message.get("tool_calls") or []
        return Turn(
            message.get("content") or "",
            [
                ToolCall(call["id"], call["function"]["name"], _parse_arguments(call["function"]["arguments"]))
                for call in calls
            ],
        )


def _parse_arguments(text: str) -> Mapping[str, Any]:
    """Return the arguments of a call; none if the model wrote no JSON object, which the tool will report."""
    try:
        arguments = json.loads(text or "{}")
    except ValueError:
        return {}
    return arguments if isinstance(arguments, dict) else {}


CONVERSATIONS: Mapping[str, type[AnthropicConversation] | type[OpenAIConversation]] = {
    "anthropic": AnthropicConversation,
    "openai": OpenAIConversation,
}
"""The conversation for each value of `--api`."""
