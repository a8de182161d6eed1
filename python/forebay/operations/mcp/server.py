"""Operations as tools of an MCP server.

server = serve_operations(registry, forebay=Forebay(output_mode="auto"))
"""

import collections
import contextlib
import difflib
import functools
import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, cast

import orjson
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
from pydantic_core import to_json

from forebay.adapters.mcp import Forebay, get_principal
from forebay.arguments import short_repr
from forebay.envelope import MCPResponseMeta, ResponseEnvelope
from forebay.errors import InvalidArgument
from forebay.operations.deadlines import deadline_after
from forebay.operations.errors import CallError
from forebay.operations.registry import OperationRegistry
from forebay.operations.responses import error_to_call_tool_result, needs_result_wrapper, to_call_tool_result
from forebay.operations.results import is_large
from forebay.operations.spec import CallContext, Identity, OperationSpec
from forebay.operations.validation import Schema, is_openapi_3_0, modernize
from forebay.outputs.result import UNSTRUCTURED
from forebay.outputs.schemas import allow_alternative
from forebay.store.threads import run_in_pool

__all__ = ["OperationTools", "Origin", "assign_tool_names", "serve_operations"]

_log = logging.getLogger("forebay")

_Context = ServerRequestContext[Any, Any]

_MAX_NAME_CHARS = 128

_INPUT_KEY = "input"
"""Argument that holds an input which is not an object."""

Origin = tuple[str, str]
"""Namespace and name of the operation behind a tool."""

_MAX_FORMER_NAMES = 10_000
"""Maximum number of names to remember besides those of the tools that are listed."""

_MAX_DEPTH = 180
"""Maximum nesting depth of structured content. The SDK writes messages up to 254 levels deep, and reads up to 200."""

_UNSTRUCTURED_SCHEMA = {
    "type": "object",
    "description": "The answer is in the content, and is not structured.",
    "properties": {"unstructured": {"const": True}},
    "required": ["unstructured"],
}
"""Alternative in every listed output schema, for results that are not structured, such as an HTML page or plain text.

Without this alternative, clients that validate results would reject such a result, content included.
"""


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


def assign_tool_names(
    specs: Iterable[OperationSpec],
    origins: dict[str, Origin] | None = None,
    prefixes: Mapping[str, str] | None = None,
) -> dict[str, OperationSpec]:
    """Return the operations by their tool names.

    `origins` maps every name assigned so far to its operation, and is updated. `prefixes` maps a namespace to a prefix
    for the names of its tools.
    """
    origins, prefixes = {} if origins is None else origins, prefixes or {}

    def make_short_name(spec: OperationSpec) -> str:
        return _to_tool_name(prefixes.get(spec.namespace, "") + spec.name)

    specs = [spec for spec in specs if spec.type != "subscription"]
    short_names = collections.Counter(map(make_short_name, specs))
    suffixes: collections.Counter[str] = collections.Counter()
    specs_by_name: dict[str, OperationSpec] = {}
    for spec in specs:
        name, origin = make_short_name(spec), _get_origin(spec)
        if short_names[name] > 1 or origins.get(name, origin) != origin:
            base = name = _to_tool_name(f"{spec.namespace}_{spec.name}")
            # The counter is kept between specs, so that a thousand equal names do not take a million attempts.
            while origins.get(name, origin) != origin or name in short_names or name in specs_by_name:
                suffixes[base] += 1
                name = f"{base[: _MAX_NAME_CHARS - 8]}_{suffixes[base] + 1}"
        specs_by_name[name] = spec
        origins[name] = origin
    while len(origins) > len(specs_by_name) + _MAX_FORMER_NAMES:
        _forget_former_names(origins, specs_by_name)
    return specs_by_name


def _get_origin(spec: OperationSpec) -> Origin:
    return spec.namespace, spec.name


