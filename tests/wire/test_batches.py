"""Batches: split into messages, in memory or in a spool, without copying large parts into memory."""

import json
from pathlib import Path

import pytest
from forebay.errors import InvalidArgument
from forebay.wire.framing import LostMessage, Message, Spool
from forebay.wire.lazy_json import LazyJSON, dump, dump_size
from forebay.wire.messages import dump_line, dump_message, make_id_key, parse, split_batch
from hypothesis import given
from hypothesis import strategies as st

VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)


def spooled(folder: Path, data: bytes) -> Spool:
    spool = Spool(folder)
    spool.write(data)
    return spool


def read(message: Message | LostMessage) -> bytes:
    assert not isinstance(message, LostMessage)
    return b"".join(message.chunks()) if isinstance(message, Spool) else bytes(message)


@given(st.lists(VALUES, max_size=4), st.booleans())
def test_a_batch_is_split_as_json_is_parsed(values: list[object], is_large: bool) -> None:
    values = [*values, *([{"text": ["x" * 900] * 1500}] if is_large else [])]
    batch = split_batch(parse(json.dumps(values).encode()))
    assert batch is not None
    assert [json.loads(dump(inner)) for inner in batch] == values


@pytest.mark.parametrize("raw", [b"{}", b"1", b"[1", b'{"a": [1]}'])
def test_other_messages_are_no_batch(raw: bytes) -> None:
    assert split_batch(parse(raw)) is None


@pytest.mark.parametrize("item", [b"{}", b'{"x": "%s"}' % (b"x" * 200)])
def test_a_batch_has_a_maximum_number_of_messages(item: bytes) -> None:
    assert len(split_batch(parse(b"[" + b",".join([item] * 10_000) + b"]")) or []) == 10_000
    with pytest.raises(InvalidArgument, match="at most 10,000 messages; send"):
        split_batch(parse(b"[" + b",".join([item] * 10_001) + b"]"))


def test_only_large_messages_of_a_spooled_batch_are_spooled(tmp_path: Path) -> None:
    items = [{"id": 1, "result": ["x" * 900] * 2000}, {"id": 2, "result": "y" * 3_000_000}, {"id": 3, "result": {}}]
    batch = split_batch(parse(spooled(tmp_path, json.dumps(items).encode())))
    assert batch is not None
    lines = [dump_line(inner) for inner in batch]
    assert [isinstance(line, Spool) for line in lines] == [True, True, False]
    assert [json.loads(read(line)) for line in lines] == items
    assert [dump_size(inner) for inner in batch] == [len(read(line)) for line in lines]


def test_the_size_of_a_message_is_that_of_its_bytes(tmp_path: Path) -> None:
    message = parse(spooled(tmp_path, b'{"id": 1, "params": {"a": "%s", "b": "%s"}}' % (b"x" * 5000, b"y" * 5000)))
    changed = {**message, "id": "other"}
    assert dump_size(changed) == len(dump(changed)) == len(read(dump_message(changed)))


def test_a_message_that_cannot_be_spooled_is_lost(tmp_path: Path) -> None:
    spool = spooled(tmp_path, b'{"id": 7, "result": "%s"}' % (b"x" * 2_000_000))
    message = parse(spool)
    spool.folder = str(tmp_path / "missing")
    line = dump_line(message)
    assert isinstance(line, LostMessage)
    assert (line.size, line.head_tail.find_id()) == (len(spool) - 3, 7)
    with pytest.raises(type(line.error)):
        dump_message(message)


@pytest.mark.parametrize("length", [1, 1000, 1023, 1024, 5000, 300_000])
def test_a_long_id_has_a_short_key(length: int, tmp_path: Path) -> None:
    text = "é" * length
    keys = {make_id_key(text)}
    for raw in (json.dumps({"id": text}).encode(), json.dumps({"id": text}, ensure_ascii=False).encode()):
        keys |= {make_id_key(parse(raw)["id"]), make_id_key(parse(spooled(tmp_path, raw))["id"])}
    (key,) = keys
    assert len(key) <= 1024
    assert key != make_id_key(text + "x")


@pytest.mark.parametrize("raw", [b"7" * 5000, b'{"a": "%s"}' % (b"x" * 9000), b"[%s]" % (b"1," * 9000 + b"1")])
def test_an_odd_long_id_has_a_short_key(raw: bytes) -> None:
    request_id = parse(b'{"id": %s}' % raw)["id"]
    assert len(make_id_key(request_id)) <= 1024
    assert make_id_key(request_id) == make_id_key(parse(b'{"method": 1, "id": %s}' % raw)["id"])


def test_a_large_batch_stays_unparsed(tmp_path: Path) -> None:
    raw = b"[" + b",".join([b'{"id": 1, "result": {}}'] * 60_000) + b"]"
    for source in (raw, spooled(tmp_path, raw)):
        assert isinstance(parse(source), LazyJSON)


@given(st.integers(-(1 << 80), 1 << 80) | st.integers(-50, 50), st.integers(0, 6), st.integers(0, 6))
def test_numbers_have_the_same_key_however_they_are_written(number: int, zeros: int, shift: int) -> None:
    ways = [b"%d" % number, b"%d.%s" % (number, b"0" * (zeros + 1)), b"%de-%d" % (number * 10**shift, shift)]
    keys = {make_id_key(parse(b'{"id": %s}' % way)["id"]) for way in ways}
    assert keys == {make_id_key(number)}
    assert make_id_key(str(number)) not in keys
    assert make_id_key(parse(b'{"id": %d.5}' % number)["id"]) not in keys
