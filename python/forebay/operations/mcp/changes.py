"""How a server says that its tools changed, in every version of the protocol."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from mcp import Client
from mcp.client import ClientSession
from mcp.client.session import IncomingMessage, MessageHandlerFnT
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, ToolListChangedNotification
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

__all__ = ["Refresh", "follow_changes", "observe_messages"]

_log = logging.getLogger("forebay")

_MIN_DELAY_SECONDS, _MAX_DELAY_SECONDS = 1.0, 60.0
"""Seconds before a stream of changes that broke off is opened again."""

_LISTING_INTERVAL_SECONDS = 1.0
"""Seconds from one listing to the next, however often a server says that its tools changed."""

_UNSUPPORTED_CODES = (METHOD_NOT_FOUND, INVALID_REQUEST, INVALID_PARAMS)

Refresh = Callable[[bool], Awaitable[None]]


class _ChangeSignal:
    """That tools may have changed, until someone looks."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._is_announced = False

    def notify(self, *, is_announced: bool) -> None:
        self._is_announced |= is_announced
        self._event.set()

    async def wait(self) -> bool:
        """Until there may be changes; whether the server has said that there are."""
        await self._event.wait()
        self._event.clear()
        is_said, self._is_announced = self._is_announced, False
        return is_said


async def follow_changes(client: Client, refresh: Refresh, is_open: Callable[[], bool]) -> None:
    """Awaits `refresh` whenever the tools may have changed, until it is cancelled.

    It is given whether the server has said that they did.
    """
    changes = _ChangeSignal()
    if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_listen_for_changes(client, changes, is_open))
            await _refresh_on_change(changes, refresh)
    else:
        stop = _observe_changes(client.session, changes)
        try:
            await _refresh_on_change(changes, refresh)
        finally:
            stop()


async def _refresh_on_change(changes: _ChangeSignal, refresh: Refresh) -> None:
    while True:
        await refresh(await changes.wait())
        await asyncio.sleep(_LISTING_INTERVAL_SECONDS)


def _observe_changes(session: ClientSession, changes: _ChangeSignal) -> Callable[[], object]:
    """Until 2025-11-25, servers say of themselves that their tools changed. Returns what ends this."""

    async def hear(message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            changes.notify(is_announced=True)

    return observe_messages(session, hear)


def observe_messages(
    session: ClientSession, hear: Callable[[IncomingMessage], Awaitable[None]]
) -> Callable[[], object]:
    """Has `hear` awaited with every message, before whoever hears them already. Returns what ends this."""
    handler = session._message_handler
    if not isinstance(handler, _ObservedHandler):
        handler = session._message_handler = _ObservedHandler(handler)
    handler.observers.insert(0, hear)

    def stop() -> None:
        with contextlib.suppress(ValueError):
            handler.observers.remove(hear)
        if not handler.observers and session._message_handler is handler:
            session._message_handler = handler.before

    return stop


class _ObservedHandler:
    """All who overhear a session, so that each can leave whenever it likes."""

    def __init__(self, original: MessageHandlerFnT) -> None:
        # A client that someone else connected has a handler, which stays.
        self.before = original
        self.observers: list[Callable[[IncomingMessage], Awaitable[None]]] = []

    async def __call__(self, message: IncomingMessage) -> None:
        for hear in [*self.observers]:
            await hear(message)
        await self.before(message)


async def _listen_for_changes(client: Client, changes: _ChangeSignal, is_open: Callable[[], bool]) -> None:
    """Since 2026-07-28, servers tell only who listens. Nothing is repeated, so that each start is a change."""
    delay = _MIN_DELAY_SECONDS
    while is_open():
        try:
            async with client.listen(tools_list_changed=True) as subscription:
                changes.notify(is_announced=False)
                async for _ in subscription:
                    changes.notify(is_announced=True)
                    delay = _MIN_DELAY_SECONDS
        except (SubscriptionLost, TimeoutError):
            pass
        except MCPError as error:
            _log.debug("forebay: changes of tools cannot be listened to", exc_info=True)
            if error.error.code in _UNSUPPORTED_CODES:
                # It does not say such things.
                return
        await asyncio.sleep(delay)
        delay = min(2 * delay, _MAX_DELAY_SECONDS)
