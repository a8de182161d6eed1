"""The span of each request of a client, and its context in requests to servers."""

import contextlib
from collections.abc import Mapping
from typing import Any

from forebay.telemetry import inject_context, start_span
from forebay.wire.framing import Message
from forebay.wire.lazy_json import as_lazy, dump, open_container, to_text
from forebay.wire.messages import get_meta, replace_values

__all__ = ["add_trace_context", "trace_request"]

_CONTEXT_KEYS = ("traceparent", "tracestate", "baggage")


def trace_request(message: Mapping[str, Any], version: str) -> contextlib.AbstractContextManager[object]:
    """Return a span for a request, with the names that the conventions of OpenTelemetry give to MCP.

    Its parent is the span whose context the client has sent in `_meta`.
    """
    method, params = message["method"], message.get("params")
    name = to_text(params.get("name")) if isinstance(params, dict) else None
    attributes = {"mcp.method.name": method, "mcp.protocol.version": version, "jsonrpc.request.id": str(message["id"])}
    if name is not None:
        attributes["gen_ai.prompt.name" if method == "prompts/get" else "gen_ai.tool.name"] = name
    meta = get_meta(params)
    parent = {key: to_text(meta[key]) for key in _CONTEXT_KEYS if key in meta}
    return start_span(f"{method} {name}" if name else method, attributes, kind="SERVER", parent=parent)


def add_trace_context(raw: Message) -> Message:
    """Return a request with the context of the current span in `_meta`; unchanged if nobody collects spans."""
    context: dict[str, str] = {}
    inject_context(context)
    if not context:
        return raw
    params = as_lazy(raw).members(("params",)).get("params")
    if params is None or not params.is_object:
        return raw
    meta = params.members(("_meta",)).get("_meta")
    if meta is None:
        return replace_values(raw, {}, {("params",): b'"_meta":' + dump(context)})
    opened = open_container(meta)
    if not isinstance(opened, dict):
        return raw
    return replace_values(raw, {("params", "_meta"): dump({**opened, **context})})
