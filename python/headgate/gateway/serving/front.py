"""The client's side of `headgate serve`: what servers behind it have to say to a client, or to ask of it."""

import contextlib
import contextvars
import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.server.subscriptions import SubscriptionBus
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import event_from_wire
from mcp_types import METHOD_NOT_FOUND

__all__ = ["Front", "capabilities_of_request"]

_capabilities: contextvars.ContextVar[Any] = contextvars.ContextVar("capabilities", default=None)

_CHANGED = "notifications/tools/list_changed"


def capabilities_of_request() -> Any:
    """What the client whose request is under way here can do, if that says so: since 2026-07-28 they do."""
    return _capabilities.get()


@dataclasses.dataclass(frozen=True, slots=True)
class _Asking:
    """A request that is under way."""

    session: ServerSession
    token: object
    """By which its client is told of progress."""


class Front:
    """One client whose connection lasts or, without a connection, all those whose requests stand alone."""

    def __init__(
        self,
        connection: Connection | None = None,
        capabilities: Mapping[str, Any] | None = None,
        bus: SubscriptionBus | None = None,
    ) -> None:
        self._connection = connection
        self._bus = bus
        self.capabilities = dict(capabilities or {}) if connection is not None else {}
        """What may be asked of it."""
        self._asking: list[_Asking] = []
        self._by_token: dict[object, _Asking] = {}
        self._numbers = itertools.count(1)

    @property
    def is_lasting(self) -> bool:
        """Whether it is one client, with a connection."""
        return self._connection is not None

    @contextlib.contextmanager
    def asking(self, session: ServerSession, token: object, capabilities: object = None) -> Iterator[object]:
        """While a request is under way. Gives the token to report its progress by: others may have the same."""
        asking = _Asking(session, token)
        said = _capabilities.set(capabilities)
        used = token
        if token is not None and (not isinstance(token, str | int) or token in self._by_token):
            used = f"headgate-{next(self._numbers)}"
        self._asking.append(asking)
        if used is not None:
            self._by_token[used] = asking
        try:
            yield used
        finally:
            _capabilities.reset(said)
            self._asking.remove(asking)
            self._by_token.pop(used, None)

    async def ask(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """What the client answers. Raises `MCPError`, also where there is nobody to ask."""
        if self._connection is None:
            raise MCPError(code=METHOD_NOT_FOUND, message="Method not found", data=method)
        await self._connection.initialized.wait()
        channel = self._asking[-1].session._request_outbound if self._asking else self._connection.outbound
        return await channel.send_raw_request(method, params)

    async def tell(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Tells the client what a server said, if it is to know."""
        match method:
            case "notifications/progress":
                asking = self._by_token.get((params or {}).get("progressToken"))
                if asking is not None:
                    told = {**(params or {}), "progressToken": asking.token}
                    await asking.session._request_outbound.notify(method, told)
            case "notifications/message" if self._connection is None:
                # Whoever did not ask for them in the very request is not told; of many, nobody knows whose it is.
                if len(self._asking) == 1:
                    await self._log(self._asking[0].session, params)
            case "notifications/cancelled":
                # It is of a request of the server's own, which knows of it already.
                pass
            case _ if method != _CHANGED:
                await self._notify(method, params)

    async def changed(self) -> None:
        """Tells the client that there are other tools."""
        await self._notify(_CHANGED, None)

    async def _notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        if self._bus is not None and (event := event_from_wire(method, params)) is not None:
            # Those who listen are told.
            await self._bus.publish(event)
        if self._connection is not None and self._connection.initialized.is_set():
            # Over HTTP, what is said on account of a request goes with its answer.
            is_of_request = method == "notifications/message" and self._asking
            channel = self._asking[-1].session._request_outbound if is_of_request else self._connection.outbound
            await channel.notify(method, params)

    async def _log(self, session: ServerSession, params: Mapping[str, Any] | None) -> None:
        if (params or {}).get("level") in session._allowed_log_levels:
            await session._request_outbound.notify("notifications/message", params)
