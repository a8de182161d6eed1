"""A conversation with `@modelcontextprotocol/server-everything` that uses all of its features."""

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

SAMPLING_RESULT = {
    "role": "assistant",
    "content": {"type": "text", "text": 'a "sample" \\ of 1.50'},
    "model": "made up",
    "stopReason": "endTurn",
}
ELICITATION_RESULT = {"action": "accept", "content": {"name": "Jo", "check": True, "interpretation": "snake"}}


def make_task(name: str, status: str) -> dict[str, Any]:
    times = dict.fromkeys(("createdAt", "lastUpdatedAt"), "2026-11-01T00:00:00Z")
    return {"taskId": name, "status": status, "ttl": 60_000, "pollInterval": 20, **times}


def result_or_task(name: str, result: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a reply that is the result, or a task with that result if the server asked for a task."""
    return lambda params: {"task": make_task(name, "working")} if "task" in params else result


REPLIES: dict[str, Reply] = {
    "roots/list": lambda _: {"roots": [{"uri": "file:///data", "name": "data"}, {"uri": "file:///naïve"}]},
    "sampling/createMessage": result_or_task("sampled", SAMPLING_RESULT),
    "elicitation/create": result_or_task("elicited", ELICITATION_RESULT),
    "tasks/get": lambda params: make_task(params["taskId"], "completed"),
    "tasks/result": lambda params: {"sampled": SAMPLING_RESULT, "elicited": ELICITATION_RESULT}[params["taskId"]],
}

TEXT_1 = "demo://resource/dynamic/text/1"


def call(tool: str, /, *notifications: str, meta: dict[str, Any] | None = None, **arguments: Any) -> Step:
    extra = {"_meta": meta} if meta else {}
    return Step("tools/call", {"name": tool, "arguments": arguments, **extra}, notifications)


def complete(kind: str, target: str, name: str, value: str, **context: str) -> Step:
    ref = {"type": f"ref/{kind}", ("uri" if kind == "resource" else "name"): target}
    extra = {"context": {"arguments": context}} if context else {}
    return Step("completion/complete", {"ref": ref, "argument": {"name": name, "value": value}, **extra})


def find_last_task(conversation: Conversation) -> dict[str, Any]:
    """Return the id of the task created last."""
    results = [received.message["result"] for received in conversation.received if "result" in received.message]
    return {"taskId": next(result["task"]["taskId"] for result in reversed(results) if "task" in result)}


HELLO = [
    Step("initialize", {"protocolVersion": LEGACY, "capabilities": CAPABILITIES, "clientInfo": CLIENT}),
    # The server requests the roots some time later and logs it.
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
    # Errors.
    call("get-sum", a="one"),
    call("no such tool"),
    call("get-resource-reference", resourceType="None", resourceId=-1),
    Step("tools/call", {"arguments": {}}),
    Step("tools/call", {"name": 7}),
]

SERVER_REQUESTS = [
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
    complete("prompt", "completable-prompt", "department", "S"),
    complete("prompt", "completable-prompt", "name", "", department="Sales"),
    complete("resource", "demo://resource/dynamic/text/{resourceId}", "resourceId", "1"),
    complete("prompt", "no such prompt", "x", ""),
]

LOGGING = [
    Step("logging/setLevel", {"level": "debug"}),
    call("toggle-simulated-logging", MESSAGE),
    call("toggle-simulated-logging"),
    Step("logging/setLevel", {"level": "no such level"}),
]

LONG_RUNNING = [
    call("trigger-long-running-operation", meta={"progressToken": "p-1"}, duration=0.3, steps=3),
    Step(
        "tools/call",
        {"name": "trigger-long-running-operation", "arguments": {"duration": 30, "steps": 300}},
        waits_for_response=False,
    ),
    Step("notifications/cancelled", lambda so_far: {"requestId": so_far.last_id, "reason": "enough"}),
    Step(
        "tools/call",
        {"name": "simulate-research-query", "arguments": {"topic": "python", "ambiguous": False}, "task": {}},
    ),
    Step("tasks/get", find_last_task),
    Step("tasks/result", find_last_task),
    Step("tasks/get", find_last_task),
    Step("tasks/list"),
    Step("tasks/get", {"taskId": "no such task"}),
    call("simulate-research-query", topic="without a task"),
]

UNKNOWN_METHODS = [
    Step("no/such/method", {"n": 1.50}),
    Step("notifications/no/such"),
    Step("ping", {"_meta": {"x": 1.0}}),
]

STEPS = [*HELLO, *TOOLS, *SERVER_REQUESTS, *RESOURCES, *PROMPTS, *LOGGING, *LONG_RUNNING, *UNKNOWN_METHODS]
