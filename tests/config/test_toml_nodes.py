"""TOML: values, and their positions."""

import tomllib
from typing import Any

import pytest
from forebay import InvalidArgument
from forebay.config.nodes import Node
from forebay.config.toml_nodes import parse_toml
from hypothesis import given
from hypothesis import strategies as st
from toml_texts import toml_documents

VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)
TABLES = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)


def check_positions(text: str, node: Node) -> None:
    if not node.is_block:
        assert tomllib.loads(f"x = {text[node.start : node.end]}")["x"] == node.to_python()
    for inner in node.value if isinstance(node.value, list) else ():
        check_positions(text, inner)
    for key, member in node.value.items() if isinstance(node.value, dict) else ():
        if member.start >= 0:
            assert tomllib.loads(f"{text[member.start : member.key_end]} = 1") == {key: 1}
        check_positions(text, member.node)


@pytest.mark.slow
@given(st.data())
def test_values_are_those_of_tomllib_and_where_they_are_said_to_be(data: st.DataObject) -> None:
    value = data.draw(TABLES)
    text = data.draw(toml_documents(value))
    root = parse_toml(text)
    assert root.to_python() == value
    check_positions(text, root)


DOCUMENT = """# c
a.b = 1
"c d" = 'x' # y
s = \"\"\"a\"\"\"\"
t = '''
'\\'''''
f = [nan, -inf, 1_000, 0xff, 1e3]
d = [1979-05-27, 07:32:00, 1979-05-27 07:32:00, 1979-05-27T07:32:00Z]
[x.y]
z = { k = [ { "q" = 1 }, ], l.m = true }
[x]
w = 1
[[n]]
[[n]]
o = 2
[n.p]
"""


def test_every_kind_of_value_is_understood() -> None:
    assert repr(parse_toml(DOCUMENT).to_python()) == repr(tomllib.loads(DOCUMENT))
    for text in (DOCUMENT.replace("\n", "\r\n"), "\ufeff" + DOCUMENT):
        assert repr(parse_toml(text).to_python()) == repr(tomllib.loads(text.lstrip("\ufeff")))


def test_cut_anywhere_it_is_what_tomllib_says() -> None:
    refused = 0
    for cut in range(len(DOCUMENT)):
        text = DOCUMENT[:cut]
        try:
            expected: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            refused += 1
            with pytest.raises(InvalidArgument):
                parse_toml(text)
        else:
            assert repr(parse_toml(text).to_python()) == repr(expected)
    assert 0 < refused < len(DOCUMENT)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ("a = 1\na = 2\nb = 3", "at line 2"),
        ("a = ", "at end of document"),
        ("[a]\nb = 1\n[a]", "line 3"),
        ("a = " + "[" * 5000, "nested too deep"),
    ],
)
def test_what_is_wrong_is_named(wrong: str, expected: str) -> None:
    with pytest.raises(InvalidArgument, match=expected):
        parse_toml(wrong)
