"""forebay in a server of the `mcp` SDK, version 1 or 2: large results become handles.

server = MCPServer("crawler")  # FastMCP in version 1
Forebay(output_mode="auto").install(server)
"""

import contextlib
import importlib.metadata
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from forebay.errors import ForebayError, InvalidArgument, make_missing_extra

try:
    import anyio.to_thread

    if TYPE_CHECKING or int(importlib.metadata.version("mcp").partition(".")[0]) >= 2:
        from forebay.adapters import mcp_v2 as sdk
    else:
        from forebay.adapters import mcp_v1 as sdk
except ImportError as error:
    raise make_missing_extra(__name__, "mcp", error) from None

from forebay.outputs.app.resource import EXTENSION_KEY, declares_apps, is_app_uri
from forebay.outputs.clients import Client, find_client
from forebay.outputs.modes import Mode
from forebay.outputs.policy import OutputPolicy, copy_parameters
from forebay.outputs.result import (
    TASK_RESULT_METHODS,
    error_result,
    find_task_id,
    get_task_result,
    set_task_result,
    strip_server_fields,
    text_result,
)
from forebay.outputs.sink import ResultSink
from forebay.outputs.tasks import TaskOwners
from forebay.outputs.tool_call import ToolCall
from forebay.outputs.tools import RESOURCE_TEMPLATE, Caller, is_resource_uri, read_resource
from forebay.store import Store
from forebay.store.handles import (
    LONG_HANDLE_LENGTH,
    SHORT_HANDLE_LENGTH,
    make_token_principal,
)
from forebay.store.payload import encode, escaped_size
from forebay.wire.messages import INVALID_PARAMS, METHOD_NOT_FOUND, make_optional_key
from forebay.wire.protocol import PageCursors, PageLinks, is_modern, next_cursor

__all__ = [
    "Forebay",
    "get_client",
    "get_connection",
    "get_lasting_connection",
    "get_principal",
    "get_task_owners",
    "is_ascii",
    "make_error",
    "shows_apps",
]

