"""Operations as the tools of an MCP server.

server = serve_operations(registry, forebay=Forebay(output_mode="auto"))
"""

import collections
import contextlib
import difflib
import functools
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
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

from forebay.arguments import shown
from forebay.envelope import MCPResponseMeta, ResponseEnvelope
from forebay.errors import InvalidArgument
from forebay.operations.deadlines import after
from forebay.operations.dialect import is_openapi_3_0, modernize
from forebay.operations.errors import CallError
from forebay.operations.registry import OperationRegistry
from forebay.operations.results import in_thread, is_large
from forebay.operations.serving import error_to_call_tool_result, is_wrapped, to_call_tool_result
from forebay.operations.spec import CallContext, Identity, OperationSpec
from forebay.operations.validation import Schema, is_meaningful
from forebay.servers.mcp import Forebay, principal_of
from forebay.servers.result import UNSTRUCTURED
from forebay.servers.schemas import or_else

__all__ = ["OperationTools", "serve_operations", "tool_names"]

_log = logging.getLogger("forebay")

_Context = ServerRequestContext[Any, Any]

_LONGEST_NAME = 128

_INPUT = "input"

_DEEPEST = 180
"""Levels of what is structured. The SDK writes 254 of a message, and reads 200 of it."""

_UNSTRUCTURED_SCHEMA = {
    "type": "object",
    "description": "The answer is in the content, and is not structured.",
    "properties": {"unstructured": {"const": True}},
    "required": ["unstructured"],
}
"""What a schema cannot promise: there are responses without a body, pages of HTML, and tools that only say a text.
Clients that check what comes refuse a result that is not what was listed, content and all."""


def serve_operations(
    registry: OperationRegistry,
    server: Server[Any] | None = None,
    *,
    forebay: Forebay | None = None,
    identity: Callable[[_Context], Identity | None] | None = None,
) -> Server[Any]:
    """Serves what a registry holds, at any time, as tools; subscriptions are left out.

    A tool has the name of its operation or, where that is not the only one of that name, the namespace before it. Who
    calls is said by `identity`, else by the token of the request; what they may not call they are not shown either.
    With a `forebay`, results that are too large become handles.

    Names are stable: one that an operation had is never another's, and it can be called by it for as long as it lasts.
    """
    if not isinstance(registry, OperationRegistry):
        raise InvalidArgument(f"serve_operations() takes an OperationRegistry, not {shown(registry)}")
    server = Server("operations") if server is None else server
    if not isinstance(server, Server) or server.get_request_handler("tools/call") is not None:
        raise InvalidArgument("serve_operations() takes a low-level mcp.server.Server that has no tools of its own")
    tools = OperationTools(registry, identity)
    server.add_request_handler("tools/list", PaginatedRequestParams, tools.list)
    server.add_request_handler("tools/call", CallToolRequestParams, tools.call)
    if forebay is not None:
        forebay.install(server)
    return server


def tool_names(
    specs: Iterable[OperationSpec], given: dict[str, str] | None = None, prefixes: Mapping[str, str] | None = None
) -> dict[str, OperationSpec]:
    """Operations by the names of their tools. `given` is the ids by the names they ever had; it is kept up.

    `prefixes` are what namespaces have before all of their names.
    """
    given, prefixes = {} if given is None else given, prefixes or {}

    def plainly(spec: OperationSpec) -> str:
        return _fit(prefixes.get(spec.namespace, "") + spec.name)

    specs = [spec for spec in specs if spec.type != "subscription"]
    plain = collections.Counter(map(plainly, specs))
    numbers: collections.Counter[str] = collections.Counter()
    named: dict[str, OperationSpec] = {}
    for spec in specs:
        name = plainly(spec)
        if plain[name] > 1 or given.get(name, spec.id) != spec.id:
            base = name = _fit(f"{spec.namespace}_{spec.name}")
            # Counting goes on where it stopped, so that a thousand of a name are not tried a thousand times each.
            while given.get(name, spec.id) != spec.id or name in plain or name in named:
                numbers[base] += 1
                name = f"{base[: _LONGEST_NAME - 8]}_{numbers[base] + 1}"
        named[name] = spec
        given[name] = spec.id
    return named


