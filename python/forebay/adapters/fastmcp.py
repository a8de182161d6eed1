"""forebay in a server of fastmcp: large results become handles.

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

from forebay.errors import make_install_hint

try:
    import fastmcp as _  # noqa: F401 - fail early with a message that names the extra
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error.name} is not here; {make_install_hint('fastmcp')}", name=error.name) from None

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
from forebay.adapters.sdk_internals import get_server_info
from forebay.errors import ForebayError, InvalidArgument
from forebay.outputs.contract.context import is_in_tool_call
from forebay.outputs.modes import Mode
from forebay.outputs.pipeline import ToolCall
from forebay.outputs.policy import OutputPolicy, copy_parameters
from forebay.outputs.result import Result, error_result, strip_wrap_result, text_result
from forebay.outputs.tools import OutputTools, is_resource_uri, read_resource
from forebay.store import Store

__all__ = ["ForebayMiddleware"]

_log = logging.getLogger("forebay")

_includes_hidden: ContextVar[bool] = ContextVar("forebay_includes_hidden", default=False)
"""Whether `expand_tools` lists the tools, and so needs the hidden ones too."""


class ForebayMiddleware(ToolInjectionMiddleware):
    """Middleware for a fastmcp server, with the options of `OutputPolicy` and of a store.

    An error that a tool raises stays raised. If it is too large, it becomes a result with `is_error` instead.
    """

    @copy_parameters(OutputPolicy)
    def __init__(self, *args: Any, **options: Any) -> None:
        # Our tools are looked up in `get_injected_tool`, because their names may change.
        super().__init__([])
        self.policy = OutputPolicy(*args, **options)
        self._own_tools_source: OutputTools | None = None
        self._own_tools: dict[str, AddedTool] = {}

    @property
    def store(self) -> Store:
        """The store that results are put into."""
        return self.policy.store

    def close(self) -> None:
        """Close the store, if it was opened here."""
        self.policy.close()

    async def __call__(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """Handle a request, as fastmcp's middleware protocol requires."""
        if not isinstance(context, MiddlewareContext):
            raise InvalidArgument(
                "ForebayMiddleware is for fastmcp; a server of the mcp SDK takes "
                "forebay.adapters.mcp.Forebay(...).install(server)"
            )
        return await super().__call__(context, call_next)

    def _get_own_tools(self) -> dict[str, AddedTool]:
        """Return our tools by name; the policy builds them anew when it renames them."""
        tools = self.policy.tools
        if tools is not self._own_tools_source:
            definitions = tools.list_definitions()
            self._own_tools = {tool["name"]: AddedTool.from_definition(self.policy, tool) for tool in definitions}
            self._own_tools_source = tools
        return self._own_tools

    @property
    def injected_tools(self) -> Sequence[Tool]:
        """Always empty: fastmcp would list our tools first, and hide the server's tools of the same names."""
        return []

    def get_injected_tool(self, name: str) -> Tool | None:
        """Return our tool with this name. fastmcp also calls this for a server that this one is mounted in."""
        return self._get_own_tools().get(name)

    async def on_list_tools(
        self,
        context: MiddlewareContext[wire.ListToolsRequest],
        call_next: CallNext[wire.ListToolsRequest, Sequence[Tool]],
    ) -> Sequence[Tool]:
        """Return the server's visible tools, rewritten to allow handles, and our tools."""
        await self._learn_tools(context)
        tools = await call_next(context)
        self.policy.learn_tools(map(describe_tool, tools), is_complete=False)
        if _includes_hidden.get():
            return self._rewrite_tools(tools)
        expanded = self.policy.get_expanded_tools(find_lasting_connection(context)) or ()
        tools = [tool for tool in tools if self.policy.capabilities.is_listed(tool.name, expanded)]
        return [*self._rewrite_tools(tools), *self._get_own_tools().values()]

    def _rewrite_tools(self, tools: Sequence[Tool]) -> list[Tool]:
        definitions = [describe_tool(tool) for tool in tools]
        return [*map(apply_rewrite, tools, definitions, self.policy.rewrite_tools(definitions))]

    async def on_call_tool(
        self,
        context: MiddlewareContext[wire.CallToolRequestParams],
        call_next: CallNext[wire.CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        """Return the tool's own result, or a handle if that is too large."""
        if is_in_tool_call():
            # A tool that calls another tool needs its whole result.
            return await call_next(context)
        policy = self.policy
        name, given_arguments = context.message.name, context.message.arguments or {}
        await self._learn_tools(context, name)
        call = make_call(name, get_request(context), policy)
        if name in policy.tools.names:
            return await self._call_own_tool(context, call_next, call)
        if (refusal := policy.refuse_disabled(name, call.principal)) is not None:
            return to_tool_result(refusal)
        try:
            mode, arguments = policy.resolve_mode(name, given_arguments)
            if policy.has_references(arguments):
                arguments = await run_sync(policy.resolve_references, name, arguments, call.principal)
        except ForebayError as error:
            return to_tool_result(error_result(error))
        if arguments is not given_arguments:
            context = context.copy(message=context.message.model_copy(update={"arguments": arguments}))
        with policy.make_context(
            call.principal,
            call.handle_length,
            is_ascii=call.is_ascii,
            limits=mode.contract,
            fetch_with=call.fetch_with,
        ) as response_context:
            if mode.output_mode == "inline" and mode.contract is None and policy.monitor is None:
                return await call_next(context)
            call = dataclasses.replace(call, contract=mode.contract, contract_responses=response_context.responses)
            try:
                result = await call_next(context)
            except FastMCPError as error:
                replacement = await self._store_result(context, text_result(str(error), is_error=True), mode, call)
                if replacement is None:
                    raise
                return replacement
        if not isinstance(result, ToolResult) or isinstance(result, InputRequiredToolResult):
            return result
        return await self._store_result(context, dump_result(result), mode, call) or result

    async def _call_own_tool(
        self,
        context: MiddlewareContext[wire.CallToolRequestParams],
        call_next: CallNext[wire.CallToolRequestParams, ToolResult],
        call: ToolCall,
    ) -> ToolResult:
        is_expanding = call.tool == self.policy.tools.expand_tool
        async with self._set_expand_caller(context) if is_expanding else contextlib.nullcontext():
            result = await call_next(context)
        # Serializes the page once more, so only if there is a monitor.
        if self.policy.monitor is not None and isinstance(result, ToolResult):
            self.policy.record_response(call.tool, dump_result(result), **describe_call(context, call))
        return result

    async def on_list_resource_templates(
        self,
        context: MiddlewareContext[wire.ListResourceTemplatesRequest],
        call_next: CallNext[wire.ListResourceTemplatesRequest, Sequence[ResourceTemplate]],
    ) -> Sequence[ResourceTemplate]:
        """Return the server's templates, and the one for stored payloads."""
        return [*await call_next(context), STORED_OUTPUT_TEMPLATE]

    async def on_read_resource(
        self,
        context: MiddlewareContext[wire.ReadResourceRequestParams],
        call_next: CallNext[wire.ReadResourceRequestParams, ResourceResult],
    ) -> ResourceResult:
        """Return a page of a stored payload if the URI names one, else the server's resource."""
        uri = str(context.message.uri)
        if not is_resource_uri(uri):
            return await call_next(context)
        if context.fastmcp_context is not None:
            # `call_next` is skipped, so ask each middleware here whether it denies access.
            for middleware in context.fastmcp_context.fastmcp.middleware:
                await middleware.check_resource_access(context)
        caller = make_caller(self.policy)
        read_page = partial(read_resource, is_ascii=caller.is_ascii)
        try:
            page = await run_sync(read_page, self.store, uri, self.policy.max_page_bytes, caller.principal)
        except ForebayError as error:
            raise MCPError(code=wire.INVALID_PARAMS, message=str(error), data=error.to_dict()["error"]) from None
        return ResourceResult([to_resource_content(content) for content in page["contents"]])

    @contextlib.asynccontextmanager
    async def _set_expand_caller(self, context: MiddlewareContext[Any]) -> AsyncIterator[None]:
        """Give `expand_tools` the server's tools, and tell the client afterwards if the list has changed."""
        assert context.fastmcp_context is not None  # noqa: S101 - a call has one
        fastmcp = context.fastmcp_context
        listing_token = _includes_hidden.set(True)
        try:
            tools = await fastmcp.fastmcp.list_tools()
        finally:
            _includes_hidden.reset(listing_token)
        definitions = [tool.to_mcp_tool().model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
        expanded = self.policy.get_expanded_tools(find_lasting_connection(context))
        expanded_before = set(expanded or ())
        caller = dataclasses.replace(make_caller(self.policy), tools=definitions, expanded_tools=expanded)
        caller_token = expand_caller.set(caller)
        try:
            yield
        finally:
            expand_caller.reset(caller_token)
        if expanded_before != (expanded or set()):
            await fastmcp.session.send_tool_list_changed()

    async def _learn_tools(self, context: MiddlewareContext[Any], tool: str | None = None) -> None:
        """Tell the policy about all tools of the server: once, and again if it does not know the called tool.

        This includes tools that the caller cannot see: the names of our tools must not depend on the first caller.
        """
        policy = self.policy
        is_known = policy.knows_tools if tool is None else not policy.must_list_tools(tool)
        if is_known or context.fastmcp_context is None:
            return
        server = context.fastmcp_context.fastmcp
        if not policy.knows_tools:
            if sum(isinstance(other, ForebayMiddleware) for other in server.middleware) > 1:
                _log.warning("forebay: this server has more than one; keep one of them, and give it the options")
            policy.reserve_stamp(get_server_info(server))
        # A server that cannot list its tools can still be called.
        with contextlib.suppress(Exception):
            policy.learn_tools([describe_tool(tool) for tool in await Provider.list_tools(server)])

    async def _store_result(
        self, context: MiddlewareContext[wire.CallToolRequestParams], result: Result, mode: Mode, call: ToolCall
    ) -> ToolResult | None:
        """Store a result and return what replaces it, or return `None` if it goes inline."""
        pipeline, fastmcp, request = self.policy.pipeline, context.fastmcp_context, get_request(context)
        if fastmcp and request and request.protocol_version in MODERN_PROTOCOL_VERSIONS:
            # fastmcp adds these fields later; add them now so that they are measured.
            meta = {**(result.get("_meta") or {}), wire.SERVER_INFO_META_KEY: get_server_info(fastmcp.fastmcp)}
            result = {**result, "resultType": "complete", "_meta": meta}
        is_inline = pipeline.is_inline(result, mode, is_ascii=call.is_ascii)
        sent = result if is_inline else await run_sync(pipeline.store_result, strip_wrap_result(result), call)
        self.policy.record_response(call.tool, sent, mode, is_inline=is_inline, **describe_call(context, call))
        return None if is_inline else to_tool_result(sent, result)
