"""Traces and metrics, collected by the SDK of OpenTelemetry in a process of its own, where providers can be set."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import contextlib, json, sys
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
metrics.set_meter_provider(MeterProvider([reader]))

import asyncio
import forebay

async def main():
    with forebay.open_store(sys.argv[1], sweep_interval=0) as store:
        with trace.get_tracer("caller").start_as_current_span("call"):
            descriptor = await store.put_async([{"id": n} for n in range(5000)], source_tool="crawl")
            page = await store.fetch_async(descriptor.output_handle, limit=10)
        store.search(descriptor.output_handle, "4999")
        store.query(descriptor.output_handle, "SELECT count(*) AS n FROM items")
        for handle in ("oh_AAAAAAAAAAAA", 7):
            with contextlib.suppress(forebay.HandleNotFound):
                store.fetch(handle)
        store.delete(descriptor.output_handle)
        return len(descriptor.to_json()), descriptor.size_bytes

shown, size = asyncio.run(main())
spans = exporter.get_finished_spans()
names = {span.context.span_id: span.name for span in spans}
points = [
    (metric.name, dict(point.attributes), point.value)
    for scope in reader.get_metrics_data().resource_metrics[0].scope_metrics
    for metric in scope.metrics
    for point in metric.data.data_points
]
print(json.dumps({
    "spans": [
        (span.name, names.get(span.parent and span.parent.span_id), dict(span.attributes), span.status.is_ok)
        for span in spans
    ],
    "points": points, "shown": shown, "size": size,
}))
"""


def collect(folder: Path) -> Any:
    command = [sys.executable, "-c", SCRIPT, (folder / "store").as_uri()]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout)


@pytest.mark.posix
def test_calls_of_a_store_are_traced_and_counted(tmp_path: Path) -> None:
    collected = collect(tmp_path)
    spans = [(name, parent) for name, parent, _, _ in collected["spans"]]
    assert spans == [
        ("forebay.put", "call"),
        ("forebay.page", "call"),
        ("call", None),
        ("forebay.search", None),
        ("forebay.query", None),
        ("forebay.page", None),
        ("forebay.page", None),
    ]
    put, page = collected["spans"][0][2], collected["spans"][1][2]
    assert put["forebay.source_tool"] == "crawl"
    assert put["forebay.size"] == collected["size"]
    assert page == {"forebay.handle": put["forebay.handle"]}
    # What a model sent in place of a handle is not repeated.
    assert [attributes for _, _, attributes, _ in collected["spans"][-2:]] == [
        {"forebay.handle": "oh_AAAAAAAAAAAA"},
        {},
    ]
    assert [is_ok for *_, is_ok in collected["spans"]] == [True, True, True, True, True, False, False]
    totals: dict[str, int] = {}
    for name, attributes, value in collected["points"]:
        totals["/".join([name, *attributes.values()])] = value
    assert totals["forebay.handles/created"] == totals["forebay.handles/deleted"] == 1
    assert totals["forebay.handles/fetched"] == 3
    assert totals["forebay.refusals/output_handle_not_found"] == 2
    assert totals["forebay.stored"] == collected["size"]
    assert totals["forebay.kept_out"] == totals["forebay.stored"] - totals["forebay.returned"]
    assert totals["forebay.returned"] > collected["shown"]


def test_without_a_program_that_collects_nothing_is_imported() -> None:
    script = (
        "import pathlib, sys, forebay, tempfile\n"
        "with tempfile.TemporaryDirectory() as folder, forebay.open_store(pathlib.Path(folder, 's')) as store:\n"
        "    store.fetch(store.put([1, 2, 3]).output_handle)\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    result = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    assert result.stdout == "[]\n"
