"""Run scripted conversations with servers on stdio and record the messages that they send.

There is no SDK on the client side: messages are recorded as bytes, so that two conversations can be compared exactly.
"""

import dataclasses
import json
import queue
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = [
    "CLIENT",
    "LEGACY",
    "MODERN",
    "Conversation",
    "ReceivedMessage",
    "Reply",
    "Step",
    "run_conversation",
    "to_modern",
]

LEGACY, MODERN = "2025-11-25", "2026-07-28"
CLIENT = {"name": "conversation", "version": "1"}
TIMEOUT_SECONDS = 60.0
METHOD_NOT_FOUND = -32601

META_PREFIX = "io.modelcontextprotocol/"

Message = dict[str, Any]

Reply = Callable[[Message], Message]
"""Takes the parameters of a server's request and returns the client's result."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A line received from the server."""

    line: bytes
    message: Message
    request_method: str | None
    """The method of the request, if this is a response."""
    tool: str | None = None
    """The tool, if the request was a `tools/call`."""

    @property
    def title(self) -> str:
        return str(self.message.get("method") or self.tool or self.request_method)


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """A message that the client sends, and what it waits for before the next step."""

    method: str
    params: "Message | Callable[[Conversation], Message]" = dataclasses.field(default_factory=dict)
    awaits: tuple[str, ...] = ()
    """Methods of requests and notifications expected from the server."""
    waits_for_response: bool = True
    """Whether to wait for the response. Ignored for notifications, which have none."""


def to_modern(steps: Sequence[Step], capabilities: Message | None = None) -> list[Step]:
    """Return the steps for protocol 2026-07-28, where every request carries version, client info and capabilities."""
    meta = {
        f"{META_PREFIX}protocolVersion": MODERN,
        f"{META_PREFIX}clientInfo": CLIENT,
        f"{META_PREFIX}clientCapabilities": capabilities or {},
    }

    def with_meta(step: Step) -> Step:
        params = step.params if isinstance(step.params, dict) else {}
        return dataclasses.replace(step, params={**params, "_meta": {**meta, **params.get("_meta", {})}})

    return [with_meta(step) for step in steps]


class Conversation:
    """A client's conversation with one server process."""

    def __init__(self, process: "subprocess.Popen[bytes]", replies: Mapping[str, Reply]) -> None:
        self._process, self._replies = process, replies
        self._requests: dict[int, Message] = {}
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.last_id = 0
        self.received: list[ReceivedMessage] = []

    def _read(self) -> None:
        assert self._process.stdout  # noqa: S101 - it is a pipe
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def run_step(self, step: Step) -> None:
        missing = list(step.awaits)
        params = step.params if isinstance(step.params, dict) else step.params(self)
        message: Message = {"jsonrpc": "2.0", "method": step.method, "params": params}
        is_request = not step.method.startswith("notifications/")
        if is_request:
            self.last_id += 1
            self._requests[self.last_id] = message
            message = {**message, "id": self.last_id}
        self._send(message)
        is_waiting = is_request and step.waits_for_response
        while is_waiting or missing:
            received = self._receive(step)
            if received.request_method is None and received.message["method"] in missing:
                missing.remove(received.message["method"])
            elif received.request_method is not None and received.message.get("id") == self.last_id:
                is_waiting = False

    def _receive(self, step: Step) -> ReceivedMessage:
        try:
            line = self._lines.get(timeout=TIMEOUT_SECONDS)
        except queue.Empty:
            raise RuntimeError(f"{step.method} {step.params} is not answered, or {step.awaits} do not come") from None
        if line is None:
            raise RuntimeError(f"the server has ended at {step.method}")
        return self._record(line)

    def _record(self, line: bytes) -> ReceivedMessage:
        message = json.loads(line)
        if "method" in message:
            received = ReceivedMessage(line, message, None)
            if "id" in message:
                self._reply(message)
        else:
            request = self._requests.get(message.get("id"), {"method": "no such request", "params": {}})
            received = ReceivedMessage(line, message, request["method"], request["params"].get("name"))
        self.received.append(received)
        return received

    def _reply(self, message: Message) -> None:
        response: Message = {"error": {"code": METHOD_NOT_FOUND, "message": "this client does not"}}
        if (reply := self._replies.get(message["method"])) is not None:
            response = {"result": reply(message.get("params") or {})}
        self._send({"jsonrpc": "2.0", "id": message["id"], **response})

    def _send(self, message: Message) -> None:
        assert self._process.stdin  # noqa: S101 - it is a pipe
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()


def run_conversation(
    command: Sequence[str],
    steps: Sequence[Step],
    replies: Mapping[str, Reply] | None = None,
    *,
    env: Mapping[str, str] | None = None,
) -> list[ReceivedMessage]:
    """Run the steps against a server and return all messages received. `replies` answer the server's requests."""
    process = subprocess.Popen(  # noqa: S603 - the caller's command
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
    )
    try:
        conversation = Conversation(process, replies or {})
        for step in steps:
            conversation.run_step(step)
        return conversation.received
    finally:
        # Some servers do not exit when their stdin is closed.
        process.terminate()
        process.communicate(timeout=TIMEOUT_SECONDS)
