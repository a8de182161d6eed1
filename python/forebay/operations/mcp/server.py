"""Operations as tools of an MCP server.

server = serve_operations(registry, forebay=Forebay(output_mode="auto"))
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from mcp.server import Server
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolRequestParams, ListToolsResult, PaginatedRequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from forebay.adapters.mcp import Forebay, get_principal
from forebay.arguments import short_repr
from forebay.errors import InvalidArgument
from forebay.operations.registry import OperationRegistry
from forebay.operations.spec import Identity, OperationSpec
from forebay.operations.tool_names import Origin, ToolNames
from forebay.operations.tools import call_operation, define_tool, describe_unknown_tool
from forebay.outputs.result import BodyResult
from forebay.outputs.sink import PLACEHOLDER_RESULT, current_sink
from forebay.store.threads import run_in_pool

__all__ = ["OperationTools", "Origin", "serve_operations"]

_Context = ServerRequestContext[Any, Any]


def serve_operations(
    registry: OperationRegistry,
    server: Server[Any] | None = None,
    *,
    forebay: Forebay | None = None,
    identity: Callable[[_Context], Identity | None] | None = None,
) -> Server[Any]:
    """Serve the operations of a registry as tools, except subscriptions. Later changes of the registry are served too.

    A tool has the name of its operation, prefixed with the namespace if several operations have that name. `identity`
    returns the caller of a request, by default from its access token; operations the caller may not call are not
    listed for it. With a `forebay`, large results become handles.

    Names are stable: a name is not given to another operation, and stays valid as long as its operation exists, unless
    it has not been listed for 10,000 newer names.
    """
    if not isinstance(registry, OperationRegistry):
        raise InvalidArgument(f"serve_operations() takes an OperationRegistry, not {short_repr(registry)}")
    server = Server("operations") if server is None else server
    if not isinstance(server, Server) or server.get_request_handler("tools/call") is not None:
        raise InvalidArgument("serve_operations() takes a low-level mcp.server.Server that has no tools of its own")
    tools = OperationTools(registry, identity)
    server.add_request_handler("tools/list", PaginatedRequestParams, tools.list)
    server.add_request_handler("tools/call", CallToolRequestParams, tools.call)
    if forebay is not None:
        forebay.install(server)
    return server


class OperationTools:
    """The handlers of `tools/list` and `tools/call` for the operations of a registry."""

    def __init__(
        self,
        registry: OperationRegistry,
        identity: Callable[[_Context], Identity | None] | None = None,
    ) -> None:
        self._registry = registry
        self._identity = identity or _get_identity_from_token
        self._names = ToolNames()

    def _list_visible_tools(self, identity: Identity | None) -> dict[str, OperationSpec]:
        specs = {_get_origin(spec): spec for spec in self._registry if spec.type != "subscription"}
        names = self._names.assign(specs)
        return {name: specs[origin] for name, origin in names.items() if specs[origin].access_control.allows(identity)}

    async def list(self, ctx: _Context, params: PaginatedRequestParams) -> HandlerResult:
        del params
        visible = self._list_visible_tools(self._identity(ctx))
        tools = [define_tool(name, spec, is_legacy=_is_legacy(ctx)) for name, spec in visible.items()]
        return ListToolsResult.model_validate({"tools": tools})

    async def call(self, ctx: _Context, params: CallToolRequestParams) -> HandlerResult:
        identity = self._identity(ctx)
        visible = self._list_visible_tools(identity)
        spec = self._find_visible(params.name, visible)
        if spec is None:
            # A tool that the caller may not call gives the same error, so that its existence is not revealed.
            raise MCPError(code=INVALID_PARAMS, message=describe_unknown_tool(params.name, visible))
        result = await call_operation(
            self._registry,
            spec,
            params.arguments or {},
            tool=params.name,
            identity=identity,
            request_id=ctx.request_id,
            is_legacy=_is_legacy(ctx),
        )
        if isinstance(result, BodyResult):
            sink = current_sink()
            if sink is not None and await run_in_pool(partial(sink.try_store, result)):
                # The middleware of the sink puts the stored result in place of this one.
                result = PLACEHOLDER_RESULT
            else:
                result = await run_in_pool(result.to_result)
        return {"resultType": "complete", **result}

    def _find_visible(self, name: str, visible_specs: Mapping[str, OperationSpec]) -> OperationSpec | None:
        """Return the operation of a tool, or `None`. Its earlier names, from before a name clash, work too."""
        if name in visible_specs:
            return visible_specs[name]
        origin = self._names.origins.get(name)
        return next((spec for spec in visible_specs.values() if _get_origin(spec) == origin), None)


def _get_origin(spec: OperationSpec) -> Origin:
    return spec.namespace, spec.name


def _is_legacy(ctx: _Context) -> bool:
    return ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS


def _get_identity_from_token(ctx: _Context) -> Identity | None:
    del ctx
    token = get_access_token()
    return None if token is None else Identity(cast("str", get_principal(token)), frozenset(token.scopes))
