"""What of the protocol is the upstreams' own: it goes on to them as it came, and so does what they answer."""

import logging
from collections.abc import Callable
from typing import Any, cast

from mcp.server.connection import Connection as ClientConnection
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.subscriptions import SubscriptionBus
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION_META_KEY,
)

from headgate.gateway.messages import enveloped, is_modern
from headgate.gateway.serving.front import Front
from headgate.gateway.serving.listeners import listening_behind
from headgate.gateway.serving.questions import Questions
from headgate.gateway.serving.rounds import in_rounds
from headgate.gateway.serving.routes import Routes
from headgate.gateway.serving.scope import Scope
from headgate.gateway.serving.sending import Failed, Request
from headgate.gateway.serving.sources import MCPUpstream
from headgate.operations.errors import CallError
from headgate.operations.serving import is_wrapped
from headgate.operations.spec import OperationSpec
from headgate.servers.result import without_stamp
from headgate.servers.tools import error_result

__all__ = ["Passing"]

_log = logging.getLogger("headgate")

_Context = ServerRequestContext[Any, Any]

_SCOPE = "headgate"

_OF_THE_CONNECTION = (PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY)
"""What a request says of the connection that it came by."""

_ONLY_MODERN = ("ttlMs", "cacheScope")


class Passing:
    """Middleware of the server in front."""

    def __init__(
        self, make_scope: Callable[[Front], Scope], stamp: dict[str, Any], bus: SubscriptionBus, questions: Questions
    ) -> None:
        self._make_scope = make_scope
        self._bus = bus
        self._questions = questions
        self._stamp = stamp
        self._common: Scope | None = None

    async def __call__(self, ctx: _Context, call_next: CallNext) -> HandlerResult:
        if ctx.method == "initialize":
            return await self._initialize(ctx, call_next)
        scope = await self.scope_of(ctx)
        if ctx.request_id is None:
            await self._notified(ctx, scope)
            return await call_next(ctx)
        match ctx.method:
            case "server/discover":
                return _introduced(await call_next(ctx), scope)
            case "tools/list":
                return await self._list_tools(ctx, call_next, scope)
            case "tools/call":
                return await self._call_tool(ctx, call_next, scope)
            case "subscriptions/listen":
                async with listening_behind(scope, ctx.params or {}):
                    return await call_next(ctx)
            case "ping":
                return await call_next(ctx)
            case _ if not scope.upstreams:
                return await call_next(ctx)
        return await self._passed(ctx, scope)

    async def scope_of(self, ctx: _Context) -> Scope:
        """What is behind the client that asks."""
        connection: ClientConnection = ctx.session._connection
        if not is_modern(ctx.protocol_version):
            scope = connection.state.get(_SCOPE) or self._new_scope(connection, {})
        else:
            # Their requests stand alone.
            scope = self._common = self._common or self._make_scope(Front(bus=self._bus))
        await scope.start()
        return cast("Scope", scope)

    def _new_scope(self, connection: ClientConnection, capabilities: dict[str, Any]) -> Scope:
        scope = connection.state[_SCOPE] = self._make_scope(Front(connection, capabilities))
        connection.exit_stack.push_async_callback(scope.close)
        return scope

    async def _initialize(self, ctx: _Context, call_next: CallNext) -> HandlerResult:
        connection: ClientConnection = ctx.session._connection
        capabilities = (ctx.params or {}).get("capabilities")
        scope = connection.state.get(_SCOPE)
        if scope is None:
            scope = self._new_scope(connection, capabilities if isinstance(capabilities, dict) else {})
        await scope.start()
        return _introduced(await call_next(ctx), scope)

    async def _notified(self, ctx: _Context, scope: Scope) -> None:
        """The servers are told what their client says, but for what our own connection to them says itself."""
        if ctx.method in ("notifications/initialized", "notifications/cancelled"):
            return
        for upstream in scope.upstreams.values():
            try:
                connection = await upstream.connection()
                await connection.client.session._dispatcher.notify(ctx.method, ctx.params)
            except (CallError, MCPError) as error:
                _log.debug("headgate: %s was not told of %s: %s", upstream.name, ctx.method, error)

    async def _list_tools(self, ctx: _Context, call_next: CallNext, scope: Scope) -> HandlerResult:
        page = await call_next(ctx)
        if not isinstance(page, dict):
            return page
        tools = [await self._listed(ctx, scope, tool) for tool in page.get("tools") or ()]
        return {**await _beside_tools(scope), **page, "tools": tools}

    async def _listed(self, ctx: _Context, scope: Scope, tool: dict[str, Any]) -> dict[str, Any]:
        """A tool as its server lists it, if that is of the same version of the protocol; else as it is served here."""
        spec = scope.tools.find(ctx, tool["name"])
        upstream = None if spec is None else scope.upstreams.get(spec.namespace)
        if spec is None or upstream is None:
            return tool
        try:
            connection = await upstream.connection()
        except CallError:
            return tool
        listed = next((each for each in connection.listed if each.get("name") == spec.name), None)
        if listed is None:
            return tool
        if await upstream.is_modern() != is_modern(ctx.protocol_version):
            # What it says of itself is the same in every version, and a filter may go by it.
            return {**tool, **{key: listed[key] for key in ("annotations", "_meta") if key in listed}}
        return {**listed, "name": tool["name"]}

    async def _call_tool(self, ctx: _Context, call_next: CallNext, scope: Scope) -> HandlerResult:
        params = dict(ctx.params or {})
        name = params.get("name")
        spec = scope.tools.find(ctx, name) if isinstance(name, str) else None
        if spec is None and scope.is_sole:
            # What it does not list it may still have.
            (upstream,) = scope.upstreams.values()
        elif spec is None or spec.namespace not in scope.upstreams:
            return await call_next(ctx)
        else:
            upstream, params["name"] = scope.upstreams[spec.namespace], spec.name
        try:
            result = await self._forwarded(ctx, scope, upstream, params)
        except Failed as failure:
            return enveloped(ctx.method, error_result(failure.error), ctx.protocol_version, self._stamp)
        if spec is None or is_modern(ctx.protocol_version):
            return result
        return _as_object(result, spec, await upstream.is_modern())

    async def _passed(self, ctx: _Context, scope: Scope) -> HandlerResult:
        async def forward(upstream: MCPUpstream, params: dict[str, Any]) -> dict[str, Any]:
            return await self._forwarded(ctx, scope, upstream, params)

        async def sole() -> dict[str, Any]:
            (upstream,) = scope.upstreams.values()
            return await forward(upstream, dict(ctx.params or {}))

        try:
            if len(scope.upstreams) == 1:
                return await sole()
            return self._translated(ctx, await Routes(scope, forward)(ctx.method, dict(ctx.params or {})))
        except Failed as failure:
            data = failure.error.to_dict()["error"]
            raise MCPError(code=INTERNAL_ERROR, message=str(failure.error), data=data) from failure
        except LookupError as error:
            code = METHOD_NOT_FOUND if error.args[0] == ctx.method else INVALID_PARAMS
            message = "Method not found" if code == METHOD_NOT_FOUND else str(error.args[0])
            raise MCPError(code=code, message=message, data=ctx.method) from None

    async def _forwarded(
        self, ctx: _Context, scope: Scope, upstream: MCPUpstream, params: dict[str, Any]
    ) -> dict[str, Any]:
        """What an upstream answers, as this client's version of the protocol has it."""
        said = params.pop("_meta", None) or {}
        meta = {key: value for key, value in said.items() if key not in _OF_THE_CONNECTION}
        capabilities = said.get(CLIENT_CAPABILITIES_META_KEY)
        async with scope.front.asking(ctx.session, meta.get("progressToken"), capabilities) as token:
            if token is not None:
                meta["progressToken"] = token
            params = {**params, **({"_meta": meta} if meta else {})}
            request = Request(ctx.method, params, capabilities, is_over_http=ctx.request is not None)
            if is_modern(ctx.protocol_version):
                result = await self._questions.passed(request, scope.front, upstream)
            else:
                result = await in_rounds(request, scope.front, upstream)
        return self._translated(ctx, result)

    def _translated(self, ctx: _Context, result: dict[str, Any]) -> dict[str, Any]:
        """It was said by an upstream, and is said by us now."""
        if not is_modern(ctx.protocol_version):
            bare = without_stamp(result) if "resultType" in result else result
            return {key: value for key, value in bare.items() if key not in _ONLY_MODERN or "resultType" not in result}
        if "resultType" not in result:
            return enveloped(ctx.method, result, ctx.protocol_version, self._stamp)
        return {
            **enveloped(ctx.method, without_stamp(result), ctx.protocol_version, self._stamp),
            **_protocol_s(result),
        }


