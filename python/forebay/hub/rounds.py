"""Servers that ask by an answer, for a client with a connection: it is asked in the middle of its request."""

import asyncio
from collections.abc import Mapping
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY

from forebay.errors import UpstreamFailed
from forebay.hub.calls import can_be_asked, capability_for
from forebay.hub.client_peer import Front
from forebay.hub.send import Failed, Request, asked
from forebay.hub.upstreams import MCPUpstream

__all__ = ["in_rounds"]

_MOST_ROUNDS = 32
"""How often a server may ask for more input before it answers."""

_PAUSE = 0.25
"""Seconds before a server is asked again that wants to know nothing, only more time."""


async def in_rounds(request: Request, front: Front, upstream: MCPUpstream) -> dict[str, Any]:
    """What a server answers in the end. Raises `Failed`, and `MCPError` for what the client does not answer."""
    result = await asked(request, upstream)
    for _ in range(_MOST_ROUNDS):
        if result.get("resultType") != "input_required":
            return result
        questions = result.get("inputRequests") or {}
        if not isinstance(questions, Mapping) or not all(_is_question(each) for each in questions.values()):
            raise Failed(UpstreamFailed(f"{upstream.name} asks its client what is no question; look at the server"))
        if questions:
            answers = {"inputResponses": await _answers(questions, front, upstream)}
        else:
            answers = {}
            await asyncio.sleep(_PAUSE)
        state = {"requestState": result["requestState"]} if "requestState" in result else {}
        result = await asked(request, upstream, **answers, **state)
    raise Failed(
        UpstreamFailed(
            f"{upstream.name} has asked its client {_MOST_ROUNDS} times and still does not answer; call it otherwise"
        )
    )


def _is_question(asked: object) -> bool:
    return isinstance(asked, Mapping) and isinstance(asked.get("method"), str)


async def _answers(asked: Mapping[str, Any], front: Front, upstream: MCPUpstream) -> dict[str, Any]:
    for question in asked.values():
        if not can_be_asked(front.capabilities, question["method"], question.get("params") or {}):
            wanted = capability_for(question["method"])
            raise MCPError(
                code=MISSING_REQUIRED_CLIENT_CAPABILITY,
                message=f"{upstream.name} asks {question['method']:.64}, which this client has not said it can do",
                data={"requiredCapabilities": {} if wanted is None else {wanted: {}}},
            )
    asking = (front.ask(each["method"], each.get("params"), upstream) for each in asked.values())
    tasks = [asyncio.create_task(one) for one in asking]
    try:
        return dict(zip(asked, await asyncio.gather(*tasks), strict=True))
    finally:
        # If one is refused, nobody needs the others.
        for task in tasks:
            task.cancel()
