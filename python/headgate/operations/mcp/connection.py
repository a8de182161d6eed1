"""A client of the `mcp` SDK that any task may use, and what a server says before anything is made of it."""

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from mcp import Client, StdioServerParameters
from mcp.client import Transport
from mcp.client.session import IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.server import MCPServer, Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    InputRequiredResult,
    InputResponses,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from headgate.arguments import shown
from headgate.errors import InvalidArgument

if TYPE_CHECKING:
    from mcp.shared.dispatcher import CallOptions

__all__ = ["Connection", "Target", "clients_of", "is_connected"]

_log = logging.getLogger("headgate")

Target: TypeAlias = (
    "Client | Server[Any] | MCPServer[Any] | StdioServerParameters | Sequence[str] | str | Transport "
    "| Callable[[], Transport]"
)
"""A server: its URL, a command, the server itself, a transport or what makes one, or a client."""

_MOST_PAGES = 1000
"""How many pages of tools are followed: some servers have no last one."""

_FIRST_DELAY, _LONGEST_DELAY = 1.0, 60.0
"""Seconds before a stream of changes that broke off is opened again."""


def is_connected(target: object) -> bool:
    """Whether it is a client that someone else has connected, and will leave."""
    if not isinstance(target, Client):
        return False
    try:
        return target.session is not None
    except RuntimeError:
        return False


def clients_of(target: Target, mode: str) -> Callable[[], Client]:
    """What makes a client for every connection: the SDK's are for one only."""
    match target:
        case Client(server=str(url)):
            return lambda: dataclasses.replace(target, server=_over_http(url))
        case Client():
            return lambda: dataclasses.replace(target)
        case str(url):
            return lambda: Client(_over_http(url), mode=mode)
        case [str(command), *arguments] if all(isinstance(argument, str) for argument in arguments):
            parameters = StdioServerParameters(command=command, args=arguments)
            return lambda: Client(parameters, mode=mode)
        case StdioServerParameters() | Server() | MCPServer():
            return lambda: Client(target, mode=mode)
    if hasattr(target, "__aenter__"):
        return lambda: Client(cast("Transport", target), mode=mode)
    if callable(target):
        return lambda: Client(target(), mode=mode)
    raise InvalidArgument(
        f"from_mcp() takes a URL, a command as a list, StdioServerParameters, a server, a transport or an mcp.Client, "
        f"not {shown(target)}"
    )


def _over_http(url: str) -> Transport:
    # The SDK gives up on events of more than 1 MiB, and a result is one event.
    return streamable_http_client(url, max_sse_event_size=None)


