"""The part of `adapters.fastmcp` for versions 2 and 3 of fastmcp. `adapters.fastmcp_v4` has the same names for 4."""

import importlib.metadata
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.context import Context
from fastmcp.server.middleware import Middleware, MiddlewareContext
from fastmcp.tools.tool import Tool, ToolResult
from mcp import types as wire
from mcp.server.lowlevel.helper_types import ReadResourceContents
from pydantic import PrivateAttr

from forebay.adapters.mcp_v1 import Context as Request
from forebay.adapters.mcp_v1 import get_client, get_client_extensions, make_context
from forebay.adapters.sdk_internals import list_fastmcp_tools
from forebay.outputs.result import Result
from forebay.outputs.schemas import allow_handle_for_older_fastmcp as allow_handle

try:
    from fastmcp.server.middleware.tool_injection import ToolInjectionMiddleware
except ModuleNotFoundError:
    ToolInjectionMiddleware = Middleware

try:
    from fastmcp.resources import ResourceContent, ResourceResult
except ImportError:
    ResourceContent, ResourceResult = ReadResourceContents, list

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

FINDS_INJECTED_TOOLS = hasattr(ToolInjectionMiddleware, "get_injected_tool")
"""Whether fastmcp finds tools that middleware adds, even if the server is mounted in another server."""

SENDS_INITIALIZE_RESULT = False
"""Whether fastmcp sends the result of `initialize` that middleware returns."""

if not FINDS_INJECTED_TOOLS:
    ToolInjectionMiddleware = Middleware

_IS_VERSION_2 = importlib.metadata.version("fastmcp").startswith("2.")

_SDK_ACCEPTS_RESULTS = tuple(map(int, importlib.metadata.version("mcp").split(".")[:2])) >= (1, 19)
"""Whether the SDK accepts a `CallToolResult` from fastmcp. If not, `_meta` is lost, and errors must be raised."""

_TOOL_RESULT_PARAMETERS = inspect.signature(ToolResult).parameters


class _CompleteToolResult(ToolResult):
    """Tool result that keeps all fields, including those that `ToolResult` lacks in some versions."""

    _mcp_result: wire.CallToolResult = PrivateAttr()

    def to_mcp_result(self) -> wire.CallToolResult:
        return self._mcp_result


def get_request(context: Context) -> Request | None:
    """Return the request of a context, or `None` if the program itself made the call."""
    try:
        request_context = context.request_context
    except ValueError:
        return None
    if request_context is None:
        return None
    meta = request_context.meta
    return make_context(request_context, params={"_meta": meta.model_dump(by_alias=True)} if meta else None)


def get_meta(request: Request) -> Mapping[str, Any]:
    """Return the `_meta` of a request."""
    meta = (request.params or {}).get("_meta")
    return meta if isinstance(meta, Mapping) else {}


def get_client_tool_name(_request: Request) -> str | None:
    """Return `None`: this SDK does not provide the name that the client sent."""
    return None


def is_in_chain(middleware: Middleware, context: Context) -> bool:
    """Return whether the middleware belongs to the server that the client connects to, not to a mounted server."""
    request = get_request(context)
    # From version 2.13 on, the session has the server that the client connects to. The context may have a mounted one.
    server = getattr(request and request.session, "fastmcp", None) or context.fastmcp
    return middleware in server.middleware


def get_tool_name(tool: Tool) -> str:
    """Return the name under which a tool is listed. In version 2 it may begin with the prefix of a mounted server."""
    return tool.key if _IS_VERSION_2 else tool.name


def has_output(result: object) -> bool:
    """Return whether the result of a call is the output of the tool, not a task."""
    return isinstance(result, ToolResult)


async def list_all_tools(server: FastMCP[Any]) -> Sequence[Tool]:
    """Return all tools of a server, including those that the caller cannot see."""
    if _IS_VERSION_2:
        return [*(await server.get_tools()).values()]
    from fastmcp.server.providers import Provider

    return await Provider.list_tools(server)


async def list_visible_tools(server: FastMCP[Any]) -> Sequence[Tool]:
    """Return the tools that the caller can see, after all middleware."""
    return await (list_fastmcp_tools(server) if _IS_VERSION_2 else server.list_tools())


async def check_resource_access(context: MiddlewareContext[Any], server: FastMCP[Any]) -> None:
    """Raise if middleware denies access to a resource."""
    for middleware in server.middleware:
        if hasattr(middleware, "check_resource_access"):
            await middleware.check_resource_access(context)


def make_resource_content(data: str | bytes, mime_type: str, meta: dict[str, Any] | None) -> Any:
    """Return one of the contents of a resource. Its `_meta` is lost in versions that have no parameter for it."""
    fields = {"meta": meta} if meta and "meta" in inspect.signature(ResourceContent).parameters else {}
    return ResourceContent(data, mime_type, **fields)


def dump_result(result: ToolResult) -> Result:
    """Return a result as fastmcp will send it."""
    mcp_result = result.to_mcp_result()
    if isinstance(mcp_result, tuple):
        mcp_result = wire.CallToolResult(content=mcp_result[0], structuredContent=mcp_result[1])
    elif isinstance(mcp_result, list):
        mcp_result = wire.CallToolResult(content=mcp_result)
    return mcp_result.model_dump(mode="json", by_alias=True, exclude_none=True)


def make_tool_result(result: Result, _original_result: Result | None = None) -> ToolResult:
    """Convert a result that forebay made to a fastmcp result.

    Raises `ToolError` if the result is an error and the SDK cannot return errors.
    """
    mcp_result = wire.CallToolResult.model_validate(
        {key: value for key, value in result.items() if key != "_meta" or value}
    )
    if not _SDK_ACCEPTS_RESULTS:
        if mcp_result.isError:
            raise ToolError(mcp_result.content[0].text)
        return ToolResult(mcp_result.content, mcp_result.structuredContent)
    fields = {"meta": mcp_result.meta, "is_error": mcp_result.isError}
    known_fields = {name: value for name, value in fields.items() if name in _TOOL_RESULT_PARAMETERS}
    tool_result = _CompleteToolResult(mcp_result.content, mcp_result.structuredContent, **known_fields)
    tool_result._mcp_result = mcp_result
    return tool_result
