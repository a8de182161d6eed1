"""A connection to an MCP server that any task may use. It returns results with wire keys and reports changed tools."""

import asyncio
import contextlib
import itertools
import json
import logging
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from mcp import Client
from mcp.client import ClientSession
from mcp.client.session import IncomingMessage, MessageHandlerFnT
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    ErrorData,
    InputRequiredResult,
    InputResponses,
    ListToolsResult,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from forebay.adapters import sdk_internals
from forebay.operations.mcp.errors import ConnectionLost, HTTPStatusError, SessionExpired
from forebay.operations.mcp.targets import HTTPRefusal, Refusals, ServerTarget, is_connected
from forebay.outputs.modes import MODE_ARGUMENTS, MODE_META_KEY
from forebay.wire import protocol
from forebay.wire.protocol import PageCursors, next_cursor

__all__ = [
    "CHOSEN_MODE_KEYS",
    "FIRST_REQUEST_ID",
    "ClientConnection",
    "RefreshCallback",
    "fail_unreadable_response",
    "follow_changes",
    "observe_messages",
]

_log = logging.getLogger("forebay")

FIRST_REQUEST_ID = 1_000_000
"""First id of the requests that a `ClientConnection` sends; the SDK's own ids start at 1.

The ids are numbers, without a prefix, because some servers reject other ids.
"""

CHOSEN_MODE_KEYS = frozenset(MODE_ARGUMENTS)
"""Arguments by which a caller chooses itself between the data and a handle."""

_SESSION_LOST_PATTERN = re.compile(r"^session (terminated|not found|expired)", re.IGNORECASE)

_SDK_PLACEHOLDER_MESSAGES = ("Server returned an error response", "Not Found")
"""Messages that the SDK invents for an HTTP status without a JSON-RPC error."""

_MIN_DELAY_SECONDS, _MAX_DELAY_SECONDS = 1.0, 60.0
"""Minimum and maximum delay before a lost subscription is opened again."""

_LISTING_INTERVAL_SECONDS = 1.0
"""Minimum time between two listings of the tools, however many changes a server announces."""

_UNSUPPORTED_CODES = (METHOD_NOT_FOUND, INVALID_REQUEST, INVALID_PARAMS)
"""Error codes of servers that do not support subscriptions."""

RefreshCallback = Callable[[], Awaitable[None]]
"""Function that lists the tools again."""

_Observer = Callable[[IncomingMessage], Awaitable[None]]