async def _beside_tools(scope: Scope) -> dict[str, Any]:
    """What an only server says beside its tools; of several, it would be nobody's."""
    if not scope.is_sole:
        return {}
    (upstream,) = scope.upstreams.values()
    try:
        return (await upstream.connection()).beside_listed
    except CallError:
        return {}


def _protocol_s(result: dict[str, Any]) -> dict[str, Any]:
    return {key: result[key] for key in ("resultType", *_ONLY_MODERN) if key in result}


def _as_object(result: dict[str, Any], spec: OperationSpec, is_from_modern: bool) -> dict[str, Any]:
    """Until 2025-11-25, what is structured is an object; it is listed as one, too."""
    structured = result.get("structuredContent")
    if not is_from_modern or "structuredContent" not in result:
        return result
    if isinstance(structured, dict) and not is_wrapped(spec.output_schema):
        return result
    return {**result, "structuredContent": {"result": structured}}


def _introduced(result: HandlerResult, scope: Scope) -> HandlerResult:
    """What can be asked of us is what can be asked of all that is behind us."""
    if not isinstance(result, dict):
        return result
    ours = result.get("capabilities") or {}
    merged = {**scope.capabilities, **ours}
    for name, said in scope.capabilities.items():
        if isinstance(said, dict) and isinstance(ours.get(name), dict):
            merged[name] = {**said, **ours[name], **{key: True for key in said if said[key] is True}}
    tools = {**(merged.get("tools") or {}), "listChanged": True}
    told = {**result, "capabilities": {**merged, "tools": tools}}
    return {**told, "instructions": scope.instructions} if scope.instructions else told
