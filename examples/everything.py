"""A conversation with `@modelcontextprotocol/server-everything` that uses all that it has."""

from collections.abc import Callable
from typing import Any

from conversation import CLIENT, LEGACY, Conversation, Reply, Step

__all__ = ["REPLIES", "STEPS"]

MESSAGE, UPDATED = "notifications/message", "notifications/resources/updated"

CAPABILITIES: dict[str, Any] = {
    "roots": {"listChanged": True},
    "sampling": {},
    "elicitation": {"form": {}, "url": {}},
    "tasks": {"list": {}, "cancel": {}, "requests": {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}}},
}

SAMPLED = {
    "role": "assistant",
    "content": {"type": "text", "text": 'a "sample" \\ of 1.50'},
    "model": "made up",
    "stopReason": "endTurn",
}
ELICITED = {"action": "accept", "content": {"name": "Jo", "check": True, "interpretation": "snake"}}


def task(name: str, status: str) -> dict[str, Any]:
    times = dict.fromkeys(("createdAt", "lastUpdatedAt"), "2026-11-01T00:00:00Z")
    return {"taskId": name, "status": status, "ttl": 60_000, "pollInterval": 20, **times}


def at_once_or_later(name: str, result: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A result, or a task that will have it if that is what was asked for."""
    return lambda params: {"task": task(name, "working")} if "task" in params else result


REPLIES: dict[str, Reply] = {
    "roots/list": lambda _: {"roots": [{"uri": "file:///data", "name": "data"}, {"uri": "file:///naïve"}]},
    "sampling/createMessage": at_once_or_later("sampled", SAMPLED),
    "elicitation/create": at_once_or_later("elicited", ELICITED),
    "tasks/get": lambda params: task(params["taskId"], "completed"),
    "tasks/result": lambda params: {"sampled": SAMPLED, "elicited": ELICITED}[params["taskId"]],
}

TEXT_1 = "demo://resource/dynamic/text/1"


def call(tool: str, /, *awaits: str, meta: dict[str, Any] | None = None, **arguments: Any) -> Step:
    more = {"_meta": meta} if meta else {}
    return Step("tools/call", {"name": tool, "arguments": arguments, **more}, awaits)


def completed(kind: str, of: str, name: str, value: str, **context: str) -> Step:
    ref = {"type": f"ref/{kind}", ("uri" if kind == "resource" else "name"): of}
    more = {"context": {"arguments": context}} if context else {}
    return Step("completion/complete", {"ref": ref, "argument": {"name": name, "value": value}, **more})


def of_the_task(conversation: Conversation) -> dict[str, Any]:
    """The task that was made last."""
    results = [heard.message["result"] for heard in conversation.heard if "result" in heard.message]
    return {"taskId": next(result["task"]["taskId"] for result in reversed(results) if "task" in result)}


HELLO = [
    Step("initialize", {"protocolVersion": LEGACY, "capabilities": CAPABILITIES, "clientInfo": CLIENT}),
    # It asks for the roots after a while, and says so.
    Step("notifications/initialized", awaits=("roots/list", MESSAGE)),
    Step("ping"),
]

TOOLS = [
    Step("tools/list"),
    Step("tools/list", {"cursor": "no such page"}),
    call("echo", message='naïve 😀 "quoted" \\ \u0001'),
    call("get-annotated-message", messageType="error", includeImage=True),
    call("get-annotated-message", messageType="success"),
    call("get-annotated-message", messageType="debug"),
    call("get-env"),
    call("get-resource-links", count=10),
    call("get-resource-reference", resourceType="Text", resourceId=2),
    call("get-resource-reference", resourceType="Blob", resourceId=3),
    call("get-structured-content", location="Chicago"),
    call("get-sum", a=1.5, b=1e21),
    call("get-tiny-image"),
    call("get-roots-list"),
    call("gzip-file-as-resource", name="a.gz", data="data:text/plain,hello", outputType="resource"),
    call("gzip-file-as-resource", name="b.gz", data="data:text/plain,hello", outputType="resourceLink"),
    call("echo", message="large " * 20_000),
    # What fails.
    call("get-sum", a="one"),
    call("no such tool"),
    call("get-resource-reference", resourceType="None", resourceId=-1),
    Step("tools/call", {"arguments": {}}),
    Step("tools/call", {"name": 7}),
]

ASKING_BACK = [
    call("trigger-sampling-request", prompt="say something", maxTokens=10),
    call("trigger-elicitation-request"),
    call("trigger-url-elicitation", url="https://example.com/", message="look there"),
    call("trigger-sampling-request-async", prompt="say something later", maxTokens=10),
    call("trigger-elicitation-request-async"),
    Step("notifications/roots/list_changed", awaits=("roots/list", MESSAGE)),
]

RESOURCES = [
    Step("resources/list"),
    Step("resources/templates/list"),
    Step("resources/read", {"uri": TEXT_1}),
    Step("resources/read", {"uri": "demo://resource/dynamic/blob/2"}),
    Step("resources/read", {"uri": "demo://resource/static/document/features.md"}),
    Step("resources/read", {"uri": "demo://no/such"}),
    Step("resources/subscribe", {"uri": TEXT_1}, awaits=(MESSAGE,)),
    call("toggle-subscriber-updates", UPDATED),
    call("toggle-subscriber-updates"),
    Step("resources/unsubscribe", {"uri": TEXT_1}, awaits=(MESSAGE,)),
]

PROMPTS = [
    Step("prompts/list"),
    Step("prompts/get", {"name": "simple-prompt"}),
    Step("prompts/get", {"name": "args-prompt", "arguments": {"city": "Zürich", "state": "ZH"}}),
    Step("prompts/get", {"name": "args-prompt", "arguments": {}}),
    Step("prompts/get", {"name": "resource-prompt", "arguments": {"resourceType": "Text", "resourceId": "1"}}),
    Step("prompts/get", {"name": "no such prompt"}),
    completed("prompt", "completable-prompt", "department", "S"),
    completed("prompt", "completable-prompt", "name", "", department="Sales"),
    completed("resource", "demo://resource/dynamic/text/{resourceId}", "resourceId", "1"),
    completed("prompt", "no such prompt", "x", ""),
]

LOGGING = [
    Step("logging/setLevel", {"level": "debug"}),
    call("toggle-simulated-logging", MESSAGE),
    call("toggle-simulated-logging"),
    Step("logging/setLevel", {"level": "no such level"}),
]

LASTING = [
    call("trigger-long-running-operation", meta={"progressToken": "p-1"}, duration=0.3, steps=3),
    Step(
        "tools/call",
        {"name": "trigger-long-running-operation", "arguments": {"duration": 30, "steps": 300}},
        is_awaited=False,
    ),
    Step("notifications/cancelled", lambda so_far: {"requestId": so_far.last_id, "reason": "enough"}),
    Step(
        "tools/call",
        {"name": "simulate-research-query", "arguments": {"topic": "python", "ambiguous": False}, "task": {}},
    ),
    Step("tasks/get", of_the_task),
    Step("tasks/result", of_the_task),
    Step("tasks/get", of_the_task),
    Step("tasks/list"),
    Step("tasks/get", {"taskId": "no such task"}),
    call("simulate-research-query", topic="without a task"),
]

UNKNOWN = [
    Step("no/such/method", {"n": 1.50}),
    Step("notifications/no/such"),
    Step("ping", {"_meta": {"x": 1.0}}),
]

STEPS = [*HELLO, *TOOLS, *ASKING_BACK, *RESOURCES, *PROMPTS, *LOGGING, *LASTING, *UNKNOWN]
