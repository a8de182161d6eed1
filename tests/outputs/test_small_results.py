"""No result is replaced by something that is not smaller: above a small inline limit, short results go inline too."""

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from forebay.adapters.agent import AgentOutputs
from forebay.outputs.modes import Mode
from forebay.outputs.pipeline import Pipeline
from forebay.outputs.sink import ResultSink
from forebay.outputs.tool_call import ToolCall
from forebay.store import Store, open_store
from forebay.store.payload import encode
from forebay.wire.lazy_json import parse_lazy

CALL = ToolCall("orders", request_id=7, fetch_with="mcp__shop__output_fetch")
LOW = Mode("auto", 0)


def make_text(size: int) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": ("one line of a log\n" * 400)[:size]}]}


def make_items(size: int) -> dict[str, Any]:
    items = [{"id": number, "status": "paid", "note": "é" * (number % 9)} for number in range(size // 45)]
    return {"content": [{"type": "text", "text": json.dumps(items)}], "structuredContent": {"result": items}}


def make_csv(size: int) -> dict[str, Any]:
    rows = "id,name\n" + "".join(f"{number},ann\n" for number in range(size // 8))
    return {"content": [{"type": "resource", "resource": {"uri": "a:b.csv", "mimeType": "text/csv", "text": rows}}]}


def make_gzip(size: int) -> dict[str, Any]:
    data = gzip.compress(b"".join(b"line %d\n" % (number**3) for number in range(size)))
    resource = {"uri": "a:b.gz", "mimeType": "application/gzip", "blob": base64.b64encode(data).decode()}
    return {"content": [{"type": "resource", "resource": resource}]}


def make_blocks(size: int) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": "x" * (size // 8)}] * 6, "isError": True}


def make_media(size: int) -> dict[str, Any]:
    image = {"type": "image", "data": "AAAA" * 25, "mimeType": "image/png", "annotations": {"title": "t" * 400}}
    return {"content": [{"type": "text", "text": "x" * size}, *([image] * 4)]}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store", sweep_interval=0) as store:
        yield store


@pytest.mark.parametrize("make", [make_text, make_items, make_csv, make_gzip, make_blocks, make_media])
@pytest.mark.parametrize("is_lazy", [False, True])
def test_a_response_with_a_handle_is_smaller_than_its_result(store: Store, make: Any, is_lazy: bool) -> None:
    pipeline = Pipeline(store, "output_fetch")
    stored: list[int] = []
    passed: list[int] = []
    for size in range(0, 5000, 250):
        result = make(size)
        given: Any = parse_lazy(encode(result)) if is_lazy else result
        is_inline = pipeline.is_inline(given, LOW, CALL)
        assert [*store.list()] == []
        response = encode(pipeline.store_result(given, CALL.with_mode(LOW)))
        (entry,) = store.list()
        store.delete(entry.output_handle)
        # What was predicted is what happens.
        assert is_inline == (len(response) >= len(encode(result)))
        (passed if is_inline else stored).append(size)
    assert passed
    assert stored
    assert 0 in passed


def test_a_result_that_cannot_be_serialized_is_left_to_the_server(store: Store) -> None:
    """The server fails to send it, with an error of its own that says why."""
    pipeline = Pipeline(store, "output_fetch")
    for content in ([], [{"type": "text", "text": "raw"}]):
        result = {"content": content, "structuredContent": {"result": b"\xff"}}
        assert pipeline.is_inline(result, Mode("auto", 5000), CALL)
        assert pipeline.store_result(result, CALL) is result
        sink = ResultSink(pipeline, CALL, Mode("handle"))
        assert not sink.try_store(result)
        assert sink.replacement is None
    assert list(store.list()) == []


def test_nothing_is_recorded_of_a_result_that_passes(store: Store) -> None:
    assert Pipeline(store, "output_fetch").is_inline(make_text(1500), Mode("auto", 1000), CALL)
    assert [*store.list()] == []
    assert store.journal.recent(10) == []
    assert [*store.call_counts.read()] == []


def test_what_must_not_go_inline_does_not(store: Store, tmp_path: Path) -> None:
    pipeline = Pipeline(store, "output_fetch")
    image = {"type": "image", "data": base64.b64encode(b"x" * 60).decode(), "mimeType": "image/png"}
    assert not pipeline.is_inline(make_text(10), Mode("handle"), CALL)
    assert not pipeline.is_inline({"content": [image]}, Mode("auto", image_mode="handle"), CALL)
    with open_store(tmp_path / "other", sweep_interval=0, redact=["secret-[0-9]+"]) as other:
        secret = {"content": [{"type": "text", "text": "a secret-123"}]}
        redacting = Pipeline(other, "output_fetch")
        assert not redacting.is_inline(secret, LOW, CALL)
        assert b"secret" not in encode(redacting.store_result(secret, CALL))


@pytest.mark.parametrize("size", [300, 1000, 2000, 3900, 5000])
def test_an_error_of_the_protocol_is_replaced_only_by_a_smaller_one(store: Store, size: int) -> None:
    error = {"code": -32000, "message": "it failed: " + "no such row\n" * (size // 13)}
    replacement = Pipeline(store, "output_fetch").store_error(error, CALL)
    if replacement is None:
        assert size < 4000
        assert [*store.list()] == []
    else:
        assert len(orjson.dumps(replacement)) < len(orjson.dumps(error))


def test_an_agent_gets_the_object_itself(store: Store) -> None:
    with AgentOutputs(store, output_inline_limit_bytes=1000) as outputs:
        orders = [{"id": number} for number in range(150)]
        assert len(orjson.dumps(orders)) > 1000
        assert outputs.limit(orders) is orders
        many = outputs.limit([{"id": number} for number in range(900)])
        assert isinstance(many, str)
        assert "output_handle" in json.loads(many)
