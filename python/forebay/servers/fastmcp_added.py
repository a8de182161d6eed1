"""The tools that forebay adds, as fastmcp has tools."""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import mcp_types as wire
from anyio.to_thread import run_sync
from fastmcp.tools import Tool, ToolResult
from pydantic import PrivateAttr

from forebay.servers.fastmcp_requests import call_of, caller_of, request_now
from forebay.servers.fastmcp_shapes import tool_result
from forebay.servers.gate import Gate
from forebay.servers.tools import Caller

__all__ = ["AddedTool", "asks"]

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
