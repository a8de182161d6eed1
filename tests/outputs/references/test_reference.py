"""Parsing references, escaping them, and detecting misspelled ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from forebay import InvalidArgument
from forebay.outputs.references.reference import (
    ByteRange,
    LineRange,
    Reference,
    _is_near_match,
    contains_references,
    parse_reference,
    unescape_key,
)
from forebay.store.payload import CHUNK_BYTES
from forebay.wire.framing import Spool
from forebay.wire.lazy_json import as_lazy, parse_lazy
from hypothesis import given
from hypothesis import strategies as st
from reference_values import escape, escape_key, marked


@pytest.mark.parametrize(
    ("value", "reference"),
    [
        ({"$file": "a"}, Reference("$file", "a", None, False, ByteRange())),
        ({"$file": "a", "encoding": "base64"}, Reference("$file", "a", None, True, ByteRange())),
        ({"$file": "a", "encoding": "utf-8"}, Reference("$file", "a", None, False, ByteRange())),
        ({"$file": "a", "encoding": None, "lines": None}, Reference("$file", "a", None, False, ByteRange())),
        ({"$file": "a", "offset": 3}, Reference("$file", "a", None, False, ByteRange(3))),
        ({"$file": "a", "offset": 3, "length": 0}, Reference("$file", "a", None, False, ByteRange(3, 0))),
        ({"$handle": "b", "lines": [2, 5]}, Reference("$handle", "b", None, False, LineRange(2, 5))),
        ({"$handle": "b", "path": "/a/0"}, Reference("$handle", "b", "/a/0", False, ByteRange())),
        ({"file": "a"}, None),
        ({"$filter": "a"}, None),
        ({"$$file": "a"}, None),
        ({}, None),
    ],
)
def test_parse_reference(value: dict[str, Any], reference: Reference | None) -> None:
    assert parse_reference(value) == reference


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"$file": "a", "size": 1}, 'write "$$file" for that key'),
        ({"$file": "a", "path": "/a"}, "has no 'path'"),
        ({"$file": "a", "$handle": "b"}, "has no '$handle'"),
        ({"$file": "a", "$$file": "b"}, "has no '$$file'"),
        ({"$handle": {"$file": "a"}}, 'write "$$handle" for that key'),
        ({"$file": None}, "a text as its $file, not None"),
        ({"$file": ["a"]}, "a text as its $file"),
        ({"$file": "\ud800"}, "surrogate"),
        ({"$file": "a", "encoding": "latin-1"}, "utf-8 or base64, not 'latin-1'"),
        ({"$file": "a", "encoding": ["base64"]}, "utf-8 or base64"),
        ({"$file": "a", "offset": -1}, "offset must be at least 0"),
        ({"$file": "a", "length": True}, "length must be a whole number"),
        ({"$file": "a", "length": 1.0}, "length must be a whole number"),
        ({"$file": "a", "lines": 3}, "lines are [from, to]"),
        ({"$file": "a", "lines": [1, 2, 3]}, "lines are [from, to]"),
        ({"$file": "a", "lines": [1, "2"]}, "each of the lines must be a whole number"),
        ({"$file": "a", "lines": [3, 2]}, "swap them"),
        ({"$file": "a", "lines": [0, 1], "offset": 0}, "leave one of them out"),
        ({"$handle": "b", "path": "a"}, "/users/0/name"),
        ({"$handle": "b", "path": 3}, "path must be a text"),
    ],
)
def test_a_malformed_reference_is_refused_with_a_hint(value: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_reference(value)
    assert message in str(caught.value)


def test_error_messages_are_short() -> None:
    for value in ({"$file": "a", "k" * 10**6: 1}, {"$file": ["a" * 10**6]}, {"$file": "a", "encoding": "b" * 10**6}):
        with pytest.raises(InvalidArgument) as caught:
            parse_reference(value)
        assert len(str(caught.value)) < 400


@pytest.mark.slow
@given(marked)
def test_unescaping_undoes_escaping(value: Any) -> None:
    def unescape(inner: Any) -> Any:
        if isinstance(inner, list):
            return [unescape(member) for member in inner]
        if not isinstance(inner, dict):
            return inner
        assert parse_reference(inner) is None
        return {unescape_key(key): unescape(member) for key, member in inner.items()}

    assert unescape(escape(value)) == value


@pytest.mark.slow
@given(marked)
def test_contains_references_equals_a_naive_search(value: Any) -> None:
    def naive_contains(inner: Any) -> bool:
        members = inner.values() if isinstance(inner, dict) else inner if isinstance(inner, list) else ()
        own = isinstance(inner, dict) and any(escape_key(key) != key for key in inner)
        return own or any(map(naive_contains, members))

    assert contains_references(value) == naive_contains(value)
    unparsed = as_lazy(json.dumps(value).encode())
    assert contains_references([unparsed]) == naive_contains(value)


def test_a_long_statement_of_a_query_may_be_unparsed() -> None:
    sql = f"SELECT '{'é' * 5000}'"
    reference = parse_reference(parse_lazy(json.dumps({"$query": {"handle": "oh_x", "sql": sql}}).encode()))
    assert reference is not None
    assert (reference.target, reference.sql) == ("oh_x", sql)


def test_a_key_is_found_wherever_unparsed_json_is_cut(tmp_path: Path) -> None:
    for shift in range(30):
        with Spool(tmp_path) as spool:
            spool.write(b'{"text": "' + b"x" * (CHUNK_BYTES - shift) + b'", "$\\u0066ile": "a"}')
            assert contains_references(as_lazy(spool))
    # A quote in a string looks like the start of a key.
    assert not contains_references(as_lazy(rb'["\"$file\": 1", "$\x": 1]'))


@pytest.mark.slow
def test_deep_values_are_searched() -> None:
    deep: Any = {"$file": "a"}
    plain: Any = 1
    for _ in range(100_000):
        deep, plain = [deep], [plain]
    assert contains_references(deep)
    assert not contains_references(plain)


@pytest.mark.parametrize(
    ("key", "valid_key"),
    [
        *((key, "$file") for key in ("$flie", "$File", "$FILE", "$fil", "$files", "$ifle", "$fille", "$fule")),
        *((key, "$handle") for key in ("$hanlde", "$handel", "$andle", "$handles", "$Handle", "$output_handle")),
    ],
)
def test_a_misspelled_key_is_refused_with_the_right_one(key: str, valid_key: str) -> None:
    for options in ({}, {"encoding": "base64"}, {"lines": [0, 1]}):
        value = {key: "x", **options}
        assert contains_references([{"a": value}])
        with pytest.raises(InvalidArgument) as caught:
            parse_reference(value)
        assert str(caught.value) == (
            f'there is no reference "{key}"; did you mean "{valid_key}"? To pass the object as it is, write "${key}"'
        )
    # Escaped, the object passes.
    assert contains_references({f"${key}": "x"})
    assert parse_reference({f"${key}": "x"}) is None
    assert unescape_key(f"${key}") == key
    assert unescape_key(f"$${key}") == f"${key}"


@pytest.mark.parametrize(
    "value",
    [
        {"$ref": "#/x"},
        {"$filter": "a"},
        {"$match": "a"},
        {"$first": "a"},
        {"$": "a"},
        {"file": "a"},
        {"flie": "a"},
        {"$flie": {"a": 1}},
        {"$flie": 1},
        {"$flie": "a", "name": "b"},
        {"$profile": "a"},
    ],
)
def test_other_objects_are_not_references(value: dict[str, object]) -> None:
    assert parse_reference(value) is None


@given(st.text("filehand", max_size=8), st.sampled_from(["file", "handle"]))
def test_a_near_match_is_one_typo(name: str, expected: str) -> None:
    """The naive twin generates all names with one typo."""
    letters = "filehand"
    cuts = [(expected[:at], expected[at:]) for at in range(len(expected) + 1)]
    typos = {expected} | {before + after[1:] for before, after in cuts}
    typos |= {before + letter + after[skip:] for before, after in cuts for letter in letters for skip in (0, 1)}
    typos |= {before + after[1] + after[0] + after[2:] for before, after in cuts if len(after) > 1}
    assert _is_near_match(name, expected) == (name in typos)
    for typo in typos:
        assert _is_near_match(typo, expected)
