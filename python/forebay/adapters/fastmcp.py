"""forebay in a server of fastmcp: one line, and results that are too large become handles.

mcp = FastMCP("crawler", middleware=[ForebayMiddleware(output_mode="auto")])
"""

import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

import mcp_types as wire
from anyio.to_thread import run_sync

from forebay.errors import how_to_install

try:
    import fastmcp as _  # noqa: F401 - to say what is missing before anything of it is used
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error.name} is not here; {how_to_install('fastmcp')}", name=error.name) from None

from fastmcp.exceptions import FastMCPError
from fastmcp.resources import ResourceResult, ResourceTemplate
from fastmcp.server.middleware import CallNext, MiddlewareContext
from fastmcp.server.middleware.tool_injection import ToolInjectionMiddleware
from fastmcp.server.providers import Provider
from fastmcp.tools import Tool, ToolResult
from fastmcp.tools.base import InputRequiredToolResult
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from forebay.adapters.fastmcp_requests import about_call, call_of, caller_of, lasting_of, request_of
from forebay.adapters.fastmcp_types import (
    STORED_OUTPUT,
    AddedTool,
    about_tool,
    asks,
    on_wire,
    relisted,
    resource_content,
    tool_result,
)
from forebay.errors import ForebayError, InvalidArgument
from forebay.outputs import resources
from forebay.outputs.contract.context import is_inside
from forebay.outputs.listing import without_wrap
from forebay.outputs.modes import Mode
from forebay.outputs.pipeline import Call
from forebay.outputs.policy import Gate
from forebay.outputs.result import Result
from forebay.outputs.tools import error_result, text_result

__all__ = ["ForebayMiddleware"]

_log = logging.getLogger("forebay")

_lists_all: ContextVar[bool] = ContextVar("forebay_lists_all", default=False)
"""Whether it is `expand_tools` that lists: it has to see what is hidden."""


