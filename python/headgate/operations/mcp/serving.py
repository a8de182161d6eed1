"""Operations as the tools of an MCP server.

server = serve_operations(registry, headgate=Headgate(output_mode="auto"))
"""

import collections
import difflib
import itertools
import logging
import re
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, cast

from mcp.server import Server
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    ListToolsResult,
    PaginatedRequestParams,
    Tool,
    ToolAnnotations,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from headgate.errors import InvalidArgument
from headgate.operations.errors import CallError
from headgate.operations.registry import OperationRegistry
from headgate.operations.serving import error_to_call_tool_result, is_wrapped, to_call_tool_result
from headgate.operations.spec import CallContext, Identity, OperationSpec
from headgate.operations.validation import Schema, is_meaningful
from headgate.servers.mcp import Headgate, principal_of

__all__ = ["serve_operations", "tool_names"]

_log = logging.getLogger("headgate")

_Context = ServerRequestContext[Any, Any]

_LONGEST_NAME = 128


def serve_operations(
    registry: OperationRegistry,
    server: Server[Any] | None = None,
    *,
    headgate: Headgate | None = None,
    identity: Callable[[_Context], Identity | None] | None = None,
) -> Server[Any]:
    """Serves what a registry holds, at any time, as tools; subscriptions are left out.

    A tool has the name of its operation or, where that is not the only one of that name, the namespace before it. Who
    calls is said by `identity`, else by the token of the request; what they may not call they are not shown either.
    With a `headgate`, results that are too large become handles.
    """
    server = Server("operations") if server is None else server
    if not isinstance(server, Server) or server.get_request_handler("tools/call") is not None:
        raise InvalidArgument("serve_operations() takes a low-level mcp.server.Server that has no tools of its own")
    tools = _Tools(registry, identity or _by_token)
    server.add_request_handler("tools/list", PaginatedRequestParams, tools.list)
    server.add_request_handler("tools/call", CallToolRequestParams, tools.call)
    if headgate is not None:
        headgate.install(server)
    return server


def tool_names(specs: Iterable[OperationSpec]) -> dict[str, OperationSpec]:
    """Operations by the names of their tools."""
    specs = [spec for spec in specs if spec.type != "subscription"]
    plain = collections.Counter(_fit(spec.name) for spec in specs)
    named: dict[str, OperationSpec] = {}
    for spec in specs:
        name = _fit(spec.name)
        if plain[name] > 1:
            name = _unused(_fit(f"{spec.namespace}_{spec.name}"), {*named, *plain})
        named[name] = spec
    return named


def _unused(name: str, used: Container[str]) -> str:
    numbered = (f"{name[: _LONGEST_NAME - 8]}_{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([name], numbered) if each not in used)


class _Tools:
    def __init__(self, registry: OperationRegistry, identity: Callable[[_Context], Identity | None]) -> None:
        self._registry = registry
        self._identity = identity

    async def list(self, ctx: _Context, params: PaginatedRequestParams) -> HandlerResult:
        del params
        identity = self._identity(ctx)
        shown = {
            name: spec for name, spec in tool_names(self._registry).items() if spec.access_control.allows(identity)
        }
        return ListToolsResult(tools=[_tool(name, spec, _is_legacy(ctx)) for name, spec in shown.items()])

    async def call(self, ctx: _Context, params: CallToolRequestParams) -> HandlerResult:
        named = tool_names(self._registry)
        # By its id, too: what a tool is called changes when another of the same name comes.
        spec = named.get(params.name) or next((each for each in named.values() if each.id == params.name), None)
        if spec is None:
            near = difflib.get_close_matches(params.name, named, 3, 0.4)
            hint = f"; there are {', '.join(near)}" if near else ""
            raise MCPError(code=INVALID_PARAMS, message=f"Unknown tool: {params.name:.128}{hint}")
        try:
            result = await self._called(ctx, spec, params.arguments or {})
        except CallError as error:
            result = error_to_call_tool_result(error)
        return {"resultType": "complete", **result}

    async def _called(self, ctx: _Context, spec: OperationSpec, arguments: Mapping[str, Any]) -> dict[str, Any]:
        identity = self._identity(ctx)
        if not spec.access_control.allows(identity):
            raise CallError("ACCESS_DENIED", f"{spec.id} is not for you; ask for the scopes that it requires")
        request = None if ctx.request_id is None else str(ctx.request_id)
        envelope = await self._registry.execute(spec.id, dict(arguments), CallContext(request, identity=identity))
        try:
            return to_call_tool_result(envelope, spec=spec, is_legacy=_is_legacy(ctx))
        except (TypeError, ValueError) as error:
            _log.debug("headgate: %s cannot be served", spec.id, exc_info=True)
            raise CallError("EXECUTION_ERROR", f"{spec.id} answered what cannot be written as JSON: {error}") from error


def _tool(name: str, spec: OperationSpec, is_legacy: bool) -> Tool:
    return Tool(
        name=name,
        description=spec.description or None,
        input_schema=_of_object(spec.input_schema),
        output_schema=_output_schema(spec.output_schema, is_legacy) if is_meaningful(spec.output_schema) else None,
        annotations=ToolAnnotations(read_only_hint=spec.type == "query"),
    )


def _of_object(schema: Schema | None) -> dict[str, Any]:
    """What a tool is called with is an object, whether the operation says so or not."""
    return {**(schema if isinstance(schema, Mapping) else {}), "type": "object"}


def _output_schema(schema: Schema | None, is_legacy: bool) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        schema = {"not": {}}
    if not (is_legacy and is_wrapped(schema)):
        return dict(schema)
    # With a name of its own, what it refers to is still looked for in it.
    inner = {"$id": "headgate:result", **schema}
    return {"type": "object", "properties": {"result": inner}, "required": ["result"]}


def _is_legacy(ctx: _Context) -> bool:
    return ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS


def _by_token(ctx: _Context) -> Identity | None:
    del ctx
    token = get_access_token()
    return None if token is None else Identity(cast("str", principal_of(token)), frozenset(token.scopes))


def _fit(name: str) -> str:
    """A name as tools have them."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:_LONGEST_NAME]
