"""Every use of private names of the `mcp` SDK and of fastmcp, in one place.

Each function makes one such access, and its docstring says which public API does not exist. A test checks that no other
module uses private names, so that only this file must be checked for a new version of an SDK.
"""

import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from mcp.server import Server

with contextlib.suppress(ImportError):
    # For `forebay serve` and operations, which need version 2 of the SDK. The adapters also work with version 1.
    from mcp.shared._httpx_utils import create_mcp_http_client
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

if TYPE_CHECKING:
    from fastmcp import FastMCP
    from fastmcp.server.context import Context
    from fastmcp.server.dependencies import FastMCPRequestContext
    from mcp import Client
    from mcp.client import ClientSession
    from mcp.client.session import MessageHandlerFnT
    from mcp.server.connection import Connection
    from mcp.server.session import ServerSession
    from mcp.shared.dispatcher import CallOptions
    from mcp_types import ErrorData, InputRequiredResult, InputResponses, ListToolsResult

__all__ = [
    "absorb_tool_listing",
    "create_mcp_http_client",
    "extend_fastmcp_instructions",
    "fail_request",
    "find_lowlevel_server",
    "find_root_server",
    "get_message_handler",
    "get_pending_ids",
    "get_request_params",
    "get_server_connection",
    "get_server_info",
    "is_dispatcher_closed",
    "list_fastmcp_tools",
    "resolve_inputs",
    "send_request",
    "set_message_handler",
]


def find_lowlevel_server(server: object) -> Server[Any] | None:
    """Return the low-level server in an `MCPServer` or `FastMCP`, or the server itself if it is one.

    The SDKs have no public attribute for it.
    """
    if isinstance(server, Server):
        return server
    lowlevel_server = getattr(server, "_lowlevel_server", None) or getattr(server, "_mcp_server", None)
    return lowlevel_server if isinstance(lowlevel_server, Server) else None


def get_server_info(server: object) -> dict[str, Any] | None:
    """Return the `serverInfo` that an SDK's server adds to the `_meta` of every result, or `None`.

    The SDKs have no public attribute for the low-level server.
    """
    lowlevel_server = find_lowlevel_server(server)
    # Version 1 adds none.
    return getattr(lowlevel_server, "server_info_stamp", None)


def get_server_connection(session: "ServerSession") -> "Connection":
    """Return the connection of a server session.

    The SDK has no public `ServerSession.connection`. A session lasts for one request, its connection for many.
    """
    return session._connection


def get_request_params(request: "FastMCPRequestContext") -> Mapping[str, Any]:
    """Return the parameters of a request to a fastmcp server as the client sent them.

    fastmcp has no public `FastMCPRequestContext.params`. A mounted server needs the tool name with its namespace.
    """
    return request._srctx.params or {}


def find_root_server(context: "Context") -> "FastMCP[Any]":
    """Return the fastmcp server that the client is connected to. The server of the context may be mounted in it.

    fastmcp has no public `Context.parent`.
    """
    while context._tokens and isinstance(parent := context._tokens[-1].old_value, type(context)):
        context = parent
    return context.fastmcp


async def list_fastmcp_tools(server: Any) -> Any:
    """Return the tools that the caller of a fastmcp server can see, after all middleware.

    fastmcp has no public `FastMCP.list_tools` in version 2. Version 2.12 has another private method than later ones.
    """
    return await (getattr(server, "_list_tools_middleware", None) or server._list_tools)()


def extend_fastmcp_instructions(extend: "Callable[[Any, str | None], str | None]") -> None:
    """Call a function with each fastmcp server that a client connects to, and send the instructions that it returns.

    fastmcp has no public hook for it before version 4: middleware gets the result of `initialize` after it was sent,
    and in version 2.12 not at all.
    """
    from fastmcp.server import low_level

    server_type: Any = low_level.LowLevelServer
    create_options = server_type.create_initialization_options

    @functools.wraps(create_options)
    def create_initialization_options(lowlevel_server: Any, *args: Any, **options: Any) -> Any:
        created = create_options(lowlevel_server, *args, **options)
        server = getattr(lowlevel_server, "fastmcp", None)
        if server is None:
            # Version 2.12 has no such attribute, but the function that starts a server knows it.
            server = inspect.getclosurevars(inspect.unwrap(lowlevel_server.lifespan)).nonlocals.get("app")
        return created.model_copy(update={"instructions": extend(server, created.instructions)})

    server_type.create_initialization_options = create_initialization_options


async def send_request(
    session: "ClientSession", method: str, params: dict[str, Any], request_id: int, timeout: float | None
) -> dict[str, Any]:
    """Send a request with the fields that the protocol version requires, and return the result as raw JSON.

    The SDK has no public way to do this. `ClientSession.send_request` parses results, rejects content of unknown types
    and drops fields of later protocol versions.
    """
    options: CallOptions = {"request_id": request_id}
    session._stamp({"method": method, "params": params}, options)
    if timeout is not None:
        options["timeout"] = timeout
    return await session._dispatcher.send_raw_request(method, params, options)


def is_dispatcher_closed(session: "ClientSession") -> bool:
    """Return whether the connection of a client session was closed.

    The SDK has no public `ClientSession.is_closed`.
    """
    return bool(getattr(session._dispatcher, "_closed", False))


def absorb_tool_listing(session: "ClientSession", page: "ListToolsResult") -> "ListToolsResult":
    """Tell a client session about tools, so that it sends their arguments as headers where their schemas say so.

    The SDK has no public way to do this with a list of tools that was requested as raw JSON.
    """
    return session._absorb_tool_listing(page, complete=False)


async def resolve_inputs(
    client: "Client",
    result: "dict[str, Any] | InputRequiredResult",
    retry: "Callable[[InputResponses | None, str | None], Awaitable[dict[str, Any] | InputRequiredResult]]",
) -> dict[str, Any]:
    """Answer the input requests of a result with the client's callbacks, and retry until a result has none.

    The SDK has no public way to do this for a result as raw JSON. `Client.call_tool` does it for parsed results.
    """
    return await client._drive_input_required(result, retry)


def get_pending_ids(session: "ClientSession") -> list[str | int]:
    """Return the ids of the requests that wait for a response, to fail those whose response cannot be parsed.

    The SDK has no public hook for such responses: their requests would wait until the timeout.
    """
    dispatcher = session._dispatcher
    return [*dispatcher._pending] if isinstance(dispatcher, JSONRPCDispatcher) else []


def fail_request(session: "ClientSession", request_id: str | int, error: "ErrorData") -> None:
    """End a waiting request with an error.

    The SDK has no public way to do this when a response cannot be parsed.
    """
    dispatcher = session._dispatcher
    if isinstance(dispatcher, JSONRPCDispatcher):
        dispatcher._resolve_pending(request_id, error)


def get_message_handler(session: "ClientSession") -> "MessageHandlerFnT":
    """Return the function that a client session calls with each notification and transport error.

    The SDK has no public way to add a handler to a connected session.
    """
    return session._message_handler


def set_message_handler(session: "ClientSession", handler: "MessageHandlerFnT") -> None:
    """Replace the function that a client session calls with each notification and transport error.

    The SDK has no public way to replace the handler of a connected session.
    """
    session._message_handler = handler