class Connection:
    """A client for one connection. It has a task of its own, because the SDK wants it left where it was entered."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.is_lost = False
        self._leave = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._follower: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None

    @classmethod
    async def opened(cls, client: Client, timeout: float) -> "Connection":
        """Connects. Raises whatever the SDK does, or `TimeoutError`."""
        connection = cls(client)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection._keeper = asyncio.create_task(connection._keep(ready))
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(ready)
        except BaseException:
            connection._keeper.cancel()
            await connection.close()
            raise
        return connection

    async def _keep(self, ready: "asyncio.Future[None]") -> None:
        try:
            async with self.client:
                ready.set_result(None)
                await self._leave.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(_innermost(error))
                # Whoever waits may have given up.
                ready.exception()
            elif not isinstance(error, asyncio.CancelledError):
                _log.debug("headgate: a connection broke off", exc_info=True)
        finally:
            self.is_lost = True

    async def close(self) -> None:
        """Leaves the client, if it is ours to leave."""
        self.is_lost = True
        self._leave.set()
        if self._follower is not None:
            self._follower.cancel()
            # It is what ends the listener.
            await asyncio.wait([self._follower])
        if tasks := [task for task in (self._keeper, self._listener) if task is not None]:
            await asyncio.wait(tasks)

    @property
    def is_open(self) -> bool:
        """Whether a call could be sent, as far as anyone knows."""
        if self.is_lost or not is_connected(self.client):
            return False
        return not getattr(self.client.session._dispatcher, "_closed", False)

    async def tools(self) -> tuple[list[Tool], str | None]:
        """All pages of the server's tools, and what it calls itself."""
        tools: list[Tool] = []
        info = self.client.server_info
        name = info.name if info is not None else None
        cursor: str | None = None
        seen: set[str | None] = set()
        while cursor not in seen and len(seen) < _MOST_PAGES:
            seen.add(cursor)
            try:
                page = await self.client.list_tools(cursor=cursor, cache_mode="bypass")
            except MCPError as error:
                if error.code == METHOD_NOT_FOUND:
                    break
                raise
            tools += page.tools
            name = name or _name_in(page.meta)
            cursor = page.next_cursor
            if cursor is None:
                break
        return tools, name

    async def call(self, tool: str, arguments: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """The result of a `tools/call` as it is on the wire. Cancelling this cancels the call at the server."""

        async def send(responses: InputResponses | None, state: str | None) -> dict[str, Any] | InputRequiredResult:
            params: dict[str, Any] = {"name": tool, "arguments": arguments}
            if responses is not None:
                params["inputResponses"] = {
                    key: response.model_dump(by_alias=True, mode="json", exclude_none=True)
                    for key, response in responses.items()
                }
            if state is not None:
                params["requestState"] = state
            result = await self._sent(params, timeout)
            if result.get("resultType") == "input_required":
                return InputRequiredResult.model_validate(result, by_name=False)
            return result

        try:
            first = await send(None, None)
        except MCPError as error:
            if error.code != HEADER_MISMATCH:
                raise
            # Arguments go into headers as the list of tools says, which is of another day.
            await self.tools()
            first = await send(None, None)
        return await self.client._drive_input_required(first, send)

    async def _sent(self, params: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        # `call_tool` raises for blocks of types that the SDK does not know, for content that does not fit the output
        # schema, and drops fields of later versions: all of these are results, and what they are worth is said later.
        session = self.client.session
        request = {"method": "tools/call", "params": params}
        options: CallOptions = {}
        session._stamp(request, options)
        if (timeout := timeout if timeout is not None else self.client.read_timeout_seconds) is not None:
            options["timeout"] = timeout
        return await session._dispatcher.send_raw_request("tools/call", params, options)

    def follow(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Has `refresh` run whenever the tools may have changed, for as long as the connection lasts."""
        self._follower = asyncio.create_task(self._follow(refresh))

    async def _follow(self, refresh: Callable[[], Awaitable[None]]) -> None:
        changed = asyncio.Event()
        is_modern = self.client.protocol_version in MODERN_PROTOCOL_VERSIONS
        stop = self._listening(changed) if is_modern else self._overhear(changed)
        try:
            while True:
                await changed.wait()
                changed.clear()
                await refresh()
        finally:
            stop()

    def _overhear(self, changed: asyncio.Event) -> Callable[[], object]:
        """Until 2025-11-25, servers say of themselves that their tools changed. Returns what ends this."""
        # A client that someone else connected has a handler already, which stays.
        session = self.client.session
        before = session._message_handler

        async def handle(message: IncomingMessage) -> None:
            if isinstance(message, ToolListChangedNotification):
                changed.set()
            await before(message)

        session._message_handler = handle

        def stop() -> None:
            if session._message_handler is handle:
                session._message_handler = before

        return stop

    def _listening(self, changed: asyncio.Event) -> Callable[[], object]:
        self._listener = asyncio.create_task(self._listen(changed))
        return self._listener.cancel

    async def _listen(self, changed: asyncio.Event) -> None:
        """Since 2026-07-28, servers tell only who listens. Nothing is repeated, so that each start is a change."""
        delay = _FIRST_DELAY
        while self.is_open:
            try:
                async with self.client.listen(tools_list_changed=True) as subscription:
                    changed.set()
                    async for _ in subscription:
                        changed.set()
                        delay = _FIRST_DELAY
            except (SubscriptionLost, TimeoutError):
                pass
            except MCPError:
                # It does not say such things, or is gone.
                _log.debug("headgate: changes of tools cannot be listened to", exc_info=True)
                return
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_DELAY)


def _name_in(meta: Any) -> str | None:
    """What a server calls itself beside a result: the newest version has no handshake to say it in."""
    match meta:
        case {"io.modelcontextprotocol/serverInfo": {"name": str(name)}}:
            return name
    return None


def _innermost(error: BaseException) -> BaseException:
    """What went wrong, without the groups that tasks of the SDK wrap around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, Exception) else ConnectionError("the connection broke off before it was made")
