"""What of the protocol is the upstreams' own: it goes on to them as it came, and so does what they answer."""

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

from forebay.adapters.mcp import principal_of
from forebay.hub.client_peer import Front
from forebay.hub.questions import Questions
from forebay.hub.rounds import in_rounds
from forebay.hub.router import Routes
from forebay.hub.send import Failed, Request
from forebay.hub.tenant import Scope
from forebay.hub.tenant_pool import Scopes
from forebay.hub.upstreams import MCPUpstream
from forebay.operations.errors import CallError
from forebay.operations.responses import is_wrapped
from forebay.operations.spec import OperationSpec
from forebay.outputs.result import without_stamp
from forebay.outputs.tools import error_result
from forebay.wire.messages import enveloped, is_modern

__all__ = ["Passing"]

_log = logging.getLogger("forebay")

_Context = ServerRequestContext[Any, Any]

_SCOPE = "forebay"

_OF_THE_CONNECTION = (PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY)
"""What a request says of the connection that it came by."""

_ONLY_MODERN = ("ttlMs", "cacheScope")


class Passing:
    """Middleware of the server in front."""

    def __init__(
        self, make_scope: Callable[[Front], Scope], scopes: Scopes, stamp: dict[str, Any], questions: Questions
    ) -> None:
        self._make_scope = make_scope
        self._scopes = scopes
        self._questions = questions
        self._stamp = stamp

    async def __call__(self, ctx: _Context, call_next: CallNext) -> HandlerResult:
        if ctx.method == "initialize":
            return await self._initialize(ctx, call_next)
        async with self.scope_of(ctx) as scope:
            return await self._answered(ctx, call_next, scope)

    async def _answered(self, ctx: _Context, call_next: CallNext, scope: Scope) -> HandlerResult:
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
                with scope.subscriptions.wanted(ctx.params or {}):
                    return await call_next(ctx)
            case "ping":
                return await call_next(ctx)
            case _ if not scope.upstreams:
                return await call_next(ctx)
        return await self._passed(ctx, scope)

    @contextlib.asynccontextmanager
    async def scope_of(self, ctx: _Context) -> AsyncIterator[Scope]:
        """What is behind the client that asks, while it does."""
        if is_modern(ctx.protocol_version):
            async with self._scopes.used_by(principal_of(get_access_token())) as scope:
                yield scope
        else:
            connection: ClientConnection = ctx.session._connection
            scope = connection.state.get(_SCOPE) or self._new_scope(connection, {})
            await scope.start()
            yield scope

    def _new_scope(self, connection: ClientConnection, capabilities: dict[str, Any]) -> Scope:
        scope = connection.state[_SCOPE] = self._make_scope(Front(connection, capabilities, self._questions.seconds))
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
                _log.debug("forebay: %s was not told of %s: %s", upstream.name, ctx.method, error)

    async def _list_tools(self, ctx: _Context, call_next: CallNext, scope: Scope) -> HandlerResult:
        page = await call_next(ctx)
        if not isinstance(page, dict):
            return page
        tools = page.get("tools") or ()
        # All at once: looked for one by one, they take the square of their number.
        specs = scope.tools.find_all(ctx, (tool["name"] for tool in tools))
        behind = {spec.namespace for spec in specs.values()} & scope.upstreams.keys()
        lists = {name: await self._listed(ctx, scope.upstreams[name]) for name in behind}

        def listed(tool: dict[str, Any]) -> dict[str, Any]:
            spec = specs.get(tool["name"])
            is_whole, by_name = (False, {}) if spec is None else lists.get(spec.namespace, (False, {}))
            own = None if spec is None else by_name.get(spec.name)
            return tool if own is None else {**({} if is_whole else tool), **own, "name": tool["name"]}

        return {**await _beside_tools(scope), **page, "tools": [listed(tool) for tool in tools]}

    async def _listed(self, ctx: _Context, upstream: MCPUpstream) -> tuple[bool, dict[str, dict[str, Any]]]:
        """What a server lists, by name, and whether that is all of it: it is in the same version of the protocol.

        In another, a tool is listed as it is served here, but for what it says of itself in every version: a filter
        may go by that.
        """
        try:
            tools = (await upstream.connection()).listed
            is_whole = await upstream.is_modern() == is_modern(ctx.protocol_version)
        except CallError:
            return False, {}
        by_name: dict[str, dict[str, Any]] = {}
        for tool in tools:
            own = {key: value for key, value in tool.items() if is_whole or key in ("annotations", "_meta")}
            by_name.setdefault(str(tool.get("name")), own)
        return is_whole, by_name

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
            if (upstream := scope.made(ctx)) is not None:
                return await forward(upstream, dict(ctx.params or {}))
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
        async with scope.front.asking(ctx.session, upstream, meta.get("progressToken"), capabilities) as asking:
            if asking.used is not None:
                meta["progressToken"] = asking.used
            params = {**params, **({"_meta": meta} if meta else {})}
            request = Request(ctx.method, params, capabilities, ctx.request is not None, asking)
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
