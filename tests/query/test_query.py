"""`Store.query`: tables, results within their budget, and errors that name the next step."""

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from forebay import HandleNotFound, InvalidArgument, InvalidFormat, MissingExtra, QueryFailed, Store, open_store
from forebay.query import duckdb_module
from forebay.store.payload import escaped_size
from stores import events

pytestmark = pytest.mark.slow

ORDERS = [{"id": n, "status": "failed" if n % 3 == 0 else "paid", "total": n * 1.5} for n in range(300)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with open_store(tmp_path_factory.mktemp("query"), sweep_interval=0) as store:
        yield store


@pytest.fixture(scope="module")
def handle(store: Store) -> str:
    return store.put({"page": 1, "orders": ORDERS}).output_handle


def test_a_query_answers_a_question(store: Store, handle: str) -> None:
    page = store.query(handle, "SELECT status, count(*) AS n, sum(total) FROM items GROUP BY ALL ORDER BY n")
    assert page.columns == (
        {"name": "status", "type": "VARCHAR"},
        {"name": "n", "type": "BIGINT"},
        {"name": "sum(total)", "type": "DOUBLE"},
    )
    failed, paid = (sum(n * 1.5 for n in range(300) if (n % 3 == 0) is is_failed) for is_failed in (True, False))
    assert page.rows == [["failed", 100, failed], ["paid", 200, paid]]
    assert (page.row_count, page.truncated) == (2, False)
    answer = json.loads(page.to_json())
    assert [*answer] == ["columns", "rows", "row_count", "truncated", "ms"]
    assert answer["ms"] > 0
    assert events(store, "output_handle_fetched")[0]["format"] == "query"


@pytest.mark.parametrize("name", ["items", "orders", "ORDERS", "{handle}", '"{handle}"'])
def test_the_items_have_three_names(store: Store, handle: str, name: str) -> None:
    table = name.replace("{handle}", handle)
    assert store.query(handle, f"SELECT count(*) FROM {table}").rows == [[300]]


@pytest.mark.parametrize(
    "sql",
    [
        "FROM items LIMIT 1",
        "WITH a AS (SELECT id FROM items) SELECT min(id) FROM a",
        "DESCRIBE items",
        "SUMMARIZE items",
    ],
)
def test_every_statement_that_reads_is_allowed(store: Store, handle: str, sql: str) -> None:
    assert store.query(handle, sql).rows


@pytest.mark.parametrize("path", ["a b", 'a"b', "", "select", "ä", "a~0b~1c", "sqlite_master", "x" * 300])
def test_the_name_of_the_collection_may_be_anything(store: Store, path: str) -> None:
    key = path.replace("~1", "/").replace("~0", "~")
    handle = store.put({key: [{"id": 1}] * 50}).output_handle
    assert store.query(handle, "SELECT count(*) FROM items").rows == [[50]]
    if path in ("a b", "select", "ä", "a~0b~1c"):
        assert store.query(handle, f'SELECT count(*) FROM "{key}"').rows == [[50]]


def test_two_outputs_join(store: Store, handle: str) -> None:
    other = store.put([{"order": 3, "note": "late"}, {"order": 4, "note": "lost"}]).output_handle
    page = store.query(handle, f'SELECT note, total FROM items JOIN {other} o ON o."order" = items.id ORDER BY note')
    assert page.rows == [["late", 4.5], ["lost", 6.0]]
    store.delete(other)
    # The worker that had both tables is not used again.
    with pytest.raises(QueryFailed, match=f"Table with name {other} does not exist"):
        store.query(handle, f'SELECT note, total FROM items JOIN {other} o ON o."order" = items.id ORDER BY note')


def test_an_output_of_another_principal_does_not_exist(store: Store) -> None:
    own = store.put([{"id": 1}], principal="ann").output_handle
    foreign = store.put([{"id": 2}], principal="bob").output_handle
    unknown = "oh_" + "A" * 12
    messages = []
    for name in (foreign, unknown):
        with pytest.raises(QueryFailed) as raised:
            store.query(own, f"SELECT * FROM {name}", principal="ann")
        messages.append(json.dumps(raised.value.to_dict()).replace(name, "?"))
    assert messages[0] == messages[1]
    with pytest.raises(HandleNotFound):
        store.query(foreign, "SELECT 1", principal="ann")
    assert store.query(foreign, "SELECT id FROM items", principal="bob").rows == [[2]]


VALUES: list[tuple[str, str]] = [
    ("170141183460469231731687303715884105727::HUGEINT", "170141183460469231731687303715884105727"),
    ("9007199254740993", "9007199254740993"),
    ("12345678901234567890.12::DECIMAL(38, 2)", "12345678901234567890.12"),
    ("0.10::DECIMAL(4, 2)", "0.10"),
    ("1e-9::DECIMAL(18, 10)", "0.0000000010"),
    ("0.1::DOUBLE", "0.1"),
    ("1e300::DOUBLE", "1e+300"),
    ("'NaN'::DOUBLE", '"NaN"'),
    ("'-inf'::DOUBLE", '"-Infinity"'),
    ("['inf'::DOUBLE]", '["Infinity"]'),
    ("NULL", "null"),
    ("true", "true"),
    ("DATE '2026-11-18'", '"2026-11-18"'),
    ("TIMESTAMP '2026-11-18 01:02:03.5'", '"2026-11-18T01:02:03.500000"'),
    ("TIMESTAMPTZ '2026-11-18 01:02:03+01'", '"2026-11-18T00:02:03+00:00"'),
    ("[TIMESTAMPTZ '2026-11-18 01:02:03+01']", '["2026-11-18T00:02:03+00:00"]'),
    ("TIME '01:02:03'", '"01:02:03"'),
    ("INTERVAL 90 MINUTE", '"01:30:00"'),
    ("'\\x00\\xFF'::BLOB", '"AP8="'),
    ("'00000000-0000-0000-0000-00000000002a'::UUID", '"00000000-0000-0000-0000-00000000002a"'),
    ("'a\"b' || chr(10) || 'ä' || chr(0)", '"a\\"b\\nä\\u0000"'),
    ("{'a': 1, 'b c': [1, NULL]}", '{"a":1,"b c":[1,null]}'),
    ("MAP {'x': 1, 'y': NULL}", '{"x":1,"y":null}'),
    ("MAP {1: DATE '2026-01-01'}", '{"1":"2026-01-01"}'),
    ("MAP {[1]: 2}", '{"key":[[1]],"value":[2]}'),
    ("[1, 2]::INTEGER[2]", "[1,2]"),
    ("row(1, 'a')", '[1,"a"]'),
    ("'a'::ENUM ('a', 'b')", '"a"'),
    ("union_value(n := 1.5::DECIMAL(2, 1))", "1.5"),
    ("""'{"a": [1.50, 12345678901234567890123]}'::JSON""", '{"a": [1.50, 12345678901234567890123]}'),
    ("""('[1,' || chr(10) || '2]')::JSON""", "[1, 2]"),
    ("""{'j': '"x"'::JSON}""", '{"j":"x"}'),
    ("""'{"a": NaN}'::JSON""", '"{\\"a\\": NaN}"'),
    ("""NULL::JSON""", "null"),
    ("99999999999999999999999999999999999999999999::BIGNUM", "99999999999999999999999999999999999999999999"),
]


@pytest.mark.parametrize(("expression", "expected"), VALUES)
def test_values_are_exact(store: Store, handle: str, expression: str, expected: str) -> None:
    page = store.query(handle, f"SELECT {expression} AS v")
    assert page.content == f"[[{expected}]]".encode()
    assert json.loads(page.content, parse_float=Decimal)


@pytest.mark.parametrize("escape_levels", [0, 1, 2])
@pytest.mark.parametrize("is_ascii", [False, True])
@pytest.mark.parametrize("text", ["id", "'\"\\' || id", "'äöü€' || id", "repeat('\"', id)"])
def test_a_result_fits_its_budget_on_the_wire(
    store: Store, handle: str, text: str, escape_levels: int, is_ascii: bool
) -> None:
    everything = store.query(handle, f"SELECT {text} AS v, id FROM items ORDER BY id", max_bytes=1 << 20).rows
    for max_bytes in (1536, 2000, 5000, 40_000):
        page = store.query(
            handle,
            f"SELECT {text} AS v, id FROM items ORDER BY id",
            max_bytes=max_bytes,
            escape_levels=escape_levels,
            is_ascii=is_ascii,
        )
        assert escaped_size(page.to_json(), escape_levels, is_ascii=is_ascii) <= max_bytes
        assert page.rows == everything[: len(page.rows)]
        assert page.truncated == (len(page.rows) < 300)
        assert page.row_count == 300
        assert ("hint" in page.to_dict()) == page.truncated


def test_rows_that_are_too_many_to_count_are_not_counted(store: Store, handle: str) -> None:
    page = store.query(handle, "SELECT i FROM range(1000000000000) t(i)", max_bytes=1000)
    assert (page.row_count, page.truncated) == (None, True)
    assert page.rows[:2] == [[0], [1]]


@pytest.mark.parametrize("escape_levels", [0, 2])
def test_a_row_that_is_too_large_is_an_error_with_a_way_out(store: Store, handle: str, escape_levels: int) -> None:
    sql = "SELECT id, repeat('\"', 1500) AS long FROM items"
    with pytest.raises(QueryFailed, match=r"first row alone .* left\("):
        store.query(handle, sql, max_bytes=2000, escape_levels=escape_levels)
    with pytest.raises(QueryFailed, match="the columns alone"):
        store.query(handle, "SELECT " + ", ".join(f"1 AS column_{n}" for n in range(300)), max_bytes=2000)


def test_an_error_brings_the_schema_and_a_statement_that_works(store: Store, handle: str) -> None:
    with pytest.raises(QueryFailed) as raised:
        store.query(handle, "SELECT stauts, count(*) FROM items GROUP BY stauts")
    error: Any = raised.value.to_dict()["error"]
    assert error["code"] == "query_failed"
    assert 'Referenced column "stauts" not found' in error["message"]
    assert error["tables"] == {"items": "id BIGINT, status VARCHAR, total DOUBLE"}
    assert error["example"] == 'SELECT "status", count(*) FROM items GROUP BY "status"'
    assert store.query(handle, error["example"]).row_count == 2


@pytest.mark.parametrize(
    "sql",
    [
        "SELEC 1",
        "SELECT * FROM itms",
        "SELECT 'x'::INTEGER",
        "SELECT 1; SELECT 2",
        "SELECT id) FROM items",
        "SELECT stauts --" + "x" * 1000,
        "",
    ],
)
def test_the_example_of_an_error_works(store: Store, handle: str, sql: str) -> None:
    with pytest.raises(QueryFailed) as raised:
        store.query(handle, sql)
    assert raised.value.example is not None
    assert store.query(handle, raised.value.example).rows


def test_arguments_are_checked(store: Store, handle: str) -> None:
    with pytest.raises(InvalidArgument, match="sql must be a text"):
        store.query(handle, 1)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="surrogate"):
        store.query(handle, "SELECT '\ud800'")
    with pytest.raises(InvalidArgument, match="more than 65536 bytes"):
        store.query(handle, "SELECT '" + "ä" * 40_000 + "'")
    handles = [store.put([{"id": n}]).output_handle for n in range(8)]
    with pytest.raises(InvalidArgument, match="at most 8 handles"):
        store.query(handle, "SELECT 1 FROM items, " + ", ".join(handles))
    for timeout in (0, -1, True, "1", 1e9, float("nan")):
        with pytest.raises(InvalidArgument, match="timeout"):
            store.query(handle, "SELECT 1", timeout=timeout)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        store.query(handle, "SELECT 1", max_bytes=10)


