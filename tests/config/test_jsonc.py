"""JSON with comments: values, and their positions."""

import json
from typing import Any

import pytest
from forebay import InvalidArgument
from forebay.config.jsonc import parse_jsonc
from forebay.config.nodes import Node, apply_edits
from hypothesis import given
from hypothesis import strategies as st
from jsonc_texts import SPACES, documents

pytestmark = pytest.mark.slow

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(st.data())
def test_values_are_those_of_json(data: st.DataObject) -> None:
    value = data.draw(VALUES)
    text = data.draw(SPACES) + data.draw(documents(value)) + data.draw(SPACES)
    assert parse_jsonc(text).to_python() == value


def check_positions(text: str, node: Node) -> None:
    assert parse_jsonc(text[node.start : node.end]).to_python() == node.to_python()
    if isinstance(node.value, list):
        for inner in node.value:
            check_positions(text, inner)
    if isinstance(node.value, dict):
        for key, member in node.value.items():
            assert json.loads(text[member.start : member.key_end]) == key
            check_positions(text, member.node)


@given(st.data())
def test_every_value_is_where_it_is_said_to_be(data: st.DataObject) -> None:
    text = data.draw(documents(data.draw(VALUES)))
    check_positions(text, parse_jsonc(text))


@given(VALUES)
def test_plain_json_is_read_as_python_reads_it(value: Any) -> None:
    text = json.dumps(value, indent=2)
    assert parse_jsonc(text).to_python() == json.loads(text)


def test_cut_anywhere_it_is_refused() -> None:
    text = '{"a": [1, -2.5e3, true, null, "x\\u00e9\\"", // c\n {}], /* d */ "b": {"c": "é",},}'
    assert parse_jsonc(text).to_python() == {"a": [1, -2500.0, True, None, 'xé"', {}], "b": {"c": "é"}}
    for cut in range(len(text)):
        with pytest.raises(InvalidArgument, match=r"line \d+ has"):
            parse_jsonc(text[:cut])


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ('{"a": 1,\n "a": 2}', 2),
        ("{'a': 1}", 1),
        ("[1 2]", 1),
        ("[,]", 1),
        ("[1,,]", 1),
        ('{"a" 1}', 1),
        ("\n\n[01]", 3),
        ('["\n"]', 1),
        ('["\\x"]', 1),
        ("[1] 2", 1),
        ("[" * 5000, 1),
        ("[" + "9" * 5000 + "]", 1),
        ("/* no end", 1),
    ],
)
def test_what_is_wrong_is_named_with_its_line(wrong: str, line: int) -> None:
    with pytest.raises(InvalidArgument, match=f"^line {line} has"):
        parse_jsonc(wrong)


def test_a_mark_at_the_start_is_no_part_of_the_value() -> None:
    assert parse_jsonc("\ufeff[1]").to_python() == [1]


@given(
    st.text(max_size=20), st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.text(max_size=3)), max_size=4)
)
def test_edits_are_those_of_slices(text: str, candidates: list[tuple[int, int, str]]) -> None:
    edits, at = [], -1
    for first, second, replacement in sorted(candidates):
        start, end = min(first, second), min(max(first, second), len(text))
        if at < start <= end:
            edits.append((start, end, replacement))
            at = end
    naive = text
    for start, end, replacement in reversed(edits):
        naive = naive[:start] + replacement + naive[end:]
    assert apply_edits(text, edits) == naive
