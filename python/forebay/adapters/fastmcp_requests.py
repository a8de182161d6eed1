"""Who calls a server of fastmcp, and over what."""

from typing import Any

from fastmcp.server.dependencies import FastMCPRequestContext, get_access_token, get_context
from fastmcp.server.middleware import MiddlewareContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from forebay.adapters.mcp import connection_of, lasting, principal_of
from forebay.outputs.pipeline import Call
from forebay.outputs.policy import Gate
from forebay.outputs.tools import Caller
from forebay.store.handles import LONG, SHORT

__all__ = ["about_call", "call_of", "caller_of", "lasting_of", "request_now", "request_of"]


def request_of(context: MiddlewareContext[Any]) -> FastMCPRequestContext | None:
    """The request that a middleware is called with; `None` for what the program does itself."""
    return context.fastmcp_context.request_context if context.fastmcp_context else None


def request_now() -> FastMCPRequestContext | None:
    """The request that is being answered; `None` outside of one."""
    try:
        return get_context().request_context
    except RuntimeError:
        return None


def caller_of(gate: Gate) -> Caller:
    """Who calls, as far as fastmcp knows; outside of a request, the program itself."""
    principal, request = principal_of(get_access_token()), request_now()
    if request is None or request.request is None:
        return Caller(principal)
    is_ascii = request.protocol_version in MODERN_PROTOCOL_VERSIONS
    return Caller(principal, is_one_of_many=gate.is_open(request.request), is_ascii=is_ascii)


def call_of(tool: str, request: FastMCPRequestContext | None, gate: Gate) -> Call:
    """A call of a tool, as the pipeline has to know it."""
    principal = principal_of(get_access_token())
    if request is None:
        return Call(tool, principal, handle_length=gate.handle_length or SHORT)
    # What the client called: in front of the name is that under which this server is mounted in another one.
    asked = str((request._srctx.params or {}).get("name", tool))
    namespace = asked.removesuffix(tool) if asked.endswith(tool) else ""
    return Call(
        tool,
        principal,
        protocol_version=request.protocol_version,
        request_id=request.request_id,
        # Over HTTP whoever can reach the server may guess.
        handle_length=gate.handle_length or (SHORT if request.request is None else LONG),
        is_ascii=request.request is not None and request.protocol_version in MODERN_PROTOCOL_VERSIONS,
        fetch_with=namespace + gate.tools.fetch_with if namespace else None,
    )


def about_call(context: MiddlewareContext[Any], call: Call) -> dict[str, Any]:
    """Whose answer it is, and as what it goes out."""
    request = request_of(context)
    return {
        "principal": call.principal,
        "connection": None if request is None else connection_of(request.session, request.protocol_version),
        "request_id": call.request_id,
        "is_ascii": call.is_ascii,
    }


def lasting_of(context: MiddlewareContext[Any]) -> object:
    """The connection of a request, if it lasts and can be told that a list has changed."""
    request = request_of(context)
    return None if request is None else lasting(request.session, request.protocol_version)
