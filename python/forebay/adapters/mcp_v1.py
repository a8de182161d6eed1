"""The part of `adapters.mcp` for version 1 of the `mcp` SDK. `adapters.mcp_v2` has the same names for version 2.

Version 1 has no middleware. Here, a view of the low-level server's request handlers passes each request to the
middleware, as a `Context` with JSON parameters, and converts the middleware's result to the SDK's types.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from mcp import types
from mcp.server import Server
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.fastmcp import FastMCP
from mcp.server.session import ServerSession
from mcp.shared.exceptions import McpError as MCPError
from mcp.shared.version import SUPPORTED_PROTOCOL_VERSIONS
from pydantic import BaseModel

from forebay.adapters.sdk_internals import find_lowlevel_server, get_server_info

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
    "get_access_token",
    "get_client",
    "get_client_extensions",
    "get_connection",
    "get_lasting_connection",
    "get_server_info",
    "install",
    "make_context",
    "make_error",
    "principal_components",
    "shape_result",
]

HandlerResult: TypeAlias = dict[str, Any]

AnyServer = TypeVar("AnyServer", bound=FastMCP[Any] | Server[Any, Any])

SERVER_TYPES = (FastMCP, Server)

_HTTP_VERSION_HEADER, _DEFAULT_HTTP_VERSION = "mcp-protocol-version", "2025-03-26"
"""The header that names the protocol version, and the version of requests without it."""

_METHODS: dict[type[BaseModel], tuple[str, type[Any]]] = {
    types.CallToolRequest: ("tools/call", types.CallToolResult),
    types.ListToolsRequest: ("tools/list", types.ListToolsResult),
    types.ListResourcesRequest: ("resources/list", types.ListResourcesResult),
    types.ListResourceTemplatesRequest: ("resources/templates/list", types.ListResourceTemplatesResult),
    types.ReadResourceRequest: ("resources/read", types.ReadResourceResult),
}
"""The requests that the middleware handles: their methods and the types of their results."""

if hasattr(types, "GetTaskPayloadRequest"):
    _METHODS[types.GetTaskPayloadRequest] = ("tasks/result", types.GetTaskPayloadResult)

_REQUEST_TYPES = {method: request_type for request_type, (method, _) in _METHODS.items()}

_Handler: TypeAlias = Callable[[Any], Awaitable[Any]]


@dataclass(frozen=True, kw_only=True)
class Context:
    """A request, with the attributes of the context that version 2 of the SDK passes to middleware."""

    session: ServerSession | None
    protocol_version: str
    method: str
    params: Mapping[str, Any] | None
    request_id: str | int
    request: Any


CallNext: TypeAlias = Callable[[Context], Awaitable[HandlerResult]]


class _RequestHandlers(MutableMapping[type[BaseModel], _Handler]):
    """View of a server's request handlers that runs the middleware before the handlers of `_METHODS`.

    A copy would not do: handlers may be added later, and parts of the SDK keep a reference to the original mapping.
    """

    def __init__(self, middleware: "Forebay", server: Server[Any, Any]) -> None:
        self.middleware = middleware
        self._server = server
        self._handlers: MutableMapping[type[BaseModel], _Handler] = server.request_handlers

    def __getitem__(self, request_type: type[BaseModel]) -> _Handler:
        return partial(self._handle, request_type) if request_type in _METHODS else self._handlers[request_type]

    def __setitem__(self, request_type: type[BaseModel], handler: _Handler) -> None:
        self._handlers[request_type] = handler

    def __delitem__(self, request_type: type[BaseModel]) -> None:
        del self._handlers[request_type]

    def __iter__(self) -> Iterator[type[BaseModel]]:
        return iter(dict.fromkeys((*self._handlers, *_METHODS)))

    def __len__(self) -> int:
        return len({*self._handlers, *_METHODS})

    async def _handle(self, request_type: type[BaseModel], request: Any) -> Any:
        method, result_type = _METHODS[request_type]
        if request is None:
            # The SDK calls the handler to fill its cache of tools, and needs the original schemas to validate calls.
            handler = self._handlers.get(request_type)
            return types.ServerResult(result_type(tools=[])) if handler is None else await handler(None)
        context = self._make_context(method, request)
        responses: list[tuple[HandlerResult, Any]] = []

        async def call_next(ctx: Context) -> HandlerResult:
            handler = self._handlers.get(_REQUEST_TYPES[ctx.method])
            if handler is None:
                raise make_error(types.METHOD_NOT_FOUND, "Method not found", None)
            forwarded_request = request
            if ctx.method != method or ctx.params is not context.params:
                forwarded_request = _REQUEST_TYPES[ctx.method].model_validate(
                    {"method": ctx.method, "params": ctx.params}
                )
            response = await handler(forwarded_request)
            # The options that the SDK uses to send a result.
            result: HandlerResult = response.model_dump(by_alias=True, mode="json", exclude_none=True)
            responses.append((result, response))
            return result

        result = await self.middleware(context, call_next)
        for original_result, response in responses:
            if result is original_result:
                return response
        return types.ServerResult(result_type.model_validate(result))

    def _make_context(self, method: str, request: Any) -> Context:
        # Drop only fields that the client did not send; keep explicit nulls.
        params = request.params and request.params.model_dump(by_alias=True, mode="json", exclude_unset=True)
        try:
            request_context = self._server.request_context
        except LookupError:
            # The program itself called the handler.
            request_context = None
        return make_context(request_context, method, params)


def make_context(request_context: Any, method: str = "", params: Mapping[str, Any] | None = None) -> Context:
    """Return a `Context` for a request. `request_context` is `None` if the program itself called the handler."""
    if request_context is None:
        version = types.LATEST_PROTOCOL_VERSION
        return Context(session=None, protocol_version=version, method=method, params=params, request_id=0, request=None)
    return Context(
        session=request_context.session,
        protocol_version=_get_protocol_version(request_context.session, request_context.request),
        method=method,
        params=params,
        request_id=request_context.request_id,
        request=request_context.request,
    )


def _get_protocol_version(session: ServerSession, request: Any) -> str:
    if session.client_params is None:
        headers = getattr(request, "headers", {})
        return str(headers.get(_HTTP_VERSION_HEADER, _DEFAULT_HTTP_VERSION))
    requested = str(session.client_params.protocolVersion)
    return requested if requested in SUPPORTED_PROTOCOL_VERSIONS else types.LATEST_PROTOCOL_VERSION


def install(middleware: "Forebay", server: FastMCP[Any] | Server[Any, Any]) -> bool:
    """Add the middleware to a server; return `False` if the server already has it."""
    lowlevel_server: Any = find_lowlevel_server(server)
    if isinstance(lowlevel_server.request_handlers, _RequestHandlers):
        return False
    lowlevel_server.request_handlers = _RequestHandlers(middleware, lowlevel_server)
    create_options = lowlevel_server.create_initialization_options

    def create_initialization_options(*args: Any, **options: Any) -> Any:
        init_options = create_options(*args, **options)
        fields = init_options.model_dump(by_alias=True, exclude_none=True)
        return type(init_options).model_validate({**fields, **middleware._extend_initialize(fields)})

    lowlevel_server.create_initialization_options = create_initialization_options
    return True


def make_error(code: int, message: str, data: Any) -> MCPError:
    """Return an exception that the SDK sends as a JSON-RPC error."""
    return MCPError(types.ErrorData(code=code, message=message, data=data))


def shape_result(_ctx: Context, result: dict[str, Any], _server_info: dict[str, Any] | None) -> dict[str, Any]:
    """Return the result unchanged. It has the same form in all protocol versions that this SDK supports."""
    return result


def get_client(ctx: Context) -> tuple[str, str] | None:
    """Return the client's name and version from the handshake, or `None` without a session."""
    params = ctx.session and ctx.session.client_params
    return (params.clientInfo.name, params.clientInfo.version) if params else None


def get_client_extensions(ctx: Context) -> Mapping[str, Any]:
    """Return the extensions that the client of a request has declared in the handshake."""
    params = ctx.session and ctx.session.client_params
    # The SDK has no field for them, but it keeps what it does not know.
    return getattr(params.capabilities, "extensions", None) or {} if params else {}


def get_connection(session: ServerSession | None, _protocol_version: str) -> Any:
    """Return the session if it belongs to a connection, or `None` if it ends with one HTTP request."""
    return session if session is not None and session.client_params is not None else None


get_lasting_connection = get_connection


def principal_components(token: AccessToken) -> tuple[str, str | None, str | None]:
    """Return client, issuer and subject of a token; issuer and subject are `None` if the token does not name them."""
    claims = getattr(token, "claims", None) or {}
    # Some token verifiers set the subject only as a claim.
    subject = getattr(token, "subject", None) or claims.get("sub")
    issuer = claims.get("iss")
    return token.client_id, None if issuer is None else str(issuer), None if subject is None else str(subject)
