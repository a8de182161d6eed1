"""The part of `adapters.fastmcp` for version 4 of fastmcp. `adapters.fastmcp_v2` has the same names for 2 and 3."""

from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types as wire
from fastmcp import FastMCP
from fastmcp.resources import ResourceContent, ResourceResult
from fastmcp.server.context import Context
from fastmcp.server.dependencies import FastMCPRequestContext as Request
from fastmcp.server.middleware import MiddlewareContext
from fastmcp.server.middleware.tool_injection import ToolInjectionMiddleware
from fastmcp.server.providers import Provider
from fastmcp.tools import Tool, ToolResult
from fastmcp.tools.base import InputRequiredToolResult

from forebay.adapters.mcp_v2 import find_client, find_client_extensions
from forebay.adapters.sdk_internals import get_request_params
from forebay.outputs.result import Result
from forebay.outputs.schemas import allow_handle_for_fastmcp as allow_handle
from forebay.wire.protocol import SERVER_INFO_KEY

__all__ = [
    "FINDS_INJECTED_TOOLS",
    "SENDS_INITIALIZE_RESULT",
    "Request",
    "ResourceResult",
    "ToolInjectionMiddleware",
    "ToolResult",
    "allow_handle",
    "check_resource_access",
    "dump_result",
    "get_client",
    "get_client_extensions",
    "get_client_tool_name",
    "get_meta",
    "get_request",
    "get_tool_name",
    "has_output",
    "is_in_chain",
    "list_all_tools",
    "list_visible_tools",
    "make_resource_content",
    "make_tool_result",
    "wire",
]

FINDS_INJECTED_TOOLS = True
"""Whether fastmcp finds tools that middleware adds, even if the server is mounted in another server."""

SENDS_INITIALIZE_RESULT = True
"""Whether fastmcp sends the result of `initialize` that middleware returns."""


def get_request(context: Context) -> Request | None:
    """Return the request of a context, or `None` if the program itself made the call."""
    return context.request_context


def get_client(request: Request) -> tuple[str, str] | None:
    """Return the client's name and version, as `adapters.mcp_v2.get_client` does."""
    return find_client(get_request_params(request), request.session)


def get_client_extensions(request: Request) -> Mapping[str, Any]:
    """Return the extensions that the client of a request has declared."""
    return find_client_extensions(request.session)


def get_meta(request: Request) -> Mapping[str, Any]:
    """Return the `_meta` of a request."""
    meta = get_request_params(request).get("_meta")
    return meta if isinstance(meta, Mapping) else {}


def get_client_tool_name(request: Request) -> str | None:
    """Return the name of the called tool as the client sent it, which in a mounted server begins with a namespace."""
    name = get_request_params(request).get("name")
    return None if name is None else str(name)


def is_in_chain(_middleware: object, _context: Context) -> bool:
    """Return `True`: in this version, a server also finds our tools in the servers that are mounted in it."""
    return True


def get_tool_name(tool: Tool) -> str:
    """Return the name under which a tool is listed."""
    return tool.name


def has_output(result: object) -> bool:
    """Return whether the result of a call is the output of the tool, not a task or a request for input."""
    return isinstance(result, ToolResult) and not isinstance(result, InputRequiredToolResult)


async def list_all_tools(server: FastMCP[Any]) -> Sequence[Tool]:
    """Return all tools of a server, including those that the caller cannot see."""
    return await Provider.list_tools(server)


async def list_visible_tools(server: FastMCP[Any]) -> Sequence[Tool]:
    """Return the tools that the caller can see, after all middleware."""
    return await server.list_tools()


async def check_resource_access(context: MiddlewareContext[Any], server: FastMCP[Any]) -> None:
    """Raise if middleware denies access to a resource."""
    for middleware in server.middleware:
        await middleware.check_resource_access(context)


def make_resource_content(data: str | bytes, mime_type: str, meta: dict[str, Any] | None) -> ResourceContent:
    """Return one of the contents of a resource."""
    return ResourceContent(data, mime_type, meta)


def dump_result(result: ToolResult) -> Result:
    """Return a result as fastmcp will send it."""
    sent = result.to_mcp_result()
    if isinstance(sent, tuple):
        sent = wire.CallToolResult(content=sent[0], structured_content=sent[1])
    elif isinstance(sent, list):
        sent = wire.CallToolResult(content=sent)
    return sent.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"result_type"})


def make_tool_result(result: Result, original_result: Result | None = None) -> ToolResult:
    """Convert a result that forebay made to a fastmcp result.

    fastmcp adds `serverInfo` itself, so `serverInfo` is left out here. It is kept only if forebay has shortened it, so
    that it differs from that of `original_result`.
    """
    sent = wire.CallToolResult.model_validate(result)
    original_info = ((original_result or {}).get("_meta") or {}).get(SERVER_INFO_KEY)
    meta = {
        key: value
        for key, value in (sent.meta or {}).items()
        if key != SERVER_INFO_KEY or (original_info is not None and value != original_info)
    }
    return ToolResult(sent.content, sent.structured_content, meta or None, sent.is_error)
