"""`replace_values` changes the values at some paths of a message, and no other byte."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from forebay.errors import InvalidArgument, InvalidJSON
from forebay.wire import messages
from forebay.wire.framing import Message, Spool
from forebay.wire.messages import replace_values
from hypothesis import given
from hypothesis import strategies as st
from texts import nasty_text

PATHS = [("id",), ("params", "name"), ("params", "_meta", "progressToken")]

spaces = st.sampled_from(["", "", " ", "\t \r"])
leaves = st.one_of(
    st.none(), st.integers(-(1 << 70), 1 << 70), st.floats(allow_nan=False), nasty_text, st.lists(nasty_text)
)
names = st.sampled_from(["id", "params", "name", "_meta", "progressToken", "x"]) | nasty_text
members = st.recursive(
    st.lists(st.tuples(names, leaves), max_size=4).map(tuple),
    lambda inner: st.lists(st.tuples(names, leaves | inner), max_size=4).map(tuple),
    max_leaves=12,
)
"""Objects as tuples of members, whose names may be repeated."""


def render(
    value: Any, space: str, is_ascii: bool, values: Mapping[tuple[str, ...], bytes], path: tuple[str, ...] = ()
) -> bytes:
    """Write an object with other values at some paths: the naive twin of `replace_values`."""
    if path in values:
        return values[path]
    gap = space.encode()
    if not isinstance(value, tuple):
        return json.dumps(value, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    written = [
        render(key, space, is_ascii, {}) + gap + b":" + gap + render(member, space, is_ascii, values, (*path, key))
        for key, member in value
    ]
    return b"{" + gap + (gap + b"," + gap).join(written) + gap + b"}"


def find_paths(value: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    pairs = value if isinstance(value, tuple) else ()
    return {path}.union(*(find_paths(member, (*path, key)) for key, member in pairs))


def read(message: Message) -> bytes:
    return b"".join(message.chunks()) if isinstance(message, Spool) else bytes(message)


@given(members, spaces, st.booleans(), st.booleans(), st.sets(st.sampled_from(PATHS)))
def test_values_are_replaced_and_all_other_bytes_stay(
    tmp_path_factory: pytest.TempPathFactory,
    message: Any,
    space: str,
    is_ascii: bool,
    is_spooled: bool,
    paths: set[tuple[str, ...]],
) -> None:
    data = render(message, space, is_ascii, {})
    raw: Message = data
    if is_spooled:
        raw = Spool(tmp_path_factory.getbasetemp())
        raw.write(data)
    values = {path: json.dumps(number).encode() for number, path in enumerate(sorted(paths))}
    if paths - find_paths(message):
        with pytest.raises(InvalidArgument, match="has no member"):
            replace_values(raw, values)
    else:
        assert read(replace_values(raw, values)) == render(message, space, is_ascii, values)


@given(members, spaces, st.sampled_from([(), (("n", 1),), (("n", 1), ("m", ()))]), st.booleans())
def test_members_are_added_to_an_object(
    tmp_path_factory: pytest.TempPathFactory, inner: Any, space: str, added: Any, is_spooled: bool
) -> None:
    data = render((("id", 1), ("x", inner)), space, False, {})
    expected = render((("id", 7), ("x", (*added, *inner))), "", False, {})
    raw: Message = data
    if is_spooled:
        raw = Spool(tmp_path_factory.getbasetemp())
        raw.write(data)
    if added:
        members = render(added, "", False, {})[1:-1]
        changed = read(replace_values(raw, {("id",): b"7"}, {("x",): members}))
        assert parse_pairs(changed) == parse_pairs(expected)
        assert data.partition(b'"x"')[2].partition(b"{")[2] in changed


def parse_pairs(data: bytes) -> Any:
    """Return a document with its objects as lists of members, because names may be repeated."""
    return json.loads(data.decode("utf-8", "surrogatepass"), object_pairs_hook=lambda pairs: ("object", pairs))


def test_members_cannot_be_added_to_other_values() -> None:
    for value in (b"[1]", b'"{"', b"null", b"1"):
        with pytest.raises(InvalidArgument, match="objects only"):
            replace_values(b'{"x": %b}' % value, {}, {("x",): b'"a":1'})


def test_repeated_and_escaped_names_are_all_replaced() -> None:
    raw = rb'{"id":1, "params":{"name":"a","n\u0061me":{"name":2}},"params":[],"i\u0064" : "1" }'
    replaced = replace_values(raw, {("id",): b"7", ("params", "name"): b'"x"'})
    assert replaced == rb'{"id":7, "params":{"name":"x","n\u0061me":"x"},"params":[],"i\u0064" : 7 }'
    assert replace_values(bytearray(raw), {}) == raw


def test_missing_members_and_incomplete_messages_are_errors() -> None:
    raw = b'{"id":1,"params":{"arguments":{"name":"x"}}}'
    with pytest.raises(InvalidArgument, match=r"no member params\.name; replace only what it has"):
        replace_values(raw, {("id",): b"7", ("params", "name"): b'"x"'})
    for end in range(1, len(raw)):
        with pytest.raises(InvalidJSON):
            replace_values(raw[:end], {("id",): b"7"})


def test_a_large_spooled_message_gets_a_spool_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_MAX_MEMORY_BYTES", 1000)
    with Spool(tmp_path) as spool:
        spool.write(b'{"id":1,"result":"' + b"x" * 2000 + b'"}')
        replaced = replace_values(spool, {("id",): b"12"})
    assert isinstance(replaced, Spool)
    assert read(replaced) == b'{"id":12,"result":"' + b"x" * 2000 + b'"}'
    replaced.close()