_MAX_LIST_PAGES = 100
"""Maximum number of pages of `tools/list` to read."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Forebay:
    """Middleware for a server of the `mcp` SDK, for every protocol version.

    Takes the options of `OutputPolicy` and of a store: `Forebay("file:///path", output_mode="auto", ttl=3600)`.
    """

    @copy_parameters(OutputPolicy)
    def __init__(self, *args: Any, **options: Any) -> None:
        self.policy = OutputPolicy(*args, **options)
        self._server_info: dict[str, Any] | None = None
        self._page_links: dict[str, PageLinks] = {}

    @property
    def store(self) -> Store:
        """The store that results are put into."""
        return self.policy.store

    def close(self) -> None:
        """Close the store, unless it was passed in by the caller."""
        self.policy.close()

    def install(self, server: sdk.AnyServer) -> sdk.AnyServer:
        """Add this middleware to a server, and return the server."""
        if not isinstance(server, sdk.SERVER_TYPES):
            raise InvalidArgument(
                f"install() takes a server of the mcp SDK, not {type(server).__module__}.{type(server).__qualname__}; "
                "for fastmcp there is forebay.adapters.fastmcp.ForebayMiddleware"
            )
        if not sdk.install(self, server):
            raise InvalidArgument("this server has a forebay already; give that one the options")
        self._server_info = sdk.get_server_info(server)
        self.policy.reserve_server_info(self._server_info)
        return server

    async def __call__(self, ctx: sdk.Context, call_next: sdk.CallNext) -> sdk.HandlerResult:
        """Handle a request or notification, as the SDK's middleware protocol requires."""
        if ctx.request_id is None:
            # Only requests are handled below. A notification may have the method name of a request.
            return await call_next(ctx)
        match ctx.method:
            case "tools/call":
                return await self._on_tools_call(ctx, call_next)
            case method if method in TASK_RESULT_METHODS:
                return await self._on_task_result(ctx, call_next)
            case "tools/list":
                return await self._on_tools_list(ctx, call_next)
            case "resources/read" if is_resource_uri((ctx.params or {}).get("uri")):
                return await self._on_resources_read(ctx)
            case "resources/read" if is_app_uri((ctx.params or {}).get("uri")) and shows_apps(ctx):
                return await self._on_app_read(ctx, call_next)
            case "resources/templates/list":
                return await self._on_templates_list(ctx, call_next)
            case "resources/list":
                return await self._on_resources_list(ctx, call_next)
            case "initialize" | "server/discover":
                result = await call_next(ctx)
                if not isinstance(result, dict):
                    return result
                return self._extend_initialize(result, ctx.method, has_apps=shows_apps(ctx))
        return await call_next(ctx)

    def _extend_initialize(
        self, result: dict[str, Any], method: str = "initialize", *, has_apps: bool = False
    ) -> dict[str, Any]:
        """Return the result of `initialize` or `server/discover` with the capabilities that forebay adds."""
        capabilities = dict(result.get("capabilities") or {})
        for name in ("tools", "resources"):
            capabilities.setdefault(name, {})
        if method == "initialize" and self.policy.tools.expand_tool is not None:
            capabilities["tools"] = {**capabilities["tools"], "listChanged": True}
        if has_apps:
            capabilities["extensions"] = {**(capabilities.get("extensions") or {}), EXTENSION_KEY: {}}
        instructions = self.policy.extend_instructions(result.get("instructions"))
        return {**result, "capabilities": capabilities, "instructions": instructions}

    async def _on_tools_call(self, ctx: sdk.Context, call_next: sdk.CallNext) -> sdk.HandlerResult:
        policy = self.policy
        params = ctx.params or {}
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str):
            return await call_next(ctx)
        if policy.must_list_tools(name):
            # If the server cannot list its tools, they can still be called.
            with contextlib.suppress(Exception):
                policy.learn_tools(await self._list_all_tools(ctx, call_next))
        call = self._make_call(ctx, name)
        if name in policy.tools.names:
            return await self._on_own_tool_call(ctx, call_next, call)
        if (refusal := policy.refuse_disabled(name, call.principal)) is not None:
            return self._shape_result(ctx, refusal)
        policy.count_call(name, call.principal)
        given_arguments = arguments if isinstance(arguments, Mapping) else {}
        try:
            meta = params.get("_meta") or {}
            mode, tool_arguments = policy.resolve_mode(name, given_arguments, meta, _find_client(ctx))
            if policy.has_references(tool_arguments):
                tool_arguments = await _run_in_thread(policy.resolve_references, name, tool_arguments, call.principal)
        except ForebayError as error:
            return self._shape_result(ctx, error_result(error))
        if tool_arguments is not given_arguments:
            ctx = replace(ctx, params={**params, "arguments": tool_arguments})
        call = call.with_mode(mode)
        sink = ResultSink(policy.pipeline, call, mode)
        context = policy.make_context(
            call.principal,
            call.handle_length,
            is_ascii=call.is_ascii,
            limits=mode.contract,
            fetch_with=call.fetch_with,
        )
        with context, sink:
            try:
                result = await call_next(ctx)
            except sdk.MCPError as error:
                raise await _store_large_error(policy, error, mode, call) from None
        if find_task_id(result) is not None:
            policy.tasks.remember(result, name, mode, get_task_owners(ctx))
        if sink.replacement is not None:
            replacement = self._shape_result(ctx, strip_server_fields(sink.replacement))
            self._record_response(ctx, name, replacement, mode, is_inline=False)
            return replacement
        if context.failure is not None and _hides_error(result, name):
            result = {**cast("dict[str, Any]", result), **text_result(str(context.failure), is_error=True)}
        if not isinstance(result, dict) or policy.pipeline.is_inline(result, mode, call):
            if isinstance(result, dict):
                policy.suggest_auto(name, result, is_ascii=call.is_ascii)
            self._record_response(ctx, name, result, mode)
            return result
        call = replace(call, contract_responses=context.responses)
        replacement = await _run_in_thread(policy.pipeline.store_result, result, call)
        self._record_response(ctx, name, replacement, mode, is_inline=False)
        return replacement

    def _make_call(self, ctx: sdk.Context, tool: str) -> ToolCall:
        # Handles are long over HTTP: anyone who can reach the server may try to guess them.
        default_length = SHORT_HANDLE_LENGTH if ctx.request is None else LONG_HANDLE_LENGTH
        return ToolCall(
            tool=tool,
            principal=_get_current_principal(),
            protocol_version=ctx.protocol_version,
            request_id=ctx.request_id,
            handle_length=self.policy.handle_length or default_length,
            is_ascii=is_ascii(ctx.request, ctx.protocol_version),
            fetch_with=self.policy.name_fetch_tool(_find_client(ctx)),
        )

    def _make_caller(self, ctx: sdk.Context) -> Caller:
        return Caller(
            _get_current_principal(),
            is_public=self.policy.needs_long_handles(ctx.request),
            is_ascii=is_ascii(ctx.request, ctx.protocol_version),
            max_page_bytes=self.policy.get_max_page_bytes(_find_client(ctx)),
        )

    async def _on_task_result(self, ctx: sdk.Context, call_next: sdk.CallNext) -> sdk.HandlerResult:
        """Handle a request for the result of a task."""
        policy = self.policy
        known_call = policy.tasks.find_call(ctx.params, get_task_owners(ctx))
        tool, mode = known_call or (ctx.method, policy.resolve_mode("", {})[0])
        call = self._make_call(ctx, tool).with_mode(mode)
        with ResultSink(policy.pipeline, call, mode) as sink:
            try:
                response = await call_next(ctx)
            except sdk.MCPError as error:
                raise await _store_large_error(policy, error, mode, call) from None
        result, replacement = get_task_result(ctx.method, response), sink.replacement
        if not isinstance(response, dict) or not isinstance(result, dict):
            return response
        if replacement is not None:
            replacement = _copy_envelope(result, strip_server_fields(replacement))
        elif not policy.pipeline.is_inline(result, mode, call):
            envelope_bytes = len(encode(set_task_result(ctx.method, response, 0))) - 1
            call = replace(call, envelope_bytes=envelope_bytes)
            replacement = await _run_in_thread(policy.pipeline.store_result, result, call)
        is_inline = replacement is None
        self._record_response(ctx, tool, result if is_inline else replacement, mode, is_inline=is_inline)
        if is_inline:
            return response
        return cast("dict[str, Any]", set_task_result(ctx.method, response, replacement))

    async def _on_own_tool_call(self, ctx: sdk.Context, call_next: sdk.CallNext, call: ToolCall) -> sdk.HandlerResult:
        policy = self.policy
        arguments = (ctx.params or {}).get("arguments")
        caller = self._make_caller(ctx)
        if call.tool == policy.tools.expand_tool:
            # Which tools the server has may depend on the caller, so list them again.
            tools = policy.rewrite_tools(await self._list_all_tools(ctx, call_next))
            caller = replace(caller, tools=tools, expanded_tools=self._get_expanded_tools(ctx))
        expanded_before = set(caller.expanded_tools or ())
        result = self._shape_result(ctx, await _run_in_thread(policy.call_own_tool, arguments, caller, call))
        if expanded_before != (caller.expanded_tools or set()):
            await ctx.session.send_tool_list_changed()
        self._record_response(ctx, call.tool, result)
        return result

    def _get_expanded_tools(self, ctx: sdk.Context) -> set[str] | None:
        return self.policy.get_expanded_tools(get_lasting_connection(ctx.session, ctx.protocol_version))

    def _record_response(
        self, ctx: sdk.Context, tool: str, result: object, mode: Mode | None = None, *, is_inline: bool = True
    ) -> None:
        # Find the principal and connection only for a monitor, since this takes time in every call.
        if self.policy.monitor is not None:
            self.policy.record_response(
                tool,
                result,
                mode,
                is_inline=is_inline,
                principal=_get_current_principal(),
                connection=get_connection(ctx.session, ctx.protocol_version),
                request_id=ctx.request_id,
                is_ascii=is_ascii(ctx.request, ctx.protocol_version),
            )

    async def _list_all_tools(self, ctx: sdk.Context, call_next: sdk.CallNext) -> list[dict[str, Any]]:
        tools: list[dict[str, Any]] = []
        cursors = PageCursors(_MAX_LIST_PAGES)
        for page_params in cursors:
            params = {**_select_meta(ctx), **page_params}
            page = await _list_page(replace(ctx, method="tools/list", params=params), call_next)
            tools += page.get("tools") or []
            cursors.follow(page)
            await anyio.sleep(0)
        return tools

    async def _on_tools_list(self, ctx: sdk.Context, call_next: sdk.CallNext) -> sdk.HandlerResult:
        policy = self.policy
        if policy.capabilities.is_active and not policy.knows_tools:
            # The capability filter needs all tools of the server, not only those on this page.
            policy.learn_tools(await self._list_all_tools(ctx, call_next))
        page = await _list_page(ctx, call_next)
        tools, is_last = page.get("tools") or [], self._is_last_page(ctx, page)
        policy.learn_tools(tools, is_complete=is_last and "cursor" not in (ctx.params or {}))
        has_apps = shows_apps(ctx)
        visible = policy.list_visible(tools, self._get_expanded_tools(ctx) or (), shows_apps=has_apps)
        added = policy.list_own_tools(shows_apps=has_apps) if is_last else []
        return self._append_items(ctx, page, "tools", visible, added)

    async def _on_resources_list(self, ctx: sdk.Context, call_next: sdk.CallNext) -> sdk.HandlerResult:
        page = await _list_page(ctx, call_next)
        if not shows_apps(ctx):
            return page or self._shape_result(ctx, {"resources": []})
        added = [self.policy.app.define_resource()] if self._is_last_page(ctx, page) else []
        return self._append_items(ctx, page, "resources", page.get("resources") or [], added)

    async def _on_templates_list(self, ctx: sdk.Context, call_next: sdk.CallNext) -> sdk.HandlerResult:
        page = await _list_page(ctx, call_next)
        added = [RESOURCE_TEMPLATE] if self._is_last_page(ctx, page) else []
        return self._append_items(ctx, page, "resourceTemplates", page.get("resourceTemplates") or [], added)

    def _is_last_page(self, ctx: sdk.Context, page: dict[str, Any]) -> bool:
        links = self._page_links.setdefault(ctx.method, PageLinks())
        return links.follow(make_optional_key((ctx.params or {}).get("cursor")), make_optional_key(next_cursor(page)))

    async def _on_resources_read(self, ctx: sdk.Context) -> sdk.HandlerResult:
        uri = (ctx.params or {})["uri"]
        try:
            page = await _run_in_thread(read_resource, self.store, uri, self._make_caller(ctx))
            return self._shape_result(ctx, page)
        except ForebayError as error:
            raise make_error(INVALID_PARAMS, str(error), error.to_dict()["error"]) from None

    async def _on_app_read(self, ctx: sdk.Context, call_next: sdk.CallNext) -> sdk.HandlerResult:
        policy = self.policy
        if not policy.knows_tools:
            # The URI of the app depends on the names of the server's tools.
            with contextlib.suppress(Exception):
                policy.learn_tools(await self._list_all_tools(ctx, call_next))
        is_own = (ctx.params or {})["uri"] == policy.app.uri
        return self._shape_result(ctx, policy.app.read()) if is_own else await call_next(ctx)

    def _append_items(
        self, ctx: sdk.Context, page: dict[str, Any], key: str, items: list[Any], added_items: list[Any]
    ) -> dict[str, Any]:
        """Return a page of a list with our items after the server's items."""
        shaped = self._shape_result(ctx, {key: added_items})
        return {**(page or shaped), key: [*items, *shaped[key]]}

    def _shape_result(self, ctx: sdk.Context, result: dict[str, Any]) -> dict[str, Any]:
        return sdk.shape_result(ctx, result, self._server_info)


