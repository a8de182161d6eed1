"""`forebay` in a program that collects spans, as lines of JSON: `python traced_forebay.py FILE ARGUMENT…`."""

import sys
from pathlib import Path

from forebay.cli import main
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor


def to_line(span: ReadableSpan) -> str:
    return f"{span.to_json(indent=None)}\n"


if __name__ == "__main__":
    with Path(sys.argv.pop(1)).open("a", buffering=1) as file:
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=file, formatter=to_line)))
        trace.set_tracer_provider(provider)
        main()