class ClientConnection:
    """One connection of an SDK client, in its own task, because the same task has to enter and exit a client."""

    def __init__(self, client: Client, refusals: Refusals | None = None, *, has_custom_transport: bool = False) -> None:
        self.client = client
        self.is_lost = False
        self._refusals: Refusals = {} if refusals is None else refusals
        self._has_custom_transport = has_custom_transport
        self._request_ids = itertools.count(FIRST_REQUEST_ID)
        self._close_requested = asyncio.Event()
        self._client_task: asyncio.Task[None] | None = None
        self._changes_task: asyncio.Task[None] | None = None
        self._stop_observing: Callable[[], object] = lambda: None

    @classmethod
    def from_client(cls, client: Client) -> "ClientConnection":
        """Return a connection of a client that its owner has connected and will disconnect."""
        connection = cls(client)
        connection._observe_unreadable_responses()
        return connection

    @classmethod
    async def open(cls, target: ServerTarget, refusals: Refusals, timeout: float) -> "ClientConnection":
        """Connect to a server. Raises the SDK's exceptions or `TimeoutError`; HTTP errors are added to `refusals`."""
        connection = cls(target.new_client(refusals), refusals, has_custom_transport=target.has_custom_transport)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection._client_task = asyncio.create_task(connection._run_client(ready))
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(ready)
        except BaseException:
            connection._client_task.cancel()
            await connection.close()
            raise
        return connection

    async def _run_client(self, connected: "asyncio.Future[None]") -> None:
        try:
            async with self.client:
                self._observe_unreadable_responses()
                connected.set_result(None)
                await self._close_requested.wait()
        except BaseException as error:
            if not connected.done():
                connected.set_exception(_find_root_cause(error))
                # Mark the exception as retrieved, so that asyncio does not log it if the caller was cancelled.
                connected.exception()
            elif not isinstance(error, asyncio.CancelledError):
                _log.debug("forebay: a connection broke off", exc_info=True)
        finally:
            self.is_lost = True

    async def close(self) -> None:
        """Stop using the client, and disconnect it unless it has another owner."""
        self.is_lost = True
        self._close_requested.set()
        if self._changes_task is not None:
            self._changes_task.cancel()
            await asyncio.wait([self._changes_task])
        self._stop_observing()
        if self._client_task is not None:
            await asyncio.wait([self._client_task])

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent: the connection is not known to be lost or closed."""
        if self.is_lost or not is_connected(self.client):
            return False
        return not sdk_internals.is_dispatcher_closed(self.client.session)

    async def list_tools(self, timeout: float | None) -> tuple[list[Tool], str | None]:
        """Return all valid tools of the server, and the server's name."""
        tools: list[Tool] = []
        info = self.client.server_info
        name = info.name if info is not None else None
        cursors = PageCursors()
        for params in cursors:
            try:
                page = await self.request("tools/list", params, timeout)
            except MCPError as error:
                if error.code == METHOD_NOT_FOUND:
                    break
                raise
            tools += sdk_internals.absorb_tool_listing(self.client.session, _select_valid_tools(page)).tools
            name = name or _get_server_name(page.get("_meta"))
            if not isinstance(next_cursor(page), str):
                break
            cursors.follow(page)
        return tools, name

    async def call_tool(self, tool_name: str, arguments: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """Call a tool and return its result with wire keys. Cancelling this cancels the call on the server."""

        async def send(responses: InputResponses | None, state: str | None) -> dict[str, Any] | InputRequiredResult:
            params: dict[str, Any] = {"name": tool_name, "arguments": arguments}
            if not CHOSEN_MODE_KEYS & arguments.keys():
                # A server behind forebay sends the data itself then, not a handle. Others ignore this.
                params["_meta"] = {MODE_META_KEY: "inline"}
            if responses is not None:
                params["inputResponses"] = {
                    key: response.model_dump(by_alias=True, mode="json", exclude_none=True)
                    for key, response in responses.items()
                }
            if state is not None:
                params["requestState"] = state
            result = await self.request("tools/call", params, timeout)
            if result.get("resultType") == "input_required":
                return InputRequiredResult.model_validate(result, by_name=False)
            return result

        try:
            first = await send(None, None)
        except MCPError as error:
            if error.code != HEADER_MISMATCH:
                raise
            # The list of tools says which arguments are also sent as headers. It is outdated: list the tools again.
            await self.list_tools(timeout)
            first = await send(None, None)
        return await sdk_internals.resolve_inputs(self.client, first, send)

    async def request(self, method: str, params: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """Send a request and return its result with wire keys. Cancelling this cancels the request on the server."""
        request_id = next(self._request_ids)
        try:
            return await sdk_internals.send_request(self.client.session, method, params, request_id, timeout)
        except MCPError as error:
            self._raise_connection_error(error, self._refusals.pop(request_id, None))
            raise

    def _raise_connection_error(self, error: MCPError, refusal: HTTPRefusal | None) -> None:
        """Raise the connection error behind an SDK error, if there is one."""
        if refusal is not None and refusal.had_session and refusal.status == HTTPStatus.NOT_FOUND:
            self.is_lost = True
            raise SessionExpired from error
        if refusal is not None and error.message in _SDK_PLACEHOLDER_MESSAGES:
            raise HTTPStatusError(refusal.status) from error
        if error.code == CONNECTION_CLOSED and (not self.is_open or error.message.startswith("SSE stream ")):
            raise ConnectionLost(error.message) from error
        # With a custom transport the HTTP status is unknown, and only the message can show that a session expired. But
        # the message may come from a tool that ran, so this request is not repeated: the next one reconnects.
        if self._has_custom_transport and _SESSION_LOST_PATTERN.search(error.message):
            self.is_lost = True

    def follow_tool_changes(self, refresh: RefreshCallback) -> None:
        """Await `refresh` whenever the tools may have changed, until the connection is closed."""
        self._changes_task = asyncio.create_task(follow_changes(self.client, refresh, lambda: self.is_open))

    def _observe_unreadable_responses(self) -> None:
        session = self.client.session

        async def on_message(message: IncomingMessage) -> None:
            if isinstance(message, Exception):
                fail_unreadable_response(session, message)

        self._stop_observing = observe_messages(session, on_message)


def _select_valid_tools(page: dict[str, Any]) -> ListToolsResult:
    """Return the valid tools of a page; invalid ones are logged and left out."""
    listed = page.get("tools")
    tools: list[Tool] = []
    for tool in listed if isinstance(listed, list) else []:
        try:
            tools.append(Tool.model_validate(tool, by_name=False))
        except ValidationError as error:
            name = tool.get("name") if isinstance(tool, dict) else tool
            _log.warning("forebay: the tool %.64r is left out: %s", name, error.errors()[0]["msg"])
    return ListToolsResult(tools=tools)


def _get_server_name(meta: Any) -> str | None:
    """Return the server's name from the `_meta` of a result. Protocol versions without a handshake send it there."""
    match meta:
        case {protocol.SERVER_INFO_KEY: {"name": str(name)}}:
            return name
    return None


def _find_root_cause(error: BaseException) -> BaseException:
    """Return the first exception in the exception groups that the SDK's tasks raise."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, Exception) else ConnectionError("the connection broke off before it was made")


def fail_unreadable_response(session: ClientSession, error: Exception) -> None:
    """Fail the request that an unreadable response belongs to. If the id is unreadable too, fail all pending requests.

    Lines that are not JSON-RPC, such as a server's debug output, are ignored.
    """
    if not isinstance(error, ValidationError):
        return
    problems = error.errors(include_url=False)
    # The input of these types is the whole message; that of others may be one member.
    problem = next((problem for problem in problems if problem["type"] in ("json_invalid", "missing")), problems[0])
    message = problem["input"]
    reason = problem["msg"] if problem["type"] == "json_invalid" else "it is neither a result nor an error"
    failure = ErrorData(code=PARSE_ERROR, message=f"its answer cannot be read: {reason:.200}")
    match _parse_message(message):
        case {"id": str() | int() as request_id, **others} if "method" not in others:
            sdk_internals.fail_request(session, request_id, failure)
        case None if isinstance(message, str) and '"jsonrpc"' in message:
            for request_id in sdk_internals.get_pending_ids(session):
                # Do not fail the SDK's own requests: some, such as subscriptions, last as long as the connection.
                if isinstance(request_id, int) and request_id >= FIRST_REQUEST_ID:
                    sdk_internals.fail_request(session, request_id, failure)


def _parse_message(message: Any) -> Any:
    """Parse a message with `json`, which accepts more than the SDK's parser, such as lone surrogates."""
    try:
        return json.loads(message) if isinstance(message, str) else message
    except (ValueError, RecursionError):
        return None


async def follow_changes(client: Client, refresh: RefreshCallback, is_open: Callable[[], bool]) -> None:
    """Await `refresh` whenever the tools may have changed, until cancelled."""
    has_changed = asyncio.Event()
    if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_listen_for_changes(client, has_changed, is_open))
            await _refresh_on_change(has_changed, refresh)
    else:
        stop = _observe_changes(client.session, has_changed)
        try:
            await _refresh_on_change(has_changed, refresh)
        finally:
            stop()


async def _refresh_on_change(has_changed: asyncio.Event, refresh: RefreshCallback) -> None:
    while True:
        await has_changed.wait()
        has_changed.clear()
        await refresh()
        await asyncio.sleep(_LISTING_INTERVAL_SECONDS)


def _observe_changes(session: ClientSession, has_changed: asyncio.Event) -> Callable[[], object]:
    """Observe the notifications that servers send without a subscription, up to protocol version 2025-11-25.

    Return a function that stops observing.
    """

    async def on_message(message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            has_changed.set()

    return observe_messages(session, on_message)


def observe_messages(session: ClientSession, observer: _Observer) -> Callable[[], object]:
    """Await `observer` with every message; the newest observer comes first. Return a function that removes it."""
    handler = sdk_internals.get_message_handler(session)
    if not isinstance(handler, _ObservedHandler):
        handler = _ObservedHandler(handler)
        sdk_internals.set_message_handler(session, handler)
    handler.observers.insert(0, observer)

    def stop() -> None:
        with contextlib.suppress(ValueError):
            handler.observers.remove(observer)
        if not handler.observers and sdk_internals.get_message_handler(session) is handler:
            sdk_internals.set_message_handler(session, handler.original)

    return stop


class _ObservedHandler:
    """A message handler that awaits each observer, then the original handler."""

    def __init__(self, original_handler: MessageHandlerFnT) -> None:
        self.original = original_handler
        self.observers: list[_Observer] = []

    async def __call__(self, message: IncomingMessage) -> None:
        for observer in [*self.observers]:
            await observer(message)
        await self.original(message)


async def _listen_for_changes(client: Client, has_changed: asyncio.Event, is_open: Callable[[], bool]) -> None:
    """Subscribe to changes, as protocol versions since 2026-07-28 require.

    Servers do not report changes that happened between two subscriptions, so each new subscription counts as a change.
    """
    delay = _MIN_DELAY_SECONDS
    while is_open():
        try:
            async with client.listen(tools_list_changed=True) as subscription:
                has_changed.set()
                async for _ in subscription:
                    has_changed.set()
                    delay = _MIN_DELAY_SECONDS
        except (SubscriptionLost, TimeoutError):
            pass
        except MCPError as error:
            _log.debug("forebay: changes of tools cannot be listened to", exc_info=True)
            if error.error.code in _UNSUPPORTED_CODES:
                return
        await asyncio.sleep(delay)
        delay = min(2 * delay, _MAX_DELAY_SECONDS)