async def _store_large_error(policy: OutputPolicy, error: sdk.MCPError, mode: Mode, call: ToolCall) -> sdk.MCPError:
    """Return a protocol error, or one that refers to it if it is too large and was stored."""
    try:
        data = error.error.model_dump(mode="json", exclude_none=True)
        size = escaped_size(encode(data), 0, is_ascii=call.is_ascii)
    except (TypeError, ValueError):
        # The error cannot be serialized; the server itself must report that.
        return error
    if not mode.exceeds_limit(size):
        return error
    stored = await _run_in_thread(policy.pipeline.store_error, data, call)
    return error if stored is None else make_error(stored["code"], stored["message"], stored.get("data"))


def _get_current_principal() -> str | None:
    return get_principal(sdk.get_access_token())


def get_principal(token: sdk.AccessToken | None) -> str | None:
    """Return the principal of a token: issuer and subject or, without a subject, the client. No token gives `None`."""
    return None if token is None else make_token_principal(*sdk.principal_components(token))


get_client = sdk.get_client
get_connection = sdk.get_connection
get_lasting_connection = sdk.get_lasting_connection
make_error = sdk.make_error


def is_ascii(http_request: object, protocol_version: str) -> bool:
    """Return whether the SDK escapes non-ASCII characters in the response: over HTTP, in the newest protocol."""
    return http_request is not None and is_modern(protocol_version)


