"""Messages to a client besides its responses: their channel, and a bounded queue for a client that reads slowly."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from forebay.wire.messages import get_meta, make_optional_key, parse
from forebay.wire.protocol import SUBSCRIPTION_ID_KEY

__all__ = ["MAX_QUEUED_BYTES", "MessageQueue", "Reply"]

_log = logging.getLogger("forebay")

MAX_QUEUED_BYTES = 4 << 20
"""Maximum size of all queued messages. A single message above it is queued only if the queue is empty.

Their number has no limit: a server may send thousands of small ones at once to a client that reads.
"""

_OVERHEAD_BYTES = 256
"""Estimated size of the objects around a message in memory."""

_DROPPABLE_METHODS = frozenset({"notifications/progress", "notifications/message"})

_UPDATED_METHOD = "notifications/resources/updated"

_COALESCED_METHODS = frozenset(
    {
        _UPDATED_METHOD,
        "notifications/resources/list_changed",
        "notifications/prompts/list_changed",
        "notifications/tools/list_changed",
    }
)
"""Notifications that tell the client to read something again. Duplicates in the queue are dropped."""

_DuplicateKey = tuple[str, bytes | None, bytes | None]


class Reply(Protocol):
    """Channel for messages that belong to one request of a client and are sent before its response, or to none."""

    def send(self, raw: bytes, method: str, /) -> None:
        """Queue a notification, or a request of a server, without blocking. Call it in the event loop."""


class _Item(NamedTuple):
    raw: bytes
    is_droppable: bool
    duplicate_key: _DuplicateKey | None

    @property
    def size(self) -> int:
        return len(self.raw) + _OVERHEAD_BYTES


class MessageQueue:
    """Queue that sends messages in order, because progress must increase.

    When it is full, progress and log messages are dropped, and a warning is logged once. If there is still no room for
    a message of another kind, `on_overflow` is called and everything is dropped until the client reads again.
    """

    def __init__(self, send: Callable[[bytes], Awaitable[None]], on_overflow: Callable[[], None]) -> None:
        self._send = send
        self._on_overflow = on_overflow
        self._queued: deque[_Item] = deque()
        self._size = 0
        self._duplicate_keys: set[_DuplicateKey] = set()
        self._has_warned = False
        self._has_overflowed = False
        self._sender: asyncio.Task[None] | None = None

    @property
    def is_sending(self) -> bool:
        """Whether a message is queued or being sent."""
        return self._sender is not None and not self._sender.done()

    def put(self, raw: bytes, method: str) -> None:
        """Queue a message of this method, unless a duplicate is already queued. Call it in the event loop."""
        # A copy, because behind the bytes that `orjson` returns there are kilobytes of unused memory.
        item = _Item(bytes(memoryview(raw)), method in _DROPPABLE_METHODS, _make_duplicate_key(raw, method))
        if self._has_overflowed or item.duplicate_key in self._duplicate_keys:
            return
        if not self._has_room(item):
            self._warn()
            if item.is_droppable:
                return
            self._drop_droppable()
            if not self._has_room(item):
                self._overflow()
                return
        self._append(item)
        if not self.is_sending:
            self._sender = asyncio.create_task(self._send_queued())

    def _has_room(self, item: _Item) -> bool:
        return self._size + item.size <= MAX_QUEUED_BYTES or not self._queued

    def _append(self, item: _Item) -> None:
        self._queued.append(item)
        self._size += item.size
        if item.duplicate_key is not None:
            self._duplicate_keys.add(item.duplicate_key)

    def _clear(self) -> list[_Item]:
        removed = [*self._queued]
        self._queued.clear()
        self._duplicate_keys.clear()
        self._size = 0
        return removed

    def _drop_droppable(self) -> None:
        for item in self._clear():
            if not item.is_droppable:
                self._append(item)

    def _warn(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning("forebay: a client does not read its notifications; progress and log messages are dropped")

    def _overflow(self) -> None:
        self._has_overflowed = True
        self._clear()
        self._on_overflow()

    async def _send_queued(self) -> None:
        while self._queued:
            item = self._queued.popleft()
            self._size -= item.size
            # A later change needs a notification of its own, because the client may read before that change.
            if item.duplicate_key is not None:
                self._duplicate_keys.discard(item.duplicate_key)
            # The client may have disconnected.
            with contextlib.suppress(OSError):
                await self._send(item.raw)
        self._has_overflowed = False

    async def flush(self) -> None:
        """Wait until everything is sent."""
        if self._sender is not None:
            await self._sender

    def close(self) -> None:
        """Drop everything that is not sent yet."""
        self._clear()
        if self._sender is not None:
            self._sender.cancel()


def _make_duplicate_key(raw: bytes, method: str) -> _DuplicateKey | None:
    """Return a key that is equal for duplicates, or `None` if a message has no duplicates."""
    if method not in _COALESCED_METHODS:
        return None
    message = parse(raw)
    params = message.get("params") if isinstance(message, dict) else None
    params = params if isinstance(params, dict) else {}
    uri, subscription = params.get("uri"), get_meta(params).get(SUBSCRIPTION_ID_KEY)
    # Each subscription of a client wants its own.
    return method, make_optional_key(uri), make_optional_key(subscription)
