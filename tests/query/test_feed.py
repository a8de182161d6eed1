"""Tables of items in DuckDB: every value comes out as Python's `json` reads it, whatever the items are like."""

import json
import os
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pytest
from forebay import Store
from forebay.errors import InvalidArgument, InvalidFormat
from forebay.query.feed import Paths, Table, read_schema, write_table
from forebay.query.names import find_paths
from forebay.system.workers import create_memory_file, get_file_path
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import store_at


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store_at(tmp_path_factory.mktemp("store")) as opened:
        yield opened


def load(
    store: Store, payload: str | bytes, paths: Paths | None = None, mime_type: str = "application/json"
) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Return the types of the columns and the rows of a payload's table, through DuckDB."""
    handle = store.put(payload, mime_type=mime_type).output_handle
    file = create_memory_file()
    try:
        with store.open_view(handle) as view:
            table = write_table(view, paths, file)
        assert table.size_bytes == os.fstat(file).st_size
        with duckdb.connect(config={"threads": 1}) as connection:
            connection.execute(f"CREATE TABLE items AS {table.select_from(get_file_path(file))}")
            rows = list(select_all(connection))
        assert table.rows == len(rows)
        return get_types(table), rows
    finally:
        os.close(file)
        store.delete(handle)


def get_types(table: Table) -> dict[str, str]:
    return {column.name: column.type for column in table.columns}


def select_all(connection: duckdb.DuckDBPyConnection) -> Iterator[dict[str, Any]]:
    result = connection.execute("FROM items")
    columns = [(column[0], column[1]) for column in result.description]
    for row in result.fetchall():
        yield {name: decode(value, kind) for (name, kind), value in zip(columns, row, strict=True)}


def decode(value: Any, kind: Any) -> Any:
    """Return a value with the JSON in it parsed."""
    if value is None:
        return None
    if str(kind) == "JSON":
        return parse(value)
    if kind.id == "list":
        return [decode(item, kind.child) for item in value]
    if kind.id == "struct":
        return {name: decode(value[name], child) for name, child in kind.children}
    return value


