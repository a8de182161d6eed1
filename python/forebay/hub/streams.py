"""Adapters between the async streams of the `mcp` SDK and threads that read and write lines."""

import asyncio
import contextlib
import json
import logging
import math
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import anyio
import orjson
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCResponse, RequestId, jsonrpc_message_adapter
from pydantic_core import PydanticSerializationError, from_json

from forebay.wire.framing import Message, Spool
from forebay.wire.messages import LazyJSON, parse_lazy

__all__ = ["IncomingStream", "OutgoingStream", "ServerEnded"]

_log = logging.getLogger("forebay")

_LARGE_MESSAGE_BYTES = 1 << 20
"""Messages above this size are parsed lazily, because the SDK's parser needs seven times their size in memory."""

_MAX_UNREAD_MESSAGES = 256
"""Number of unread messages at which reader threads wait, so that a server cannot fill the memory with them."""

_MAX_QUEUED_BYTES = 16 << 20
"""Size of the queued messages above which senders wait, so that a peer that does not read cannot fill the memory."""

_CLOSED_POLL_SECONDS = 0.5
"""How often a waiting reader thread checks whether the stream is closed."""

ReceivedItem = SessionMessage | Exception


class ServerEnded(Exception):
    """Item in a stream that marks the end of the server process or session. Messages of the next one may follow."""


class IncomingStream:
    """Adapter that passes messages from reader threads to `stream`, an SDK stream in the current event loop.

    If messages arrive faster than they are received from `stream`, `send` blocks.
    """

    def __init__(
        self,
        on_message: Callable[[SessionMessage], None] | None = None,
        on_unreadable: Callable[[Message], None] = lambda _: None,
    ) -> None:
        self._on_message = on_message
        self._on_unreadable = on_unreadable
        self._loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(_MAX_UNREAD_MESSAGES)
        self._is_closed = False
        # The semaphore bounds this stream; `send_nowait` must not fail.
        self._send, received = anyio.create_memory_object_stream[ReceivedItem](math.inf)
        self.stream = _ReleasingStream(received, self._room.release, self._close)

    def send(self, line: Message, related_request_id: RequestId | None = None) -> None:
        """Parse a message and put it into the stream; if it is unreadable, put the exception there.

        `related_request_id` is the request whose SSE stream carried the message.
        """
        item = _parse_line(line, related_request_id)
        if isinstance(item, Exception):
            self._on_unreadable(line)
        self._wait_for_room()
        self._schedule(lambda: self._put(item))

    def _wait_for_room(self) -> None:
        while not self._is_closed and not self._room.acquire(timeout=_CLOSED_POLL_SECONDS):
            if self._loop.is_closed():
                return

    def _close(self) -> None:
        self._is_closed = True

    def _put(self, item: ReceivedItem) -> None:
        if self._on_message is not None and isinstance(item, SessionMessage):
            self._on_message(item)
        self._send.send_nowait(item)

    def notify_server_ended(self) -> None:
        """Put a `ServerEnded` marker into the stream."""
        self._schedule(lambda: self._put(ServerEnded()))

    def end(self) -> None:
        """Close the stream."""
        self._close()
        self._schedule(self._send.close)

    def _schedule(self, callback: Callable[[], None]) -> None:
        def run() -> None:
            # The reader may have closed the stream.
            with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                callback()

        # The event loop may be closed.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(run)


