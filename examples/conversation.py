"""A conversation with a server on stdio that is played as often as wanted: what is said is fixed, what is heard is kept.

No SDK on this side: what came is bytes, to be compared with what comes another time.
"""

import dataclasses
import json
import queue
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["CLIENT", "LEGACY", "MODERN", "Conversation", "Heard", "Reply", "Step", "modern", "played"]

LEGACY, MODERN = "2025-11-25", "2026-07-28"
CLIENT = {"name": "conversation", "version": "1"}
PATIENCE = 60.0
METHOD_NOT_FOUND = -32601

_META = "io.modelcontextprotocol/"

Message = dict[str, Any]

Reply = Callable[[Message], Message]
"""What the client answers to what a server asks of it, by the parameters."""


@dataclasses.dataclass(frozen=True, slots=True)
class Heard:
    """A line that came from the server."""

    line: bytes
    message: Message
    answers: str | None
    """The method of the request that it answers."""
    tool: str | None = None
    """The tool, if that request was a call."""

    @property
    def title(self) -> str:
        return str(self.message.get("method") or self.tool or self.answers)


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """Something that the client says, and what it waits for before it says more."""

    method: str
    params: "Message | Callable[[Conversation], Message]" = dataclasses.field(default_factory=dict)
    awaits: tuple[str, ...] = ()
    """Methods of what the server is to say of its own accord."""
    is_awaited: bool = True
    """Whether its answer is waited for. Notifications have none."""


def modern(steps: Sequence[Step], capabilities: Message | None = None) -> list[Step]:
    """The same as the newest version has it: every request says who asks, and which version."""
    meta = {
        f"{_META}protocolVersion": MODERN,
        f"{_META}clientInfo": CLIENT,
        f"{_META}clientCapabilities": capabilities or {},
    }

    def with_meta(step: Step) -> Step:
        params = step.params if isinstance(step.params, dict) else {}
        return dataclasses.replace(step, params={**params, "_meta": {**meta, **params.get("_meta", {})}})

    return [with_meta(step) for step in steps]


class Conversation:
    """One client's, with one process."""

    def __init__(self, process: "subprocess.Popen[bytes]", replies: Mapping[str, Reply]) -> None:
        self._process, self._replies = process, replies
        self._asked: dict[int, Message] = {}
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.last_id = 0
        self.heard: list[Heard] = []

    def _read(self) -> None:
        assert self._process.stdout  # noqa: S101 - it is a pipe
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def take(self, step: Step) -> None:
        missing = list(step.awaits)
        params = step.params if isinstance(step.params, dict) else step.params(self)
        message: Message = {"jsonrpc": "2.0", "method": step.method, "params": params}
        is_request = not step.method.startswith("notifications/")
        if is_request:
            self.last_id += 1
            self._asked[self.last_id] = message
            message = {**message, "id": self.last_id}
        self._send(message)
        is_waiting = is_request and step.is_awaited
        while is_waiting or missing:
            heard = self._next(step)
            if heard.answers is None and heard.message["method"] in missing:
                missing.remove(heard.message["method"])
            elif heard.answers is not None and heard.message.get("id") == self.last_id:
                is_waiting = False

    def _next(self, step: Step) -> Heard:
        try:
            line = self._lines.get(timeout=PATIENCE)
        except queue.Empty:
            raise RuntimeError(f"{step.method} {step.params} is not answered, or {step.awaits} do not come") from None
        if line is None:
            raise RuntimeError(f"the server has ended at {step.method}")
        return self._hear(line)

    def _hear(self, line: bytes) -> Heard:
        message = json.loads(line)
        if "method" in message:
            heard = Heard(line, message, None)
            if "id" in message:
                self._reply(message)
        else:
            asked = self._asked.get(message.get("id"), {"method": "nothing that was asked", "params": {}})
            heard = Heard(line, message, asked["method"], asked["params"].get("name"))
        self.heard.append(heard)
        return heard

    def _reply(self, message: Message) -> None:
        answer: Message = {"error": {"code": METHOD_NOT_FOUND, "message": "this client does not"}}
        if (reply := self._replies.get(message["method"])) is not None:
            answer = {"result": reply(message.get("params") or {})}
        self._send({"jsonrpc": "2.0", "id": message["id"], **answer})

    def _send(self, message: Message) -> None:
        assert self._process.stdin  # noqa: S101 - it is a pipe
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()


def played(
    command: Sequence[str],
    steps: Sequence[Step],
    replies: Mapping[str, Reply] | None = None,
    *,
    env: Mapping[str, str] | None = None,
) -> list[Heard]:
    """All that a server says. `replies` are the results of what it asks of its client."""
    process = subprocess.Popen(  # noqa: S603 - it was asked for
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
    )
    try:
        conversation = Conversation(process, replies or {})
        for step in steps:
            conversation.take(step)
        return conversation.heard
    finally:
        # Some servers do not end with their input.
        process.terminate()
        process.communicate(timeout=PATIENCE)