@pytest.mark.parametrize("payload", ["just text\n", b"\0\1\2", {"a": 1}])
def test_a_payload_without_items_cannot_be_queried(store: Store, payload: Any) -> None:
    handle = store.put(payload).output_handle
    with pytest.raises(InvalidFormat, match="no items to query"):
        store.query(handle, "SELECT 1")


async def _query(store: Store, handle: str) -> list[list[Any]]:
    return (await store.query_async(handle, "SELECT max(id) FROM items")).rows


def test_there_is_an_async_version(store: Store, handle: str) -> None:
    import asyncio

    assert asyncio.run(_query(store, handle)) == [[299]]


def test_without_duckdb_the_error_says_what_to_install(
    store: Store, handle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duckdb_module, "find_duckdb", lambda: None)
    with pytest.raises(MissingExtra, match=r"forebay\[sql\]"):
        store.query(handle, "SELECT 1")


def test_the_root_folder_of_the_store_is_not_changed(store: Store, handle: str) -> None:
    folder = store.folder
    assert folder is not None

    def list_payloads() -> list[Path]:
        return sorted(path for path in folder.rglob("*") if path.suffix == ".zst")

    before = list_payloads()
    store.query(handle, "SELECT count(*) FROM items")
    assert list_payloads() == before


@pytest.mark.parametrize(
    ("payload", "sql", "example"),
    [
        ([{"order_no": 1}], "SELECT count(*) FROM orders", "SELECT count(*) FROM items"),
        ({"users": ORDERS, "teams": [1]}, "SELECT count(*) FROM user", 'SELECT count(*) FROM "users"'),
        ([{"customer": {"name": "a"}}], "SELECT custmer.name FROM items", 'SELECT "customer".name FROM items'),
        ([{"customer": 1}], "SELECT t.custmer FROM items t", 'SELECT t."customer" FROM items t'),
    ],
)
def test_a_wrong_name_is_corrected(store: Store, payload: Any, sql: str, example: str) -> None:
    handle = store.put(payload).output_handle
    with pytest.raises(QueryFailed) as raised:
        store.query(handle, sql)
    assert raised.value.example == example
    assert store.query(handle, example).rows


