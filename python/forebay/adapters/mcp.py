"""forebay in a server of the `mcp` SDK: one line, and results that are too large become handles.

server = MCPServer("crawler")
Forebay(output_mode="auto").install(server)
"""

import contextlib
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ParamSpec, TypeVar, cast

import anyio.to_thread
from mcp.server import MCPServer, Server
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, principal_components
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, SERVER_INFO_META_KEY, methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from forebay.errors import ForebayError, InvalidArgument
from forebay.outputs.modes import Mode
from forebay.outputs.pipeline import ResultSink, ToolCall
from forebay.outputs.policy import OutputPolicy
from forebay.outputs.result import strip_stamp
from forebay.outputs.tasks import TASK_RESULT_METHODS, TaskOwners, get_task_result, set_task_result
from forebay.outputs.tools import RESOURCE_TEMPLATE, Caller, error_result, is_resource_uri, read_resource, text_result
from forebay.store.handles import LONG_HANDLE_LENGTH, SHORT_HANDLE_LENGTH
from forebay.store.payload import encode
from forebay.store.principals import client_principal, subject_principal
from forebay.wire.protocol import next_cursor

__all__ = ["Forebay", "get_connection", "get_lasting_connection", "get_principal", "get_task_owners"]

_Context = ServerRequestContext[Any, Any]

_MAX_LIST_PAGES = 100
"""How many pages of tools are looked through."""