def _find_client(ctx: sdk.Context) -> Client | None:
    """Return the client of a request, if it is a known one."""
    client = sdk.get_client(ctx)
    return None if client is None else find_client(client[0])


def shows_apps(ctx: sdk.Context) -> bool:
    """Return whether the client of a request shows apps."""
    return declares_apps({"extensions": sdk.get_client_extensions(ctx)})


def get_task_owners(ctx: sdk.Context) -> TaskOwners:
    """Return the owners of the tasks that a request may name: its principal, and its connection if it has one."""
    connection = get_connection(ctx.session, ctx.protocol_version)
    # A weak reference, so that remembered tasks do not keep connections alive.
    return (_get_current_principal(),) if connection is None else (weakref.ref(connection), _get_current_principal())


def _copy_envelope(sent_placeholder: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """Return `result` with the fields that the SDK added to the placeholder sent in its place."""
    meta = {**(sent_placeholder.get("_meta") or {}), **(result.get("_meta") or {})}
    return {**sent_placeholder, **result, **({"_meta": meta} if meta else {})}


def _hides_error(result: sdk.HandlerResult, tool: str) -> bool:
    """Return whether a result is the SDK's error result, which hides the message of the tool's exception."""
    block = {"type": "text", "text": f"Error executing tool {tool}"}
    return isinstance(result, dict) and result.get("isError") is True and result.get("content") == [block]


async def _run_in_thread(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    return await anyio.to_thread.run_sync(partial(function, *args, **kwargs))


def _select_meta(ctx: sdk.Context) -> dict[str, Any]:
    return {"_meta": ctx.params["_meta"]} if ctx.params and "_meta" in ctx.params else {}


async def _list_page(ctx: sdk.Context, call_next: sdk.CallNext) -> dict[str, Any]:
    """Return the server's page of a list, or `{}` if the server does not have the list's method."""
    try:
        page = await call_next(ctx)
    except sdk.MCPError as error:
        if error.error.code != METHOD_NOT_FOUND:
            raise
        return {}
    return page if isinstance(page, dict) else {}