def test_the_table_of_another_collection_is_not_corrected(store: Store) -> None:
    handle = store.put({"users": ORDERS, "teams": [{"id": 1}]}).output_handle
    with pytest.raises(QueryFailed, match="the table items holds the entries of /users") as raised:
        store.query(handle, "SELECT count(*) FROM teams")
    # It would be the count of something else.
    assert raised.value.example != 'SELECT count(*) FROM "items"'


def test_suggestions_are_those_of_the_whole_table(store: Store, handle: str) -> None:
    with pytest.raises(QueryFailed) as raised:
        store.query(handle, "SELECT nope FROM items")
    assert "Candidate" not in str(raised.value)
    assert raised.value.tables == {"items": "id BIGINT, status VARCHAR, total DOUBLE"}


def test_a_handle_that_is_unknown_is_named(store: Store, handle: str) -> None:
    with pytest.raises(QueryFailed, match="oh_AAAAAAAAAAAA is unknown or has expired") as raised:
        store.query(handle, "SELECT * FROM items JOIN oh_AAAAAAAAAAAA USING (id)")
    assert "Did you mean" not in str(raised.value)


def test_files_are_no_tables(store: Store, handle: str) -> None:
    with pytest.raises(QueryFailed, match="files cannot be read; the table items holds the entries of /orders"):
        store.query(handle, "SELECT * FROM 'customers.json'")


