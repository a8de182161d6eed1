"""The part of `adapters.mcp` for version 2 of the `mcp` SDK. `adapters.mcp_v1` has the same names for version 1."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from mcp.server import MCPServer, Server
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, principal_components
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types import CLIENT_INFO_META_KEY, SERVER_INFO_META_KEY, methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from forebay.adapters.sdk_internals import get_server_connection, get_server_info

if TYPE_CHECKING:
    from forebay.adapters.mcp import Forebay

__all__ = [
    "SERVER_TYPES",
    "AccessToken",
    "AnyServer",
    "CallNext",
    "Context",
    "HandlerResult",
    "MCPError",
    "ServerSession",
    "find_client",
    "find_client_extensions",
    "get_access_token",
    "get_client",
    "get_client_extensions",
    "get_connection",
    "get_lasting_connection",
    "get_server_info",
    "install",
    "make_error",
    "principal_components",
    "shape_result",
]

Context = ServerRequestContext[Any, Any]

AnyServer = TypeVar("AnyServer", bound=MCPServer[Any] | Server[Any])

SERVER_TYPES = (MCPServer, Server)

_MODERN_FIELDS = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""Fields that the newest protocol version requires in results. The SDK drops fields that a result cannot have."""


def install(middleware: "Forebay", server: MCPServer[Any] | Server[Any]) -> bool:
    """Add the middleware to a server; return `False` if the server already has it."""
    if any(isinstance(installed, type(middleware)) for installed in server.middleware):
        return False
    server.middleware.append(middleware)
    return True


def make_error(code: int, message: str, data: Any) -> MCPError:
    """Return an exception that the SDK sends as a JSON-RPC error."""
    return MCPError(code=code, message=message, data=data)


def shape_result(ctx: Context, result: dict[str, Any], server_info: dict[str, Any] | None) -> dict[str, Any]:
    """Convert one of our results to the form that the request's protocol version requires."""
    is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    shaped = methods.serialize_server_result(
        ctx.method, ctx.protocol_version, {**_MODERN_FIELDS, **result} if is_modern else result
    )
    if is_modern and server_info is not None:
        shaped["_meta"] = {SERVER_INFO_META_KEY: server_info, **(shaped.get("_meta") or {})}
    return shaped


def get_client(ctx: Context) -> tuple[str, str] | None:
    """Return the client's name and version, or `None` if they are not known."""
    return find_client(ctx.params or {}, ctx.session)


def find_client(params: Mapping[str, Any], session: ServerSession) -> tuple[str, str] | None:
    """Return the client's name and version: from the request in the newest protocol, else from the handshake."""
    meta = params.get("_meta")
    match meta.get(CLIENT_INFO_META_KEY) if isinstance(meta, dict) else None:
        case {"name": str(name), "version": str(version)}:
            return name, version
    handshake = session.client_params
    return None if handshake is None else (handshake.client_info.name, handshake.client_info.version)


def get_client_extensions(ctx: Context) -> Mapping[str, Any]:
    """Return the extensions that the client of a request has declared."""
    return find_client_extensions(ctx.session)


def find_client_extensions(session: ServerSession) -> Mapping[str, Any]:
    """Return the extensions that the client of a session has declared."""
    capabilities = session.client_capabilities
    return (capabilities and capabilities.extensions) or {}


def get_connection(session: ServerSession, protocol_version: str) -> Any:
    """Return the connection of a session, or `None` in protocol versions without sessions."""
    return None if protocol_version in MODERN_PROTOCOL_VERSIONS else get_server_connection(session)


def get_lasting_connection(session: ServerSession, protocol_version: str) -> object:
    """Return the connection of a session if notifications can be sent outside of requests, else `None`."""
    connection = get_connection(session, protocol_version)
    return connection if connection is not None and connection.has_standalone_channel else None
