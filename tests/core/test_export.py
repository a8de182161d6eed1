"""`to_ndjson`, `csv_columns`, `to_csv` and `name_rows`, compared with plain Python."""

import csv
import io
import json
from typing import Any

import pytest
from forebay import InvalidArgument, InvalidJSON
from forebay._core import csv_columns, name_rows, to_csv, to_ndjson
from hypothesis import given
from hypothesis import strategies as st

texts = st.sampled_from(["", "x", 'a "b"', "a,b", "é\n", "\r", "=1+1", " "])
scalars = st.none() | st.booleans() | st.integers() | texts
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))
objects = st.lists(st.dictionaries(texts, values, max_size=4), max_size=6)


def to_cell(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.slow
@given(objects, st.sampled_from([None, 1]))
def test_csv_reads_back_as_the_items(items: list[dict[str, Any]], indent: int | None) -> None:
    document = json.dumps(items, indent=indent, separators=(",", ":"), ensure_ascii=False)
    columns = csv_columns(document, 100)
    assert columns == list(dict.fromkeys(key for item in items for key in item))
    rows = list(csv.reader(io.StringIO(to_csv(document, columns).decode(), newline="")))
    # A row without cells is an empty text, because readers skip empty lines.
    assert rows == [[to_cell(item.get(name)) for name in columns] or [""] for item in items]


@pytest.mark.slow
@given(st.lists(values, max_size=6), st.sampled_from([None, 2]))
def test_ndjson_reads_back_as_the_items(items: list[Any], indent: int | None) -> None:
    lines = to_ndjson(json.dumps(items, indent=indent)).decode().split("\n")
    assert lines.pop() == ""
    assert [json.loads(line) for line in lines] == items


@pytest.mark.slow
@given(st.lists(st.lists(values, min_size=2, max_size=2), max_size=5))
def test_rows_get_the_names_of_their_columns(rows: list[list[Any]]) -> None:
    items = json.loads(name_rows(json.dumps(rows), ["a", 'é"'], 1 << 20))
    assert items == [{"a": first, 'é"': second} for first, second in rows]


def test_errors() -> None:
    with pytest.raises(InvalidArgument, match="more than 1 fields"):
        csv_columns('[{"a": 1, "b": 2}]', 1)
    for wrong in ("", "1", "[1", '{"a": 1}'):
        with pytest.raises(InvalidJSON):
            to_ndjson(wrong)
        with pytest.raises(InvalidJSON):
            to_csv(wrong, ["a"])
    with pytest.raises(InvalidArgument, match="more than 8 bytes"):
        name_rows("[[1]]", ["a"], 8)
    for names in ([], ["a", "b"]):
        with pytest.raises(InvalidJSON):
            name_rows("[[1]]", names, 99)