class ForebayMiddleware(Gate, ToolInjectionMiddleware):
    """Middleware of a fastmcp server, with the options of `Gate`, and of a store.

    An error that a tool raises stays raised, unless it is too large: then it is a result that says `is_error`.
    """

    async def __call__(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        if not isinstance(context, MiddlewareContext):
            raise InvalidArgument(
                "ForebayMiddleware is for fastmcp; a server of the mcp SDK takes "
                "forebay.adapters.mcp.Forebay(...).install(server)"
            )
        return await super().__call__(context, call_next)

    def _name(self, prefix: str) -> None:
        super()._name(prefix)
        self._added = {tool["name"]: AddedTool.of(self, tool) for tool in self.tools.listed()}

    @property
    def injected_tools(self) -> Sequence[Tool]:
        """None: fastmcp would list them first, and hide the server's own of the same names."""
        return []

    def get_injected_tool(self, name: str) -> Tool | None:
        """What a call of that name finds, also through a server that this one is mounted in."""
        return self._added.get(name)

    async def on_list_tools(
        self,
        context: MiddlewareContext[wire.ListToolsRequest],
        call_next: CallNext[wire.ListToolsRequest, Sequence[Tool]],
    ) -> Sequence[Tool]:
        """The server's tools, those that may answer with a handle saying so, and ours."""
        await self._learn_from(context)
        tools = await call_next(context)
        self.learn(map(about_tool, tools), is_all=False)
        if _lists_all.get():
            return self._relisted(tools)
        expanded = self.expanded(lasting_of(context)) or ()
        tools = [tool for tool in tools if self.capabilities.is_shown(tool.name, expanded)]
        return [*self._relisted(tools), *self._added.values()]

    def _relisted(self, tools: Sequence[Tool]) -> list[Tool]:
        about = [about_tool(tool) for tool in tools]
        return [*map(relisted, tools, about, self.relisted(about))]

    async def on_call_tool(
        self,
        context: MiddlewareContext[wire.CallToolRequestParams],
        call_next: CallNext[wire.CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        """The tool's own result or, where that is too large, a handle of it."""
        if is_inside():
            # A tool that calls another one wants what that returns, or raises; what a client gets is not this.
            return await call_next(context)
        name, given = context.message.name, context.message.arguments or {}
        await self._learn_from(context, name)
        call = call_of(name, request_of(context), self)
        if name in self._added:
            expands = self._expanding(context) if name == self.tools.expand_with else contextlib.nullcontext()
            async with expands:
                result = await call_next(context)
            # A page is written out once more for it, so not where nobody watches.
            if self.monitor is not None and isinstance(result, ToolResult):
                self.watch(name, on_wire(result), **about_call(context, call))
            return result
        if (refusal := self.refused(name, call.principal)) is not None:
            return tool_result(refusal)
        try:
            mode, rest = self.mode_of(name, given)
            if self.has_references(rest):
                rest = await run_sync(self.resolved, name, rest, call.principal)
        except ForebayError as error:
            return tool_result(error_result(error))
        if rest is not given:
            context = context.copy(message=context.message.model_copy(update={"arguments": rest}))
        with self.place(
            call.principal,
            call.handle_length,
            is_ascii=call.is_ascii,
            limits=mode.contract,
            fetch_with=call.fetch_with,
        ) as place:
            if mode.output_mode == "inline" and mode.contract is None and self.monitor is None:
                return await call_next(context)
            call = dataclasses.replace(call, contract=mode.contract, made=place.made)
            try:
                result = await call_next(context)
            except FastMCPError as error:
                stored = await self._stored(context, text_result(str(error), is_error=True), mode, call)
                if stored is None:
                    raise
                return stored
        if not isinstance(result, ToolResult) or isinstance(result, InputRequiredToolResult):
            return result
        return await self._stored(context, on_wire(result), mode, call) or result

    async def on_list_resource_templates(
        self,
        context: MiddlewareContext[wire.ListResourceTemplatesRequest],
        call_next: CallNext[wire.ListResourceTemplatesRequest, Sequence[ResourceTemplate]],
    ) -> Sequence[ResourceTemplate]:
        """The server's, and the one that leads to stored payloads."""
        return [*await call_next(context), STORED_OUTPUT]

    async def on_read_resource(
        self,
        context: MiddlewareContext[wire.ReadResourceRequestParams],
        call_next: CallNext[wire.ReadResourceRequestParams, ResourceResult],
    ) -> ResourceResult:
        """A page of a stored payload, if the address is of one."""
        uri = str(context.message.uri)
        if not resources.is_address(uri):
            return await call_next(context)
        if context.fastmcp_context is not None:
            # Those further in are not called, and may have something against it.
            for middleware in context.fastmcp_context.fastmcp.middleware:
                await middleware.check_resource_access(context)
        caller = caller_of(self)
        read = partial(resources.read, is_ascii=caller.is_ascii)
        try:
            page = await run_sync(read, self.store, uri, self.most_bytes, caller.principal)
        except ForebayError as error:
            raise MCPError(code=wire.INVALID_PARAMS, message=str(error), data=error.to_dict()["error"]) from None
        return ResourceResult([resource_content(content) for content in page["contents"]])

    @contextlib.asynccontextmanager
    async def _expanding(self, context: MiddlewareContext[Any]) -> AsyncIterator[None]:
        """Within it, `expand_tools` knows what the server has for its caller; after it, so does the client."""
        assert context.fastmcp_context is not None  # noqa: S101 - a call has one
        fastmcp = context.fastmcp_context
        is_listing = _lists_all.set(True)
        try:
            tools = await fastmcp.fastmcp.list_tools()
        finally:
            _lists_all.reset(is_listing)
        listed = [tool.to_mcp_tool().model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
        caller = dataclasses.replace(caller_of(self), tools=listed, expanded=self.expanded(lasting_of(context)))
        before = set(caller.expanded or ())
        is_asking = asks.set(caller)
        try:
            yield
        finally:
            asks.reset(is_asking)
        if before != (caller.expanded or set()):
            await fastmcp.session.send_tool_list_changed()

    async def _learn_from(self, context: MiddlewareContext[Any], tool: str | None = None) -> None:
        """Learns all tools of the server, once, or again for one that it did not have then.

        Also those that this caller is not shown: what ours are called must not depend on who asked first.
        """
        is_known = self.has_learnt if tool is None else not self.must_learn(tool)
        if is_known or context.fastmcp_context is None:
            return
        server = context.fastmcp_context.fastmcp
        if not self.has_learnt:
            if sum(isinstance(other, ForebayMiddleware) for other in server.middleware) > 1:
                _log.warning("forebay: this server has more than one; keep one of them, and give it the options")
            self.leave_room(server._mcp_server.server_info_stamp)
        # A server that cannot list its tools just now can still be called.
        with contextlib.suppress(Exception):
            self.learn([about_tool(tool) for tool in await Provider.list_tools(server)])

    async def _stored(
        self, context: MiddlewareContext[wire.CallToolRequestParams], result: Result, mode: Mode, call: Call
    ) -> ToolResult | None:
        """What to answer instead of a result; `None` if it goes inline."""
        fastmcp, request = context.fastmcp_context, request_of(context)
        if fastmcp and request and request.protocol_version in MODERN_PROTOCOL_VERSIONS:
            # Added to every result on its way out: what is measured is what is sent.
            stamp = {wire.SERVER_INFO_META_KEY: fastmcp.fastmcp._mcp_server.server_info_stamp}
            result = {**result, "resultType": "complete", "_meta": {**(result.get("_meta") or {}), **stamp}}
        is_inline = self.pipeline.is_inline(result, mode, is_ascii=call.is_ascii)
        answer = result if is_inline else await run_sync(self.pipeline.stored, without_wrap(result), call)
        self.watch(call.tool, answer, mode, is_inline=is_inline, **about_call(context, call))
        return None if is_inline else tool_result(answer, result)
