"""An export of some fields: nested in JSON, columns in CSV."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forebay.errors import InvalidArgument, PathNotFound
from forebay.store import Store, open_store
from forebay.store.projection import Projection
from hypothesis import example, given
from hypothesis import strategies as st

ORDERS: list[dict[str, Any]] = [
    {
        "id": number,
        "user": {"name": f"Ann, {number}", "city": None if number % 2 else "Bonn"},
        "lines": [{"sku": f"A-{number}", "n": 1}, {"sku": "B", "n": 2}],
        "total": 1.5,
    }
    for number in range(5000)
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with open_store(tmp_path_factory.mktemp("exports") / "store", sweep_interval=0) as store:
        yield store


@pytest.fixture(scope="module")
def handle(store: Store) -> str:
    return store.put({"orders": ORDERS}).output_handle


def export(store: Store, handle: str, **options: Any) -> str:
    with store.open_export(handle, **options) as opened:
        return b"".join(opened.chunks).decode()


def read_rows(text: str) -> list[list[str]]:
    return [*csv.reader(io.StringIO(text, newline=""))]


def test_columns_are_in_the_order_of_the_fields(store: Store, handle: str) -> None:
    header, *rows = read_rows(export(store, handle, format="csv", fields=["user.name", "id", "/user/city"]))
    assert header == ["user.name", "id", "/user/city"]
    assert rows == [[order["user"]["name"], str(order["id"]), order["user"]["city"] or ""] for order in ORDERS]


def test_a_field_inside_of_a_list_is_json(store: Store, handle: str) -> None:
    rows = read_rows(export(store, handle, format="csv", fields=["lines.sku", "lines"], where={"id": 7}))
    assert rows[0] == ["lines.sku", "lines"]
    assert [json.loads(cell) for cell in rows[1]] == [[{"sku": "A-7"}, {"sku": "B"}], ORDERS[7]["lines"]]


def test_json_keeps_the_nesting(store: Store, handle: str) -> None:
    wanted = [{"id": order["id"], "user": {"name": order["user"]["name"]}} for order in ORDERS]
    assert json.loads(export(store, handle, fields=["id", "user.name"])) == wanted
    lines = export(store, handle, format="ndjson", fields=["id", "user.name"], where={"id": {"<": 2}}).splitlines()
    assert [json.loads(line) for line in lines] == wanted[:2]


def test_entries_of_a_map_keep_their_keys_and_rows_their_columns(store: Store) -> None:
    users = store.put({f"u{number}": {"name": "x", "n": number} for number in range(30)}).output_handle
    assert read_rows(export(store, users, format="csv", fields=["n"]))[:3] == [["_key", "n"], ["u0", "0"], ["u1", "1"]]
    table = store.put("a.b,c\n1,2\n", mime_type="text/csv").output_handle
    assert export(store, table, fields=["c", "a.b"]) == "c,a.b\n2,1\n"
    assert json.loads(export(store, table, format="json", fields=["a.b"])) == [{"a.b": "1"}]


def test_numbers_keep_their_digits_and_empty_texts_differ_from_nulls(store: Store) -> None:
    payload = store.put(b'[{"n": 12345678901234567890.10, "a": "", "b": null}, {"n": 1E400}]').output_handle
    assert (
        export(store, payload, format="csv", fields=["n", "a", "b"]) == 'n,a,b\n12345678901234567890.10,"",\n1E400,,\n'
    )


def test_parquet_has_the_fields(store: Store, handle: str, tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "orders.parquet"
    with store.open_export(handle, format="parquet", fields=["id", "user.name"]) as opened:
        path.write_bytes(b"".join(opened.chunks))
    rows = duckdb.connect().execute("FROM read_parquet(?) LIMIT 2", [str(path)])
    assert [column[0] for column in rows.description or ()] == ["id", "user"]
    assert rows.fetchall() == [(number, {"name": f"Ann, {number}"}) for number in range(2)]


def test_errors_name_the_next_step(store: Store, handle: str) -> None:
    with pytest.raises(PathNotFound, match="name keys of an item"):
        export(store, handle, fields=["nope"])
    with pytest.raises(InvalidArgument, match="fields is empty"):
        export(store, handle, fields=[])
    with pytest.raises(InvalidArgument, match="name the columns in the statement"):
        export(store, handle, fields=["id"], sql="SELECT 1")
    with pytest.raises(InvalidArgument, match="such as"):
        export(store, handle, fields="id")


# A naive version: objects of Python.

names = st.sampled_from(["a", "b", "c.d", "e/f", "g\\"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
paths = st.lists(names, min_size=1, max_size=3)


def find_naively(value: Any, path: list[str]) -> Any:
    """Return the value at a path; a list on the way is reduced to the path."""
    if not path:
        return value
    if isinstance(value, list):
        return [reduce_naively(item, path) for item in value]
    return find_naively(value.get(path[0]), path[1:]) if isinstance(value, dict) else None


def reduce_naively(value: Any, path: list[str]) -> Any:
    if not path:
        return value
    if isinstance(value, list):
        return [reduce_naively(item, path) for item in value]
    if not isinstance(value, dict):
        return None
    if path[0] not in value:
        return {}
    inner = value[path[0]]
    if len(path) > 1 and not isinstance(inner, dict | list):
        return {}
    return {path[0]: reduce_naively(inner, path[1:])}


def write_field(path: list[str]) -> str:
    return ".".join(key.replace("\\", "\\\\").replace(".", "\\.") for key in path)


@given(st.lists(st.dictionaries(names, values, max_size=4), max_size=4), st.lists(paths, min_size=1, max_size=3))
@example([{"a": {"b": 1}}], [["a"], ["a", "b"]])
@example([{"a": [{"b": 1, "c.d": 2}, 3]}], [["a", "b"]])
def test_flat_rows_equal_those_of_a_naive_version(items: list[dict[str, Any]], wanted: list[list[str]]) -> None:
    fields = [write_field(path) for path in wanted]
    projection = Projection(fields, fields)
    flat = json.loads(projection.flatten(json.dumps(items).encode()))
    assert flat == [
        {field: find_naively(item, path) for field, path in zip(fields, wanted, strict=True)} for item in items
    ]