def parse(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


def is_double(number: Decimal) -> bool:
    """Return whether a float, written with as many digits, is this number."""
    digits = len(number.as_tuple().digits)
    return bool(Decimal(f"{float(number):.{digits - 1}e}") == number)


def is_equal(got: Any, expected: Any) -> bool:
    """Return whether a value of DuckDB is what Python reads. Of a struct, a missing value is null."""
    if isinstance(expected, dict) and isinstance(got, dict):
        expected = {replace_surrogates(key): value for key, value in expected.items()}
        return all(is_equal(got.get(key), expected.get(key)) for key in {*got, *expected})
    if isinstance(expected, list) and isinstance(got, list):
        return len(got) == len(expected) and all(map(is_equal, got, expected))
    if isinstance(expected, str):
        return bool(got == replace_surrogates(expected))
    if isinstance(expected, Decimal) and isinstance(got, int | float | Decimal) and not isinstance(got, bool):
        return Decimal(got) == expected or (float(got) == float(expected) and is_double(expected))
    if isinstance(expected, int) and not isinstance(expected, bool):
        return not isinstance(got, bool) and isinstance(got, int | float | Decimal) and Decimal(got) == expected
    return got is expected


def replace_surrogates(text: str) -> str:
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def name_columns(items: list[Any]) -> dict[str | None, str]:
    """Return the name of each key's column, in the order of the keys; `None` stands for the items themselves."""
    keys = dict.fromkeys(key for item in items for key in (list(item) if isinstance(item, dict) else [None]))
    taken = {replace_surrogates(key).lower() for key in keys if key is not None} | {"value"}
    names: dict[str | None, str] = {}
    for key in keys:
        name = "value" if key is None else "_" if key == "" else replace_surrogates(key).replace("\0", "\ufffd")
        number, numbered = 1, name
        while numbered.lower() in [other.lower() for other in names.values()] or (
            number > 1 and numbered.lower() in taken
        ):
            number += 1
            numbered = f"{name}_{number}"
        names[key] = numbered
    return names


def check(store: Store, texts: list[str], payload: str) -> None:
    """Compare the table of a payload with its items, each given as JSON."""
    items = [parse(text) for text in texts]
    types, rows = load(store, payload)
    names = name_columns(items)
    assert list(types) == (list(names.values()) or ["value"])
    assert len(rows) == len(items)
    for item, row in zip(items, rows, strict=True):
        for key, name in names.items():
            is_object = isinstance(item, dict)
            expected = (item.get(key) if is_object else None) if key is not None else None if is_object else item
            assert is_equal(row[name], expected), (name, types[name], row[name], expected)


NUMBERS = [
    *("0", "-0", "1", "-7", "9007199254740993", "9223372036854775807", "-9223372036854775808"),
    *("9223372036854775808", "18446744073709551616", "99999999999999999999999999999999999999", "1" + "0" * 60),
    *("0.5", "-0.0", "1e3", "1E-3", "0.1", "-65.613616999999977", "1234567890123456.78", "0.12345678901234567890"),
    *("1e400", "-1e-400", "5e-324", "1.7976931348623157e308", "3.0", "0e5", "123456789.123456789e-5"),
]
TEXTS = [
    *('""', '"a"', '"1"', '"true"', '"2020-01-01"', '"NaN"', '"null"', r'"\ud800"', r'"x\udc00\ud800y"', '"😀"'),
    *(r'"\ud83d\ude00"', r'"\u0000"', r'"a\u0000b\n\"\\"', '"é漢"', r'"\/"'),
]
KEYS = [
    *('"a"', '"A"', '"b"', '"name"', '"Name"', '"name_2"', '"value"', '""', '"_"', r'"\u0061"', r'"x\"y"', '"it\'s"'),
    *('"order id"', '"é"', '"É"', r'"\ud800"', r'"\u0000"', '"select"', '"0"', '"1"', r'"\\"'),
]
scalars = st.sampled_from([*NUMBERS, *TEXTS, "true", "false", "null"])
spaces = st.sampled_from(["", "", " ", "\n", "\r\n\t"])


def arrays(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(lambda items, space: f"[{space}{f',{space}'.join(items)}]", st.lists(values, max_size=4), spaces)


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    members = st.lists(st.tuples(st.sampled_from(KEYS), values), max_size=5)
    return st.builds(
        lambda members, space: f"{{{space}{f',{space}'.join(f'{key}{space}:{value}' for key, value in members)}}}",
        members,
        spaces,
    )


nested = st.recursive(scalars, lambda values: arrays(values) | objects(values), max_leaves=8)
alike = st.sampled_from([st.sampled_from(NUMBERS), st.sampled_from(TEXTS), arrays(st.sampled_from(NUMBERS)), nested])
items = st.one_of(st.lists(objects(nested) | nested, max_size=8), alike.flatmap(lambda one: st.lists(objects(one))))


@given(items)
@settings(max_examples=150)
def test_a_table_holds_what_python_reads(store: Store, texts: list[str]) -> None:
    check(store, texts, f"[{', '.join(texts)}]")


@given(st.lists(objects(nested), min_size=2, max_size=8))
@settings(max_examples=30)
def test_lines_of_json_are_items_too(store: Store, texts: list[str]) -> None:
    texts = [re.sub(r"[\r\n\t]", "", text) for text in texts]
    check(store, texts, "\n".join(texts))


MEMBER_STATEMENTS = [
    "SELECT x.a FROM items",
    "SELECT X.B, items.x.name FROM items",
    "SELECT x.a.b, x.b.a.name FROM items",
    'SELECT t.x."", "x"."É" FROM items AS t',
    "SELECT x.a, x.a.a, y.b FROM items",
    "SELECT x.a, y FROM items",
    "SELECT x.a.b.a.b.a.b.a.b.a.b.a FROM items",
]
members = st.one_of(nested, objects(nested), objects(objects(scalars)), objects(arrays(objects(scalars))))


@given(st.lists(members, min_size=1, max_size=5), st.sampled_from(MEMBER_STATEMENTS))
@settings(max_examples=300)
def test_members_that_are_not_named_change_nothing(store: Store, values: list[str], sql: str) -> None:
    payload = ", ".join(f'{{"x": {value}, "y": {other}}}' for value, other in zip(values, values[::-1], strict=True))
    handle = store.put(f"[{payload}]", mime_type="application/json").output_handle
    results: list[Any] = []
    for paths in (find_paths(sql), None):
        file = create_memory_file()
        with store.open_view(handle) as view, duckdb.connect(config={"threads": 1}) as connection:
            table = write_table(view, paths, file)
            connection.execute(f"CREATE TABLE items AS {table.select_from(get_file_path(file))}")
            try:
                result = connection.execute(sql)
                results.append(([(name, str(kind)) for name, kind, *_ in result.description], result.fetchall()))
            except duckdb.Error as error:
                results.append((type(error), str(error)))
        os.close(file)
    store.delete(handle)
    # A NaN is not equal to itself.
    assert repr(results[0]) == repr(results[1])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "null", "-3"], "BIGINT"),
        (["1", "9223372036854775808"], "HUGEINT"),
        (["1", "0.5"], "DOUBLE"),
        (["0.5", "9007199254740993"], "DECIMAL(17,1)"),
        (["1234567890123456.78", "1"], "DECIMAL(18,2)"),
        (["1" + "0" * 60], "JSON"),
        (["0.5", str(2**127 - 1)], "JSON"),
        (["true", "false"], "BOOLEAN"),
        (["true", "1"], "JSON"),
        (['"a"', "1"], "JSON"),
        (['"2020-01-01"'], "VARCHAR"),
        (["null"], "VARCHAR"),
        (["[1, 2]", "[]", "[0.5]"], "DOUBLE[]"),
        (["[[1], [null]]"], "BIGINT[][]"),
        (['{"x": 1}', '{"y": [{"z": true}]}'], 'STRUCT("x" BIGINT, "y" STRUCT("z" BOOLEAN)[])'),
        (['{"x": 1, "X": 2}'], "JSON"),
        (["{}"], "JSON"),
        (['{"": 1}'], "JSON"),
        ([json.dumps({f"k{number}": 1 for number in range(300)})], "JSON"),
        (["[0.12345678901234567890]"], "JSON"),
    ],
)
def test_the_type_comes_from_every_value(store: Store, values: list[str], expected: str) -> None:
    # The unusual value, if there is one, stands behind more items than a sample would have.
    count = 30_000 if len(values) > 1 else 100
    texts = [f'{{"x": {value}}}' for value in [*values[:1] * count, *values]]
    types, rows = load(store, f"[{','.join(texts)}]")
    assert types == {"x": expected}
    assert is_equal(rows[0]["x"], parse(values[0]))
    assert all(is_equal(row["x"], parse(value)) for row, value in zip(rows[count:], values, strict=True))


