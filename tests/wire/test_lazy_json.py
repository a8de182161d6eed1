"""Lazily parsed messages: unparsed values keep their bytes."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from forebay import _core
from forebay.errors import InvalidJSON, StoreFull, StoreUnavailable
from forebay.store.payload import encode
from forebay.wire.framing import Spool
from forebay.wire.lazy_json import ChunkSource, LazyJSON, as_lazy, dump, dump_chunks, parse_lazy
from forebay.wire.messages import parse
from hypothesis import given
from hypothesis import strategies as st
from texts import NASTY, nasty_text

limits = st.fixed_dictionaries({"max_string_bytes": st.integers(2, 40), "max_container_bytes": st.integers(2, 200)})
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | nasty_text
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(nasty_text, inner, max_size=5),
    max_leaves=20,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("spools")
    yield folder
    assert list(folder.iterdir()) == [], "a spool was left behind"


def make_spool(data: bytes, folder: Path) -> Spool:
    spool = Spool(folder)
    for start in range(0, len(data), 7):
        spool.write(data[start : start + 7])
    return spool


def to_plain(value: Any) -> Any:
    """Replace each `LazyJSON` by what the `json` module makes of it."""
    if isinstance(value, LazyJSON):
        return json.loads(value.json())
    if isinstance(value, dict):
        return {key: to_plain(member) for key, member in value.items()}
    return [to_plain(item) for item in value] if isinstance(value, list) else value


@pytest.mark.slow
@given(values, limits, st.sampled_from([None, 1]), st.booleans())
def test_a_parsed_message_is_dumped_unchanged(
    folder: Path, value: Any, limits: dict[str, int], indent: int | None, is_ascii: bool
) -> None:
    message = json.dumps(value, indent=indent, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    with make_spool(b"xx" + message + b"yy", folder) as spool:
        ends = (2, 2 + len(message))
        for parsed in (parse_lazy(message, **limits), parse_lazy(spool, *ends, **limits)):
            assert to_plain(parsed) == value
            assert json.loads(dump(parsed)) == value
            assert dump(parsed) == encode(parsed)


@pytest.mark.slow
@given(st.text(st.characters(), max_size=30) | nasty_text, st.booleans())
def test_the_text_of_a_string_is_the_same_as_with_the_json_module(folder: Path, text: str, is_ascii: bool) -> None:
    message = json.dumps(text, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    expected = json.loads(json.dumps(text)).encode("utf-8", "surrogatepass")
    assert _core.unescape(message[1:-1]) == expected
    with make_spool(message, folder) as spool:
        for source in (memoryview(message), spool):
            raw = LazyJSON(source, 0, len(message))
            assert raw.is_string
            assert raw.text() == b"".join(raw.text_chunks()) == expected


def test_an_escape_may_be_cut_anywhere() -> None:
    content = json.dumps(NASTY).encode()[1:-1]
    for at in range(len(content) + 1):
        unescaper = _core.Unescaper()
        chunks = [unescaper.push(content[:at]), unescaper.push(content[at:]), unescaper.finish()]
        assert b"".join(chunks) == NASTY.encode(), at


def test_only_large_values_stay_unparsed() -> None:
    message = {"id": 7, "result": {"content": [{"type": "text", "text": "é\n" * 1000}], "n": list(range(5000))}}
    parsed = parse_lazy(orjson.dumps(message))
    assert (parsed["id"], parsed["result"]["content"][0]["type"]) == (7, "text")
    text, numbers = parsed["result"]["content"][0]["text"], parsed["result"]["n"]
    assert isinstance(text, LazyJSON)
    assert text.text().decode() == "é\n" * 1000
    assert isinstance(numbers, LazyJSON)
    assert numbers.is_array
    parsed["id"] = 8
    assert dump(parsed) == orjson.dumps({**message, "id": 8})


def test_numbers_that_python_cannot_represent_keep_their_bytes() -> None:
    for number in (b"1e400", b"123456789012345678901234567890", b"0.1000", b"1E+2", b"-0"):
        assert dump(parse_lazy(b'{"n":' + number + b"}")) == b'{"n":' + number + b"}"


def test_a_whole_surrogate_pair_is_text() -> None:
    parsed = parse_lazy(b'{"\\ud83d\\ude00":{"$file":"\\ud83d\\ude00.txt"},"half":"\\ud83d"}')
    assert parsed["\U0001f600"] == {"$file": "\U0001f600.txt"}
    assert isinstance(parsed["half"], LazyJSON)


@pytest.mark.parametrize("depth", [512, 1000])
def test_deep_values_are_parsed_up_to_max_depth(depth: int) -> None:
    message = b'{"a":[' * (depth // 2) + b"[1e400]" + b"]}" * (depth // 2)
    parsed = parse_lazy(message, max_depth=depth)
    for _ in range(depth // 2):
        parsed = parsed["a"][0]
    assert isinstance(parsed, LazyJSON)
    assert parsed.json() == b"[1e400]"


def test_deep_values_are_dumped_unchanged() -> None:
    message = b'{"a":[' * 256 + b"1e400" + b"]}" * 256
    assert dump(parse_lazy(message, max_depth=512)) == message


def test_a_message_cannot_forge_a_placeholder() -> None:
    skeleton, holes = _core.dissect((b'["' + b"x" * 2000 + b'"]', 0, 2004), "token")
    assert (skeleton, holes) == (b'["token:0"]', [(1, 2003)])
    # A placeholder with another token is plain text.
    forged = b'["' + b"0" * 32 + b':0","' + b"x" * 2000 + b'"]'
    assert parse_lazy(forged)[0] == "0" * 32 + ":0"


@pytest.mark.parametrize("message", [b"", b"{", b"[1,]", b"{}{}", b'{"a"}', b'"a', b"nul", b"[" * 100_000])
def test_invalid_json_is_refused(message: bytes) -> None:
    with pytest.raises(InvalidJSON):
        parse_lazy(message)


def test_a_spooled_message_is_dumped_in_chunks(folder: Path) -> None:
    with make_spool(orjson.dumps({"a": "x" * 3000}), folder) as spool:
        parsed = parse_lazy(spool)
        chunks = dump_chunks(parsed)
        assert isinstance(chunks, ChunkSource)
        assert b"".join(chunks) == b"".join(chunks) == orjson.dumps({"a": "x" * 3000})


def test_a_closed_spool_is_deleted(folder: Path) -> None:
    spool = Spool(folder)
    spool.write(b"abc")
    assert (b"".join(spool.chunks(1, 3)), spool.size) == (b"bc", 3)
    raw = LazyJSON(spool, 0, 3)
    spool.close()
    spool.close()
    assert not Path(spool.path).exists()
    with pytest.raises(StoreUnavailable):
        raw.json()
    with pytest.raises(StoreUnavailable):
        parse_lazy(spool)


@pytest.mark.posix
def test_a_spool_that_cannot_be_written_raises_a_store_error(folder: Path) -> None:
    with pytest.raises(StoreUnavailable):
        Spool(folder / "nowhere")
    with Spool(folder) as spool, Path("/dev/full").open("wb") as full:
        os.dup2(full.fileno(), spool.fileno())
        with pytest.raises(StoreFull):
            spool.write(b"abc")


@pytest.mark.slow
def test_only_the_json_rpc_members_of_a_very_large_object_are_parsed() -> None:
    many = {f"key {number}": number for number in range(100_000)}
    answer = parse(orjson.dumps({"id": 1, "result": {**many, "content": []}}))
    assert answer["id"] == 1
    assert isinstance(answer["result"], LazyJSON)
    assert parse(orjson.dumps({**many, "id": 1, "result": {}}))["id"] == 1


def test_a_message_with_undecodable_names_is_parsed_only_if_it_is_json() -> None:
    assert parse(rb'{"\ud800":1,"id":7,"method":"x"}')["id"] == 7
    assert parse(rb'{"\ud800":1,"id":7,"method":"x","params":NaN}') is None
    assert parse(rb'{"\ud800":1,"id":7,"method":"x","params":{"a":NaN}}') is None


def test_an_unparsed_value_whose_key_is_repeated_is_gone() -> None:
    large = b"1" * 100
    assert parse_lazy(b'{"a": %s, "b": [%s], "a": 1}' % (large, large), max_string_bytes=10)["a"] == 1
    assert parse_lazy(b'{"a": %s, "a": 1}' % large) == {"a": 1}


@given(values)
def test_a_value_becomes_objects_with_integers_of_any_size(document: Any) -> None:
    value = [document, 2**70, "\ud800"]
    assert as_lazy(json.dumps(value).encode()).to_object() == value
