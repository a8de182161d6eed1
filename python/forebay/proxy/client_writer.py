"""Writing to the client on standard output from a thread, for an event loop."""

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable

from forebay.proxy.inbox import MAX_QUEUED_BYTES
from forebay.proxy.pipe_writers import StdioClient, claim_stdout
from forebay.wire.framing import Message, count_memory_bytes

__all__ = ["ClientWriter"]

_log = logging.getLogger("forebay")


class ClientWriter:
    """Thread that writes messages to the client, so that the event loop never blocks on a pipe."""

    def __init__(self, on_gone: Callable[[], None]) -> None:
        self._client = StdioClient(claim_stdout(), on_gone)
        self._messages: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._queued_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._has_warned = False
        self._thread = threading.Thread(target=self._run, name="forebay-write", daemon=True)
        self._thread.start()

    def write(self, raw: Message) -> None:
        """Queue a message."""
        with self._lock:
            self._queued_bytes += count_memory_bytes(raw)
            if self._queued_bytes > MAX_QUEUED_BYTES:
                self._has_room.clear()
        self._messages.put(raw)

    @property
    def has_room(self) -> bool:
        """Whether the client has read most of what it was sent."""
        if not self._has_room.is_set() and not self._has_warned:
            self._has_warned = True
            _log.warning("forebay: the client does not read what it is sent; further messages wait")
        return self._has_room.is_set()

    async def wait_for_room(self) -> None:
        if not self.has_room:
            await self._has_room.wait()

    def _run(self) -> None:
        while (raw := self._messages.get()) is not None:
            self._client.send(raw)
            self._free(count_memory_bytes(raw))
            # Free a large message now: the next one may come much later.
            del raw

    def _free(self, size: int) -> None:
        with self._lock:
            was_full = self._queued_bytes > MAX_QUEUED_BYTES
            self._queued_bytes -= size
            has_room = was_full and self._queued_bytes <= MAX_QUEUED_BYTES
        if has_room:
            # The event loop may be closed.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._has_room.set)

    def finish(self, seconds: float) -> None:
        """Wait until all messages are written, for at most `seconds`."""
        self._messages.put(None)
        self._thread.join(seconds)