def test_an_error_about_very_many_columns_names_the_wrong_one(store: Store) -> None:
    handle = store.put([{f"k{number}": 1 for number in range(1500)}] * 2).output_handle
    with pytest.raises(QueryFailed, match='"nope" not found') as raised:
        store.query(handle, "SELECT nope FROM items")
    assert raised.value.tables == {"items": "too many columns to list"}


@pytest.mark.parametrize("values", [[1, "two", 10, 9], [5, 10, 9, Decimal("1e400")]])
def test_a_column_of_json_brings_a_hint(store: Store, values: list[Any]) -> None:
    items = ", ".join(f'{{"v": {json.dumps(value) if isinstance(value, str) else value}}}' for value in values)
    handle = store.put(f"[{items}]".encode()).output_handle
    page = store.query(handle, "SELECT max(v) FROM items")
    assert page.hint is not None
    assert json.loads(page.to_json())["hint"] == page.hint
    assert 'TRY_CAST("v" AS DOUBLE)' in page.hint
    assert store.query(handle, 'SELECT count(TRY_CAST("v" AS DOUBLE)) FROM items').hint is None
    assert store.query(handle, "SELECT count(*) FROM items").hint is None
    with pytest.raises(QueryFailed, match=re.escape("\"v\"->>'$' for a text")):
        store.query(handle, "SELECT * FROM items WHERE v = 'two'")


def test_items_that_are_a_small_part_are_named(store: Store) -> None:
    handle = store.put({"note": "x" * 5000, "rows": [{"id": 1}, {"id": 2}]}).output_handle
    page = store.query(handle, "SELECT count(*) FROM items")
    assert (page.rows, page.hint) == ([[2]], "the items are those of /rows, a small part of the output")


@pytest.mark.parametrize(
    "numbers",
    [
        ["9007199254740993", "19.99", "0.30000000000000004"],
        ["36028797018963968", "0.5"],
        ["18446744073709551616", "1.1"],
        ["1000000000000000000000000", "0.25"],
    ],
)
def test_numbers_keep_their_digits_beside_others(store: Store, numbers: list[str]) -> None:
    for values in (numbers, [f"[{number}]" for number in numbers], [f'{{"a": {number}}}' for number in numbers]):
        items = ", ".join(f'{{"n": {value}}}' for value in values)
        handle = store.put(f"[{items}]".encode()).output_handle
        rows = json.loads(store.query(handle, "SELECT n FROM items").content, parse_float=Decimal)
        assert [row for (row,) in rows] == [json.loads(value, parse_float=Decimal) for value in values]


def test_a_field_that_no_item_has_is_an_error(store: Store, handle: str) -> None:
    for name in ("value", "nope"):
        with pytest.raises(QueryFailed, match=f'"{name}" not found'):
            store.query(handle, f"SELECT count(*) FROM items WHERE {name} IS NULL")
    empty = store.put([{}, {}]).output_handle
    assert store.query(empty, "SELECT * FROM items").rows == [[None], [None]]


def test_a_statement_may_begin_with_semicolons(store: Store, handle: str) -> None:
    assert store.query(handle, " ;\n; SELECT count(*) FROM items;").rows == [[300]]


def test_a_hint_takes_no_room_from_the_rows(store: Store) -> None:
    name = "n" * 100
    handle = store.put([{name: 1}, {name: "x"}]).output_handle
    sql = f"SELECT max({name}) AS m, repeat('y', 200) AS y FROM items"
    hint = store.query(handle, sql).hint
    assert hint is not None
    page = store.query(handle, sql, max_bytes=600)
    assert (page.hint, len(page.rows)) == (None, 1)