_MODERN_FIELDS = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""What the newest version of the protocol wants of results, or of some of them."""


_S = TypeVar("_S", bound=MCPServer[Any] | Server[Any])
_P = ParamSpec("_P")
_T = TypeVar("_T")


class Forebay(OutputPolicy):
    """Middleware of a server: it sees what goes over the wire, in every version of the protocol.

    The options are those of `Gate`, and of a store: `Forebay("file:///path", output_mode="auto", ttl=3600)`.
    """

    _server_info: dict[str, Any] | None = None

    def install(self, server: _S) -> _S:
        """Makes a server large-payload safe, and returns it."""
        if not isinstance(server, MCPServer | Server):
            raise InvalidArgument(
                f"install() takes a server of the mcp SDK, not {type(server).__module__}.{type(server).__qualname__}; "
                "for fastmcp there is forebay.adapters.fastmcp.ForebayMiddleware"
            )
        if any(isinstance(installed, Forebay) for installed in server.middleware):
            raise InvalidArgument("this server has a forebay already; give that one the options")
        server.middleware.append(self)
        low_level = getattr(server, "_lowlevel_server", server)
        self._server_info = getattr(low_level, "server_info_stamp", None)
        self.reserve_stamp(self._server_info)
        return server

    async def __call__(self, ctx: _Context, call_next: CallNext) -> HandlerResult:
        if ctx.request_id is None:
            # A notification, whatever it is called.
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
            case "resources/templates/list":
                return await self._on_templates_list(ctx, call_next)
            case "resources/list":
                page = await _list_page(ctx, call_next)
                return page or self._shape_result(ctx, {"resources": []})
            case "initialize" | "server/discover":
                has_changes = ctx.method == "initialize" and self.tools.expand_tool is not None
                return _add_capabilities(await call_next(ctx), has_changes=has_changes)
        return await call_next(ctx)

    async def _on_tools_call(self, ctx: _Context, call_next: CallNext) -> HandlerResult:
        params = ctx.params or {}
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str):
            return await call_next(ctx)
        if self.must_list_tools(name):
            # A server that cannot list its tools just now can still be called.
            with contextlib.suppress(Exception):
                await self._learn_tools(ctx, call_next)
        call = self._make_call(ctx, name)
        principal, is_ascii = call.principal, call.is_ascii
        if name in self.tools:
            return await self._on_own_tool_call(ctx, call_next, call)
        if (refusal := self.refuse_disabled(name, principal)) is not None:
            return self._shape_result(ctx, refusal)
        given = arguments if isinstance(arguments, Mapping) else {}
        try:
            mode, rest = self.resolve_mode(name, given)
            if self.has_references(rest):
                rest = await _run_in_thread(self.resolve_references, name, rest, principal)
        except ForebayError as error:
            return self._shape_result(ctx, error_result(error))
        if rest is not given:
            ctx = replace(ctx, params={**params, "arguments": rest})
        delivery = ResultSink(self.pipeline, replace(call, contract=mode.contract), mode)
        with (
            self.make_context(principal, call.handle_length, is_ascii=is_ascii, limits=mode.contract) as place,
            delivery,
        ):
            result = await call_next(ctx)
        self.tasks.remember(result, name, mode, get_task_owners(ctx))
        if delivery.replacement is not None:
            answer = self._shape_result(ctx, strip_stamp(delivery.replacement))
            self._record_response(ctx, name, answer, mode, is_inline=False)
            return answer
        if place.failure is not None and _hides_error(result, name):
            result = {**cast("dict[str, Any]", result), **text_result(str(place.failure), is_error=True)}
        if not isinstance(result, dict) or self.pipeline.is_inline(result, mode, is_ascii=is_ascii):
            self._record_response(ctx, name, result, mode)
            return result
        call = replace(call, contract=mode.contract, contract_responses=place.responses)
        answer = await _run_in_thread(self.pipeline.store_result, result, call)
        self._record_response(ctx, name, answer, mode, is_inline=False)
        return answer

    def _make_call(self, ctx: _Context, tool: str) -> ToolCall:
        return ToolCall(
            tool=tool,
            principal=_current_principal(),
            protocol_version=ctx.protocol_version,
            request_id=ctx.request_id,
            # Over HTTP whoever can reach the server may guess.
            handle_length=self.handle_length or (SHORT_HANDLE_LENGTH if ctx.request is None else LONG_HANDLE_LENGTH),
            is_ascii=_is_ascii(ctx),
        )

    async def _on_task_result(self, ctx: _Context, call_next: CallNext) -> HandlerResult:
        """The result of a call that was answered with a task."""
        tool, mode = self.tasks.find_call(ctx.params, get_task_owners(ctx)) or (
            ctx.method,
            self.resolve_mode("", {})[0],
        )
        call = replace(self._make_call(ctx, tool), contract=mode.contract)
        with ResultSink(self.pipeline, call, mode) as delivery:
            whole = await call_next(ctx)
        result, answer = get_task_result(ctx.method, whole), delivery.replacement
        if not isinstance(whole, dict) or not isinstance(result, dict):
            return whole
        if answer is not None:
            answer = _copy_envelope(result, strip_stamp(answer))
        elif not self.pipeline.is_inline(result, mode, is_ascii=call.is_ascii):
            around = len(encode(set_task_result(ctx.method, whole, 0))) - 1
            answer = await _run_in_thread(self.pipeline.store_result, result, replace(call, envelope_bytes=around))
        self._record_response(ctx, tool, result if answer is None else answer, mode, is_inline=answer is None)
        return whole if answer is None else cast("dict[str, Any]", set_task_result(ctx.method, whole, answer))

    async def _on_own_tool_call(self, ctx: _Context, call_next: CallNext, call: ToolCall) -> HandlerResult:
        """What a tool of ours answers."""
        caller = Caller(call.principal, is_public=self.is_public(ctx.request), is_ascii=call.is_ascii)
        if call.tool == self.tools.expand_tool:
            # What others are shown is nothing to this caller.
            tools = self.rewrite_tools(await self._list_all_tools(ctx, call_next))
            caller = replace(
                caller,
                tools=tools,
                expanded_tools=self.get_expanded(get_lasting_connection(ctx.session, ctx.protocol_version)),
            )
        before = set(caller.expanded_tools or ())
        answer = self._shape_result(
            ctx, await _run_in_thread(self.call_own_tool, (ctx.params or {}).get("arguments"), caller, call)
        )
        if before != (caller.expanded_tools or set()):
            await ctx.session.send_tool_list_changed()
        self._record_response(ctx, call.tool, answer)
        return answer

    def _record_response(
        self, ctx: _Context, tool: str, answer: object, mode: Mode | None = None, *, is_inline: bool = True
    ) -> None:
        # Most servers are not watched, and their calls should not pay for it.
        if self.monitor is not None:
            self.record_response(
                tool,
                answer,
                mode,
                is_inline=is_inline,
                principal=_current_principal(),
                connection=get_connection(ctx.session, ctx.protocol_version),
                request_id=ctx.request_id,
                is_ascii=_is_ascii(ctx),
            )

    async def _learn_tools(self, ctx: _Context, call_next: CallNext) -> None:
        """Asks the server for its tools: before that a call of one of ours could be of one of its own."""
        self.learn_tools(await self._list_all_tools(ctx, call_next))

    async def _list_all_tools(self, ctx: _Context, call_next: CallNext) -> list[dict[str, Any]]:
        tools: list[dict[str, Any]] = []
        cursors: list[str | None] = [None]
        # Some servers give the same page for every cursor.
        while len(cursors) <= _MAX_LIST_PAGES and len(set(cursors)) == len(cursors):
            params = {**_select_meta(ctx), **({} if cursors[-1] is None else {"cursor": cursors[-1]})}
            page = await _list_page(replace(ctx, method="tools/list", params=params), call_next)
            tools += page.get("tools") or []
            cursors.append(next_cursor(page))
            await anyio.sleep(0)
        return tools

    async def _on_tools_list(self, ctx: _Context, call_next: CallNext) -> HandlerResult:
        if self.capabilities.is_active and not self.knows_tools:
            # Which capabilities there are shows only when all tools are known.
            await self._learn_tools(ctx, call_next)
        page = await _list_page(ctx, call_next)
        tools, is_last = page.get("tools") or [], next_cursor(page) is None
        self.learn_tools(tools, is_complete=is_last and "cursor" not in (ctx.params or {}))
        expanded = self.get_expanded(get_lasting_connection(ctx.session, ctx.protocol_version)) or ()
        return self._append_items(
            ctx, page, "tools", self.list_visible(tools, expanded), self.tools.list_definitions() if is_last else []
        )

    async def _on_templates_list(self, ctx: _Context, call_next: CallNext) -> HandlerResult:
        page = await _list_page(ctx, call_next)
        ours = [RESOURCE_TEMPLATE] if next_cursor(page) is None else []
        return self._append_items(ctx, page, "resourceTemplates", page.get("resourceTemplates") or [], ours)

    async def _on_resources_read(self, ctx: _Context) -> HandlerResult:
        uri = (ctx.params or {})["uri"]
        try:
            page = await _run_in_thread(
                read_resource, self.store, uri, self.max_page_bytes, _current_principal(), is_ascii=_is_ascii(ctx)
            )
            return self._shape_result(ctx, page)
        except ForebayError as error:
            raise MCPError(code=INVALID_PARAMS, message=str(error), data=error.to_dict()["error"]) from None

    def _append_items(
        self, ctx: _Context, page: dict[str, Any], key: str, theirs: list[Any], ours: list[Any]
    ) -> dict[str, Any]:
        """A page of a list with ours at its end; theirs is as it was, to the byte."""
        shaped = self._shape_result(ctx, {key: ours})
        return {**(page or shaped), key: [*theirs, *shaped[key]]}

    def _shape_result(self, ctx: _Context, result: dict[str, Any]) -> dict[str, Any]:
        """A result of ours as this version of the protocol has it."""
        is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        shaped = methods.serialize_server_result(
            ctx.method, ctx.protocol_version, {**_MODERN_FIELDS, **result} if is_modern else result
        )
        if is_modern and self._server_info is not None:
            shaped["_meta"] = {SERVER_INFO_META_KEY: self._server_info, **(shaped.get("_meta") or {})}
        return shaped


def _current_principal() -> str | None:
    return get_principal(get_access_token())


def get_principal(token: AccessToken | None) -> str | None:
    """Issuer and subject of the token, else the client, else nobody in particular."""
    if token is None:
        return None
    client, issuer, subject = principal_components(token)
    return client_principal(client) if subject is None else subject_principal(issuer, subject)


def get_connection(session: ServerSession, protocol_version: str) -> Any:
    """What lasts from one call to the next; nothing does since sessions are gone."""
    return None if protocol_version in MODERN_PROTOCOL_VERSIONS else getattr(session, "_connection", None)


def get_lasting_connection(session: ServerSession, protocol_version: str) -> object:
    """The connection, if it lasts and can be told that a list has changed."""
    connection = get_connection(session, protocol_version)
    return connection if connection is not None and connection.has_standalone_channel else None


def get_task_owners(ctx: _Context) -> TaskOwners:
    """Whose tasks a request may name: those of its connection, if that lasts, else of its principal."""
    connection = get_connection(ctx.session, ctx.protocol_version)
    # A task must not keep it.
    return (_current_principal(),) if connection is None else (weakref.ref(connection), _current_principal())


def _is_ascii(ctx: _Context) -> bool:
    """Whether what goes out is escaped to ASCII: the SDK does that over HTTP, in the newest version."""
    return ctx.request is not None and ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def _copy_envelope(placeholder: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """An answer with what its version of the protocol has put around what stood in its place."""
    meta = {**(placeholder.get("_meta") or {}), **(answer.get("_meta") or {})}
    return {**placeholder, **answer, **({"_meta": meta} if meta else {})}


def _hides_error(result: HandlerResult, tool: str) -> bool:
    """Whether the SDK shows nothing of what a tool raised but that it did."""
    block = {"type": "text", "text": f"Error executing tool {tool}"}
    return isinstance(result, dict) and result.get("isError") is True and result.get("content") == [block]


async def _run_in_thread(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    return await anyio.to_thread.run_sync(partial(function, *args, **kwargs))


def _select_meta(ctx: _Context) -> dict[str, Any]:
    return {"_meta": ctx.params["_meta"]} if ctx.params and "_meta" in ctx.params else {}


async def _list_page(ctx: _Context, call_next: CallNext) -> dict[str, Any]:
    """What a server lists; nothing, where it has no such list."""
    try:
        page = await call_next(ctx)
    except MCPError as error:
        if error.error.code != METHOD_NOT_FOUND:
            raise
        return {}
    return page if isinstance(page, dict) else {}


def _add_capabilities(result: HandlerResult, *, has_changes: bool) -> HandlerResult:
    """There are tools and resources now, whatever the server had before."""
    if not isinstance(result, dict):
        return result
    capabilities = dict(result.get("capabilities") or {})
    for name in ("tools", "resources"):
        capabilities.setdefault(name, {})
    if has_changes:
        capabilities["tools"] = {**capabilities["tools"], "listChanged": True}
    return {**result, "capabilities": capabilities}
