"""A client of the `mcp` SDK that any task may use, and what a server says before anything is made of it."""

import asyncio
import itertools
import json
import logging
import re
from typing import TYPE_CHECKING, Any

from mcp import Client
from mcp.client import ClientSession
from mcp.client.session import IncomingMessage
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    ErrorData,
    InputRequiredResult,
    InputResponses,
    ListToolsResult,
    Tool,
)
from pydantic import ValidationError

from forebay.operations.mcp.changes import Refresh, follow_changes, observe_messages
from forebay.operations.mcp.errors import ConnectionLost, HTTPStatusError, SessionExpired
from forebay.operations.mcp.targets import HTTPRefusal, Refusals, ServerTarget, is_connected
from forebay.wire.protocol import next_cursor

__all__ = ["FIRST_REQUEST_ID", "ClientConnection", "fail_unreadable_response"]

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.shared.dispatcher import CallOptions


_log = logging.getLogger("forebay")

_MAX_PAGES = 1000
"""How many pages of tools are followed: some servers have no last one."""

_PAGE_KEYS = ("tools", "nextCursor", "_meta", "resultType", "ttlMs", "cacheScope")

_NOT_FOUND = 404

_SESSION_LOST = re.compile(r"^session (terminated|not found|expired)", re.IGNORECASE)

_SDK_PLACEHOLDERS = ("Server returned an error response", "Not Found")
"""What the SDK says for a status that came without an error of the protocol."""


