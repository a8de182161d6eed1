"""The context of a span in requests whose params cannot hold it."""

from collections.abc import Iterator

import pytest
from forebay.wire.tracing import add_trace_context
from opentelemetry.sdk.trace import TracerProvider


@pytest.fixture(autouse=True)
def _span(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    provider = TracerProvider()
    # A program can set its provider only once.
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: provider)
    with provider.get_tracer("tests").start_as_current_span("a span"):
        yield


def test_the_context_is_added_to_an_object_only() -> None:
    assert b"traceparent" in add_trace_context(b'{"method":"ping","params":{}}')  # type: ignore[operator]
    assert b"traceparent" in add_trace_context(b'{"method":"ping","params":{"_meta":{"x":1}}}')  # type: ignore[operator]
    for raw in (b'{"method":"ping"}', b'{"method":"ping","params":[1]}', b'{"method":"ping","params":{"_meta":[1]}}'):
        assert add_trace_context(raw) == raw
