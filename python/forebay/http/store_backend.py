"""A backend without tools, for a server that only shows the dashboard of a store."""

import asyncio
from typing import Any

from forebay.proxy.message_queue import Reply
from forebay.store import Store
from forebay.wire.framing import Message
from forebay.wire.messages import METHOD_NOT_FOUND, make_error_message

__all__ = ["StoreBackend"]


class StoreBackend:
    """A store that answers no messages. Implements `Backend` and `BackendSession`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def start(self) -> None:
        """Do nothing: the store is open."""

    async def close(self) -> None:
        """Do nothing: the command that opened the store closes it."""

    async def check(self) -> None:
        """Raise `StoreUnavailable` if the store does not answer."""
        await asyncio.to_thread(self._store.check)

    def open_session(self, principal: str | None, outbox: Reply) -> "StoreBackend":
        """Return the backend itself, which keeps nothing of a session."""
        del principal, outbox
        return self

    async def handle(self, message: Any, raw: Message, reply: Reply) -> Message | None:
        """Return an error that names the command for tools."""
        del raw, reply
        request_id = message.get("id") if isinstance(message, dict) else None
        text = "this server only shows a dashboard; `forebay serve --http` serves tools"
        return None if request_id is None else make_error_message(request_id, METHOD_NOT_FOUND, text)

    async def handle_stateless(self, principal: str | None, message: Any, raw: Message, reply: Reply) -> Message | None:
        """Return the same error as a session."""
        del principal
        return await self.handle(message, raw, reply)

    handle_sessionless = handle_stateless
