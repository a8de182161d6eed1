"""Access to private parts of the `mcp` SDK's client, one function for each.

The SDK's public methods raise for content blocks of unknown types, for structured content that does not fit its schema
and for a whole list because of one invalid tool, and they drop fields of later protocol versions. All of these have
to be passed on, so requests are sent below those methods.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from mcp import Client
from mcp.client import ClientSession
from mcp.client.session import MessageHandlerFnT
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import ErrorData, InputRequiredResult, InputResponses, ListToolsResult

if TYPE_CHECKING:
    from mcp.shared.dispatcher import CallOptions

__all__ = [
    "absorb_tool_listing",
    "create_mcp_http_client",
    "fail_request",
    "get_message_handler",
    "get_pending_ids",
    "is_dispatcher_closed",
    "resolve_inputs",
    "send_request",
    "set_message_handler",
]


def get_message_handler(session: ClientSession) -> MessageHandlerFnT:
    return session._message_handler


def set_message_handler(session: ClientSession, handler: MessageHandlerFnT) -> None:
    session._message_handler = handler


def is_dispatcher_closed(session: ClientSession) -> bool:
    return bool(getattr(session._dispatcher, "_closed", False))


def absorb_tool_listing(session: ClientSession, page: ListToolsResult) -> ListToolsResult:
    """Register listed tools with the session, which sends some arguments as headers because of it."""
    return session._absorb_tool_listing(page, complete=False)


async def send_request(
    session: ClientSession, method: str, params: dict[str, Any], request_id: int, timeout: float | None
) -> dict[str, Any]:
    """Send a request with its protocol metadata, and return the result with wire keys."""
    options: CallOptions = {"request_id": request_id}
    session._stamp({"method": method, "params": params}, options)
    if timeout is not None:
        options["timeout"] = timeout
    return await session._dispatcher.send_raw_request(method, params, options)


async def resolve_inputs(
    client: Client,
    result: dict[str, Any] | InputRequiredResult,
    retry: Callable[[InputResponses | None, str | None], Awaitable[dict[str, Any] | InputRequiredResult]],
) -> dict[str, Any]:
    """Answer the input requests of a result with the client's callbacks, and retry until a result needs none."""
    return await client._drive_input_required(result, retry)


def get_pending_ids(session: ClientSession) -> list[str | int]:
    """Return the ids of the requests that wait for a response."""
    dispatcher = session._dispatcher
    return [*dispatcher._pending] if isinstance(dispatcher, JSONRPCDispatcher) else []


def fail_request(session: ClientSession, request_id: str | int, error: ErrorData) -> None:
    """Settle a pending request with an error."""
    dispatcher = session._dispatcher
    if isinstance(dispatcher, JSONRPCDispatcher):
        dispatcher._resolve_pending(request_id, error)
