"""The tools that forebay adds, as fastmcp has tools."""

import base64
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import mcp_types as wire
from anyio.to_thread import run_sync
from fastmcp.resources import ResourceContent, ResourceTemplate
from fastmcp.tools import Tool, ToolResult
from pydantic import PrivateAttr

from forebay.adapters.fastmcp_requests import call_of, caller_of, request_now
from forebay.outputs import resources
from forebay.outputs.listing import or_handle, or_handle_typed
from forebay.outputs.policy import Gate
from forebay.outputs.result import Result
from forebay.outputs.tools import Caller

__all__ = ["STORED_OUTPUT", "AddedTool", "about_tool", "asks", "on_wire", "relisted", "resource_content", "tool_result"]

asks: ContextVar[Caller | None] = ContextVar("forebay_asks", default=None)
"""Who calls `expand_tools`: what fastmcp runs a tool with has no room for it."""


class AddedTool(Tool):
    """One of ours, as fastmcp has tools."""

    _gate: Gate = PrivateAttr()

    @classmethod
    def of(cls, gate: Gate, listed: Mapping[str, Any]) -> "AddedTool":
        tool = cls(
            name=listed["name"],
            description=listed["description"],
            parameters=listed["inputSchema"],
            annotations=wire.ToolAnnotations.model_validate(listed["annotations"]),
        )
        tool._gate = gate
        return tool

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        caller = asks.get() or caller_of(self._gate)
        call = call_of(self.name, request_now(), self._gate)
        return tool_result(await run_sync(self._gate.called, arguments, caller, call))


class _StoredOutput(ResourceTemplate):
    """Stored payloads are of any type: fastmcp would say that all of them are text."""

    def to_mcp_template(self, **overrides: Any) -> wire.ResourceTemplate:
        return super().to_mcp_template(**{"mimeType": None, **overrides})


STORED_OUTPUT = _StoredOutput(
    uri_template=resources.TEMPLATE["uriTemplate"],
    name=resources.TEMPLATE["name"],
    description=resources.TEMPLATE["description"],
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


def about_tool(tool: Tool) -> dict[str, Any]:
    """What `Gate` asks of a tool."""
    annotations = tool.annotations.model_dump(exclude_none=True) if tool.annotations else None
    return {
        "name": tool.name,
        "inputSchema": tool.parameters,
        "outputSchema": tool.output_schema,
        "annotations": annotations,
        "_meta": tool.meta,
    }


def relisted(tool: Tool, before: Mapping[str, Any], after: Mapping[str, Any]) -> Tool:
    if after == before:
        return tool
    schema = after["outputSchema"]
    if tool.output_schema and schema == or_handle(tool.output_schema):
        schema = or_handle_typed(tool.output_schema)
    return tool.model_copy(update={"parameters": after["inputSchema"], "output_schema": schema})


def on_wire(result: ToolResult) -> Result:
    """A result as fastmcp is about to send it."""
    sent = result.to_mcp_result()
    if isinstance(sent, tuple):
        sent = wire.CallToolResult(content=sent[0], structured_content=sent[1])
    elif isinstance(sent, list):
        sent = wire.CallToolResult(content=sent)
    return sent.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"result_type"})


def tool_result(answer: Result, result: Result | None = None) -> ToolResult:
    """An answer of ours as fastmcp has results; it adds the server's stamp to them itself, where it is not shorter."""
    sent = wire.CallToolResult.model_validate(answer)
    stamp = ((result or {}).get("_meta") or {}).get(wire.SERVER_INFO_META_KEY)
    meta = {
        key: value
        for key, value in (sent.meta or {}).items()
        if key != wire.SERVER_INFO_META_KEY or (stamp is not None and value != stamp)
    }
    return ToolResult(sent.content, sent.structured_content, meta or None, sent.is_error)


def resource_content(content: Mapping[str, Any]) -> ResourceContent:
    data = base64.b64decode(content["blob"]) if "blob" in content else content["text"]
    return ResourceContent(data, content["mimeType"], content["_meta"])
