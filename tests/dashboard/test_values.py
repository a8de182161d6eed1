"""JSON values as HTML keep the digits of numbers."""

import json
from decimal import Decimal
from typing import Any

import pytest
from forebay.dashboard.values import dump_value, make_cell, parse_exact
from hypothesis import given
from hypothesis import strategies as st

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def read(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


@given(values)
def test_a_dumped_value_is_the_same_json(value: Any) -> None:
    text = json.dumps(value)
    for indent in (None, ""):
        assert read(dump_value(parse_exact(text), indent)) == read(text)


@pytest.mark.parametrize("number", ["12345678901234567890123", "1.10", "-0.0", "1E400", "9007199254740993"])
def test_numbers_keep_their_digits(number: str) -> None:
    assert dump_value(parse_exact(f"[{number}]")) == f"[{number}]"
    assert make_cell(parse_exact(number)) == f'<td class="fb-numeric">{number}</td>'


def test_cells_are_cut_and_escaped() -> None:
    assert make_cell("<b>") == "<td>&lt;b&gt;</td>"
    assert make_cell(None) == '<td class="fb-null">null</td>'
    assert make_cell(True) == '<td class="fb-literal">true</td>'
    assert make_cell("x" * 161) == f"<td>{'x' * 160}…</td>"
    assert make_cell({"<": [1]}) == '<td class="fb-nested">{&quot;&lt;&quot;: [1]}</td>'


def test_a_long_object_can_be_opened() -> None:
    cell = make_cell({"<b>": ["y" * 60, 1]})
    assert cell.startswith('<td class="fb-nested"><details><summary>{&quot;&lt;b&gt;&quot;: [&quot;yyy')
    assert "…</summary>" in cell
    assert cell.count("y" * 60) == 1
    assert cell.endswith("1\n  ]\n}</pre></details></td>")
    deep = json.loads("[" * 90 + "1" + "]" * 90)
    assert len(make_cell(deep)) < 500


def test_objects_are_indented() -> None:
    assert dump_value({"a": [1, {}], "b": {}}, "") == '{\n  "a": [\n    1,\n    {}\n  ],\n  "b": {}\n}'
