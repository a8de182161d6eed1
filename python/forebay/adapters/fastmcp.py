"""forebay in a server of fastmcp, version 2.12 or newer: large results become handles.

mcp = FastMCP("crawler", middleware=[ForebayMiddleware(output_mode="auto")])
"""

import base64
import contextlib
import dataclasses
import importlib.metadata
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from forebay.errors import ForebayError, InvalidArgument, make_missing_extra

try:
    if TYPE_CHECKING or int(importlib.metadata.version("fastmcp").partition(".")[0]) >= 4:
        from forebay.adapters import fastmcp_v4 as sdk
    else:
        from forebay.adapters import fastmcp_v2 as sdk

    from anyio.to_thread import run_sync
    from fastmcp.exceptions import FastMCPError
    from fastmcp.resources import Resource, ResourceTemplate, TextResource
    from fastmcp.server.dependencies import get_access_token, get_context
    from fastmcp.server.middleware import CallNext, MiddlewareContext
    from fastmcp.tools import Tool
    from pydantic import PrivateAttr
except ImportError as error:
    raise make_missing_extra(__name__, "fastmcp", error) from None

from forebay.adapters.mcp import get_connection, get_lasting_connection, get_principal, is_ascii, make_error
from forebay.adapters.sdk_internals import extend_fastmcp_instructions, find_root_server, get_server_info
from forebay.outputs.app.resource import MIME_TYPE, ViewerApp, declares_apps, is_app_uri
from forebay.outputs.clients import Client, find_client
from forebay.outputs.contract.context import is_in_tool_call
from forebay.outputs.modes import Mode
from forebay.outputs.policy import OutputPolicy, copy_parameters
from forebay.outputs.result import Result, error_result, strip_wrap_result, text_result
from forebay.outputs.schemas import allow_handle, allow_handle_for_fastmcp
from forebay.outputs.tool_call import ToolCall
from forebay.outputs.tools import RESOURCE_TEMPLATE, Caller, OutputTools, is_resource_uri, read_resource
from forebay.store import Store
from forebay.store.handles import LONG_HANDLE_LENGTH, SHORT_HANDLE_LENGTH
from forebay.wire.messages import INVALID_PARAMS
from forebay.wire.protocol import SERVER_INFO_KEY, is_modern

__all__ = ["ForebayMiddleware", "get_client"]

_log = logging.getLogger("forebay")

_includes_hidden: ContextVar[bool] = ContextVar("forebay_includes_hidden", default=False)
"""True while `expand_tools` lists the tools: hidden tools are then included."""


_expand_caller: ContextVar[Caller | None] = ContextVar("forebay_expand_caller", default=None)
"""The caller of `expand_tools`. It is not a parameter, because fastmcp passes only the arguments to `Tool.run`."""


class _AddedTool(Tool):
    """One of the tools that forebay adds."""

    _policy: OutputPolicy = PrivateAttr()

    @classmethod
    def from_definition(cls, policy: OutputPolicy, definition: Mapping[str, Any]) -> "_AddedTool":
        """Make a tool from its `tools/list` definition."""
        tool = cls(
            name=definition["name"],
            description=definition["description"],
            parameters=definition["inputSchema"],
            annotations=sdk.wire.ToolAnnotations.model_validate(definition["annotations"]),
            meta=definition.get("_meta"),
        )
        tool._policy = policy
        return tool

    async def run(self, arguments: dict[str, Any]) -> sdk.ToolResult:
        """Run the tool. fastmcp calls this for a `tools/call` request."""
        caller = _expand_caller.get() or _make_caller(self._policy)
        call = _make_call(self.name, _get_current_request(), self._policy)
        return sdk.make_tool_result(await run_sync(self._policy.call_own_tool, arguments, caller, call))


class _StoredOutputTemplate(ResourceTemplate):
    """A resource template without a MIME type, since a payload may have any type. fastmcp's default would be text."""

    def to_mcp_template(self, **overrides: Any) -> sdk.wire.ResourceTemplate:
        return super().to_mcp_template(**{"mimeType": None, **overrides})


class _AppResource(TextResource):
    """The app as a resource to list; `on_read_resource` reads it. fastmcp 2 refuses its MIME type in a field."""

    @classmethod
    def from_app(cls, app: ViewerApp) -> "_AppResource":
        definition = app.define_resource()
        fields = {key: definition[key] for key in ("uri", "name", "description")}
        return cls(**fields, meta=definition["_meta"], text="")

    def to_mcp_resource(self, **overrides: Any) -> sdk.wire.Resource:
        return super().to_mcp_resource(**{"mimeType": MIME_TYPE, **overrides})


