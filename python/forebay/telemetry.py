"""Traces and metrics of OpenTelemetry, if the program has set it up.

forebay needs only the API, which comes with the MCP SDK, and never imports it first: a program that exports traces or
metrics has imported it already. Without such a program a span costs less than a microsecond.
"""

import contextlib
import functools
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, UpDownCounter
    from opentelemetry.trace import Span, Tracer

__all__ = ["count_event", "inject_context", "is_active", "start_span"]

_NAME = "forebay"

_Kind = Literal["INTERNAL", "SERVER", "CLIENT"]


_NO_SPAN = contextlib.nullcontext(None)


def start_span(
    name: str,
    attributes: Mapping[str, Any] | None = None,
    *,
    kind: _Kind = "INTERNAL",
    parent: Mapping[str, Any] | None = None,
) -> "contextlib.AbstractContextManager[Span | None]":
    """Return a span for a `with` block, which gives `None` if nobody collects spans.

    `parent` has the context of the caller, such as `traceparent`. An exception is recorded, and is the span's status.
    """
    tracer = _find_tracer()
    if tracer is None:
        return _NO_SPAN
    from opentelemetry import propagate, trace

    carrier = {key: value for key, value in (parent or {}).items() if isinstance(value, str)}
    context = propagate.extract(carrier) if carrier else None
    given = {key: value for key, value in (attributes or {}).items() if value is not None}
    return tracer.start_as_current_span(name, context, trace.SpanKind[kind], given)


def is_active() -> bool:
    """Return whether somebody collects spans."""
    return _find_tracer() is not None


def inject_context(carrier: dict[str, str]) -> None:
    """Add the context of the current span, such as `traceparent`, to the metadata or headers of a request."""
    if is_active():
        from opentelemetry import propagate

        propagate.inject(carrier)


def _find_tracer() -> "Tracer | None":
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    provider = trace.get_tracer_provider()
    # These two stand for a provider that nobody has set.
    if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
        return None
    return _make_tracer(provider)


@functools.lru_cache(1)
def _make_tracer(provider: Any) -> "Tracer":
    tracer: Tracer = provider.get_tracer(_NAME)
    return tracer


class _Instruments:
    """What is counted. Until the program sets a provider of meters, the API counts nothing."""

    def __init__(self) -> None:
        from opentelemetry import metrics

        meter = metrics.get_meter(_NAME)
        self.handles: Counter = meter.create_counter("forebay.handles", description="Handles by what happened to them")
        self.kept_out: UpDownCounter = meter.create_up_down_counter(
            "forebay.kept_out", "By", "Bytes of outputs that were stored, less those of descriptors and pages"
        )
        self.stored: Counter = meter.create_counter("forebay.stored", "By", "Bytes of outputs that were stored")
        self.returned: Counter = meter.create_counter("forebay.returned", "By", "Bytes of descriptors and pages")
        self.refusals: Counter = meter.create_counter("forebay.refusals", description="Refused handles and payloads")


_make_instruments = functools.cache(_Instruments)

_HANDLE_EVENTS = {
    f"output_handle_{name}": name for name in ("created", "fetched", "opened", "deleted", "expired", "evicted")
}


def count_event(event: str, details: Mapping[str, Any]) -> None:
    """Count an event of the journal."""
    if "opentelemetry.metrics" not in sys.modules:
        return
    instruments = _make_instruments()
    if event in _HANDLE_EVENTS:
        instruments.handles.add(1, {"event": _HANDLE_EVENTS[event]})
    if event == "output_handle_created":
        size, shown = details.get("size_bytes", 0), details.get("shown_bytes", 0)
        instruments.stored.add(size)
        instruments.returned.add(shown)
        instruments.kept_out.add(size - shown)
    elif event == "output_handle_fetched":
        returned = details.get("returned_bytes", 0)
        instruments.returned.add(returned)
        instruments.kept_out.add(-returned)
    elif event in ("output_handle_refused", "store_failed"):
        instruments.refusals.add(1, {"code": details.get("code", "")})
