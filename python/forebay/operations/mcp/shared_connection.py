"""A connection that all callers share, and that is reopened after it is lost."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from mcp import Client

from forebay.errors import InvalidArgument
from forebay.operations.deadlines import wait_shielded
from forebay.operations.errors import CallError
from forebay.operations.mcp.connection import ClientConnection
from forebay.operations.mcp.errors import to_connect_error
from forebay.operations.mcp.targets import Refusals, Target, is_connected, resolve_target

__all__ = ["SharedConnection"]

_log = logging.getLogger("forebay")

_MIN_DELAY_SECONDS, _MAX_DELAY_SECONDS = 0.1, 5.0
"""Minimum and maximum delay between two attempts to connect."""


class SharedConnection:
    """The current connection to a server. `on_open` is awaited with each new connection before callers get it."""

    def __init__(
        self,
        target: Target,
        mode: str,
        *,
        timeout: float,
        attempts: int,
        on_open: Callable[[ClientConnection], Awaitable[None]],
    ) -> None:
        if attempts < 1 or timeout <= 0:
            raise InvalidArgument("connect_attempts and connect_timeout must be more than 0")
        self._external_client = target if isinstance(target, Client) and is_connected(target) else None
        self._target = resolve_target(target, mode)
        self._attempts = attempts
        self._on_open = on_open
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: ClientConnection | None = None
        self._connect_task: asyncio.Task[ClientConnection] | None = None
        self._closing_tasks: set[asyncio.Task[None]] = set()
        self._waiter_count = 0
        self.timeout = timeout
        self.is_closed = False

    @property
    def label(self) -> str:
        """The server's name in messages."""
        return self._target.label

    @property
    def has_connected(self) -> bool:
        """Whether the server was connected and `close` was not called. A lost connection counts too: it is reopened."""
        return self._connection is not None and not self.is_closed

    @property
    def is_in_use(self) -> bool:
        """Whether the server was connected, or a caller waits for the connection."""
        return self._connection is not None or self._waiter_count > 0

    async def get_connection(self, attempts: int | None = None) -> ClientConnection:
        """Return the open connection; connect first if necessary. Raises `CallError` if that fails."""
        if self.is_closed:
            raise CallError("EXECUTION_ERROR", f"{self.label} was closed; use another from_mcp()")
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise CallError(
                "EXECUTION_ERROR",
                f"{self.label} was connected in another event loop; use it there, or another from_mcp() here",
            )
        self._loop = loop
        if self._connection is not None and self._connection.is_open:
            return self._connection
        if self._connect_task is None or self._connect_task.done():
            if self._connection is not None:
                self._close_in_background(self._connection)
            self._connect_task = asyncio.create_task(self._connect(attempts or self._attempts))
            # Mark the exception as retrieved, so that asyncio does not log it if all callers were cancelled.
            self._connect_task.add_done_callback(lambda task: task.cancelled() or task.exception())
        connecting = self._connect_task
        self._waiter_count += 1
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if not connecting.cancelled():
                raise
            # `close` cancelled the connecting task; the caller itself was not cancelled.
            raise CallError("ABORTED", f"{self.label} was closed while it was connected") from None
        finally:
            self._waiter_count -= 1

    async def close(self) -> None:
        """Disconnect, from any event loop. If the loop of the connection has ended, there is nothing to disconnect."""
        self.is_closed = True
        if self._loop is asyncio.get_running_loop():
            await wait_shielded(self._close_all())
        elif self._loop is not None and self._loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._close_all(), self._loop))

    async def _close_all(self) -> None:
        if self._connect_task is not None:
            self._connect_task.cancel()
            await asyncio.wait([self._connect_task])
        if self._connection is not None:
            self._close_in_background(self._connection)
        while self._closing_tasks:
            await asyncio.wait(self._closing_tasks)

    async def _connect(self, attempts: int) -> ClientConnection:
        delay = _MIN_DELAY_SECONDS
        for attempt in range(attempts):
            if attempt:
                # The delay is random, so that not all clients of a restarted server reconnect at the same moment.
                await asyncio.sleep(delay * _random.uniform(0.5, 1))
                delay = min(2 * delay, _MAX_DELAY_SECONDS)
            refusals: Refusals = {}
            try:
                return await self._open(refusals)
            except CallError:
                raise
            except Exception as error:
                _log.debug("forebay: %s cannot be connected", self.label, exc_info=True)
                failure = error
        status = next((refusal.status for refusal in reversed(refusals.values())), None)
        raise to_connect_error(failure, self._target, status, self.timeout) from failure

    async def _open(self, refusals: Refusals) -> ClientConnection:
        if self._external_client is None:
            connection = await ClientConnection.open(self._target, refusals, self.timeout)
        elif self._connection is None:
            connection = ClientConnection.from_client(self._external_client)
        else:
            raise CallError(
                "EXECUTION_ERROR", "the connection is lost, and its client is someone else's; connect another client"
            )
        try:
            async with asyncio.timeout(self.timeout):
                await self._on_open(connection)
        except BaseException:
            await connection.close()
            raise
        self._connection = connection
        return connection

    def _close_in_background(self, connection: ClientConnection) -> None:
        """Close a connection in the background, because closing a lost connection may take long."""
        connection.is_lost = True
        task = asyncio.create_task(connection.close())
        self._closing_tasks.add(task)
        task.add_done_callback(self._closing_tasks.discard)


# Not the generator of `random` itself, whose sequence belongs to the program.
_random = random.SystemRandom()