class OperationTools:
    """What a registry holds as tools: the handlers of `tools/list` and `tools/call`."""

    def __init__(
        self,
        registry: OperationRegistry,
        identity: Callable[[_Context], Identity | None] | None = None,
        prefixes: Mapping[str, str] | None = None,
        given: dict[str, str] | None = None,
        order: Iterable[str] = (),
        call_timeout: float | None = None,
    ) -> None:
        self._registry = registry
        # Who comes first must not be a matter of who was there first: names depend on it.
        self._places = {namespace: place for place, namespace in enumerate(order)}
        self._prefixes = prefixes
        self._identity = identity or _by_token
        self._given: dict[str, str] = {} if given is None else given
        self._call_timeout = call_timeout

    def _shown_to(self, identity: Identity | None) -> dict[str, OperationSpec]:
        ordered = sorted(self._registry, key=lambda spec: self._places.get(spec.namespace, len(self._places)))
        named = tool_names(ordered, self._given, self._prefixes)
        return {name: spec for name, spec in named.items() if spec.access_control.allows(identity)}

    async def list(self, ctx: _Context, params: PaginatedRequestParams) -> HandlerResult:
        del params
        shown = self._shown_to(self._identity(ctx))
        return ListToolsResult(tools=[_tool(name, spec, _is_legacy(ctx)) for name, spec in shown.items()])

    async def call(self, ctx: _Context, params: CallToolRequestParams) -> HandlerResult:
        identity = self._identity(ctx)
        shown = self._shown_to(identity)
        spec = self._named(params.name, shown)
        if spec is None:
            # Whoever may not call it does not learn that it is there.
            near = difflib.get_close_matches(params.name[:_LONGEST_NAME], shown, 3, 0.4)
            hint = f"did you mean {' or '.join(near)}? tools/list has all" if near else "tools/list has all"
            raise MCPError(code=INVALID_PARAMS, message=f"Unknown tool: {params.name:.128}; {hint}")
        try:
            result = await self._called(ctx, spec, params.arguments or {}, identity)
        except CallError as error:
            result = error_to_call_tool_result(error)
        return {"resultType": "complete", **result}

    def find(self, ctx: _Context, name: str) -> OperationSpec | None:
        """The operation that a tool is, if whoever asks may call it."""
        return self._named(name, self._shown_to(self._identity(ctx)))

    def find_all(self, ctx: _Context, names: Iterable[str]) -> dict[str, OperationSpec]:
        """The same of many tools, without those that are none."""
        shown = self._shown_to(self._identity(ctx))
        by_id = {spec.id: spec for spec in shown.values()}
        found = ((name, shown.get(name) or by_id.get(self._given.get(name, ""))) for name in names)
        return {name: spec for name, spec in found if spec is not None}

    def _named(self, name: str, shown: Mapping[str, OperationSpec]) -> OperationSpec | None:
        """By its name, else by what it was called when it was listed, before another came. An id is no name."""
        if name in shown:
            return shown[name]
        operation_id = self._given.get(name)
        return next((spec for spec in shown.values() if spec.id == operation_id), None)

    async def _called(
        self, ctx: _Context, spec: OperationSpec, arguments: Mapping[str, Any], identity: Identity | None
    ) -> dict[str, Any]:
        request = None if ctx.request_id is None else str(ctx.request_id)
        given = arguments.get(_INPUT) if _is_under_input(spec.input_schema) else dict(arguments)
        context = CallContext(request, identity=identity, deadline=after(self._call_timeout))
        envelope = await self._registry.execute(spec.id, given, context)
        result = functools.partial(_result, envelope, spec, _is_legacy(ctx))
        try:
            return await in_thread(result) if is_large(envelope.data) else result()
        except (TypeError, ValueError, RecursionError) as error:
            _log.debug("forebay: %s cannot be served", spec.id, exc_info=True)
            raise CallError("EXECUTION_ERROR", f"{spec.id} answered what cannot be written as JSON: {error}") from error


