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

from forebay.errors import install_hint

try:
    import fastmcp as _  # noqa: F401 - to say what is missing before anything of it is used
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error.name} is not here; {install_hint('fastmcp')}", name=error.name) from None

from fastmcp.exceptions import FastMCPError
from fastmcp.resources import ResourceResult, ResourceTemplate
from fastmcp.server.middleware import CallNext, MiddlewareContext
from fastmcp.server.middleware.tool_injection import ToolInjectionMiddleware
from fastmcp.server.providers import Provider
from fastmcp.tools import Tool, ToolResult
from fastmcp.tools.base import InputRequiredToolResult
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from forebay.adapters.fastmcp_types import (
    STORED_OUTPUT_TEMPLATE,
    AddedTool,
    apply_rewrite,
    describe_call,
    describe_tool,
    dump_result,
    expand_caller,
    find_lasting_connection,
    get_request,
    make_call,
    make_caller,
    to_resource_content,
    to_tool_result,
)
from forebay.errors import ForebayError, InvalidArgument
from forebay.outputs.contract.context import is_in_tool_call
from forebay.outputs.listing import strip_wrap_result
from forebay.outputs.modes import Mode
from forebay.outputs.pipeline import ToolCall
from forebay.outputs.policy import OutputPolicy
from forebay.outputs.result import Result
from forebay.outputs.tools import error_result, is_resource_uri, read_resource, text_result

__all__ = ["ForebayMiddleware"]

_log = logging.getLogger("forebay")

_includes_hidden: ContextVar[bool] = ContextVar("forebay_lists_all", default=False)
"""Whether it is `expand_tools` that lists: it has to see what is hidden."""