class _ReleasingStream(ObjectReceiveStream[ReceivedItem]):
    """Stream that calls `on_received` with numbers of received messages, and `on_closed` when its reader closes it.

    The numbers are large, because waking a waiting thread for each message would be slow.
    """

    def __init__(
        self,
        stream: ObjectReceiveStream[ReceivedItem],
        on_received: Callable[[int], None],
        on_closed: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._on_received = on_received
        self._on_closed = on_closed
        self._received_count = 0

    async def receive(self) -> ReceivedItem:
        item = await self._stream.receive()
        # The marker is not counted.
        self._received_count += not isinstance(item, ServerEnded)
        if self._received_count >= _MAX_UNREAD_MESSAGES // 2:
            self._on_received(self._received_count)
            self._received_count = 0
        return item

    async def aclose(self) -> None:
        self._on_closed()
        await self._stream.aclose()


def _parse_line(line: Message, related_request_id: RequestId | None) -> ReceivedItem:
    """Return the parsed message, or the exception that parsing raised."""
    try:
        message = _parse_message(line)
    except ValueError as error:
        return error
    return SessionMessage(
        message, None if related_request_id is None else ServerMessageMetadata(related_request_id=related_request_id)
    )


def _parse_message(line: Message) -> JSONRPCMessage:
    if len(line) > _LARGE_MESSAGE_BYTES:
        return jsonrpc_message_adapter.validate_python(to_objects(parse_lazy(line)), by_name=False)
    data = b"".join(line.chunks()) if isinstance(line, Spool) else line
    return jsonrpc_message_adapter.validate_json(data.decode(errors="replace"), by_name=False)


def _dump(message: JSONRPCMessage) -> bytes:
    """Return a message as JSON. Responses skip the SDK's serializer, which makes two more copies."""
    if isinstance(message, JSONRPCResponse):
        with contextlib.suppress(TypeError):
            return orjson.dumps({"jsonrpc": message.jsonrpc, "id": message.id, "result": message.result})
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except PydanticSerializationError:
        # The SDK's serializer rejects half of a surrogate pair; `json` writes it as an escape.
        return json.dumps(message.model_dump(by_alias=True, exclude_unset=True)).encode()


def to_objects(value: Any) -> Any:
    """Return a lazily parsed message as Python objects. Large values are converted one after another to save memory."""
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
    """SDK stream that passes messages in order to a writer thread, so that the event loop never blocks on a pipe.

    If messages are sent faster than `write_line` writes them, senders wait. `reader` names the reader in the log.
    """

    def __init__(
        self,
        write_line: Callable[[bytes], None],
        on_message: Callable[[SessionMessage], None] | None = None,
        *,
        reader: str,
    ) -> None:
        self._write_line = write_line
        self._on_message = on_message
        self._reader = reader
        self._has_warned = False
        self._loop = asyncio.get_running_loop()
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._queued_bytes = 0
        self._has_changed = threading.Condition()
        self._has_room = asyncio.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="forebay-write", daemon=True)
        self._thread.start()

    async def send(self, item: SessionMessage) -> None:
        """Queue a message. `on_message` is called before, in the sender's context."""
        while self._must_wait():
            self._has_room.clear()
            await self._has_room.wait()
        if self._is_closed:
            raise anyio.ClosedResourceError
        if self._on_message is not None:
            self._on_message(item)
        self.write(_dump(item.message))

    def wait_for_room(self) -> None:
        """Wait until messages can be sent without waiting. Not for the thread of the event loop."""
        with self._has_changed:
            self._has_changed.wait_for(lambda: not self._must_wait())

    def _must_wait(self) -> bool:
        if self._queued_bytes <= _MAX_QUEUED_BYTES or self._is_closed:
            return False
        if not self._has_warned:
            self._has_warned = True
            _log.warning("forebay: %s does not read what it is sent; further messages wait", self._reader)
        return True

    def write(self, line: bytes) -> None:
        """Queue a serialized message, from any thread."""
        with self._has_changed:
            self._queued_bytes += len(line)
            self._lines.put(line)

    async def aclose(self) -> None:
        with self._has_changed:
            self._is_closed = True
            self._has_changed.notify_all()
        self._has_room.set()
        self._lines.put(None)

    def finish(self, seconds: float) -> None:
        """Wait until all messages are written, for at most `seconds`."""
        self._lines.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            self._write_line(line)
            self._free(len(line))
            # Free a large message now: the next message may come much later.
            del line

    def _free(self, size: int) -> None:
        with self._has_changed:
            self._queued_bytes -= size
            if self._queued_bytes <= _MAX_QUEUED_BYTES < self._queued_bytes + size:
                self._has_changed.notify_all()
                # The event loop may be closed.
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._has_room.set)
