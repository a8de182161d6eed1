"""The pipeline gives the same response for an unparsed result as for the same result parsed."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from forebay.outputs import pipeline as module
from forebay.outputs.contract.limits import ResponseLimits
from forebay.outputs.handle_response import MAX_MESSAGE_BYTES
from forebay.outputs.modes import Mode
from forebay.outputs.pipeline import Pipeline
from forebay.outputs.tool_call import ToolCall
from forebay.store import Store, open_store
from forebay.store.payload import encode
from forebay.wire.framing import Spool
from forebay.wire.lazy_json import LazyJSON, as_lazy, dump, parse_lazy
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

LINES = "a line é\n" * 5000
ROWS = [{"id": number, "weight": number / 3, "big": 10**30} for number in range(500)]
BLOCKS = [{"type": "text", "text": "words"}] * 9
META = {"mine": 1e300, "io.modelcontextprotocol/serverInfo": {"name": "n", "icon": "x" * 2000}}
CALL = ToolCall("")
RESULTS: list[dict[str, Any]] = [
    {"content": [{"type": "text", "text": LINES, "annotations": {"priority": 0.1234567890123456789}}], "_meta": META},
    {"content": [{"type": "text", "text": json.dumps(ROWS)}], "structuredContent": {"result": ROWS}},
    {"content": [{"type": "text", "text": LINES}], "isError": True, "_meta": {"long": "y" * 3000}},
    {"content": [{"type": "text", "text": str(number)} for number in range(3000)]},
    {"content": [{"type": "text", "text": LINES}], "_meta": {str(number): "z" * 100 for number in range(200)}},
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as store:
        yield store


@pytest.fixture
def spools(tmp_path: Path) -> Path:
    folder = tmp_path / "spools"
    folder.mkdir()
    return folder


def read_stored(store: Store, answer: dict[str, Any]) -> bytes:
    """Return the payload that a response refers to."""
    content = json.loads(answer["content"][0]["text"])
    handle = content["output_handle"] if "output_handle" in content else content["artifactRef"].rpartition("~")[2]
    with store.open(handle) as file:
        return file.read()


@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("contract", [None, ResponseLimits()])
def test_the_answer_is_that_to_the_same_result_parsed(
    store: Store, spools: Path, result: dict[str, Any], contract: ResponseLimits | None
) -> None:
    message = json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode()
    pipeline, call = Pipeline(store, "output_fetch"), ToolCall("tool", contract=contract)
    parsed = json.loads(encode(pipeline.store_result(json.loads(message), call)))
    with Spool(spools) as spool:
        spool.write(message)
        for source in (message, spool):
            answer = json.loads(dump(pipeline.store_result(parse_lazy(source), call)))
            assert len(encode(answer)) <= (MAX_MESSAGE_BYTES if contract is None else contract.max_bytes)
            if result is RESULTS[1]:
                # The parsed numbers were serialized again, the unparsed ones kept their digits.
                assert json.loads(read_stored(store, answer)) == json.loads(read_stored(store, parsed))
            else:
                assert read_stored(store, answer) == read_stored(store, parsed)
            assert answer.keys() - {"_meta"} == parsed.keys() - {"_meta"}
            assert answer["isError"] == parsed["isError"]
            assert answer.get("_meta", {}) == parsed.get("_meta", {})


@pytest.mark.parametrize("contract", [None, ResponseLimits()])
@pytest.mark.parametrize("key", [r"\ud800", "k" * 2000])
def test_of_one_with_names_that_cannot_be_read_the_others_are(
    store: Store, spools: Path, key: str, contract: ResponseLimits | None
) -> None:
    """Such a result stays `LazyJSON`, and is stored whole."""
    meta = b'{"mine":1,"io.modelcontextprotocol/serverInfo":{"name":"n"}}'
    rest = b'"content":%s,"isError":true,"structuredContent":{"a":1},"_meta":%s' % (orjson.dumps(BLOCKS), meta)
    message = b'{"%s":1,%s}' % (key.encode(), rest)
    pipeline, call = Pipeline(store, "output_fetch"), ToolCall("tool", contract=contract)
    parsed = orjson.loads(dump(pipeline.store_result(orjson.loads(b"{%s}" % rest), call)))
    with Spool(spools) as spool:
        spool.write(message)
        for source in (message, spool):
            result = parse_lazy(source)
            assert isinstance(result, LazyJSON)
            assert not pipeline.is_inline(result, Mode("handle"), CALL)
            answer = orjson.loads(dump(pipeline.store_result(result, call)))
            assert answer["isError"]
            assert answer["_meta"] == parsed["_meta"]
            assert answer.keys() == parsed.keys()
            if contract is None:
                assert answer["structuredContent"].keys() == parsed["structuredContent"].keys()
                assert read_stored(store, answer) == message
            else:
                assert answer["structuredContent"]["success"] is False


def test_what_is_no_answer_of_a_tool_is_none_whatever_its_names_are(store: Store) -> None:
    pipeline = Pipeline(store, "output_fetch")
    for fields in (b'"task":{}', b'"content":[],"resultType":"input_required"'):
        assert pipeline.is_inline(parse_lazy(b'{"\\ud800":1,%s}' % fields), Mode("handle"), CALL)
    assert not pipeline.is_inline(as_lazy(b'{"task":{},nonsense}'), Mode("handle"), CALL)


def test_what_is_no_object_after_all_is_stored_whole(store: Store) -> None:
    broken = b'{"\\ud800":1,"content":[],nonsense}'
    answer = Pipeline(store, "output_fetch").store_result(parse_lazy(broken), ToolCall("tool"))
    assert isinstance(answer, dict)
    assert read_stored(store, answer) == broken


def test_what_is_too_large_to_look_at_is_only_stored(
    store: Store, spools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_IN_MEMORY_BYTES", 1000)
    with Spool(spools) as spool:
        spool.write(orjson.dumps(RESULTS[3]))
        answer = Pipeline(store, "output_fetch").store_result(
            parse_lazy(spool), ToolCall("tool", contract=ResponseLimits())
        )
    assert "output_handle" in json.loads(answer["content"][0]["text"])
    assert read_stored(store, answer) == orjson.dumps(RESULTS[3])


def test_what_cannot_be_stored_shows_its_start(tmp_path: Path, spools: Path) -> None:
    with open_store(tmp_path / "small", quota_bytes=1000, compression="none") as store, Spool(spools) as spool:
        spool.write(orjson.dumps(RESULTS[2]))
        for source in (orjson.dumps(RESULTS[2]), spool):
            answer = Pipeline(store, "output_fetch").store_result(parse_lazy(source), ToolCall("tool"))
            content = json.loads(answer["content"][0]["text"])
            assert content["error"]["code"] == "store_full"
            assert content["preview"].startswith('{"content":')


def test_a_spool_that_is_gone_is_an_error_that_says_so(store: Store, spools: Path) -> None:
    result = {"content": [{"type": "text", "text": LINES}]}
    with Spool(spools) as spool:
        spool.write(orjson.dumps(result))
        lazy = parse_lazy(spool)
        spool.close()
        answer = Pipeline(store, "output_fetch").store_result(lazy, ToolCall("tool"))
    assert answer["isError"]
    assert json.loads(answer["content"][0]["text"])["error"]["code"] == "store_unavailable"


@pytest.mark.parametrize(
    ("mode", "size", "is_inline"),
    [("auto", 5000, True), ("auto", 5001, False), ("handle", 1, False), ("inline", 10**9, True)],
)
def test_the_size_on_the_wire_decides_where_it_is_known(store: Store, mode: Any, size: int, is_inline: bool) -> None:
    pipeline = Pipeline(store, "output_fetch")
    many = parse_lazy(orjson.dumps({"content": [{"type": "text", "text": "x"}] * 500}))
    few: dict[str, Any] = {"content": []}
    for result in (few, many):
        assert pipeline.is_inline(result, Mode(mode, 5000), CALL, size=size) == is_inline
    assert pipeline.is_inline({"task": {}}, Mode(mode, 5000), CALL, size=size)


MARK = st.integers(10**9, 10**10).map(lambda number: f"m{number}")
"""A string that occurs once in a result."""

members = st.dictionaries(
    st.sampled_from(["annotations", "_meta", "extra", "title"]), st.builds(lambda m: {m: m}, MARK)
)
blocks = st.one_of(
    st.builds(lambda text, more: {"type": "text", "text": text, **more}, MARK, members),
    st.builds(lambda more, kind: {"type": "image", "data": "QUFB", "mimeType": f"image/{kind}", **more}, members, MARK),
    st.builds(
        lambda text, more, about: {"type": "resource", "resource": {"uri": "a:b", "text": text, **about}, **more},
        MARK,
        members,
        members,
    ),
)


@st.composite
def results(draw: st.DrawFn) -> dict[str, Any]:
    """Return results with fields of every kind, whose blocks often repeat the structured content."""
    result = {"content": draw(st.lists(blocks, max_size=2)), **draw(members)}
    if draw(st.booleans()):
        result["structuredContent"] = {
            "result": draw(st.just([block.get("text") for block in result["content"]]) | MARK)
        }
    return result


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@example({"content": [{"type": "image", "data": "QUFB", "mimeType": "image/m1000000000"}]}, ResponseLimits(), False)
@given(results(), st.sampled_from([None, ResponseLimits()]), st.booleans())
def test_everything_is_in_the_answer_or_in_the_payload(
    store: Store, result: dict[str, Any], contract: ResponseLimits | None, is_lazy: bool
) -> None:
    message = orjson.dumps(result)
    pipeline = Pipeline(store, "output_fetch")
    answer = pipeline.store_result(
        parse_lazy(message, max_string_bytes=20) if is_lazy else result, ToolCall("tool", contract=contract)
    )
    content = json.loads(answer["content"][0]["text"])
    payload = b"" if contract is not None and not content["hasMore"] else read_stored(store, answer)
    for mark in re.findall(rb"m[0-9]{10,11}", message):
        assert mark in dump(answer) or mark in payload


UNREADABLE_KEY = b'{"content":[{"type":"text","text":"%s"}],"\\ud800":1}' % (b"a" * 5000)


def test_a_result_that_could_not_be_taken_apart_is_stored_as_it_came(store: Store, spools: Path) -> None:
    pipeline = Pipeline(store, "output_fetch")
    with Spool(spools) as spool:
        spool.write(UNREADABLE_KEY)
        for source in (UNREADABLE_KEY, spool):
            result = parse_lazy(source)
            assert isinstance(result, LazyJSON)
            answer = pipeline.store_result(result, ToolCall("tool"))
            assert isinstance(answer, dict)
            assert read_stored(store, answer) == UNREADABLE_KEY
            by_contract = pipeline.store_result(result, ToolCall("tool", contract=ResponseLimits()))
            assert isinstance(by_contract, dict)
            assert json.loads(by_contract["content"][0]["text"])["success"] is True


@pytest.mark.parametrize(
    ("mode", "size", "is_inline"),
    [
        (Mode("auto", 5000), 5000, True),
        (Mode("auto", 5000), 5001, False),
        (Mode("auto", len(UNREADABLE_KEY)), None, True),
        (Mode("auto", len(UNREADABLE_KEY) - 1), None, False),
        (Mode("handle", 100), 1, False),
        (Mode("inline", 100), 10**9, True),
        (Mode("inline", 100, contract=ResponseLimits()), 1, False),
    ],
)
def test_its_size_decides_of_a_result_that_could_not_be_taken_apart(
    store: Store, mode: Mode, size: int | None, is_inline: bool
) -> None:
    assert Pipeline(store, "output_fetch").is_inline(parse_lazy(UNREADABLE_KEY), mode, CALL, size=size) == is_inline


def test_a_result_that_is_not_an_object_is_stored_if_it_is_large(store: Store) -> None:
    pipeline = Pipeline(store, "output_fetch")
    for result in (b"1e400", b'"' + b"x" * 2000 + b'"', b'{"content": "' + b"x" * 9000 + b'"}'):
        lazy = parse_lazy(result)
        assert pipeline.is_inline(lazy, Mode("auto", 5000), CALL, size=5000)
        assert not pipeline.is_inline(lazy, Mode("auto", 5000), CALL, size=5001)
        assert not pipeline.is_inline(lazy, Mode("handle", 100), CALL, size=1)
        assert pipeline.is_inline(lazy, Mode("inline", 100), CALL, size=101)