class ClientConnection:
    """A client for one connection. It has a task of its own, because the SDK wants it left where it was entered."""

    def __init__(self, client: Client, refusals: Refusals | None = None, *, has_custom_transport: bool = False) -> None:
        self.client = client
        self.is_lost = False
        self.listed_tools: list[dict[str, Any]] = []
        """The tools as they are on the wire, when they were last asked for."""
        self.listing_extras: dict[str, Any] = {}
        """What the pages had beside them, but for what is of a page."""
        self._refusals: Refusals = {} if refusals is None else refusals
        self._has_custom_transport = has_custom_transport
        self._request_ids = itertools.count(FIRST_REQUEST_ID)
        self._close_requested = asyncio.Event()
        self._client_task: asyncio.Task[None] | None = None
        self._changes_task: asyncio.Task[None] | None = None
        self._stop_observing: Callable[[], object] = lambda: None

    @classmethod
    def from_client(cls, client: Client) -> "ClientConnection":
        """One over a client that someone else has connected, and will leave."""
        connection = cls(client)
        connection._observe_unreadable()
        return connection

    @classmethod
    async def open(cls, target: ServerTarget, refusals: Refusals, timeout: float) -> "ClientConnection":
        """Connects. Raises whatever the SDK does, or `TimeoutError`; what HTTP refused is in `refusals` then."""
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

    async def _run_client(self, ready: "asyncio.Future[None]") -> None:
        try:
            async with self.client:
                self._observe_unreadable()
                ready.set_result(None)
                await self._close_requested.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(_root_cause(error))
                # Whoever waits may have given up.
                ready.exception()
            elif not isinstance(error, asyncio.CancelledError):
                _log.debug("forebay: a connection broke off", exc_info=True)
        finally:
            self.is_lost = True

    async def close(self) -> None:
        """Leaves the client, if it is ours to leave."""
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
        """Whether a call could be sent, as far as anyone knows."""
        if self.is_lost or not is_connected(self.client):
            return False
        return not getattr(self.client.session._dispatcher, "_closed", False)

    async def list_tools(self, timeout: float | None) -> tuple[list[Tool], str | None]:
        """All pages of the server's tools, and what it calls itself. What cannot be a tool is left out."""
        tools: list[Tool] = []
        listed: list[dict[str, Any]] = []
        beside: dict[str, Any] = {}
        info = self.client.server_info
        name = info.name if info is not None else None
        cursor: object = None
        seen: set[object] = set()
        while cursor not in seen and len(seen) < _MAX_PAGES:
            seen.add(cursor)
            try:
                page = await self.request("tools/list", {} if cursor is None else {"cursor": cursor}, timeout)
            except MCPError as error:
                if error.code == METHOD_NOT_FOUND:
                    break
                raise
            # It is what makes the SDK send arguments as headers.
            tools += self.client.session._absorb_tool_listing(_valid_tools(page), complete=False).tools
            listed += [each for each in page.get("tools") or () if isinstance(each, dict)]
            beside |= {key: value for key, value in page.items() if key not in _PAGE_KEYS}
            name = name or _server_name(page.get("_meta"))
            cursor = next_cursor(page)
            if not isinstance(cursor, str):
                break
        self.listed_tools, self.listing_extras = listed, beside
        return tools, name

    async def call_tool(self, tool: str, arguments: dict[str, Any], timeout: float | None) -> dict[str, Any]:
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
            result = await self.request("tools/call", params, timeout)
            if result.get("resultType") == "input_required":
                return InputRequiredResult.model_validate(result, by_name=False)
            return result

        try:
            first = await send(None, None)
        except MCPError as error:
            if error.code != HEADER_MISMATCH:
                raise
            # Arguments go into headers as the list of tools says, which is of another day.
            await self.list_tools(timeout)
            first = await send(None, None)
        return await self.client._drive_input_required(first, send)

    async def request(self, method: str, params: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """The result of any request as it is on the wire. Cancelling this cancels it at the server."""
        # The SDK's own functions raise for blocks of types that it does not know, for content that does not fit the
        # output schema, and for all tools because of one, and drop fields of later versions: all of these are results,
        # and what they are worth is said later.
        session = self.client.session
        request = {"method": method, "params": params}
        request_id = next(self._request_ids)
        options: CallOptions = {"request_id": request_id}
        session._stamp(request, options)
        if timeout is not None:
            options["timeout"] = timeout
        try:
            return await session._dispatcher.send_raw_request(method, params, options)
        except MCPError as error:
            self._raise_connection_error(error, self._refusals.pop(request_id, None))
            raise

    def _raise_connection_error(self, error: MCPError, refusal: HTTPRefusal | None) -> None:
        """Raises what an error means to the connection, by what the SDK and HTTP know; words are anyone's."""
        if refusal is not None and refusal.had_session and refusal.status == _NOT_FOUND:
            self.is_lost = True
            raise SessionExpired from error
        if refusal is not None and error.message in _SDK_PLACEHOLDERS:
            raise HTTPStatusError(refusal.status) from error
        if error.code == CONNECTION_CLOSED and (not self.is_open or error.message.startswith("SSE stream ")):
            raise ConnectionLost(error.message) from error
        # Where HTTP is someone else's, only words can tell of a session that nobody knows any more. They may be a
        # tool's own: the next call connects again, and nothing is sent twice.
        if self._has_custom_transport and _SESSION_LOST.search(error.message):
            self.is_lost = True

    def start_following(self, refresh: Refresh) -> None:
        """Has `refresh` run whenever the tools may have changed, for as long as the connection lasts."""
        self._changes_task = asyncio.create_task(follow_changes(self.client, refresh, lambda: self.is_open))

    def _observe_unreadable(self) -> None:
        session = self.client.session

        async def hear(message: IncomingMessage) -> None:
            if isinstance(message, Exception):
                fail_unreadable_response(session, message)

        self._stop_observing = observe_messages(session, hear)


def _valid_tools(page: dict[str, Any]) -> ListToolsResult:
    """What of a page is tools."""
    listed = page.get("tools")
    tools: list[Tool] = []
    for each in listed if isinstance(listed, list) else []:
        try:
            tools.append(Tool.model_validate(each, by_name=False))
        except ValidationError as error:
            name = each.get("name") if isinstance(each, dict) else each
            _log.warning("forebay: the tool %.64r is left out: %s", name, error.errors()[0]["msg"])
    return ListToolsResult(tools=tools)


def _server_name(meta: Any) -> str | None:
    """What a server calls itself beside a result: the newest version has no handshake to say it in."""
    match meta:
        case {"io.modelcontextprotocol/serverInfo": {"name": str(name)}}:
            return name
    return None


def _root_cause(error: BaseException) -> BaseException:
    """What went wrong, without the groups that tasks of the SDK wrap around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, Exception) else ConnectionError("the connection broke off before it was made")


FIRST_REQUEST_ID = 1_000_000
"""Where the ids of our own requests begin: numbers, because some servers know no others. The SDK's begin at 1."""


def fail_unreadable_response(session: ClientSession, error: Exception) -> None:
    """Fails the call that an unreadable message answers; all that wait, if it does not say which.

    What is no message of the protocol at all, such as a line that a server prints, answers nothing.
    """
    dispatcher = session._dispatcher
    if not isinstance(error, ValidationError) or not isinstance(dispatcher, JSONRPCDispatcher):
        return
    problem = error.errors(include_url=False)[0]
    said = problem["input"]
    why = problem["msg"] if problem["type"] == "json_invalid" else "it is neither a result nor an error"
    outcome = ErrorData(code=PARSE_ERROR, message=f"its answer cannot be read: {why:.200}")
    match _parse_line(said):
        case {"id": str() | int() as request_id, **rest} if "method" not in rest:
            dispatcher._resolve_pending(request_id, outcome)
        case None if isinstance(said, str) and '"jsonrpc"' in said:
            # Those of the SDK, such as for changes, go on for as long as the connection does.
            for request_id in [
                each for each in dispatcher._pending if isinstance(each, int) and each >= FIRST_REQUEST_ID
            ]:
                dispatcher._resolve_pending(request_id, outcome)


def _parse_line(said: Any) -> Any:
    """The value of a line: `json` reads what the SDK's parser does not, such as half a character."""
    try:
        return json.loads(said) if isinstance(said, str) else said
    except (ValueError, RecursionError):
        return None
