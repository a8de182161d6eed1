"""Every use of private names of the `mcp` SDK and of fastmcp, in one place.

Each function makes one such access, and its docstring names the public way that is missing. A test holds the rest of
the package to this module, so that a new version of an SDK is checked by reading this file.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from mcp.client._transport import TransportStreams
from mcp.server import Server
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared._stream_protocols import ReadStream, WriteStream

if TYPE_CHECKING:
    from fastmcp.server.dependencies import FastMCPRequestContext
    from mcp import Client
    from mcp.client.session import ClientSession, MessageHandlerFnT
    from mcp.server.connection import Connection
    from mcp.server.session import ServerSession
    from mcp.shared.dispatcher import CallOptions, DispatchContext, Dispatcher
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
    from mcp_types import ErrorData, InputRequiredResult, InputResponses, ListToolsResult, RequestId

__all__ = [
    "ReadStream",
    "TransportStreams",
    "WriteStream",
    "create_mcp_http_client",
    "fail_request",
    "find_lowlevel_server",
    "get_allowed_log_levels",
    "get_dispatcher",
    "get_message_handler",
    "get_request_channel",
    "get_request_params",
    "get_server_connection",
    "get_server_info",
    "index_tools",
    "is_closed",
    "list_pending",
    "resolve_inputs",
    "set_message_handler",
    "stamp_request",
]

_T = TypeVar("_T")

_Retry: TypeAlias = "Callable[[InputResponses | None, str | None], Awaitable[_T | InputRequiredResult]]"


def find_lowlevel_server(server: object) -> Server[Any] | None:
    """Return the low-level server in an `MCPServer` or `FastMCP`, or the server itself if it is one.

    Missing: a public attribute for it.
    """
    if isinstance(server, Server):
        return server
    inner = getattr(server, "_lowlevel_server", None) or getattr(server, "_mcp_server", None)
    return inner if isinstance(inner, Server) else None


def get_server_info(server: object) -> dict[str, Any] | None:
    """Return the `serverInfo` that an SDK's server adds to the `_meta` of every result, or `None`.

    Missing: the same as for `find_lowlevel_server`.
    """
    lowlevel_server = find_lowlevel_server(server)
    return None if lowlevel_server is None else lowlevel_server.server_info_stamp


def get_server_connection(session: "ServerSession") -> "Connection":
    """Return the connection of a server session.

    Missing: `ServerSession.connection`. A session is made for each request, the connection lasts.
    """
    return session._connection


def get_request_channel(session: "ServerSession") -> "DispatchContext[Any]":
    """Return the channel that sends messages along with the response to the current request.

    Missing: a public way to send a notification or request of any method, as raw JSON, on that channel.
    """
    return session._request_outbound


def get_allowed_log_levels(session: "ServerSession") -> Collection[str]:
    """Return the log levels that the client asked for in the current request.

    Missing: `ServerSession.allowed_log_levels`.
    """
    return session._allowed_log_levels


def get_request_params(request: "FastMCPRequestContext") -> Mapping[str, Any]:
    """Return the parameters of a request to a fastmcp server as the client sent them.

    Missing: `FastMCPRequestContext.params`. A mounted server needs the tool name before its namespace was removed.
    """
    return request._srctx.params or {}


def get_dispatcher(session: "ClientSession") -> "Dispatcher[Any]":
    """Return the dispatcher of a client session.

    Missing: a public way to send any request and get its result as raw JSON. `ClientSession.send_request` parses
    results and drops fields of later protocol versions.
    """
    return session._dispatcher


def is_closed(session: "ClientSession") -> bool:
    """Return whether the connection of a client session was closed.

    Missing: `ClientSession.is_closed`.
    """
    return bool(getattr(session._dispatcher, "_closed", False))


def stamp_request(session: "ClientSession", request: dict[str, Any], options: "CallOptions") -> None:
    """Add the fields and headers that the negotiated protocol version requires of a request.

    Missing: the same as for `get_dispatcher`; the SDK stamps only the requests that it sends itself.
    """
    session._stamp(request, options)


def index_tools(session: "ClientSession", page: "ListToolsResult") -> "ListToolsResult":
    """Tell a client session about tools, so that it sends their arguments as headers where their schemas say so.

    Missing: a public way to do this with a list of tools that was requested as raw JSON.
    """
    return session._absorb_tool_listing(page, complete=False)


async def resolve_inputs(client: "Client", first: "_T | InputRequiredResult", retry: "_Retry[_T]") -> _T:
    """Answer the server's requests for input until there is a result.

    Missing: a public way to do this for a result as raw JSON. `Client.call_tool` does it for parsed ones.
    """
    return await client._drive_input_required(first, retry)


def list_pending(dispatcher: "JSONRPCDispatcher[Any]") -> "list[RequestId]":
    """Return the ids of the requests that wait for a response.

    Missing: a hook for responses that cannot be parsed; the SDK lets their requests wait until the timeout.
    """
    return list(dispatcher._pending)


def fail_request(dispatcher: "JSONRPCDispatcher[Any]", request_id: "RequestId", error: "ErrorData") -> None:
    """End a waiting request with an error.

    Missing: the same as for `list_pending`.
    """
    dispatcher._resolve_pending(request_id, error)


def get_message_handler(session: "ClientSession") -> "MessageHandlerFnT":
    """Return the function that a client session calls with each notification and transport error.

    Missing: a way to add a handler to a session that is connected already.
    """
    return session._message_handler


def set_message_handler(session: "ClientSession", handler: "MessageHandlerFnT") -> None:
    """Replace the function that a client session calls with each notification and transport error.

    Missing: the same as for `get_message_handler`.
    """
    session._message_handler = handler