def test_only_named_fields_are_read(store: Store) -> None:
    payload = '[{"Id": 1, "name": "a", "NAME": "b", "other": {"id": 2}}, {"id": 3, "name_2": 4}, 5]'
    types, rows = load(store, payload, frozenset({("ID",), ("select",)}))
    assert types == {"Id": "BIGINT", "id_2": "BIGINT"}
    assert rows == [{"Id": 1, "id_2": None}, {"Id": None, "id_2": 3}, {"Id": None, "id_2": None}]
    types, _ = load(store, payload, frozenset({("name_3",)}))
    assert list(types) == ["name", "NAME_3"]
    assert load(store, payload, frozenset({("Value",)}))[0] == {"value": "BIGINT"}
    # Rows can be counted without any field.
    types, rows = load(store, payload, frozenset())
    assert [*types.values()] == ["VARCHAR"]
    assert rows == [dict.fromkeys(types)] * 3
    assert load(store, "[]") == ({"value": "VARCHAR"}, [])


def test_of_very_many_fields_only_those_that_were_named_are_known(store: Store) -> None:
    view_of = store.put([{"id": 1, f"k{number}": 1} for number in range(20_000)]).output_handle
    file = create_memory_file()
    try:
        with store.open_view(view_of) as view:
            table = write_table(view, frozenset({("id",), ("k1",)}), file)
    finally:
        os.close(file)
    assert table.skipped is None
    assert table.has_fields(frozenset({("id",)}))
    # Whether any item has this one is not known.
    assert not table.has_fields(frozenset({("id",), ("ghost",)}))


