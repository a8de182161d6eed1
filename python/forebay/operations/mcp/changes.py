"""Following changes of a server's tools, in every protocol version."""

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

from forebay.adapters.sdk_internals import get_message_handler, set_message_handler

__all__ = ["RefreshCallback", "follow_changes", "observe_messages"]

_log = logging.getLogger("forebay")

_MIN_DELAY_SECONDS, _MAX_DELAY_SECONDS = 1.0, 60.0
"""Bounds of the delay before a lost subscription is opened again."""

_LISTING_INTERVAL_SECONDS = 1.0
"""Minimum time between two listings, however many changes a server announces."""

_UNSUPPORTED_CODES = (METHOD_NOT_FOUND, INVALID_REQUEST, INVALID_PARAMS)

RefreshCallback = Callable[[bool], Awaitable[None]]
"""Lists the tools again. Its argument is whether the server has announced a change."""

_Observer = Callable[[IncomingMessage], Awaitable[None]]


class _ChangeSignal:
    """An event that the tools may have changed, with a flag whether the server announced it."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._is_announced = False

    def notify(self, *, is_announced: bool) -> None:
        self._is_announced |= is_announced
        self._event.set()

    async def wait(self) -> bool:
        """Wait for the next notification; return whether the server announced a change."""
        await self._event.wait()
        self._event.clear()
        is_announced, self._is_announced = self._is_announced, False
        return is_announced


async def follow_changes(client: Client, refresh: RefreshCallback, is_open: Callable[[], bool]) -> None:
    """Await `refresh` whenever the tools may have changed, until cancelled."""
    signal = _ChangeSignal()
    if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_listen_for_changes(client, signal, is_open))
            await _refresh_on_change(signal, refresh)
    else:
        stop = _observe_changes(client.session, signal)
        try:
            await _refresh_on_change(signal, refresh)
        finally:
            stop()


async def _refresh_on_change(signal: _ChangeSignal, refresh: RefreshCallback) -> None:
    while True:
        await refresh(await signal.wait())
        await asyncio.sleep(_LISTING_INTERVAL_SECONDS)


def _observe_changes(session: ClientSession, signal: _ChangeSignal) -> Callable[[], object]:
    """Observe the notifications that servers send without a subscription, up to protocol version 2025-11-25.

    Return a function that ends this.
    """

    async def on_message(message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            signal.notify(is_announced=True)

    return observe_messages(session, on_message)


def observe_messages(session: ClientSession, observer: _Observer) -> Callable[[], object]:
    """Await `observer` with every message, before the earlier observers. Return a function that removes it."""
    handler = get_message_handler(session)
    if not isinstance(handler, _ObservedHandler):
        handler = _ObservedHandler(handler)
        set_message_handler(session, handler)
    handler.observers.insert(0, observer)

    def stop() -> None:
        with contextlib.suppress(ValueError):
            handler.observers.remove(observer)
        if not handler.observers and get_message_handler(session) is handler:
            set_message_handler(session, handler.original)

    return stop


class _ObservedHandler:
    """A message handler that awaits each observer, then the original handler. Observers are removed in any order."""

    def __init__(self, original_handler: MessageHandlerFnT) -> None:
        self.original = original_handler
        self.observers: list[_Observer] = []

    async def __call__(self, message: IncomingMessage) -> None:
        for observer in [*self.observers]:
            await observer(message)
        await self.original(message)


async def _listen_for_changes(client: Client, signal: _ChangeSignal, is_open: Callable[[], bool]) -> None:
    """Subscribe to changes, as versions since 2026-07-28 require.

    Changes between two subscriptions are not repeated, so that each new subscription counts as a change.
    """
    delay = _MIN_DELAY_SECONDS
    while is_open():
        try:
            async with client.listen(tools_list_changed=True) as subscription:
                signal.notify(is_announced=False)
                async for _ in subscription:
                    signal.notify(is_announced=True)
                    delay = _MIN_DELAY_SECONDS
        except (SubscriptionLost, TimeoutError):
            pass
        except MCPError as error:
            _log.debug("forebay: changes of tools cannot be listened to", exc_info=True)
            if error.error.code in _UNSUPPORTED_CODES:
                return
        await asyncio.sleep(delay)
        delay = min(2 * delay, _MAX_DELAY_SECONDS)
