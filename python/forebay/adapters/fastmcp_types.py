"""Conversions between fastmcp's tools, results and requests and those of forebay."""

import base64
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import mcp_types as wire
from anyio.to_thread import run_sync
from fastmcp.resources import ResourceContent, ResourceTemplate
from fastmcp.server.dependencies import FastMCPRequestContext, get_access_token, get_context
from fastmcp.server.middleware import MiddlewareContext
from fastmcp.tools import Tool, ToolResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import PrivateAttr

from forebay.adapters.mcp import get_connection, get_lasting_connection, get_principal
from forebay.adapters.sdk_internals import get_request_params
from forebay.outputs.listing import allow_handle, allow_handle_for_fastmcp
from forebay.outputs.pipeline import ToolCall
from forebay.outputs.policy import OutputPolicy
from forebay.outputs.result import Result
from forebay.outputs.tools import RESOURCE_TEMPLATE, Caller
from forebay.store.handles import LONG_HANDLE_LENGTH, SHORT_HANDLE_LENGTH

__all__ = [
    "STORED_OUTPUT_TEMPLATE",
    "AddedTool",
    "apply_rewrite",
    "describe_call",
    "describe_tool",
    "dump_result",
    "expand_caller",
    "find_lasting_connection",
    "get_current_request",
    "get_request",
    "make_call",
    "make_caller",
    "to_resource_content",
    "to_tool_result",
]

expand_caller: ContextVar[Caller | None] = ContextVar("forebay_expand_caller", default=None)
"""The caller of `expand_tools`; fastmcp passes nothing but arguments to `Tool.run`."""


class AddedTool(Tool):
    """One of the tools that forebay adds."""

    _policy: OutputPolicy = PrivateAttr()

    @classmethod
    def from_definition(cls, policy: OutputPolicy, definition: Mapping[str, Any]) -> "AddedTool":
        """Make a tool from its `tools/list` definition."""
        tool = cls(
            name=definition["name"],
            description=definition["description"],
            parameters=definition["inputSchema"],
            annotations=wire.ToolAnnotations.model_validate(definition["annotations"]),
        )
        tool._policy = policy
        return tool

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Run the tool, as fastmcp does for a call."""
        caller = expand_caller.get() or make_caller(self._policy)
        call = make_call(self.name, get_current_request(), self._policy)
        return to_tool_result(await run_sync(self._policy.call_own_tool, arguments, caller, call))


class _StoredOutputTemplate(ResourceTemplate):
    """A resource template without a MIME type, since payloads may have any; fastmcp's default is text."""

    def to_mcp_template(self, **overrides: Any) -> wire.ResourceTemplate:
        return super().to_mcp_template(**{"mimeType": None, **overrides})


STORED_OUTPUT_TEMPLATE = _StoredOutputTemplate(
    uri_template=RESOURCE_TEMPLATE["uriTemplate"],
    name=RESOURCE_TEMPLATE["name"],
    description=RESOURCE_TEMPLATE["description"],
    parameters={
        "type": "object",
        "properties": {
            "output_handle": {"type": "string"},
            "offset": {"type": "integer"},
            "limit": {"type": "integer"},
        },
        "required": ["output_handle"],
    },
)


def describe_tool(tool: Tool) -> dict[str, Any]:
    """Return the parts of a tool's definition that `OutputPolicy` needs."""
    annotations = tool.annotations.model_dump(exclude_none=True) if tool.annotations else None
    return {
        "name": tool.name,
        "inputSchema": tool.parameters,
        "outputSchema": tool.output_schema,
        "annotations": annotations,
        "_meta": tool.meta,
    }


def apply_rewrite(tool: Tool, original_definition: Mapping[str, Any], new_definition: Mapping[str, Any]) -> Tool:
    """Return a tool with the schemas of its rewritten definition."""
    if new_definition == original_definition:
        return tool
    schema = new_definition["outputSchema"]
    if tool.output_schema and schema == allow_handle(tool.output_schema):
        schema = allow_handle_for_fastmcp(tool.output_schema)
    return tool.model_copy(update={"parameters": new_definition["inputSchema"], "output_schema": schema})


