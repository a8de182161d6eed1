"""The payload of an unparsed result is that of the same result parsed."""

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from forebay.outputs.result import ResultPayload, decode_base64_chunks, extract_payload
from forebay.store.payload import read_all
from forebay.wire.framing import Spool
from forebay.wire.lazy_json import ChunkSource, LazyJSON, dump_chunks, parse_lazy
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from texts import nasty_text

# No exponents: `json` and orjson format them differently.
numbers = st.integers(-(1 << 63), (1 << 64) - 1) | st.integers(-(10**9), 10**9).map(lambda eighths: eighths / 8)
values = st.recursive(
    st.none() | st.booleans() | numbers | nasty_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(nasty_text, inner, max_size=4),
    max_leaves=12,
)


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


def dumps(value: Any, form: int) -> str:
    if isinstance(value, str) and form % 2:
        return value
    match form // 2:
        case 0:
            return orjson.dumps(value).decode()
        case 1:
            return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
        case 2:
            return json.dumps(value)
    return json.dumps(value, ensure_ascii=False, indent=2)


encoded = st.binary(max_size=60).map(lambda data: base64.b64encode(data).decode())
blocks = st.one_of(
    st.builds(text, nasty_text),
    st.builds(text, nasty_text, annotations=st.just({"priority": 0.5})),
    st.builds(lambda data: {"type": "image", "data": data, "mimeType": "image/png"}, encoded | nasty_text),
    st.builds(
        lambda data: {"type": "resource", "resource": {"uri": "a:b", "mimeType": "a/b", "text": data}}, nasty_text
    ),
    st.builds(lambda data: {"type": "resource", "resource": {"uri": "a:b", "blob": data}}, encoded),
)


@st.composite
def results(draw: st.DrawFn) -> dict[str, Any]:
    """Return results whose blocks often repeat the structured content."""
    value, form = draw(values), draw(st.integers(0, 7))
    structured = draw(st.sampled_from([value, {"result": value}, {"content": value}]))
    as_value = [text(dumps(value, form))]
    as_items = [text(dumps(item, form)) for item in value] if isinstance(value, list) else as_value
    as_structured = [text(dumps(structured, form))]
    content = draw(st.sampled_from([as_value, as_items, as_structured, []]) | st.lists(blocks, max_size=3))
    result = {"content": content, "isError": False}
    return {**result, "structuredContent": structured} if draw(st.booleans()) else result


