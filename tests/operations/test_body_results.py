"""Large bodies reach the store without being decoded, and the client gets what it gets for a decoded result."""

import asyncio
import gzip
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from forebay.adapters.mcp import Forebay
from forebay.envelope import Body, ResponseEnvelope, http_envelope, local_envelope, mcp_envelope
from forebay.errors import StoreFull
from forebay.operations import CallError, Operation, OperationRegistry, OperationSpec, from_openapi, serve_operations
from forebay.operations.responses import to_body_result, to_call_tool_result
from forebay.operations.tools import call_operation, finish_result
from forebay.outputs.contract.limits import ResponseLimits
from forebay.outputs.modes import Mode
from forebay.outputs.policy import OutputPolicy
from forebay.outputs.result import BodyResult
from forebay.outputs.tool_call import ToolCall
from forebay.wire.framing import Spool, create_spool
from http_api import API, Answer, document, http_api, single_operation
from mcp import Client
from mcp_harness import parse_text

ROWS = [{"id": number, "name": "é" * 10} for number in range(5_000)]
JSON = json.dumps(ROWS, ensure_ascii=False).encode()
SPEC = OperationSpec(namespace="api", name="op")
ARRAY = OperationSpec(namespace="api", name="op", output_schema={"type": "array"})


@pytest.fixture
def api() -> Iterator[API]:
    with http_api() as server:
        yield server


@pytest.fixture
def policy(tmp_path: Path) -> Iterator[OutputPolicy]:
    opened = OutputPolicy((tmp_path / "store").as_uri(), output_mode="auto", sweep_interval=0)
    yield opened
    opened.close()


def parse_dict(result: dict[str, Any]) -> Any:
    """Return the parsed text of a result with wire keys."""
    return json.loads(result["content"][0]["text"])


def over_http(data: Any, content_type: str) -> ResponseEnvelope[Any]:
    return http_envelope(data, status_code=200, headers={}, content_type=content_type)


def of_body(content: bytes, content_type: str) -> ResponseEnvelope[Any]:
    return over_http(Body(content, content_type), content_type)


UNDECODED = {
    "json": of_body(JSON, "application/json"),
    "json_with_charset": of_body(JSON, 'application/json; charset="UTF-8"'),
    "invalid_json": of_body(JSON[:-1], "application/json"),
    "ndjson": of_body(b"[1]\n" * 50_000, "application/x-ndjson"),
    "json_that_is_not_text": of_body(JSON + b"\xff", "application/json"),
    "html": of_body("<p>é</p>\n".encode() * 20_000, "text/html"),
    "text_with_a_nul": of_body(b"a\x00" * 50_000, "text/plain"),
    "pdf": over_http(b"%PDF-" + b"\x00\xff" * 50_000, "application/pdf"),
    "bytes": local_envelope(b"\x00\xff" * 50_000, "api.op"),
    "long_type": of_body(b"\x00\xff" * 50_000, "application/" + "x" * 600),
}

DECODED = {
    "small": of_body(b"[1]", "application/json"),
    "latin": of_body("é".encode("latin-1") * 100_000, "text/plain; charset=iso-8859-1"),
    "image": over_http(b"\x89PNG\r\n\x1a\n" + b"\x00" * 100_000, "image/png"),
    "object": local_envelope(ROWS, "api.op"),
    "text": local_envelope("x" * 100_000, "api.op"),
    "tool": mcp_envelope(None, content=[{"type": "text", "text": "x" * 100_000}]),
}


def spool_body(envelope: ResponseEnvelope[Any], folder: Path) -> ResponseEnvelope[Any]:
    """Return an envelope whose body is in a spool."""
    spool = Spool(folder)
    data = envelope.data
    spool.write(data if isinstance(data, bytes) else data.content)
    content_type = data.content_type if isinstance(data, Body) else getattr(envelope.meta, "content_type", None)
    return over_http(Body(spool, *([content_type] if content_type else [])), content_type or "")


