"""Middleware that forwards requests to upstreams and translates their results to the client's protocol era."""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.connection import Connection as ClientConnection
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION_META_KEY,
)

from forebay.adapters.mcp import get_principal
from forebay.adapters.sdk_internals import get_server_connection, send_notification
from forebay.http.app import get_session_ender
from forebay.hub.client_peer import ClientPeer
from forebay.hub.paused_calls import PausedCalls
from forebay.hub.requests import UpstreamCallFailed, UpstreamRequest, resolve_inputs
from forebay.hub.router import Router
from forebay.hub.tenants import Tenant, TenantPool
from forebay.hub.upstreams import MCPUpstream
from forebay.operations.errors import CallError
from forebay.operations.responses import needs_result_wrapper
from forebay.operations.spec import OperationSpec
from forebay.outputs.result import error_result, strip_server_fields
from forebay.wire.protocol import add_result_fields, is_modern

__all__ = ["Forwarding"]

_log = logging.getLogger("forebay")

_Context = ServerRequestContext[Any, Any]

_TENANT_KEY = "forebay"

_CONNECTION_META_KEYS = (PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY)
"""Keys of `_meta` that describe the client's connection and are not forwarded."""

_MODERN_ONLY_KEYS = ("ttlMs", "cacheScope")


class Forwarding:
    """Middleware of the hub's server that forwards each message to the upstreams of its client."""

    def __init__(
        self,
        make_tenant: Callable[[ClientPeer], Tenant],
        tenants: TenantPool,
        server_info: dict[str, Any],
        paused_calls: PausedCalls,
    ) -> None:
        self._make_tenant = make_tenant
        self._tenants = tenants
        self._paused_calls = paused_calls
        self._server_info = server_info

    async def __call__(self, ctx: _Context, call_next: CallNext) -> HandlerResult:
        if ctx.method == "initialize":
            return await self._initialize(ctx, call_next)
        if ctx.request_id is None:
            async with self._acquire_notified_tenants(ctx) as tenants:
                for tenant in tenants:
                    await self._forward_notification(ctx, tenant)
                return await call_next(ctx)
        async with self.acquire_tenant(ctx) as tenant:
            return await self._handle(ctx, call_next, tenant)

    async def _handle(self, ctx: _Context, call_next: CallNext, tenant: Tenant) -> HandlerResult:
        match ctx.method:
            case "server/discover":
                return _merge_capabilities(await call_next(ctx), tenant)
            case "tools/list":
                return await self._list_tools(ctx, call_next, tenant)
            case "tools/call":
                return await self._call_tool(ctx, call_next, tenant)
            case "subscriptions/listen":
                with tenant.subscriptions.listen(ctx.params or {}):
                    return await call_next(ctx)
            case "ping":
                return await call_next(ctx)
            case _ if not tenant.upstreams:
                return await call_next(ctx)
        return await self._forward_request(ctx, tenant)

    @contextlib.asynccontextmanager
    async def acquire_tenant(self, ctx: _Context) -> AsyncIterator[Tenant]:
        """Yield the tenant of the requesting client."""
        if is_modern(ctx.protocol_version):
            meta = (ctx.params or {}).get("_meta")
            capabilities = meta.get(CLIENT_CAPABILITIES_META_KEY) if isinstance(meta, dict) else None
            async with self._tenants.acquire(get_principal(get_access_token()), capabilities) as tenant:
                yield tenant
        else:
            connection: ClientConnection = get_server_connection(ctx.session)
            tenant = connection.state.get(_TENANT_KEY) or self._new_tenant(ctx, connection, {})
            await tenant.start()
            yield tenant

    @contextlib.asynccontextmanager
    async def _acquire_notified_tenants(self, ctx: _Context) -> AsyncIterator[list[Tenant]]:
        """Yield the tenants that a client's notification is for.

        Without a handshake, a notification does not say which capabilities its client has, so it is for all tenants of
        the principal.
        """
        if is_modern(ctx.protocol_version):
            async with self._tenants.acquire_open(get_principal(get_access_token())) as tenants:
                yield tenants
        else:
            async with self.acquire_tenant(ctx) as tenant:
                yield [tenant]

    def _new_tenant(self, ctx: _Context, connection: ClientConnection, capabilities: dict[str, Any]) -> Tenant:
        end_session = get_session_ender(ctx.request, connection.session_id)
        tenant = connection.state[_TENANT_KEY] = self._make_tenant(
            ClientPeer(connection, capabilities, self._paused_calls.answer_timeout, end_session)
        )
        connection.exit_stack.push_async_callback(tenant.close)
        return tenant

    async def _initialize(self, ctx: _Context, call_next: CallNext) -> HandlerResult:
        connection: ClientConnection = get_server_connection(ctx.session)
        capabilities = (ctx.params or {}).get("capabilities")
        tenant = connection.state.get(_TENANT_KEY)
        if tenant is None:
            tenant = self._new_tenant(ctx, connection, capabilities if isinstance(capabilities, dict) else {})
        await tenant.start()
        return _merge_capabilities(await call_next(ctx), tenant)

    async def _forward_notification(self, ctx: _Context, tenant: Tenant) -> None:
        """Forward a client notification to all upstreams, unless our connections send their own."""
        is_ours = ctx.method in ("notifications/initialized", "notifications/cancelled")
        if is_ours or not ctx.method.startswith("notifications/"):
            # A method that is not a notification's could be a call to a server that is less strict than the protocol.
            return
        for upstream in tenant.upstreams.values():
            try:
                connection = await upstream.get_connection()
                await send_notification(connection.client.session, ctx.method, ctx.params)
            except (CallError, MCPError) as error:
                _log.debug("forebay: %s was not told of %s: %s", upstream.name, ctx.method, error)

    async def _list_tools(self, ctx: _Context, call_next: CallNext, tenant: Tenant) -> HandlerResult:
        page = await call_next(ctx)
        if not isinstance(page, dict):
            return page
        tools = page.get("tools") or ()
        # One lookup for all tools: a lookup for each tool would take quadratic time.
        specs = tenant.tools.find_all(ctx, (tool["name"] for tool in tools))
        namespaces = {spec.namespace for spec in specs.values()} & tenant.upstreams.keys()
        lists = {name: await self._list_upstream(ctx, tenant.upstreams[name]) for name in namespaces}

        def with_upstream_fields(tool: dict[str, Any]) -> dict[str, Any]:
            spec = specs.get(tool["name"])
            is_complete, by_name = (False, {}) if spec is None else lists.get(spec.namespace, (False, {}))
            fields = None if spec is None else by_name.get(spec.name)
            return tool if fields is None else {**({} if is_complete else tool), **fields, "name": tool["name"]}

        return {**await _list_extras(tenant), **page, "tools": [with_upstream_fields(tool) for tool in tools]}

    async def _list_upstream(self, ctx: _Context, upstream: MCPUpstream) -> tuple[bool, dict[str, dict[str, Any]]]:
        """Return whether the returned fields of a server's tools are complete, and these fields by tool name.

        They are complete if client and server use the same protocol era. Otherwise only the fields that exist in both
        eras (annotations and `_meta`) are returned.
        """
        try:
            tools = (await upstream.get_connection()).listed_tools
            is_complete = await upstream.is_modern() == is_modern(ctx.protocol_version)
        except CallError:
            return False, {}
        by_name: dict[str, dict[str, Any]] = {}
        for tool in tools:
            fields = {key: value for key, value in tool.items() if is_complete or key in ("annotations", "_meta")}
            by_name.setdefault(str(tool.get("name")), fields)
        return is_complete, by_name

    async def _call_tool(self, ctx: _Context, call_next: CallNext, tenant: Tenant) -> HandlerResult:
        params = dict(ctx.params or {})
        name = params.get("name")
        spec = tenant.tools.find(ctx, name) if isinstance(name, str) else None
        if spec is None and tenant.has_single_upstream:
            # Forward the call although the tool is unknown: the server may have tools that it does not list.
            (upstream,) = tenant.upstreams.values()
        elif spec is None or spec.namespace not in tenant.upstreams:
            return await call_next(ctx)
        else:
            upstream, params["name"] = tenant.upstreams[spec.namespace], spec.name
        try:
            result = await self._forward(ctx, tenant, upstream, params)
        except UpstreamCallFailed as failure:
            return add_result_fields(ctx.method, error_result(failure.error), ctx.protocol_version, self._server_info)
        if spec is None or is_modern(ctx.protocol_version):
            return result
        return _wrap_structured_content(result, spec, await upstream.is_modern())

    async def _forward_request(self, ctx: _Context, tenant: Tenant) -> HandlerResult:
        async def forward(upstream: MCPUpstream, params: dict[str, Any]) -> dict[str, Any]:
            return await self._forward(ctx, tenant, upstream, params)

        try:
            upstreams = [*tenant.upstreams.values()]
            upstream = upstreams[0] if len(upstreams) == 1 else tenant.find_task_owner(ctx)
            if upstream is not None:
                return await forward(upstream, dict(ctx.params or {}))
            return self._translate_result(ctx, await Router(tenant, forward)(ctx.method, dict(ctx.params or {})))
        except UpstreamCallFailed as failure:
            data = failure.error.to_dict()["error"]
            raise MCPError(code=INTERNAL_ERROR, message=str(failure.error), data=data) from failure
        except LookupError as error:
            code = METHOD_NOT_FOUND if error.args[0] == ctx.method else INVALID_PARAMS
            message = "Method not found" if code == METHOD_NOT_FOUND else str(error.args[0])
            raise MCPError(code=code, message=message, data=ctx.method) from None

    async def _forward(
        self, ctx: _Context, tenant: Tenant, upstream: MCPUpstream, params: dict[str, Any]
    ) -> dict[str, Any]:
        """Send a request to an upstream; return the result in the client's protocol era."""
        client_meta = params.pop("_meta", None) or {}
        if not isinstance(client_meta, dict):
            raise MCPError(code=INVALID_PARAMS, message="_meta is an object; send one, or none")
        meta = {key: value for key, value in client_meta.items() if key not in _CONNECTION_META_KEYS}
        capabilities = client_meta.get(CLIENT_CAPABILITIES_META_KEY)
        async with tenant.client.track_request(
            ctx.session, upstream, meta.get("progressToken"), capabilities
        ) as client_request:
            if client_request.upstream_progress_token is not None:
                meta["progressToken"] = client_request.upstream_progress_token
            params = {**params, **({"_meta": meta} if meta else {})}
            request = UpstreamRequest(ctx.method, params, capabilities, ctx.request is not None, client_request)
            if is_modern(ctx.protocol_version):
                result = await self._paused_calls.forward(request, tenant.client, upstream)
            else:
                result = await resolve_inputs(request, tenant.client, upstream)
        return self._translate_result(ctx, result)

    def _translate_result(self, ctx: _Context, result: dict[str, Any]) -> dict[str, Any]:
        """Return an upstream's result with the fields of the client's protocol era and with our server info."""
        if not is_modern(ctx.protocol_version):
            bare = strip_server_fields(result) if "resultType" in result else result
            return {
                key: value for key, value in bare.items() if key not in _MODERN_ONLY_KEYS or "resultType" not in result
            }
        if "resultType" not in result:
            return add_result_fields(ctx.method, result, ctx.protocol_version, self._server_info)
        return {
            **add_result_fields(ctx.method, strip_server_fields(result), ctx.protocol_version, self._server_info),
            **_get_protocol_fields(result),
        }