def test_columns_keep_their_order_and_names_in_threads(store: Store) -> None:
    texts = [json.dumps({f"k{number % 7}": number, "text": "x" * 200}) for number in range(30_000)]
    check(store, texts, f"[{','.join(texts)}]")


def test_deep_and_huge_values_are_kept(store: Store) -> None:
    texts = [f'{{"x": {"[" * depth}1{"]" * depth}, "y": {depth}}}' for depth in (10, 60, 140, 400)]
    check(store, texts, f"[{','.join(texts)}]")
    large = json.dumps({"x": "é\n" * 10_000_000, "y": 1})
    assert load(store, f"[{large}, {large}]") == ({"x": "VARCHAR", "y": "BIGINT"}, [json.loads(large)] * 2)


def test_cells_are_numbers_where_all_are(store: Store) -> None:
    payload = 'id,price,code,name,empty\n1,2.50,007,"a""b",\n2,,12,,\n3,1e3,x,3\n'
    types, rows = load(store, payload, mime_type="text/csv")
    assert types == {"id": "BIGINT", "price": "DOUBLE", "code": "VARCHAR", "name": "VARCHAR", "empty": "VARCHAR"}
    assert rows == [
        {"id": 1, "price": 2.5, "code": "007", "name": 'a"b', "empty": ""},
        {"id": 2, "price": None, "code": "12", "name": "", "empty": ""},
        {"id": 3, "price": 1000.0, "code": "x", "name": "3", "empty": None},
    ]
    types, rows = load(store, "a,b\n123456789012345678.25,1\n,99999999999999999999\n", mime_type="text/csv")
    assert types == {"a": "DECIMAL(20,2)", "b": "HUGEINT"}
    assert rows == [{"a": Decimal("123456789012345678.25"), "b": 1}, {"a": None, "b": 99999999999999999999}]


def test_the_schema_has_all_fields(store: Store) -> None:
    handle = store.put('[{"a": 1}, {"b": {"c": 0.12345678901234567890}}]', mime_type="application/json").output_handle
    with store.open_view(handle) as view:
        assert {column.name: column.type for column in read_schema(view)} == {"a": "BIGINT", "b": "JSON"}


def test_what_has_no_table_is_an_error(store: Store) -> None:
    handle = store.put("plain text").output_handle
    with store.open_view(handle) as view, pytest.raises(InvalidFormat, match="no items"):
        read_schema(view)
    many = json.dumps([{f"k{number}": 1} for number in range(1001)])
    with pytest.raises(InvalidArgument, match="name the fields"):
        load(store, many)
    assert load(store, many, frozenset({("k1000",)}))[0] == {"k1000": "BIGINT"}


def test_entries_of_a_map_have_their_key(store: Store) -> None:
    entries = {f"k{number}": {"n": number, "s": [str(number)]} for number in range(100)}
    types, rows = load(store, json.dumps({"plugins": entries}))
    assert types == {"_key": "VARCHAR", "n": "BIGINT", "s": "VARCHAR[]"}
    assert rows == [{"_key": key, **value} for key, value in entries.items()]