def _result(envelope: ResponseEnvelope[Any], spec: OperationSpec, is_legacy: bool) -> dict[str, Any]:
    result = _kept(to_call_tool_result(envelope, spec=spec, is_legacy=is_legacy), spec, is_legacy)
    if isinstance(envelope.meta, MCPResponseMeta):
        # It goes out as a handler may have made it, and the SDK ends with what it cannot write.
        to_json(result)
    return result


def _kept(result: dict[str, Any], spec: OperationSpec, is_legacy: bool) -> dict[str, Any]:
    """A result that is what was listed; where it is not, that it is not structured."""
    if _is_deep(result.get("structuredContent")):
        result = {key: value for key, value in result.items() if key != "structuredContent"}
    if result["isError"] or not _is_listed(spec):
        return result
    # On the wire, null is the same as nothing.
    told = structured = result.get("structuredContent")
    if is_legacy and is_wrapped(spec.output_schema) and isinstance(structured, Mapping):
        structured = structured["result"]
    is_fit = told is not None and not spec.output.problems(structured)
    return result if is_fit else {**result, "structuredContent": UNSTRUCTURED}


def _is_deep(value: Any) -> bool:
    """Whether it is nested so deeply that it cannot be sent, or not be read where it arrives."""
    level = [value]
    for _ in range(_DEEPEST):
        holding = [each for each in level if isinstance(each, Mapping | list | tuple)]
        if not holding:
            return False
        level = [inner for each in holding for inner in (each.values() if isinstance(each, Mapping) else each)]
    return True


def _is_listed(spec: OperationSpec) -> bool:
    """Whether its schema says something, and can be understood: clients refuse all results under one that cannot."""
    return is_meaningful(spec.output_schema) and spec.output._validator is not None


def _tool(name: str, spec: OperationSpec, is_legacy: bool) -> Tool:
    return Tool(
        name=name,
        description=_writable(spec.description) or None,
        input_schema=_writable(_input_schema(spec.input_schema)),
        output_schema=_writable(_output_schema(spec.output_schema, is_legacy)) if _is_listed(spec) else None,
        annotations=ToolAnnotations(read_only_hint=spec.type == "query"),
    )


def _writable(told: Any) -> Any:
    """What can be sent. Half of a surrogate pair, as where a text was cut, cannot be, and the SDK ends with it."""
    try:
        orjson.dumps(told)
    except TypeError:
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            text = json.dumps(told, ensure_ascii=False)
            return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    return told


def _input_schema(schema: Schema | None) -> dict[str, Any]:
    """What a tool is called with is an object, whether the operation says so or not."""
    told = schema if isinstance(schema, Mapping) else {}
    if not _is_under_input(schema):
        return {**told, "type": "object"}
    return {"type": "object", "properties": {_INPUT: {"$id": "forebay:input", **told}}, "required": [_INPUT]}


def _is_under_input(schema: Schema | None) -> bool:
    """Whether what an operation takes is no object, such as a list, so that it is an argument of its own."""
    if not isinstance(schema, Mapping) or "type" not in schema:
        return False
    return "object" not in (schema["type"] if isinstance(schema["type"], list) else [schema["type"]])


def _output_schema(schema: Schema | None, is_legacy: bool) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        schema = {"not": {}}
    # Clients do not know what OpenAPI 3.0 says in words of its own.
    told: Mapping[str, Any] = cast("Mapping[str, Any]", modernize(schema)) if is_openapi_3_0(schema) else schema
    if not (is_legacy and is_wrapped(schema)):
        return or_else(told, _UNSTRUCTURED_SCHEMA)
    # With a name of its own, what it refers to is still looked for in it.
    inner = {"$id": "forebay:result", **told}
    wrapped = {"properties": {"result": inner}, "required": ["result"]}
    return {"type": "object", "anyOf": [wrapped, _UNSTRUCTURED_SCHEMA]}


def _is_legacy(ctx: _Context) -> bool:
    return ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS


def _by_token(ctx: _Context) -> Identity | None:
    del ctx
    token = get_access_token()
    return None if token is None else Identity(cast("str", principal_of(token)), frozenset(token.scopes))


def _fit(name: str) -> str:
    """A name as tools have them."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:_LONGEST_NAME]