async def _list_extras(tenant: Tenant) -> dict[str, Any]:
    """Return the fields of the upstream's `tools/list` result besides the tools, if there is only one upstream."""
    if not tenant.has_single_upstream:
        return {}
    (upstream,) = tenant.upstreams.values()
    try:
        return (await upstream.get_connection()).listing_extras
    except CallError:
        return {}


def _get_protocol_fields(result: dict[str, Any]) -> dict[str, Any]:
    return {key: result[key] for key in ("resultType", *_MODERN_ONLY_KEYS) if key in result}


def _wrap_structured_content(result: dict[str, Any], spec: OperationSpec, is_modern_upstream: bool) -> dict[str, Any]:
    """Wrap structured content if it or its schema is not of type object, as versions before 2026-07-28 require."""
    structured = result.get("structuredContent")
    if not is_modern_upstream or "structuredContent" not in result:
        return result
    if isinstance(structured, dict) and not needs_result_wrapper(spec.output_schema):
        return result
    return {**result, "structuredContent": {"result": structured}}


def _merge_capabilities(result: HandlerResult, tenant: Tenant) -> HandlerResult:
    """Add the capabilities and instructions of the upstreams to our own."""
    if not isinstance(result, dict):
        return result
    ours = result.get("capabilities") or {}
    merged = {**tenant.capabilities, **ours}
    for name, theirs in tenant.capabilities.items():
        if isinstance(theirs, dict) and isinstance(ours.get(name), dict):
            merged[name] = {**theirs, **ours[name], **{key: True for key in theirs if theirs[key] is True}}
    tools = {**(merged.get("tools") or {}), "listChanged": True}
    result = {**result, "capabilities": {**merged, "tools": tools}}
    return {**result, "instructions": tenant.instructions} if tenant.instructions else result