def dump_result(result: ToolResult) -> Result:
    """Return a result as fastmcp will send it."""
    sent = result.to_mcp_result()
    if isinstance(sent, tuple):
        sent = wire.CallToolResult(content=sent[0], structured_content=sent[1])
    elif isinstance(sent, list):
        sent = wire.CallToolResult(content=sent)
    return sent.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"result_type"})


def to_tool_result(result: Result, original_result: Result | None = None) -> ToolResult:
    """Convert a result that forebay made to a fastmcp result.

    fastmcp adds `serverInfo` itself, so it is left out unless it differs from that of the original, shortened.
    """
    sent = wire.CallToolResult.model_validate(result)
    stamp = ((original_result or {}).get("_meta") or {}).get(wire.SERVER_INFO_META_KEY)
    meta = {
        key: value
        for key, value in (sent.meta or {}).items()
        if key != wire.SERVER_INFO_META_KEY or (stamp is not None and value != stamp)
    }
    return ToolResult(sent.content, sent.structured_content, meta or None, sent.is_error)


def to_resource_content(content: Mapping[str, Any]) -> ResourceContent:
    """Return one of the `contents` of a `resources/read` result as fastmcp's type."""
    data = base64.b64decode(content["blob"]) if "blob" in content else content["text"]
    return ResourceContent(data, content["mimeType"], content["_meta"])


def get_request(context: MiddlewareContext[Any]) -> FastMCPRequestContext | None:
    """Return the request of a middleware call, or `None` if the program itself made the call."""
    return context.fastmcp_context.request_context if context.fastmcp_context else None


def get_current_request() -> FastMCPRequestContext | None:
    """Return the current request, or `None` outside of one."""
    try:
        return get_context().request_context
    except RuntimeError:
        return None


def make_caller(policy: OutputPolicy) -> Caller:
    """Return the caller of one of our tools."""
    principal, request = get_principal(get_access_token()), get_current_request()
    if request is None or request.request is None:
        return Caller(principal)
    is_ascii = request.protocol_version in MODERN_PROTOCOL_VERSIONS
    return Caller(principal, is_public=policy.is_public(request.request), is_ascii=is_ascii)


def make_call(tool: str, request: FastMCPRequestContext | None, policy: OutputPolicy) -> ToolCall:
    """Return the properties of a call that the pipeline needs."""
    principal = get_principal(get_access_token())
    if request is None:
        return ToolCall(tool, principal, handle_length=policy.handle_length or SHORT_HANDLE_LENGTH)
    # If this server is mounted in another one, the client's name for the tool has a namespace before it.
    client_name = str(get_request_params(request).get("name", tool))
    namespace = client_name.removesuffix(tool) if client_name.endswith(tool) else ""
    return ToolCall(
        tool,
        principal,
        protocol_version=request.protocol_version,
        request_id=request.request_id,
        # Over HTTP, anyone who can reach the server may try to guess handles.
        handle_length=policy.handle_length or (SHORT_HANDLE_LENGTH if request.request is None else LONG_HANDLE_LENGTH),
        is_ascii=request.request is not None and request.protocol_version in MODERN_PROTOCOL_VERSIONS,
        fetch_with=namespace + policy.tools.fetch_tool if namespace else None,
    )


def describe_call(context: MiddlewareContext[Any], call: ToolCall) -> dict[str, Any]:
    """Return the keyword arguments of `OutputPolicy.record_response` for a call."""
    request = get_request(context)
    return {
        "principal": call.principal,
        "connection": None if request is None else get_connection(request.session, request.protocol_version),
        "request_id": call.request_id,
        "is_ascii": call.is_ascii,
    }


def find_lasting_connection(context: MiddlewareContext[Any]) -> object:
    """Return the connection of a request if notifications can be sent on it at any time, else `None`."""
    request = get_request(context)
    return None if request is None else get_lasting_connection(request.session, request.protocol_version)
