"""The client of `forebay serve` on standard input and output."""

import asyncio
import contextlib
import logging
import sys
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from forebay.errors import InvalidArgument
from forebay.proxy.client_writer import ClientWriter
from forebay.proxy.inbox import Inbox, measure
from forebay.proxy.message_queue import MessageQueue
from forebay.wire.framing import Line, LineReader, LostMessage, Message, create_spool
from forebay.wire.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    dump_line,
    make_error_message,
    make_id_key,
    parse,
    split_batch,
)
from forebay.wire.protocol import CANCELLED_METHOD, protocol_version

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.hub.hub import Hub
    from forebay.hub.sessions import ClientSession

__all__ = ["StdioTransport"]

_log = logging.getLogger("forebay")

_MAX_UNANSWERED_REQUESTS = 128
"""Number of unanswered requests at which further ones wait."""

_MAX_WAITING_BYTES = 16 << 20
"""Size of the requests that wait above which no further messages are read.

Those in flight do not count: a server may wait for an answer of the client, which comes after other messages.
"""

_Item = tuple[Any, Message]
"""A message of the client, parsed and as bytes."""


class StdioTransport:
    """The only client of the hub, in either protocol era. `on_gone` is called when it has disconnected."""

    def __init__(self, hub: "Hub", on_gone: "Callable[[], None]") -> None:
        self._hub = hub
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._inbox = Inbox(_MAX_WAITING_BYTES, must_release=True)
        self._writer = ClientWriter(lambda: self._inbox.put(0, on_gone))
        self._notifications = MessageQueue(self._write_notification, self._on_overflow)
        self._has_logged_overflow = self._has_logged_waiting = False
        self._session: ClientSession | None = None
        self._unanswered: dict[asyncio.Task[None], bool] = {}
        """The requests in flight, and whether each is a subscription, which is answered only at the end."""
        self._waiting: deque[_Item] = deque()
        """Requests that wait until earlier ones are answered."""
        self._room_task: asyncio.Task[None] | None = None
        self._has_started, self._is_idle = asyncio.Event(), asyncio.Event()
        self._is_idle.set()

    def start(self) -> None:
        threading.Thread(target=self._read, name="forebay-read", daemon=True).start()

    def _read(self) -> None:
        """Pass the messages of the client to the event loop. Runs in a thread."""
        lines = LineReader(
            sys.stdin.fileno(),
            spool_above_bytes=self._hub.settings.spool_above_bytes,
            make_spool=partial(create_spool, self._hub.policy.store),
        )
        for line in lines:
            message = None if isinstance(line, LostMessage) else parse(line)
            self._inbox.put(measure(line), partial(self._on_line, line, message))
        self._inbox.put(0, self._on_end)

    def _on_end(self) -> None:
        task = self._loop.create_task(self._wait_for_requests())
        task.add_done_callback(lambda _: self._on_gone())

    async def _wait_for_requests(self) -> None:
        """Wait until all queued requests have started, or none starts for a while."""
        with contextlib.suppress(TimeoutError):
            while self._waiting:
                self._has_started.clear()
                await asyncio.wait_for(self._has_started.wait(), self._hub.grace.seconds / 2)

    def _free(self, line: Line) -> None:
        self._inbox.release(measure(line))

    def _on_line(self, line: Line, message: Any) -> None:
        try:
            batch = None if isinstance(line, LostMessage) else split_batch(message)
        except InvalidArgument as error:
            self._writer.write(make_error_message(None, INVALID_REQUEST, str(error)))
            batch = []
        if isinstance(line, LostMessage):
            _log.error("forebay: a message of %d bytes from the client is lost: %s", line.size, line.error)
            request_id = line.head_tail.find_id()
            if line.head_tail.is_request and request_id is not None:
                self._writer.write(make_error_message(request_id, INTERNAL_ERROR, str(line.error)))
            self._free(line)
        elif batch is None:
            self._on_message(message, line)
        else:
            self._free(line)
            for inner in batch:
                raw = dump_line(inner)
                self._inbox.add(measure(raw))
                self._on_line(raw, None if isinstance(raw, LostMessage) else parse(raw))

    def _on_message(self, message: Any, raw: Message) -> None:
        if not isinstance(message, dict):
            _log.warning("forebay: the client sent a line that is not a JSON-RPC message")
            self._free(raw)
        elif "method" not in message or "id" not in message:
            self._free(raw)
            if message.get("method") != CANCELLED_METHOD or not self._cancel_waiting(message):
                # Not a request: it needs no room, and requests may be unanswered for lack of it.
                self._loop.create_task(self._handle(message, raw))
        elif self._waiting or not self._has_room():
            self._waiting.append((message, raw))
            self._start_waiting()
        else:
            self._start(message, raw)

    def _has_room(self) -> bool:
        """Return whether there are few enough requests to handle another one, and the client reads the responses."""
        if len(self._unanswered) - sum(self._unanswered.values()) < _MAX_UNANSWERED_REQUESTS:
            return self._writer.has_room
        if not self._has_logged_waiting:
            self._has_logged_waiting = True
            _log.info(
                "forebay: %d requests of the client are unanswered; more are handled when some of them are answered",
                _MAX_UNANSWERED_REQUESTS,
            )
        return False

    def _cancel_waiting(self, message: dict[str, Any]) -> bool:
        """Drop the request that a cancellation names, if it still waits; return whether that was done."""
        params = message.get("params")
        key = make_id_key(params.get("requestId")) if isinstance(params, dict) else None
        for index, (waiting, waiting_raw) in enumerate(self._waiting):
            if make_id_key(waiting["id"]) == key:
                del self._waiting[index]
                self._free(waiting_raw)
                return True
        return False

    def _start(self, message: dict[str, Any], raw: Message) -> None:
        self._free(raw)
        task = self._loop.create_task(self._handle(message, raw))
        self._unanswered[task] = message["method"] == "subscriptions/listen"
        self._is_idle.clear()
        self._has_started.set()
        task.add_done_callback(self._on_answered)

    def _on_answered(self, task: "asyncio.Task[None]") -> None:
        del self._unanswered[task]
        self._start_waiting()
        if not self._unanswered:
            self._is_idle.set()

    def _start_waiting(self) -> None:
        while self._waiting and self._has_room():
            self._start(*self._waiting.popleft())
        if self._waiting and not self._unanswered and self._room_task is None:
            # No answer will start them.
            self._room_task = self._loop.create_task(self._start_when_read())

    async def _start_when_read(self) -> None:
        await self._writer.wait_for_room()
        self._room_task = None
        self._start_waiting()

    async def _handle(self, message: dict[str, Any], raw: Message) -> None:
        try:
            response = await self._answer(message, raw)
        except asyncio.CancelledError:
            if message.get("id") is None:
                raise
            response = make_error_message(message["id"], INTERNAL_ERROR, "the gateway is stopping; retry later")
        if response is not None:
            if self._notifications.is_sending:
                # The client ignores progress that follows the response.
                await self._notifications.flush()
            self._writer.write(response)

    async def _answer(self, message: dict[str, Any], raw: Message) -> Message | None:
        is_modern = message.get("method") != "initialize" and protocol_version(message.get("params")) is not None
        if is_modern or (self._session is None and "id" not in message):
            return await self._hub.handle_stateless(None, message, raw, self)
        if self._session is None:
            self._session = self._hub.open_session(None, self)
        return await self._session.handle(message, raw, self)

    def send(self, raw: bytes, method: str) -> None:
        """Queue a notification, or a request of a server, for the client."""
        self._notifications.put(raw, method)

    async def _write_notification(self, raw: bytes) -> None:
        await self._writer.wait_for_room()
        self._writer.write(raw)

    def _on_overflow(self) -> None:
        # There is no session to end without ending the program.
        if not self._has_logged_overflow:
            self._has_logged_overflow = True
            _log.error("forebay: the client does not read its notifications; they are dropped until it does")

    async def wait_idle(self, seconds: float) -> None:
        """Wait until every request is answered, for at most `seconds`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_idle.wait(), seconds)

    async def end_calls(self, seconds: float) -> None:
        """Wait for the last responses, for at most `seconds`, and answer the other requests with an error."""
        await self.wait_idle(seconds)
        for task in self._unanswered:
            task.cancel()
        await self.wait_idle(seconds)

    def finish(self, seconds: float) -> None:
        """Wait until all messages are written, for at most `seconds`."""
        self._writer.finish(seconds)