limits = st.fixed_dictionaries({"max_string_bytes": st.integers(7, 60), "max_container_bytes": st.integers(180, 400)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("spools")
    yield folder
    assert list(folder.iterdir()) == [], "a spool was left behind"


def read_payload(found: ResultPayload) -> tuple[bytes, str | None]:
    return bytes(read_all(found.to_input())), found.mime_type


def hides_fields(result: Any) -> bool:
    """Return whether a single block, or fields beside its text, were not parsed."""
    content = result["content"]
    if isinstance(content, LazyJSON):
        inner = json.loads(content.json())
        return len(inner) == 1 or any(block.keys() != {"type", "text"} for block in inner)
    return any(
        isinstance(block, LazyJSON) or any(isinstance(block.get(key), LazyJSON) for key in ("resource", "mimeType"))
        for block in content
    )


@pytest.mark.slow
@settings(max_examples=500)
@given(results(), limits)
def test_the_payload_is_that_of_the_same_result_parsed(
    folder: Path, result: dict[str, Any], limits: dict[str, int]
) -> None:
    message = orjson.dumps(result)
    expected = read_payload(extract_payload(orjson.loads(message)))
    with Spool(folder) as spool:
        spool.write(message)
        for source in (message, spool):
            lazy = parse_lazy(source, **limits)
            assume(not isinstance(lazy, LazyJSON))
            found = read_payload(extract_payload(lazy))
            if hides_fields(lazy):
                assert found in (expected, (message, "application/json"))
            else:
                assert found == expected


@pytest.mark.parametrize("is_spooled", [False, True])
def test_large_results_of_every_kind(folder: Path, is_spooled: bool) -> None:
    rows = [{"id": number, "name": f"é \n{number}"} for number in range(2000)]
    long, noise = "one\ntwo é\n" * 1000, os.urandom(30_000)
    image = {"type": "image", "data": base64.b64encode(noise).decode(), "mimeType": "image/png"}
    cases: list[tuple[dict[str, Any], bytes, str | None]] = [
        ({"content": [text(long)]}, long.encode(), None),
        ({"content": [text(long)], "structuredContent": {"result": long}}, long.encode(), None),
        ({"content": [image]}, noise, "image/png"),
        (
            {"content": [text(json.dumps(rows))], "structuredContent": {"result": rows}},
            orjson.dumps({"result": rows}),
            "application/json",
        ),
        (
            {"content": [text(json.dumps({"rows": rows}))], "structuredContent": {"rows": rows}},
            orjson.dumps({"rows": rows}),
            "application/json",
        ),
        (
            {"content": [text(json.dumps(row, indent=2)) for row in rows], "structuredContent": {"result": rows}},
            orjson.dumps({"result": rows}),
            "application/json",
        ),
    ]
    for result, payload, mime_type in cases:
        message = orjson.dumps(result)
        with Spool(folder) as spool:
            spool.write(message)
            found = extract_payload(parse_lazy(spool if is_spooled else message))
            assert isinstance(found.data, ChunkSource) == is_spooled
            assert read_payload(found) == (payload, mime_type)
        changed = orjson.dumps({**result, "content": [*result["content"], text("and more")]})
        assert read_payload(extract_payload(parse_lazy(changed))) == (changed, "application/json")


def test_a_wrapper_is_seen_also_where_it_was_not_parsed() -> None:
    numbers = list(range(100))
    result = {"content": [text(json.dumps(numbers))], "structuredContent": {"result": numbers}}
    lazy = parse_lazy(orjson.dumps(result), max_string_bytes=100, max_container_bytes=len(orjson.dumps(numbers)))
    assert isinstance(lazy["structuredContent"], LazyJSON)
    assert read_payload(extract_payload(lazy)) == (orjson.dumps({"result": numbers}), "application/json")


def test_a_small_text_says_what_was_parsed_but_for_a_number() -> None:
    number = {"n": 1e300}
    result = {"content": [text(orjson.dumps(number, option=orjson.OPT_INDENT_2).decode())], "structuredContent": number}
    lazy = parse_lazy(orjson.dumps(result))
    assert isinstance(lazy["structuredContent"]["n"], LazyJSON)
    assert read_payload(extract_payload(lazy)) == (orjson.dumps(number), "application/json")


def test_a_block_that_was_not_parsed_is_not_lost() -> None:
    long = text("a", **{str(number): "x" * 900 for number in range(20)})
    for result in ({"content": [long, text("b")]}, {"content": [long], "structuredContent": {"rows": [1]}}):
        lazy = parse_lazy(orjson.dumps(result))
        assert isinstance(lazy["content"], list)
        assert read_payload(extract_payload(lazy)) == (orjson.dumps(result), "application/json")


def test_what_the_tool_says_at_length_is_kept_with_all_of_it() -> None:
    result = {"content": [text("a")], "_meta": {str(number): "x" * 100 for number in range(200)}}
    lazy = parse_lazy(orjson.dumps(result))
    assert isinstance(lazy["_meta"], LazyJSON)
    assert read_payload(extract_payload(lazy, include_meta=True)) == (orjson.dumps(result), "application/json")


@pytest.mark.slow
@given(
    st.binary(max_size=40),
    st.integers(1, 9),
    st.integers(0, 60),
    st.sampled_from(["", "=", "A", "é", "\n", "AAA=AAAA"]),
)
def test_base64_in_pieces_is_base64(data: bytes, size: int, at: int, slip: str) -> None:
    whole = base64.b64encode(data)
    whole = whole[:at] + slip.encode() + whole[at:]
    pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
    try:
        expected = base64.b64decode(whole, validate=True)
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            list(decode_base64_chunks(pieces))
    else:
        assert b"".join(decode_base64_chunks(pieces)) == expected


def test_what_is_spliced_in_pieces_is_not_larger_than_it_says(folder: Path) -> None:
    with Spool(folder) as spool:
        spool.write(orjson.dumps(["x" * 5000, "y" * 5000]))
        pieces = dump_chunks({"a": parse_lazy(spool)})
        assert isinstance(pieces, ChunkSource)
        assert len(pieces.read_all()) <= pieces.max_size