_STORED_OUTPUT_TEMPLATE = _StoredOutputTemplate(
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


class ForebayMiddleware(sdk.ToolInjectionMiddleware):
    """Middleware for a fastmcp server, with the options of `OutputPolicy` and of a store.

    An exception of a tool is raised unchanged, unless its message is too large. Then the message is stored, and
    a result with `is_error` is returned.
    """

    @copy_parameters(OutputPolicy)
    def __init__(self, *args: Any, **options: Any) -> None:
        if sdk.FINDS_INJECTED_TOOLS:
            # Our tools are looked up in `get_injected_tool`, because their names may change.
            super().__init__([])
        self.policy = OutputPolicy(*args, **options)
        self._own_tools_source: OutputTools | None = None
        self._own_tools: dict[str, _AddedTool] = {}
        self._has_warned = False

    @property
    def store(self) -> Store:
        """The store that results are put into."""
        return self.policy.store

    def close(self) -> None:
        """Close the store, unless it was passed in by the caller."""
        self.policy.close()

    async def __call__(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """Handle a request, as fastmcp's middleware protocol requires."""
        if not isinstance(context, MiddlewareContext):
            raise InvalidArgument(
                "ForebayMiddleware is for fastmcp; a server of the mcp SDK takes "
                "forebay.adapters.mcp.Forebay(...).install(server)"
            )
        return await super().__call__(context, call_next)

    def _get_own_tools(self) -> dict[str, _AddedTool]:
        """Return our tools by name; the policy builds them anew when it renames them."""
        tools = self.policy.tools
        if tools is not self._own_tools_source:
            definitions = tools.list_definitions()
            self._own_tools = {tool["name"]: _AddedTool.from_definition(self.policy, tool) for tool in definitions}
            self._own_tools_source = tools
        return self._own_tools

    @property
    def injected_tools(self) -> Sequence[Tool]:
        """Always empty. Otherwise fastmcp would list our tools first, and hide the server's tools of the same names."""
        return []

    def get_injected_tool(self, name: str) -> Tool | None:
        """Return our tool with this name. fastmcp also calls this if the server is mounted in another one."""
        return self._get_own_tools().get(name)

    async def on_initialize(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """Return the server's answer, with instructions that say what a handle is."""
        return self._extend_instructions(await call_next(context))

    async def on_discover(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """Return the server's answer, with instructions that say what a handle is."""
        return self._extend_instructions(await call_next(context))

    def _shows_apps(self, context: MiddlewareContext[Any]) -> bool:
        """Return whether the client shows apps, and reaches ours: not in a mounted server, whose URIs may change."""
        request, fastmcp = _get_request(context), context.fastmcp_context
        if request is None or fastmcp is None or self not in find_root_server(fastmcp).middleware:
            return False
        return declares_apps({"extensions": sdk.get_client_extensions(request)})

    def _extend_instructions(self, result: Any) -> Any:
        if not sdk.SENDS_INITIALIZE_RESULT:
            return result
        if isinstance(result, dict):
            return {**result, "instructions": self.policy.extend_instructions(result.get("instructions"))}
        return result.model_copy(update={"instructions": self.policy.extend_instructions(result.instructions)})

    async def on_list_tools(
        self,
        context: MiddlewareContext[sdk.wire.ListToolsRequest],
        call_next: CallNext[sdk.wire.ListToolsRequest, Sequence[Tool]],
    ) -> Sequence[Tool]:
        """Return the server's visible tools, rewritten to allow handles, and our tools."""
        await self._learn_tools(context)
        tools = await call_next(context)
        self.policy.learn_tools(map(_describe_tool, tools), is_complete=False)
        if _includes_hidden.get():
            return self._rewrite_tools(tools, shows_apps=False)
        shows_apps = self._shows_apps(context)
        expanded = self.policy.get_expanded_tools(_find_lasting_connection(context)) or ()
        tools = [tool for tool in tools if self.policy.capabilities.is_listed(sdk.get_tool_name(tool), expanded)]
        own_tools = [] if self._is_mounted(context) else self._list_own_tools(shows_apps=shows_apps)
        return [*self._rewrite_tools(tools, shows_apps=shows_apps), *own_tools]

    def _list_own_tools(self, *, shows_apps: bool) -> list[_AddedTool]:
        if not shows_apps:
            return [*self._get_own_tools().values()]
        definitions = self.policy.list_own_tools(shows_apps=True)
        return [_AddedTool.from_definition(self.policy, definition) for definition in definitions]

    def _rewrite_tools(self, tools: Sequence[Tool], *, shows_apps: bool) -> list[Tool]:
        definitions = [_describe_tool(tool) for tool in tools]
        rewritten = self.policy.rewrite_tools(definitions, shows_apps=shows_apps)
        return [*map(_apply_rewrite, tools, definitions, rewritten)]

    async def on_call_tool(
        self,
        context: MiddlewareContext[sdk.wire.CallToolRequestParams],
        call_next: CallNext[sdk.wire.CallToolRequestParams, sdk.ToolResult],
    ) -> sdk.ToolResult:
        """Return the tool's own result, or a handle if the result is too large."""
        if is_in_tool_call():
            # A tool that calls another tool needs the whole result of that tool.
            return await call_next(context)
        policy = self.policy
        name, given_arguments = context.message.name, context.message.arguments or {}
        await self._learn_tools(context, name)
        call = _make_call(name, _get_request(context), policy)
        if name in policy.tools.names:
            return await self._call_own_tool(context, call_next, call)
        if (refusal := policy.refuse_disabled(name, call.principal)) is not None:
            return sdk.make_tool_result(refusal)
        policy.count_call(name, call.principal)
        try:
            request = _get_request(context)
            meta = sdk.get_meta(request) if request else {}
            client = _find_client(request) if request else None
            mode, arguments = policy.resolve_mode(name, given_arguments, meta, client)
            if policy.has_references(arguments):
                arguments = await run_sync(policy.resolve_references, name, arguments, call.principal)
        except ForebayError as error:
            return sdk.make_tool_result(error_result(error))
        if self._is_mounted(context):
            # A handle could not be read.
            mode = dataclasses.replace(mode, output_mode="inline", contract=None)
        if arguments is not given_arguments:
            context = context.copy(message=context.message.model_copy(update={"arguments": arguments}))
        with policy.make_context(
            call.principal,
            call.handle_length,
            is_ascii=call.is_ascii,
            limits=mode.contract,
            fetch_with=call.fetch_with,
        ) as response_context:
            is_unmeasured = policy.monitor is None and not policy.suggests_auto
            if mode.output_mode == "inline" and mode.contract is None and is_unmeasured:
                return await call_next(context)
            call = dataclasses.replace(call.with_mode(mode), contract_responses=response_context.responses)
            try:
                result = await call_next(context)
            except FastMCPError as error:
                replacement = await self._store_result(context, text_result(str(error), is_error=True), mode, call)
                if replacement is None:
                    raise
                return replacement
        if not sdk.has_output(result):
            return result
        return await self._store_result(context, sdk.dump_result(result), mode, call) or result

    def _is_mounted(self, context: MiddlewareContext[Any]) -> bool:
        """Return whether the server is mounted in another one whose clients could not call our tools."""
        is_mounted = context.fastmcp_context is not None and not sdk.is_in_chain(self, context.fastmcp_context)
        if is_mounted and not self._has_warned:
            _log.warning("forebay: this server is mounted in another one; add ForebayMiddleware to that one, too")
            self._has_warned = True
        return is_mounted

    async def _call_own_tool(
        self,
        context: MiddlewareContext[sdk.wire.CallToolRequestParams],
        call_next: CallNext[sdk.wire.CallToolRequestParams, sdk.ToolResult],
        call: ToolCall,
    ) -> sdk.ToolResult:
        is_expanding = call.tool == self.policy.tools.expand_tool
        async with self._set_expand_caller(context) if is_expanding else contextlib.nullcontext():
            if sdk.FINDS_INJECTED_TOOLS:
                result = await call_next(context)
            else:
                result = await self._get_own_tools()[call.tool].run(context.message.arguments or {})
        # Record the response only for a monitor, since `_dump_result` serializes the page once more.
        if self.policy.monitor is not None and isinstance(result, sdk.ToolResult):
            self.policy.record_response(call.tool, sdk.dump_result(result), **_make_record_arguments(context, call))
        return result

    async def on_list_resources(
        self,
        context: MiddlewareContext[sdk.wire.ListResourcesRequest],
        call_next: CallNext[sdk.wire.ListResourcesRequest, Sequence[Resource]],
    ) -> Sequence[Resource]:
        """Return the server's resources, and the app if the client shows apps."""
        resources = await call_next(context)
        return [*resources, _AppResource.from_app(self.policy.app)] if self._shows_apps(context) else resources

    async def on_list_resource_templates(
        self,
        context: MiddlewareContext[sdk.wire.ListResourceTemplatesRequest],
        call_next: CallNext[sdk.wire.ListResourceTemplatesRequest, Sequence[ResourceTemplate]],
    ) -> Sequence[ResourceTemplate]:
        """Return the server's templates, and the one for stored payloads."""
        return [*await call_next(context), _STORED_OUTPUT_TEMPLATE]

    async def on_read_resource(
        self,
        context: MiddlewareContext[sdk.wire.ReadResourceRequestParams],
        call_next: CallNext[sdk.wire.ReadResourceRequestParams, sdk.ResourceResult],
    ) -> sdk.ResourceResult:
        """Return a page of a stored payload or the app if the URI names one of them, else the server's resource."""
        uri = str(context.message.uri)
        if is_app_uri(uri):
            # The URI of the app depends on the names of the server's tools.
            await self._learn_tools(context)
        is_app = uri == self.policy.app.uri and self._shows_apps(context)
        if not is_app and not is_resource_uri(uri):
            return await call_next(context)
        if context.fastmcp_context is not None:
            # Without `call_next`, no other middleware can refuse. So ask each here whether it denies access.
            await sdk.check_resource_access(context, context.fastmcp_context.fastmcp)
        if is_app:
            return _make_resource_result(self.policy.app.read()["contents"])
        caller = _make_caller(self.policy)
        try:
            page = await run_sync(read_resource, self.store, uri, caller)
        except ForebayError as error:
            raise make_error(INVALID_PARAMS, str(error), error.to_dict()["error"]) from None
        return _make_resource_result(page["contents"])

    @contextlib.asynccontextmanager
    async def _set_expand_caller(self, context: MiddlewareContext[Any]) -> AsyncIterator[None]:
        """Set the caller of `expand_tools`, and notify the client afterwards if the list of tools has changed."""
        assert context.fastmcp_context is not None  # noqa: S101 - a call has one
        fastmcp = context.fastmcp_context
        listing_token = _includes_hidden.set(True)
        try:
            tools = await sdk.list_visible_tools(fastmcp.fastmcp)
        finally:
            _includes_hidden.reset(listing_token)
        definitions = [tool.to_mcp_tool().model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
        expanded = self.policy.get_expanded_tools(_find_lasting_connection(context))
        expanded_before = set(expanded or ())
        caller = dataclasses.replace(_make_caller(self.policy), tools=definitions, expanded_tools=expanded)
        caller_token = _expand_caller.set(caller)
        try:
            yield
        finally:
            _expand_caller.reset(caller_token)
        if expanded_before != (expanded or set()):
            await fastmcp.session.send_tool_list_changed()

    async def _learn_tools(self, context: MiddlewareContext[Any], tool: str | None = None) -> None:
        """Pass all tools of the server to the policy: once, and again if the called tool is unknown.

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
            policy.reserve_server_info(get_server_info(server))
        # If the server cannot list its tools, they can still be called.
        with contextlib.suppress(Exception):
            policy.learn_tools([_describe_tool(tool) for tool in await sdk.list_all_tools(server)])

    async def _store_result(
        self, context: MiddlewareContext[sdk.wire.CallToolRequestParams], result: Result, mode: Mode, call: ToolCall
    ) -> sdk.ToolResult | None:
        """Store a result and return its replacement, or return `None` if the result goes inline."""
        pipeline, fastmcp, request = self.policy.pipeline, context.fastmcp_context, _get_request(context)
        if fastmcp and request and is_modern(request.protocol_version):
            # fastmcp adds these fields later. Add them now, so that they count towards the size of the result.
            meta = {**(result.get("_meta") or {}), SERVER_INFO_KEY: get_server_info(fastmcp.fastmcp)}
            result = {**result, "resultType": "complete", "_meta": meta}
        is_inline = pipeline.is_inline(result, mode, call)
        if is_inline:
            self.policy.suggest_auto(call.tool, result, is_ascii=call.is_ascii)
        sent = result if is_inline else await run_sync(pipeline.store_result, strip_wrap_result(result), call)
        self.policy.record_response(call.tool, sent, mode, is_inline=is_inline, **_make_record_arguments(context, call))
        return None if is_inline else sdk.make_tool_result(sent, result)


def _extend_server_instructions(server: Any, instructions: str | None) -> str | None:
    """Return the instructions of a server, with those of its first `ForebayMiddleware`."""
    for middleware in getattr(server, "middleware", ()):
        if isinstance(middleware, ForebayMiddleware):
            return middleware.policy.extend_instructions(instructions)
    return instructions


if not sdk.SENDS_INITIALIZE_RESULT:
    extend_fastmcp_instructions(_extend_server_instructions)


def _make_resource_result(contents: Sequence[Mapping[str, Any]]) -> sdk.ResourceResult:
    """Convert the `contents` of a `resources/read` result to fastmcp's type."""
    return sdk.ResourceResult(
        [
            sdk.make_resource_content(
                base64.b64decode(content["blob"]) if "blob" in content else content["text"],
                content["mimeType"],
                content.get("_meta"),
            )
            for content in contents
        ]
    )


def _describe_tool(tool: Tool) -> dict[str, Any]:
    """Return the fields of a tool's definition that `OutputPolicy` needs."""
    annotations = tool.annotations.model_dump(exclude_none=True) if tool.annotations else None
    return {
        "name": sdk.get_tool_name(tool),
        "inputSchema": tool.parameters,
        "outputSchema": tool.output_schema,
        "annotations": annotations,
        "_meta": tool.meta,
    }


def _apply_rewrite(tool: Tool, original_definition: Mapping[str, Any], new_definition: Mapping[str, Any]) -> Tool:
    """Return a tool with the schemas of its rewritten definition."""
    if new_definition == original_definition:
        return tool
    schema, original = new_definition["outputSchema"], tool.output_schema
    if original and schema in (allow_handle(original), allow_handle_for_fastmcp(original)):
        schema = sdk.allow_handle(original)
    changes = {"parameters": new_definition["inputSchema"], "output_schema": schema, "meta": new_definition["_meta"]}
    return tool.model_copy(update=changes)


def _get_request(context: MiddlewareContext[Any]) -> sdk.Request | None:
    """Return the request of a middleware call, or `None` if the program itself made the call."""
    return sdk.get_request(context.fastmcp_context) if context.fastmcp_context else None


def _get_current_request() -> sdk.Request | None:
    """Return the current request, or `None` outside of a request."""
    try:
        return sdk.get_request(get_context())
    except RuntimeError:
        return None


def _make_caller(policy: OutputPolicy) -> Caller:
    """Return the caller of one of our tools."""
    principal, request = get_principal(get_access_token()), _get_current_request()
    if request is None:
        return Caller(principal)
    return Caller(
        principal,
        is_public=policy.needs_long_handles(request.request),
        is_ascii=is_ascii(request.request, request.protocol_version),
        max_page_bytes=policy.get_max_page_bytes(_find_client(request)),
    )


def _make_call(tool: str, request: sdk.Request | None, policy: OutputPolicy) -> ToolCall:
    """Return the properties of a call that the pipeline needs."""
    principal = get_principal(get_access_token())
    if request is None:
        return ToolCall(tool, principal, handle_length=policy.handle_length or SHORT_HANDLE_LENGTH)
    # If this server is mounted in another one, the tool name that the client sends begins with a namespace.
    client_name = sdk.get_client_tool_name(request) or tool
    namespace = client_name.removesuffix(tool) if client_name.endswith(tool) else ""
    return ToolCall(
        tool,
        principal,
        protocol_version=request.protocol_version,
        request_id=request.request_id,
        # Handles are long over HTTP: anyone who can reach the server may try to guess them.
        handle_length=policy.handle_length or (SHORT_HANDLE_LENGTH if request.request is None else LONG_HANDLE_LENGTH),
        is_ascii=is_ascii(request.request, request.protocol_version),
        fetch_with=namespace + policy.tools.fetch_tool if namespace else policy.name_fetch_tool(_find_client(request)),
        is_mounted=bool(namespace),
    )


def _find_client(request: sdk.Request) -> Client | None:
    """Return the client of a request, if it is a known one."""
    client = sdk.get_client(request)
    return None if client is None else find_client(client[0])


def _make_record_arguments(context: MiddlewareContext[Any], call: ToolCall) -> dict[str, Any]:
    """Return the keyword arguments of `OutputPolicy.record_response` for a call."""
    request = _get_request(context)
    return {
        "principal": call.principal,
        "connection": None if request is None else get_connection(request.session, request.protocol_version),
        "request_id": call.request_id,
        "is_ascii": call.is_ascii,
    }


def _find_lasting_connection(context: MiddlewareContext[Any]) -> object:
    """Return the connection of a request if notifications can be sent on it at any time, else `None`."""
    request = _get_request(context)
    return None if request is None else get_lasting_connection(request.session, request.protocol_version)


def get_client(context: MiddlewareContext[Any]) -> tuple[str, str] | None:
    """Return the name and version of the client that sent a request, or `None` if they are not known."""
    request = _get_request(context)
    return None if request is None else sdk.get_client(request)