def _forget_former_names(origins: dict[str, Origin], current_names: Collection[str]) -> None:
    """Forget the older half of the former names in the namespace that has most of them.

    So a server that always lists other tools does not use up memory, and does not displace the names of other servers.
    """
    former_names: dict[str, list[str]] = {}
    for name, (namespace, _) in origins.items():
        if name not in current_names:
            former_names.setdefault(namespace, []).append(name)
    most = max(former_names.values(), key=len)
    for name in most[: -(-len(most) // 2)]:
        del origins[name]


class OperationTools:
    """The handlers of `tools/list` and `tools/call` for the operations of a registry."""

    def __init__(
        self,
        registry: OperationRegistry,
        identity: Callable[[_Context], Identity | None] | None = None,
        prefixes: Mapping[str, str] | None = None,
        origins: dict[str, Origin] | None = None,
        namespace_order: Iterable[str] = (),
        call_timeout: float | None = None,
    ) -> None:
        self._registry = registry
        # Names depend on the order of operations, so the order must not depend on which server connected first.
        self._namespace_ranks = {namespace: rank for rank, namespace in enumerate(namespace_order)}
        self._prefixes = prefixes
        self._identity = identity or _get_identity_from_token
        self._origins: dict[str, Origin] = {} if origins is None else origins
        self._call_timeout = call_timeout

    def _list_visible_tools(self, identity: Identity | None) -> dict[str, OperationSpec]:
        ranks = self._namespace_ranks
        ordered = sorted(self._registry, key=lambda spec: ranks.get(spec.namespace, len(ranks)))
        tools = assign_tool_names(ordered, self._origins, self._prefixes)
        return {name: spec for name, spec in tools.items() if spec.access_control.allows(identity)}

    async def list(self, ctx: _Context, params: PaginatedRequestParams) -> HandlerResult:
        del params
        visible = self._list_visible_tools(self._identity(ctx))
        return ListToolsResult(tools=[_to_tool(name, spec, _is_legacy(ctx)) for name, spec in visible.items()])

    async def call(self, ctx: _Context, params: CallToolRequestParams) -> HandlerResult:
        identity = self._identity(ctx)
        visible = self._list_visible_tools(identity)
        spec = self._find_visible(params.name, visible)
        if spec is None:
            # A tool that the caller may not call gives the same error, so that its existence is not revealed.
            near = difflib.get_close_matches(params.name[:_MAX_NAME_CHARS], visible, 3, 0.4)
            hint = f"did you mean {' or '.join(near)}? tools/list has all" if near else "tools/list has all"
            raise MCPError(code=INVALID_PARAMS, message=f"Unknown tool: {params.name:.128}; {hint}")
        try:
            result = await self._execute(ctx, spec, params.arguments or {}, identity)
        except CallError as error:
            result = error_to_call_tool_result(error)
        return {"resultType": "complete", **result}

    def find(self, ctx: _Context, name: str) -> OperationSpec | None:
        """Return the operation of a tool, or `None` if the caller may not call it."""
        return self._find_visible(name, self._list_visible_tools(self._identity(ctx)))

    def find_all(self, ctx: _Context, names: Iterable[str]) -> dict[str, OperationSpec]:
        """Return the operations of several tools, without unknown ones."""
        visible = self._list_visible_tools(self._identity(ctx))
        by_origin = {_get_origin(spec): spec for spec in visible.values()}
        specs = ((name, visible.get(name) or by_origin.get(self._origins.get(name, ("", "")))) for name in names)
        return {name: spec for name, spec in specs if spec is not None}

    def _find_visible(self, name: str, visible_specs: Mapping[str, OperationSpec]) -> OperationSpec | None:
        """Return the operation of a tool, or `None`. Its earlier names, from before a name clash, work too."""
        if name in visible_specs:
            return visible_specs[name]
        origin = self._origins.get(name)
        return next((spec for spec in visible_specs.values() if _get_origin(spec) == origin), None)

    async def _execute(
        self, ctx: _Context, spec: OperationSpec, arguments: Mapping[str, Any], identity: Identity | None
    ) -> dict[str, Any]:
        request_id = None if ctx.request_id is None else str(ctx.request_id)
        input_data = arguments.get(_INPUT_KEY) if _takes_input_argument(spec.input_schema) else dict(arguments)
        context = CallContext(request_id, identity=identity, deadline=deadline_after(self._call_timeout))
        envelope = await self._registry.execute(spec.id, input_data, context)
        to_result = functools.partial(_to_result, envelope, spec, _is_legacy(ctx))
        try:
            return await run_in_pool(to_result) if is_large(envelope.data) else to_result()
        except (TypeError, ValueError, RecursionError) as error:
            _log.debug("forebay: %s cannot be served", spec.id, exc_info=True)
            raise CallError("EXECUTION_ERROR", f"{spec.id} answered what cannot be written as JSON: {error}") from error


def _to_result(envelope: ResponseEnvelope[Any], spec: OperationSpec, is_legacy: bool) -> dict[str, Any]:
    result = _match_listed_schema(to_call_tool_result(envelope, spec=spec, is_legacy=is_legacy), spec, is_legacy)
    if isinstance(envelope.meta, MCPResponseMeta):
        # A handler may have built this result from anything. Fail here if it is not JSON: the SDK's server would crash.
        to_json(result)
    return result


def _match_listed_schema(result: dict[str, Any], spec: OperationSpec, is_legacy: bool) -> dict[str, Any]:
    """Return a result that fits the listed output schema, marked as unstructured if its data does not fit."""
    if _is_too_deep(result.get("structuredContent")):
        result = {key: value for key, value in result.items() if key != "structuredContent"}
    if result["isError"] or not spec.output.has_rules:
        return result
    structured = data = result.get("structuredContent")
    if is_legacy and needs_result_wrapper(spec.output_schema) and isinstance(structured, Mapping):
        data = structured["result"]
    # In a message, `null` means that there is no structured content, so `None` does not fit any schema.
    fits = structured is not None and not spec.output.problems(data)
    return result if fits else {**result, "structuredContent": UNSTRUCTURED}


def _is_too_deep(value: Any) -> bool:
    """Return whether a value is nested too deeply to be sent or read."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        containers = [item for item in level if isinstance(item, Mapping | list | tuple)]
        if not containers:
            return False
        level = [child for item in containers for child in (item.values() if isinstance(item, Mapping) else item)]
    return True


def _to_tool(name: str, spec: OperationSpec, is_legacy: bool) -> Tool:
    return Tool(
        name=name,
        description=_replace_surrogates(spec.description) or None,
        input_schema=_replace_surrogates(_make_input_schema(spec.input_schema)),
        # An invalid output schema is not listed, because clients would reject all results.
        output_schema=_replace_surrogates(_make_output_schema(spec.output_schema, is_legacy))
        if spec.output.has_rules
        else None,
        annotations=ToolAnnotations(read_only_hint=spec.type == "query"),
    )


def _replace_surrogates(value: Any) -> Any:
    """Replace lone surrogates, which occur in truncated text. The SDK's server crashes if it cannot serialize them."""
    try:
        orjson.dumps(value)
    except TypeError:
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            text = json.dumps(value, ensure_ascii=False)
            return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    return value


def _make_input_schema(schema: Schema | None) -> dict[str, Any]:
    """Return the input schema to list. It always describes an object."""
    original = schema if isinstance(schema, Mapping) else {}
    if not _takes_input_argument(schema):
        return {**original, "type": "object"}
    properties = {_INPUT_KEY: {"$id": "forebay:input", **original}}
    return {"type": "object", "properties": properties, "required": [_INPUT_KEY]}


def _takes_input_argument(schema: Schema | None) -> bool:
    """Return whether the input is a list or a scalar, which has to be passed as the argument `input`."""
    if not isinstance(schema, Mapping) or "type" not in schema:
        return False
    return "object" not in (schema["type"] if isinstance(schema["type"], list) else [schema["type"]])


def _make_output_schema(schema: Schema | None, is_legacy: bool) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        schema = {"not": {}}
    # Clients do not understand the OpenAPI 3.0 dialect.
    converted: Mapping[str, Any] = cast("Mapping[str, Any]", modernize(schema)) if is_openapi_3_0(schema) else schema
    if not (is_legacy and needs_result_wrapper(schema)):
        return allow_alternative(converted, _UNSTRUCTURED_SCHEMA)
    # References like `#/$defs/x` are relative to the nearest `$id`, so a schema with its own `$id` can be nested.
    result_schema = {"$id": "forebay:result", **converted}
    wrapped = {"properties": {"result": result_schema}, "required": ["result"]}
    return {"type": "object", "anyOf": [wrapped, _UNSTRUCTURED_SCHEMA]}


def _is_legacy(ctx: _Context) -> bool:
    return ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS


def _get_identity_from_token(ctx: _Context) -> Identity | None:
    del ctx
    token = get_access_token()
    return None if token is None else Identity(cast("str", get_principal(token)), frozenset(token.scopes))


def _to_tool_name(name: str) -> str:
    """Replace characters that tool names may not have."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:_MAX_NAME_CHARS]
