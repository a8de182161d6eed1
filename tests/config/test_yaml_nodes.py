"""YAML: values, and their positions."""

import sys
from typing import Any

import pytest
import yaml
from forebay import InvalidArgument
from forebay.config.nodes import Node
from forebay.config.yaml_nodes import parse_yaml
from hypothesis import given
from hypothesis import strategies as st
from yaml_texts import yaml_documents

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text(max_size=4), VALUES, min_size=1, max_size=4)


def check_positions(text: str, node: Node) -> None:
    if not node.is_block:
        assert yaml.safe_load(text[node.start : node.end]) == node.to_python()
    for inner in node.value if isinstance(node.value, list) else ():
        check_positions(text, inner)
    for key, member in node.value.items() if isinstance(node.value, dict) else ():
        assert yaml.safe_load(text[member.start : member.key_end]) == key
        assert not text[: member.end].endswith(("\n", "\r"))
        check_positions(text, member.node)


@pytest.mark.slow
@given(st.data())
def test_values_are_those_of_pyyaml_and_where_they_are_said_to_be(data: st.DataObject) -> None:
    value: dict[str, Any] = data.draw(OBJECTS)
    text = data.draw(yaml_documents(value))
    root = parse_yaml(text)
    assert root.to_python() == value
    check_positions(text, root)


def test_kinds_of_values() -> None:
    text = "a: !secret x\nb: 2001-01-01\nc:\nd: |\n  x\n  y\n1: yes\n"
    assert parse_yaml(text).to_python() == {
        "a": "x",
        "b": yaml.safe_load("2001-01-01"),
        "c": None,
        "d": "x\ny\n",
        "1": True,
    }
    assert parse_yaml("").value is None


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ("a: 1\nb: 2\na: 3", "line 3 has a second a"),
        ("a: &x 1\nb: *x", "line 1 has an anchor with an alias"),
        ("a: [", "line 1: expected the node content"),
        ("? [a]\n: 1", "line 1 has a key that is no text"),
        ("a: 1\n---\nb: 2", "line 2: but found another document"),
        ("a: \x01", "special characters are not allowed"),
        ("a: " + "[" * 5000, "nested too deep"),
    ],
)
def test_what_is_wrong_is_named(wrong: str, expected: str) -> None:
    with pytest.raises(InvalidArgument, match=expected):
        parse_yaml(wrong)


def test_without_pyyaml_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(InvalidArgument, match="needs PyYAML, the extra yaml of forebay"):
        parse_yaml("a: 1")
