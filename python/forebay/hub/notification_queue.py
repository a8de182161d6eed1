"""Bounded queue of notifications for a client that may read slowly, or not at all."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import anyio
from mcp.shared.exceptions import MCPError

__all__ = ["NotificationQueue"]

_log = logging.getLogger("forebay")

MAX_QUEUED = 512
MAX_QUEUED_BYTES = 4 << 20
"""Maximum size of all queued notifications. A single notification above it is queued only if the queue is empty."""

_VALUE_BYTES = 64
"""Estimated size of a value in memory, without the characters of a string."""

_DROPPABLE_METHODS = ("notifications/progress", "notifications/message")

_COALESCED_METHODS = (
    "notifications/resources/updated",
    "notifications/resources/list_changed",
    "notifications/prompts/list_changed",
    "notifications/tools/list_changed",
)
"""Notifications that tell the client to read something again. Duplicates in the queue are dropped."""

_Params = Mapping[str, Any] | None


class _Notification(NamedTuple):
    method: str
    params: _Params
    size: int

    @property
    def is_droppable(self) -> bool:
        return self.method in _DROPPABLE_METHODS

    @property
    def duplicate_key(self) -> tuple[str, object] | None:
        """Equal for notifications that are duplicates; `None` if a notification has no duplicates."""
        if self.method not in _COALESCED_METHODS:
            return None
        uri = (self.params or {}).get("uri")
        return self.method, uri if isinstance(uri, str) else None


class NotificationQueue:
    """Queue that sends notifications in order, because progress must increase.

    When it is full, progress and log messages are dropped, and a warning is logged once. If there is still no room for
    a notification of another kind, `on_overflow` is called and everything is dropped until the client reads again.
    """

    def __init__(self, send: Callable[[str, _Params], Awaitable[None]], on_overflow: Callable[[], None]) -> None:
        self._send = send
        self._on_overflow = on_overflow
        self._queued: deque[_Notification] = deque()
        self._size = 0
        self._duplicate_keys: set[tuple[str, object]] = set()
        self._has_warned = False
        self._has_overflowed = False
        self._sender: asyncio.Task[None] | None = None

    def put(self, method: str, params: _Params) -> None:
        """Queue a notification, unless a duplicate is already queued."""
        notification = _Notification(method, params, _estimate_bytes(params))
        if self._has_overflowed or notification.duplicate_key in self._duplicate_keys:
            return
        if not self._has_room(notification):
            self._warn()
            if notification.is_droppable:
                return
            self._drop_droppable()
            if not self._has_room(notification):
                self._overflow()
                return
        self._append(notification)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_queued())

    def _has_room(self, notification: _Notification) -> bool:
        fits = len(self._queued) < MAX_QUEUED and self._size + notification.size <= MAX_QUEUED_BYTES
        return fits or not self._queued

    def _append(self, notification: _Notification) -> None:
        self._queued.append(notification)
        self._size += notification.size
        if notification.duplicate_key is not None:
            self._duplicate_keys.add(notification.duplicate_key)

    def _clear(self) -> list[_Notification]:
        removed = [*self._queued]
        self._queued.clear()
        self._duplicate_keys.clear()
        self._size = 0
        return removed

    def _drop_droppable(self) -> None:
        for notification in self._clear():
            if not notification.is_droppable:
                self._append(notification)

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
            notification = self._queued.popleft()
            self._size -= notification.size
            # A later change needs a notification of its own, because the client may read before that change.
            if notification.duplicate_key is not None:
                self._duplicate_keys.discard(notification.duplicate_key)
            # The client may have disconnected.
            with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, MCPError):
                await self._send(notification.method, notification.params)
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


def _estimate_bytes(params: _Params) -> int:
    size, stack = 0, [params]
    while stack:
        value: Any = stack.pop()
        size += _VALUE_BYTES
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, Mapping):
            stack.extend(value)
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
    return size