class ForebayMiddleware(OutputPolicy, ToolInjectionMiddleware):
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

    def _build_tools(self, prefix: str) -> None:
        super()._build_tools(prefix)
        self._own_tools = {
            tool["name"]: AddedTool.from_definition(self, tool) for tool in self.tools.list_definitions()
        }

    @property
    def injected_tools(self) -> Sequence[Tool]:
        """None: fastmcp would list them first, and hide the server's own of the same names."""
        return []

    def get_injected_tool(self, name: str) -> Tool | None:
        """What a call of that name finds, also through a server that this one is mounted in."""
        return self._own_tools.get(name)

    async def on_list_tools(
        self,
        context: MiddlewareContext[wire.ListToolsRequest],
        call_next: CallNext[wire.ListToolsRequest, Sequence[Tool]],
    ) -> Sequence[Tool]:
        """The server's tools, those that may answer with a handle saying so, and ours."""
        await self._learn_tools(context)
        tools = await call_next(context)
        self.learn_tools(map(describe_tool, tools), is_complete=False)
        if _includes_hidden.get():
            return self._rewrite_tools(tools)
        expanded = self.get_expanded(find_lasting_connection(context)) or ()
        tools = [tool for tool in tools if self.capabilities.is_listed(tool.name, expanded)]
        return [*self._rewrite_tools(tools), *self._own_tools.values()]

    def _rewrite_tools(self, tools: Sequence[Tool]) -> list[Tool]:
        about = [describe_tool(tool) for tool in tools]
        return [*map(apply_rewrite, tools, about, self.rewrite_tools(about))]

    async def on_call_tool(
        self,
        context: MiddlewareContext[wire.CallToolRequestParams],
        call_next: CallNext[wire.CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        """The tool's own result or, where that is too large, a handle of it."""
        if is_in_tool_call():
            # A tool that calls another one wants what that returns, or raises; what a client gets is not this.
            return await call_next(context)
        name, given = context.message.name, context.message.arguments or {}
        await self._learn_tools(context, name)
        call = make_call(name, get_request(context), self)
        if name in self._own_tools:
            expands = self._expand_caller(context) if name == self.tools.expand_tool else contextlib.nullcontext()
            async with expands:
                result = await call_next(context)
            # A page is written out once more for it, so not where nobody watches.
            if self.monitor is not None and isinstance(result, ToolResult):
                self.record_response(name, dump_result(result), **describe_call(context, call))
            return result
        if (refusal := self.refuse_disabled(name, call.principal)) is not None:
            return to_tool_result(refusal)
        try:
            mode, rest = self.resolve_mode(name, given)
            if self.has_references(rest):
                rest = await run_sync(self.resolve_references, name, rest, call.principal)
        except ForebayError as error:
            return to_tool_result(error_result(error))
        if rest is not given:
            context = context.copy(message=context.message.model_copy(update={"arguments": rest}))
        with self.make_context(
            call.principal,
            call.handle_length,
            is_ascii=call.is_ascii,
            limits=mode.contract,
            fetch_with=call.fetch_with,
        ) as place:
            if mode.output_mode == "inline" and mode.contract is None and self.monitor is None:
                return await call_next(context)
            call = dataclasses.replace(call, contract=mode.contract, contract_responses=place.responses)
            try:
                result = await call_next(context)
            except FastMCPError as error:
                stored = await self._store_result(context, text_result(str(error), is_error=True), mode, call)
                if stored is None:
                    raise
                return stored
        if not isinstance(result, ToolResult) or isinstance(result, InputRequiredToolResult):
            return result
        return await self._store_result(context, dump_result(result), mode, call) or result

    async def on_list_resource_templates(
        self,
        context: MiddlewareContext[wire.ListResourceTemplatesRequest],
        call_next: CallNext[wire.ListResourceTemplatesRequest, Sequence[ResourceTemplate]],
    ) -> Sequence[ResourceTemplate]:
        """The server's, and the one that leads to stored payloads."""
        return [*await call_next(context), STORED_OUTPUT_TEMPLATE]

    async def on_read_resource(
        self,
        context: MiddlewareContext[wire.ReadResourceRequestParams],
        call_next: CallNext[wire.ReadResourceRequestParams, ResourceResult],
    ) -> ResourceResult:
        """A page of a stored payload, if the address is of one."""
        uri = str(context.message.uri)
        if not is_resource_uri(uri):
            return await call_next(context)
        if context.fastmcp_context is not None:
            # Those further in are not called, and may have something against it.
            for middleware in context.fastmcp_context.fastmcp.middleware:
                await middleware.check_resource_access(context)
        caller = make_caller(self)
        read = partial(read_resource, is_ascii=caller.is_ascii)
        try:
            page = await run_sync(read, self.store, uri, self.max_page_bytes, caller.principal)
        except ForebayError as error:
            raise MCPError(code=wire.INVALID_PARAMS, message=str(error), data=error.to_dict()["error"]) from None
        return ResourceResult([to_resource_content(content) for content in page["contents"]])

    @contextlib.asynccontextmanager
    async def _expand_caller(self, context: MiddlewareContext[Any]) -> AsyncIterator[None]:
        """Within it, `expand_tools` knows what the server has for its caller; after it, so does the client."""
        assert context.fastmcp_context is not None  # noqa: S101 - a call has one
        fastmcp = context.fastmcp_context
        is_listing = _includes_hidden.set(True)
        try:
            tools = await fastmcp.fastmcp.list_tools()
        finally:
            _includes_hidden.reset(is_listing)
        listed = [tool.to_mcp_tool().model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
        caller = dataclasses.replace(
            make_caller(self), tools=listed, expanded_tools=self.get_expanded(find_lasting_connection(context))
        )
        before = set(caller.expanded_tools or ())
        is_asking = expand_caller.set(caller)
        try:
            yield
        finally:
            expand_caller.reset(is_asking)
        if before != (caller.expanded_tools or set()):
            await fastmcp.session.send_tool_list_changed()

    async def _learn_tools(self, context: MiddlewareContext[Any], tool: str | None = None) -> None:
        """Learns all tools of the server, once, or again for one that it did not have then.

        Also those that this caller is not shown: what ours are called must not depend on who asked first.
        """
        is_known = self.knows_tools if tool is None else not self.must_list_tools(tool)
        if is_known or context.fastmcp_context is None:
            return
        server = context.fastmcp_context.fastmcp
        if not self.knows_tools:
            if sum(isinstance(other, ForebayMiddleware) for other in server.middleware) > 1:
                _log.warning("forebay: this server has more than one; keep one of them, and give it the options")
            self.reserve_stamp(server._mcp_server.server_info_stamp)
        # A server that cannot list its tools just now can still be called.
        with contextlib.suppress(Exception):
            self.learn_tools([describe_tool(tool) for tool in await Provider.list_tools(server)])

    async def _store_result(
        self, context: MiddlewareContext[wire.CallToolRequestParams], result: Result, mode: Mode, call: ToolCall
    ) -> ToolResult | None:
        """What to answer instead of a result; `None` if it goes inline."""
        fastmcp, request = context.fastmcp_context, get_request(context)
        if fastmcp and request and request.protocol_version in MODERN_PROTOCOL_VERSIONS:
            # Added to every result on its way out: what is measured is what is sent.
            stamp = {wire.SERVER_INFO_META_KEY: fastmcp.fastmcp._mcp_server.server_info_stamp}
            result = {**result, "resultType": "complete", "_meta": {**(result.get("_meta") or {}), **stamp}}
        is_inline = self.pipeline.is_inline(result, mode, is_ascii=call.is_ascii)
        answer = result if is_inline else await run_sync(self.pipeline.store_result, strip_wrap_result(result), call)
        self.record_response(call.tool, answer, mode, is_inline=is_inline, **describe_call(context, call))
        return None if is_inline else to_tool_result(answer, result)