def without_identity(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result with what differs from put to put removed."""
    text = parse_dict(result)
    for key in ("output_handle", "created_at", "expires_at", "artifactRef"):
        text.pop(key, None)
    text = json.loads(json.dumps(text).replace(parse_dict(result).get("output_handle", "-"), "HANDLE"))
    structured = "structuredContent" in result
    return {**result, "content": [{**result["content"][0], "text": text}], "structuredContent": structured}


@pytest.mark.parametrize("is_spooled", [False, True])
@pytest.mark.parametrize("case", UNDECODED)
def test_the_result_is_that_of_a_decoded_body(
    case: str, is_spooled: bool, policy: OutputPolicy, tmp_path: Path
) -> None:
    envelope = UNDECODED[case]
    expected = to_call_tool_result(envelope, spec=SPEC)
    body_result = to_body_result(spool_body(envelope, tmp_path) if is_spooled else envelope, SPEC)
    assert body_result is not None
    assert body_result.to_result() == expected
    assert orjson.dumps(body_result.to_result()) == orjson.dumps(expected)
    pipeline = policy.pipeline
    for call in (ToolCall("op"), ToolCall("op", contract=ResponseLimits())):
        stored, expected_stored = pipeline.store_result(body_result, call), pipeline.store_result(expected, call)
        assert without_identity(stored) == without_identity(expected_stored)
        if call.contract is None:
            payloads = [policy.store.open(parse_dict(one)["output_handle"]).read() for one in (stored, expected_stored)]
            assert payloads[0] == payloads[1]


@pytest.mark.parametrize("case", DECODED)
def test_other_data_is_decoded(case: str) -> None:
    assert to_body_result(DECODED[case], SPEC) is None


def test_only_what_a_schema_asks_for_is_parsed() -> None:
    assert to_body_result(UNDECODED["json"], ARRAY) is None
    assert to_body_result(UNDECODED["html"], ARRAY) is not None


@pytest.mark.parametrize(
    ("mode", "is_inline"),
    [
        (Mode("auto", 32_768), False),
        (Mode("auto", 10_000_000), True),
        (Mode("auto", len(JSON)), False),
        (Mode("inline"), True),
        (Mode("handle"), False),
    ],
    ids=str,
)
def test_the_mode_decides_of_a_body(mode: Mode, is_inline: bool, policy: OutputPolicy) -> None:
    envelope = UNDECODED["json"]
    expected = to_call_tool_result(envelope, spec=SPEC)
    assert policy.pipeline.is_inline(expected, mode, ToolCall("op")) is is_inline
    for result in (expected, to_body_result(envelope, SPEC)):
        assert result is not None
        finished, was_inline = asyncio.run(finish_result(result, policy.pipeline, mode, ToolCall("op")))
        assert was_inline is is_inline
        assert (finished == expected) is is_inline
        assert ("output_handle" in json.dumps(finished)) is not is_inline


def test_what_cannot_be_stored_is_an_error_that_shows_its_start(tmp_path: Path) -> None:
    policy = OutputPolicy((tmp_path / "s").as_uri(), quota_bytes=1000, compression="none", sweep_interval=0)
    body_result = to_body_result(spool_body(UNDECODED["json"], tmp_path), SPEC)
    assert body_result is not None
    result = policy.pipeline.store_result(body_result, ToolCall("op"))
    policy.close()
    assert result["isError"]
    assert parse_dict(result)["error"]["code"] == "store_full"
    assert parse_dict(result)["preview"].startswith('[{"id": 0')


def test_a_failure_to_store_does_not_lose_the_result(policy: OutputPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError

    body_result = to_body_result(UNDECODED["json"], SPEC)
    assert body_result is not None
    monkeypatch.setattr(policy.store, "put", fail)
    assert policy.pipeline.store_result(body_result, ToolCall("op")) == body_result.to_result()


def test_a_page_that_is_not_json_does_not_fit_the_schema() -> None:
    registry = OperationRegistry([Operation(ARRAY, lambda *_: UNDECODED["html"])])
    result = asyncio.run(call_operation(registry, ARRAY, {}))
    assert isinstance(result, BodyResult)
    assert result.to_result()["structuredContent"] == {"unstructured": True}


def call_api(api: API, policy: OutputPolicy, operation: dict[str, Any] | None = None, **options: Any) -> Any:
    async def run() -> Any:
        options.setdefault("make_spool", partial(create_spool, policy.store))
        paths = single_operation("/x", **(operation or {}))
        async with await from_openapi(document(paths, api.url), namespace="api", **options) as operations:
            registry = operations.register_into(OperationRegistry())
            spec = registry.get_spec("api.op")
            assert spec is not None
            return await registry.execute("api.op", {}), await call_operation(registry, spec, {})

    return asyncio.run(run())


@pytest.mark.parametrize("coding", [None, "gzip"])
@pytest.mark.parametrize("content_type", ["application/json", "text/html", "application/octet-stream"])
def test_a_large_body_goes_to_a_file(
    api: API, policy: OutputPolicy, content_type: str, coding: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = JSON * 20
    headers = [("Content-Encoding", coding)] if coding else []
    api.default_answer = Answer(gzip.compress(content) if coding else content, content_type, headers=headers)

    def fail(_: Body) -> bytes:
        raise AssertionError("the body is read into memory")

    with monkeypatch.context() as patch:
        patch.setattr(Body, "content", property(fail))
        envelope, result = call_api(api, policy, spool_over=1_000_000)
        assert isinstance(result, BodyResult)
        stored, is_inline = asyncio.run(finish_result(result, policy.pipeline, Mode("auto"), ToolCall("op")))
    assert not is_inline
    assert envelope.data == Body(content, content_type)
    assert policy.store.open(parse_dict(stored)["output_handle"]).read() == content


ARRAY_OPERATION: dict[str, Any] = {
    "responses": {"200": {"content": {"application/json": {"schema": {"type": "array"}}}}}
}


@pytest.mark.parametrize(
    ("answer", "operation"),
    [
        (Answer(JSON), {}),
        (Answer(JSON * 5), ARRAY_OPERATION),
        (Answer(b"\x89PNG\r\n\x1a\n" * 200_000, "image/png"), {}),
        (Answer("é".encode("latin-1") * 2_000_000, "text/plain; charset=iso-8859-1"), {}),
    ],
    ids=["small", "schema", "image", "charset"],
)
def test_a_body_that_is_decoded_stays_in_memory(
    api: API, policy: OutputPolicy, answer: Answer, operation: dict[str, Any]
) -> None:
    api.default_answer = answer
    envelope, result = call_api(api, policy, operation, spool_over=1_000_000)
    expected, _ = call_api(api, policy, operation, make_spool=None)
    assert envelope.data == expected.data
    assert not (isinstance(envelope.data, Body) and envelope.data.is_spooled)
    if answer.body != JSON:
        assert isinstance(result, dict)


@pytest.mark.parametrize("spool_over", [100, 10_000_000])
def test_a_body_above_the_limit_is_an_error(api: API, policy: OutputPolicy, spool_over: int) -> None:
    api.default_answer = Answer(JSON)
    with pytest.raises(CallError, match=r"more than 100000 bytes; ask for less, or raise max_body_bytes"):
        call_api(api, policy, spool_over=spool_over, max_body_bytes=100_000)


def test_a_full_disk_is_an_error_of_the_call(api: API, policy: OutputPolicy) -> None:
    def fail() -> Spool:
        raise StoreFull("there is no space left; free some and try again")

    api.default_answer = Answer(JSON)
    with pytest.raises(CallError, match="no space left"):
        call_api(api, policy, make_spool=fail, spool_over=1000)


@pytest.mark.parametrize("mode", ["auto", "inline"])
def test_a_server_of_the_sdk_stores_large_bodies(era: str, mode: Any, tmp_path: Path) -> None:
    registry = OperationRegistry([Operation(SPEC, lambda *_: UNDECODED["json"])])
    gate = Forebay((tmp_path / "store").as_uri(), output_mode=mode, sweep_interval=0)

    async def run() -> None:
        async with asyncio.timeout(60), Client(serve_operations(registry, forebay=gate), mode=era) as client:
            text = parse_text(await client.call_tool("op", {}))
            if mode == "inline":
                assert text == ROWS
            else:
                assert text["item_count"] == len(ROWS)
                assert gate.store.open(text["output_handle"]).read() == JSON

    asyncio.run(run())
    gate.close()
