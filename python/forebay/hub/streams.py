"""Between lines of a pipe, which threads read and write, and the streams of the `mcp` SDK."""

import asyncio
import contextlib
import json
import math
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import anyio
import orjson
from anyio.abc import ObjectSendStream
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCResponse, RequestId, jsonrpc_message_adapter
from pydantic_core import PydanticSerializationError, from_json

from forebay.wire.framing import Message, Spool
from forebay.wire.messages import LazyJSON, parse_lazy

__all__ = ["IncomingStream", "OutgoingStream", "ServerEnded"]

_LARGE_MESSAGE_BYTES = 1 << 20
"""From here on the SDK's own reader takes seven times the memory."""

Received = SessionMessage | Exception


class ServerEnded(Exception):
    """What came before this was said by a server that is no more; another may take its place."""


class IncomingStream:
    """Messages that threads have read, for whoever reads `stream` in the event loop that made this."""

    def __init__(
        self,
        on_message: Callable[[SessionMessage], None] | None = None,
        on_unreadable: Callable[[Message], None] = lambda _: None,
    ) -> None:
        self._on_message = on_message
        self._on_unreadable = on_unreadable
        self._loop = asyncio.get_running_loop()
        self._send, self.stream = anyio.create_memory_object_stream[Received](math.inf)

    def send(self, line: Message, related: RequestId | None = None) -> None:
        """A message, whole, and the request whose stream it came by. What is none goes on as what is wrong with it."""
        item = _parse_line(line, related)
        if isinstance(item, Exception):
            self._on_unreadable(line)
        self._schedule(lambda: self._put(item))

    def _put(self, item: Received) -> None:
        if self._on_message is not None and isinstance(item, SessionMessage):
            self._on_message(item)
        self._send.send_nowait(item)

    def notify_server_ended(self) -> None:
        """Another one may go on in its place."""
        self._schedule(lambda: self._put(ServerEnded()))

    def end(self) -> None:
        """There are no more."""
        self._schedule(self._send.close)

    def _schedule(self, step: Callable[[], None]) -> None:
        def safely() -> None:
            # Whoever read may be gone.
            with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                step()

        # And so may the loop.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(safely)


def _parse_line(line: Message, related: RequestId | None) -> Received:
    """A message, or what is wrong with it."""
    try:
        message = _parse_message(line)
    except ValueError as error:
        return error
    return SessionMessage(message, None if related is None else ServerMessageMetadata(related_request_id=related))


def _parse_message(line: Message) -> JSONRPCMessage:
    if len(line) > _LARGE_MESSAGE_BYTES:
        return jsonrpc_message_adapter.validate_python(to_objects(parse_lazy(line)), by_name=False)
    data = b"".join(line.chunks()) if isinstance(line, Spool) else line
    return jsonrpc_message_adapter.validate_json(data.decode(errors="replace"), by_name=False)


def _dump(message: JSONRPCMessage) -> bytes:
    """A message as JSON; most large ones are answers, of which the SDK's own writer makes two more copies."""
    if isinstance(message, JSONRPCResponse):
        with contextlib.suppress(TypeError):
            return orjson.dumps({"jsonrpc": message.jsonrpc, "id": message.id, "result": message.result})
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except PydanticSerializationError:
        # Half of a surrogate pair can be escaped, as it was when it came.
        return json.dumps(message.model_dump(by_alias=True, exclude_unset=True)).encode()


def to_objects(value: Any) -> Any:
    """A message that was taken apart, put together: each large text is in memory once beside what is made of it."""
    if isinstance(value, dict):
        return {key: to_objects(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [to_objects(inner) for inner in value]
    if not isinstance(value, LazyJSON):
        return value
    if value.is_string:
        return value.text().decode(errors="replace")
    return from_json(value.json().decode(errors="replace"))


class OutgoingStream(ObjectSendStream[SessionMessage]):
    """Messages that a thread writes, in the order in which they were sent: the event loop never waits for a pipe."""

    def __init__(
        self, write: Callable[[bytes], None], on_message: Callable[[SessionMessage], None] | None = None
    ) -> None:
        self._write = write
        self._on_message = on_message
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="forebay-write", daemon=True)
        self._thread.start()
        self._is_closed = False

    async def send(self, item: SessionMessage) -> None:
        """Soon. `noted` is called at once, in the context of whoever sends."""
        if self._is_closed:
            raise anyio.ClosedResourceError
        if self._on_message is not None:
            self._on_message(item)
        self._lines.put(_dump(item.message))

    def write(self, line: bytes) -> None:
        """A message, from any thread."""
        self._lines.put(line)

    async def aclose(self) -> None:
        self._is_closed = True
        self._lines.put(None)

    def finish(self, seconds: float) -> None:
        """Waits until all is written, or that takes too long."""
        self._lines.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            self._write(line)
            # It may be large, and nothing else may come for long.
            del line
